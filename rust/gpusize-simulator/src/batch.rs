//! The sequences of one GPU that run. What every iteration asks of all of them is kept side by side, apart from the rest of them: there are
//! tens of millions of iterations in an hour of a large cluster.

use std::cmp::Reverse;

use super::gpu::{Payload, Sequence};

/// A sequence in the batch.
#[derive(Debug)]
pub struct Running<P> {
    /// The request.
    pub sequence: Sequence<P>,
    /// When it joined the batch.
    pub admitted_ns: i64,
    /// When it has its first token; -1 before it has joined a batch for it.
    pub first_token_ns: i64,
    /// The GPU's finished iterations when that of its first token began; less the tokens that it had made when it came.
    pub(super) first_iteration: i64,
    /// Tokens that it had made when it had to leave, or when its prompt had been computed elsewhere.
    pub(super) made: u32,
    /// Tokens to compute before the next one can be made.
    pub(super) to_prefill: u32,
    pub(super) blocks: u32,
}

impl<P> Running<P> {
    /// One whose prompt is about to be computed, without blocks.
    pub(super) fn waiting(sequence: Sequence<P>, now_ns: i64) -> Self {
        Self {
            to_prefill: sequence.prompt_tokens.saturating_sub(sequence.cached_tokens),
            sequence,
            admitted_ns: now_ns,
            first_token_ns: -1,
            first_iteration: 0,
            made: 0,
            blocks: 0,
        }
    }

    pub(super) fn last_iteration(&self) -> u64 {
        (self.first_iteration + i64::from(self.sequence.output_tokens)) as u64
    }

    /// Tokens made so far, on a GPU that has finished `iterations`.
    pub(super) fn tokens(&self, iterations: u64) -> u32 {
        (iterations as i64 - self.first_iteration) as u32
    }

    /// Tokens that it holds in the last of `span` iterations more.
    pub(super) fn held(&self, iterations: u64, span: u64) -> u64 {
        u64::from(self.sequence.prompt_tokens) + u64::from(self.tokens(iterations)) + span - 1
    }
}

/// They, in order of their first tokens; in a batch that runs to its end, the longest answers first.
#[derive(Debug)]
pub(super) struct Batch<P> {
    running: Vec<Running<P>>,
    /// The GPU's finished iterations when each has all its tokens, in the same order.
    last: Vec<u64>,
    /// The least of these; [`u64::MAX`] of none.
    least: u64,
    /// Those among them whose cost factor is not 1.
    uneven: usize,
    /// Room for those that leave.
    gone: Vec<Running<P>>,
}

impl<P> Batch<P> {
    pub(super) fn new() -> Self {
        Self { running: Vec::new(), last: Vec::new(), least: u64::MAX, uneven: 0, gone: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn as_slice(&self) -> &[Running<P>] {
        &self.running
    }

    /// What may be changed must not be when they end, or what they cost.
    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Running<P>> {
        self.running.iter_mut()
    }

    /// Put one in at a place, which is at most the length.
    pub(super) fn insert(&mut self, place: usize, running: Running<P>) {
        let last = running.last_iteration();
        self.uneven += usize::from(is_uneven(&running));
        self.least = self.least.min(last);
        self.last.insert(place, last);
        self.running.insert(place, running);
    }

    /// The last of them.
    pub(super) fn pop(&mut self) -> Option<Running<P>> {
        let last = self.last.pop()?;
        if last == self.least {
            self.find_least();
        }
        let running = self.running.pop()?;
        self.uneven -= usize::from(is_uneven(&running));
        Some(running)
    }

    pub(super) fn sort_longest_first(&mut self) {
        self.running.sort_by_key(|running| Reverse(running.last_iteration()));
        self.last.sort_by_key(|&last| Reverse(last));
    }

    /// The sum of their cost factors.
    pub(super) fn weight(&self) -> f64 {
        if self.uneven == 0 {
            return self.running.len() as f64;
        }
        self.running.iter().map(|running| running.sequence.cost_factor).sum()
    }

    /// How many in front have tokens to make after so many iterations, in a batch that is sorted.
    pub(super) fn unfinished(&self, iterations: u64) -> usize {
        self.last.partition_point(|&last| last > iterations)
    }

    /// Iterations until the first of those that have not has all its tokens; at least 1.
    pub(super) fn until_next_has_all(&self, iterations: u64) -> u64 {
        if self.least > iterations && !self.is_empty() {
            return self.least - iterations;
        }
        let ahead = self.last.iter().filter(|&&last| last > iterations).min();
        ahead.map_or(1, |last| last - iterations)
    }

    fn find_least(&mut self) {
        self.least = self.last.iter().copied().min().unwrap_or(u64::MAX);
    }
}

impl<P: Payload> Batch<P> {
    /// Take out, in order, those that have all their tokens after so many iterations, and those that nobody waits for. With `keep_order`
    /// the others stay in order.
    pub(super) fn remove_done(&mut self, iterations: u64, keep_order: bool, each: impl FnMut(Running<P>)) {
        if !P::CANCELS && self.least > iterations {
            return;
        }
        if P::CANCELS || keep_order || self.uneven > 0 {
            self.remove(|running, last| last <= iterations || running.sequence.payload.cancelled(), each);
        } else {
            self.swap_done(iterations, each);
        }
    }

    /// The same where nobody asks who stands where, and all cost the same: nothing is moved but the last ones.
    fn swap_done(&mut self, iterations: u64, each: impl FnMut(Running<P>)) {
        let mut least = u64::MAX;
        // From the back: whoever is put in another's place has been looked at.
        for place in (0..self.last.len()).rev() {
            let last = self.last[place];
            if last > iterations {
                least = least.min(last);
            } else {
                self.last.swap_remove(place);
                self.gone.push(self.running.swap_remove(place));
            }
        }
        self.least = least;
        // As they came: that is the order in which they stood before any place was given to another.
        self.gone.sort_unstable_by_key(|running| running.sequence.index);
        self.gone.drain(..).for_each(each);
    }

    /// Take out all of them, in order.
    pub(super) fn remove_all(&mut self, each: impl FnMut(Running<P>)) {
        self.remove(|_, _| true, each);
    }

    fn remove(&mut self, gone: impl Fn(&Running<P>, u64) -> bool, mut each: impl FnMut(Running<P>)) {
        let Some(first) = (0..self.len()).find(|&place| gone(&self.running[place], self.last[place])) else { return };
        let (mut seen, mut kept) = (first, first);
        let (last, uneven) = (&mut self.last, &mut self.uneven);
        let leaves = |running: &mut Running<P>| {
            let at = last[seen];
            seen += 1;
            let leaves = gone(running, at);
            if !leaves {
                last[kept] = at;
                kept += 1;
            }
            leaves
        };
        for running in self.running.extract_if(first.., leaves) {
            *uneven -= usize::from(is_uneven(&running));
            each(running);
        }
        self.last.truncate(kept);
        self.find_least();
    }
}

fn is_uneven<P>(running: &Running<P>) -> bool {
    // Exactly 1, as where nothing is drawn: then the sum is their number.
    running.sequence.cost_factor.to_bits() != 1.0_f64.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpusize_base::draw::Draw;

    #[derive(Debug)]
    struct Nobody;

    impl Payload for Nobody {
        const CANCELS: bool = false;
    }

    fn running(index: u64, output_tokens: u32, first_iteration: i64) -> Running<Nobody> {
        let sequence = Sequence {
            index,
            arrived_ns: 0,
            prompt_tokens: 1,
            cached_tokens: 0,
            output_tokens,
            cost_factor: 1.0,
            payload: Nobody,
        };
        Running { first_iteration, ..Running::waiting(sequence, 0) }
    }

    #[test]
    fn who_is_done_leaves_and_the_next_is_known_whatever_comes_and_goes() {
        let lots = Draw::new(1, 2, 3);
        for keep_order in [false, true] {
            let (mut batch, mut model, mut now) = (Batch::new(), Vec::<(u64, u64)>::new(), 0_u64);
            for step in 0..5000 {
                let lot = lots.u64(step);
                match lot % 8 {
                    0..=3 => {
                        let one = running(step, 1 + (lot >> 8) as u32 % 40, now as i64);
                        model.push((step, one.last_iteration()));
                        batch.insert(batch.len(), one);
                    }
                    4 => {
                        let youngest = batch.pop().map(|one| one.sequence.index);
                        let gone = youngest.map(|index| model.iter().position(|each| each.0 == index).unwrap());
                        assert_eq!(gone.is_none(), model.is_empty());
                        gone.map(|place| model.remove(place));
                    }
                    _ => {
                        now += batch.until_next_has_all(now) * (lot >> 32 & 1) + (lot >> 33 & 1);
                        let mut left = Vec::new();
                        batch.remove_done(now, keep_order, |one| left.push(one.sequence.index));
                        let done: Vec<u64> = model.extract_if(.., |each| each.1 <= now).map(|each| each.0).collect();
                        assert_eq!(left, done, "step {step}");
                    }
                }
                let next =
                    model.iter().map(|each| each.1).filter(|&last| last > now).min().map_or(1, |last| last - now);
                assert_eq!((batch.len(), batch.until_next_has_all(now)), (model.len(), next), "step {step}");
            }
        }
    }
}
