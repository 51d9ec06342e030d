//! What a request will need, drawn by its index alone, so that its timing changes nothing.

use super::{ClusterConfig, Length};
use gpusize_base::draw::Draw;

/// Numbers of the draws' purposes; part of what a seed means, so never renumbered.
pub(super) mod purpose {
    pub const OUTPUT: u64 = 0x5100;
    pub const PROMPT: u64 = 0x5101;
    pub const NOISE: u64 = 0x5102;
    pub const FAULT: u64 = 0x5103;
    pub const ROUTE: u64 = 0x5104;
    // 0x5105 drew gaps between arrivals, which are the schedule's now.
    // 0x5106 draws think times, which are the schedule's too.
    pub const MIX: u64 = 0x5107;
}

/// A failure that a request will meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Answered with status 500, without service.
    Fail,
    /// Connection reset halfway through the answer.
    Reset,
    /// Answer cut short or broken in its JSON.
    MalformedJson,
    /// Answer broken in its framing, where it has any to break.
    MalformedFraming,
}

/// What one request needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// Tokens that the GPU makes for it.
    pub output_tokens: u32,
    /// Whether the request's own limit ended it.
    pub cut: bool,
    /// Factor on its share of iterations and on its prefill.
    pub cost_factor: f64,
    /// The failure it meets, if any.
    pub fault: Option<Fault>,
}

/// The draws of one configuration.
#[derive(Debug, Clone, Copy)]
pub struct ServiceDraws {
    output_tokens: Length,
    output: Draw,
    noise: Draw,
    noise_sigma: f64,
    fault: Draw,
    bounds: [f64; 3],
}

impl ServiceDraws {
    /// The draws that `config` and its seed stand for; `output_tokens` takes the place of the configured length when given.
    pub fn new(config: &ClusterConfig, output_tokens: Option<Length>) -> Self {
        let draw = |purpose| Draw::new(config.seed, 0, purpose);
        let faults = &config.faults;
        Self {
            output_tokens: output_tokens.unwrap_or(config.output_tokens),
            output: draw(purpose::OUTPUT),
            noise: draw(purpose::NOISE),
            noise_sigma: config.noise_sigma,
            fault: draw(purpose::FAULT),
            bounds: [
                faults.fail_rate,
                faults.fail_rate + faults.reset_rate,
                faults.fail_rate + faults.reset_rate + faults.malformed_rate,
            ],
        }
    }

    /// The service of request `index`. `max_tokens` cuts the answer, and with `ignore_eos` sets its length.
    pub fn draw(&self, index: u64, max_tokens: Option<u32>, ignore_eos: bool) -> Service {
        let (output_tokens, cut) = match max_tokens {
            Some(set) if ignore_eos => (set, true),
            limit => {
                let (wanted, limit) = (self.output_tokens.draw(self.output, index), limit.unwrap_or(u32::MAX));
                (wanted.min(limit), wanted > limit || ignore_eos)
            }
        };
        let fault = self.fault(index);
        Service {
            // A connection that is reset halfway needs only half of the service.
            output_tokens: if fault == Some(Fault::Reset) { output_tokens.div_ceil(2) } else { output_tokens },
            cut,
            cost_factor: self.cost_factor(index),
            fault,
        }
    }

    fn cost_factor(&self, index: u64) -> f64 {
        if self.noise_sigma == 0.0 {
            return 1.0;
        }
        let sigma = self.noise_sigma;
        (sigma * self.noise.normal(index) - sigma * sigma / 2.0).exp()
    }

    fn fault(&self, index: u64) -> Option<Fault> {
        let [fail, reset, malformed] = self.bounds;
        if malformed == 0.0 {
            return None;
        }
        let lot = self.fault.unit(index);
        if lot < fail {
            Some(Fault::Fail)
        } else if lot < reset {
            Some(Fault::Reset)
        } else if lot < f64::midpoint(reset, malformed) {
            Some(Fault::MalformedJson)
        } else if lot < malformed {
            Some(Fault::MalformedFraming)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Faults;

    #[test]
    fn limits_cut_and_ignore_eos_sets() {
        let config = ClusterConfig { output_tokens: Length::Fixed { tokens: 50 }, ..ClusterConfig::default() };
        let draws = ServiceDraws::new(&config, None);
        let tokens = |max, ignore| (draws.draw(0, max, ignore).output_tokens, draws.draw(0, max, ignore).cut);
        assert_eq!(tokens(None, false), (50, false));
        assert_eq!(tokens(Some(20), false), (20, true));
        assert_eq!(tokens(Some(80), false), (50, false));
        assert_eq!(tokens(Some(80), true), (80, true));
    }

    #[test]
    fn faults_come_at_their_rates_and_not_at_all_without() {
        let faults = Faults { fail_rate: 0.1, reset_rate: 0.2, malformed_rate: 0.3, ..Faults::default() };
        let config = ClusterConfig { faults, noise_sigma: 0.2, ..ClusterConfig::default() };
        let draws = ServiceDraws::new(&config, None);
        let all: Vec<Service> = (0..20_000).map(|index| draws.draw(index, None, false)).collect();
        let share = |fault| all.iter().filter(|service| service.fault == fault).count() as f64 / all.len() as f64;
        let expected = [
            (Some(Fault::Fail), 0.1),
            (Some(Fault::Reset), 0.2),
            (Some(Fault::MalformedJson), 0.15),
            (Some(Fault::MalformedFraming), 0.15),
            (None, 0.4),
        ];
        for (fault, rate) in expected {
            assert!((share(fault) - rate).abs() < 0.015, "{fault:?}: {}", share(fault));
        }
        let mean = all.iter().map(|service| service.cost_factor).sum::<f64>() / all.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        let calm = ServiceDraws::new(&ClusterConfig::default(), None);
        assert!((0..1000).all(|index| calm.draw(index, None, false).fault.is_none()));
    }
}
