//! What requests bring, out of tables that are handed over beside the load.

use super::service::purpose;
use super::{Plan, SimError};
use gpusize_base::draw::Draw;

/// Measured requests, one entry each in every list that is given. With a [`Plan`] that has lengths, each due time has its own; a mix is
/// drawn from, with replacement and whole: what was measured together stays together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mix<'a> {
    /// Tokens of the prompts; none: as the load draws them.
    pub prompt_tokens: Option<&'a [u32]>,
    /// Of the prompts' tokens, those that are in a cache and cost nothing; fewer than all of them. They go with `prompt_tokens` alone.
    pub cached_tokens: Option<&'a [u32]>,
    /// Tokens of the answers; none: as the load or the cluster draws them.
    pub output_tokens: Option<&'a [u32]>,
    /// Factors on a request's share of iterations and on its prefill; none: 1. Noise comes on top.
    pub cost_factors: Option<&'a [f64]>,
}

impl Mix<'_> {
    fn len(&self) -> Option<usize> {
        let tokens = self.prompt_tokens.or(self.output_tokens).map(<[u32]>::len);
        tokens.or(self.cost_factors.map(<[f64]>::len))
    }

    pub(super) fn validate(&self) -> Result<(), SimError> {
        let Some(rows) = self.len() else { return Ok(()) };
        if rows == 0 || u32::try_from(rows).is_err() {
            return Err(SimError::value("mix", format!("must have between 1 and {} rows, not {rows}", u32::MAX)));
        }
        for (field, tokens) in [("mix.prompt_tokens", self.prompt_tokens), ("mix.output_tokens", self.output_tokens)] {
            let Some(tokens) = tokens else { continue };
            same_length(field, tokens.len(), rows)?;
            if tokens.contains(&0) {
                return Err(SimError::value(field, "must be at least 1 each"));
            }
        }
        if let Some(cached) = self.cached_tokens {
            let prompts = self.prompt_tokens.unwrap_or_default();
            same_length("mix.cached_tokens", cached.len(), prompts.len())?;
            if cached.iter().zip(prompts).any(|(cached, prompt)| cached >= prompt) {
                return Err(SimError::value("mix.cached_tokens", "must be fewer than the tokens of their prompts"));
            }
        }
        let factors = self.cost_factors.unwrap_or_default();
        same_length("mix.cost_factors", self.cost_factors.map_or(rows, <[f64]>::len), rows)?;
        if let Some(bad) = factors.iter().find(|factor| !(**factor > 0.0 && **factor <= 1e6)) {
            return Err(SimError::value("mix.cost_factors", format!("must be above 0 and at most 1e6, not {bad}")));
        }
        Ok(())
    }
}

fn same_length(field: &str, found: usize, rows: usize) -> Result<(), SimError> {
    if found == rows {
        return Ok(());
    }
    Err(SimError::value(field, format!("must have as many rows as the rest of the mix ({rows}), not {found}")))
}

/// What each request brings, by its row: the plan's own, or drawn from the mix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brought<'a> {
    mix: Mix<'a>,
    /// Draws of rows; none where each request has a row of its own.
    lots: Option<Lots>,
}

impl<'a> Brought<'a> {
    pub(super) fn new(seed: u64, plan: Plan<'a>, mix: Option<Mix<'a>>) -> Self {
        let own = Mix { prompt_tokens: plan.prompt_tokens, output_tokens: plan.output_tokens, ..Mix::default() };
        let lots = mix.and_then(|mix| mix.len()).map(|rows| Lots::new(seed, rows));
        Self { mix: mix.unwrap_or(own), lots }
    }

    fn place(&self, row: usize) -> usize {
        self.lots.map_or(row, |lots| lots.place(row))
    }

    pub(super) fn prompt_tokens(&self, row: usize) -> Option<u32> {
        self.mix.prompt_tokens.map(|tokens| tokens[self.place(row)])
    }

    pub(super) fn cached_tokens(&self, row: usize) -> u32 {
        self.mix.cached_tokens.map_or(0, |tokens| tokens[self.place(row)])
    }

    pub(super) fn output_tokens(&self, row: usize) -> Option<u32> {
        self.mix.output_tokens.map(|tokens| tokens[self.place(row)])
    }

    pub(super) fn cost_factor(&self, row: usize) -> f64 {
        self.mix.cost_factors.map_or(1.0, |factors| factors[self.place(row)])
    }

    pub(super) fn mean_prompt_tokens(&self) -> Option<f64> {
        self.mix.prompt_tokens.map(mean)
    }

    pub(super) fn mean_output_tokens(&self) -> Option<f64> {
        self.mix.output_tokens.map(mean)
    }
}

fn mean(tokens: &[u32]) -> f64 {
    tokens.iter().map(|&tokens| f64::from(tokens)).sum::<f64>() / tokens.len().max(1) as f64
}

/// Rows of a table, drawn with replacement by the number of the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lots {
    draw: Draw,
    rows: usize,
}

impl Lots {
    pub(super) fn new(seed: u64, rows: usize) -> Self {
        Self { draw: Draw::new(seed, 0, purpose::MIX), rows }
    }

    pub(super) fn place(&self, row: usize) -> usize {
        (self.draw.unit(row as u64) * self.rows as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_drawn_whole_and_evenly() {
        let (prompts, outputs) = ([10, 20, 30], [1, 2, 3]);
        let mix = Mix {
            prompt_tokens: Some(&prompts),
            cached_tokens: Some(&[1, 2, 3]),
            output_tokens: Some(&outputs),
            cost_factors: Some(&[0.5, 1.0, 1.5]),
        };
        mix.validate().unwrap();
        let brought = Brought::new(1, Plan::default(), Some(mix));
        let mut counts = [0; 3];
        for row in 0..3000 {
            let output = brought.output_tokens(row).unwrap();
            assert_eq!(brought.prompt_tokens(row), Some(10 * output));
            assert_eq!(brought.cached_tokens(row), output);
            assert!((brought.cost_factor(row) - 0.5 * f64::from(output)).abs() < 1e-12);
            counts[output as usize - 1] += 1;
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        let again = Brought::new(2, Plan::default(), Some(mix));
        assert!((0..100).any(|row| again.output_tokens(row) != brought.output_tokens(row)));
    }

    #[test]
    fn mixes_that_do_not_fit_are_refused() {
        for (mix, needle) in [
            (Mix { prompt_tokens: Some(&[]), ..Mix::default() }, "mix of the simulated cluster must have between 1"),
            (Mix { output_tokens: Some(&[3, 0]), ..Mix::default() }, "mix.output_tokens"),
            (Mix { prompt_tokens: Some(&[1, 2]), output_tokens: Some(&[1]), ..Mix::default() }, "mix.output_tokens"),
            (
                Mix { prompt_tokens: Some(&[5]), cached_tokens: Some(&[5]), ..Mix::default() },
                "fewer than the tokens of their prompts",
            ),
            (Mix { output_tokens: Some(&[5]), cached_tokens: Some(&[0]), ..Mix::default() }, "mix.cached_tokens"),
            (Mix { prompt_tokens: Some(&[1]), cost_factors: Some(&[]), ..Mix::default() }, "mix.cost_factors"),
            (Mix { cost_factors: Some(&[1.0, f64::NAN]), ..Mix::default() }, "above 0 and at most 1e6, not NaN"),
        ] {
            let error = mix.validate().expect_err(needle).to_string();
            assert!(error.contains(needle), "{error}");
        }
        assert!(Mix::default().validate().is_ok());
    }
}
