//! Engines against a scheduler written anew, the plain way: iteration by iteration over lists, without stretches, heaps or sums.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::VecDeque;

use bench_worlds::draws::{Draws, Purpose};
use bench_worlds::engine::{Engine, EngineServer};
use bench_worlds::server::{Job, Server, Told};
use serde_json::json;

#[derive(Debug, Clone)]
struct One {
    row: usize,
    prompt: u32,
    output: u32,
    made: u32,
    to_compute: u32,
}

struct Plain<'a> {
    config: &'a Engine,
    running: Vec<One>,
    waiting: VecDeque<One>,
    preemptions: u64,
}

impl Plain<'_> {
    /// Context and half a block for each.
    fn held(&self) -> f64 {
        let block = f64::from(self.config.block);
        self.running.iter().map(|one| f64::from(one.prompt + one.made) + block / 2.0).sum()
    }

    fn decoding(&self) -> u32 {
        self.running.iter().filter(|one| one.to_compute == 0).count() as u32
    }

    /// One iteration: its time, who has its first token, and who is done.
    fn iterate(&mut self, whole: bool) -> Option<(f64, Vec<usize>, Vec<usize>)> {
        let room = self.config.cache_tokens as f64;
        let mut sent_away = false;
        while self.running.len() > 1 && self.held() + f64::from(self.decoding()) > room {
            let mut gone = self.running.pop().unwrap();
            gone.to_compute = gone.prompt + gone.made;
            self.waiting.push_front(gone);
            self.preemptions += 1;
            sent_away = true;
        }
        let mut left = self.config.batched_tokens - if whole { 0 } else { self.decoding() };
        let mut chunks = vec![0; self.running.len()];
        for (one, chunk) in self.running.iter().zip(&mut chunks) {
            *chunk = one.to_compute.min(left);
            left -= *chunk;
        }
        while !sent_away && left > 0 && self.running.len() < self.config.sequences {
            let Some(head) = self.waiting.front() else { break };
            let needed = f64::from(head.prompt + head.made) + f64::from(self.config.block) / 2.0;
            if !self.running.is_empty() && self.held() + needed + self.config.watermark * room > room {
                break;
            }
            if whole && head.to_compute > left && chunks.iter().any(|&chunk| chunk > 0) {
                break;
            }
            chunks.push(if whole { head.to_compute } else { head.to_compute.min(left) });
            left = left.saturating_sub(*chunks.last().unwrap());
            self.running.push(self.waiting.pop_front().unwrap());
        }
        if self.running.is_empty() {
            return None;
        }
        let decodes = !whole || chunks.iter().all(|&chunk| chunk == 0);
        let (mut tokens, mut touched, mut pairs, mut read) = (0.0, 0.0, 0.0, 0.0);
        for (one, &chunk) in self.running.iter().zip(&chunks) {
            let done = f64::from(one.prompt + one.made - one.to_compute);
            if chunk > 0 {
                let chunk = f64::from(chunk);
                (tokens, touched, read) = (tokens + chunk, touched + 1.0, read + done);
                // Each token sees what is there and its own chunk up to itself.
                pairs += (1..=chunk as u32).map(|place| done + f64::from(place)).sum::<f64>();
            } else if one.to_compute == 0 && decodes {
                (tokens, touched, read) = (tokens + 1.0, touched + 1.0, read + done);
            }
        }
        let roof = &self.config.roof;
        let compute = (tokens * roof.token_flops + pairs * roof.attention_flops) / roof.flops;
        let memory = (roof.weight_bytes + read * roof.kv_bytes) / roof.bandwidth;
        let took_s = roof.overhead_s + roof.sequence_s * touched + compute.max(memory);
        let (mut first, mut done) = (Vec::new(), Vec::new());
        for (one, &chunk) in self.running.iter_mut().zip(&chunks) {
            if chunk == 0 && (one.to_compute > 0 || !decodes) {
                continue;
            }
            one.to_compute -= chunk;
            if one.to_compute == 0 {
                one.made += 1;
                if one.made == 1 {
                    first.push(one.row);
                }
                if one.made == one.output {
                    done.push(one.row);
                }
            }
        }
        self.running.retain(|one| one.made < one.output);
        Some((took_s, first, done))
    }
}

/// (first token, end) of each request, and how often one was sent away.
fn plainly(config: &Engine, jobs: &[(f64, u32, u32)], whole: bool) -> (Vec<(f64, f64)>, u64) {
    let mut plain = Plain { config, running: Vec::new(), waiting: VecDeque::new(), preemptions: 0 };
    let mut times = vec![(0.0, 0.0); jobs.len()];
    let (mut now_s, mut next) = (0.0, 0);
    loop {
        while next < jobs.len() && jobs[next].0 <= now_s {
            let (_, prompt, output) = jobs[next];
            plain.waiting.push_back(One { row: next, prompt, output, made: 0, to_compute: prompt });
            next += 1;
        }
        if let Some((took_s, first, done)) = plain.iterate(whole) {
            now_s += took_s;
            for row in first {
                times[row].0 = now_s;
            }
            for row in done {
                times[row].1 = now_s;
            }
        } else if next < jobs.len() {
            now_s = jobs[next].0;
        } else {
            return (times, plain.preemptions);
        }
    }
}

fn by_the_server(config: &Engine, jobs: &[(f64, u32, u32)]) -> (Vec<(f64, f64)>, u64) {
    let mut server = EngineServer::new(config, 1, 0);
    let mut told = Vec::new();
    for (row, &(now_s, prompt, output)) in jobs.iter().enumerate() {
        while server.next_s().is_some_and(|at_s| at_s < now_s) {
            server.step(&mut told);
        }
        server.arrive(now_s, Job { row: row as u32, prompt, output, factor: 1.0, work: 0.0 });
    }
    while server.next_s().is_some() {
        server.step(&mut told);
    }
    let mut times = vec![(0.0, 0.0); jobs.len()];
    for each in told {
        match each {
            Told::Started { .. } => {}
            Told::First { row, at_s } => times[row as usize].0 = at_s,
            Told::Done { row, at_s } => times[row as usize].1 = at_s,
        }
    }
    (times, server.preemptions())
}

#[test]
fn stretches_are_what_single_iterations_come_to() {
    let draws = Draws::new(9, Purpose::Work, 0);
    let (mut preempted, mut roomy) = (0, 0);
    for case in 0..60_u64 {
        let unit = |place: u64| draws.unit(100_000 * case + place);
        let whole = case % 3 == 0;
        let config: Engine = serde_json::from_value(json!({
            "roof": {"flops": 1e14 + 4e14 * unit(1), "bandwidth": 1e12 + 2e12 * unit(2), "weight_bytes": 1.6e10,
                "token_flops": 1.6e10, "attention_flops": 5e5, "kv_bytes": 131_072.0 * (0.2 + 4.0 * unit(3)),
                "overhead_s": 0.002, "sequence_s": 2e-5},
            "batched_tokens": 256 << (3.0 * unit(4)) as u32,
            "sequences": 4 << (5.0 * unit(5)) as u32,
            "cache_tokens": if unit(6) < 0.6 { 5000 } else { 100_000 },
            "block": 16, "watermark": 0.01, "prompts": if whole { "first" } else { "chunked" },
        }))
        .unwrap();
        config.check().unwrap();
        let gap_s = 0.05 + 0.5 * unit(7);
        let mut due_s = 0.0;
        let jobs: Vec<(f64, u32, u32)> = (0..150)
            .map(|row| {
                due_s += gap_s * draws.exp(100_000 * case + 1000 + row);
                let prompt = 1 + (1500.0 * unit(2000 + row).powi(2)) as u32;
                (due_s, prompt, 1 + (250.0 * unit(3000 + row)) as u32)
            })
            .collect();
        let (plain, found) = (plainly(&config, &jobs, whole), by_the_server(&config, &jobs));
        assert_eq!(plain.1, found.1, "case {case}: preemptions");
        for (row, (one, other)) in plain.0.iter().zip(&found.0).enumerate() {
            assert!(
                (one.0 - other.0).abs() < 1e-6 && (one.1 - other.1).abs() < 1e-6,
                "case {case}, row {row}: {one:?} {other:?}"
            );
        }
        preempted += usize::from(found.1 > 0);
        roomy += usize::from(found.1 == 0);
    }
    assert!(preempted > 10 && roomy > 10, "{preempted} {roomy}");
}
