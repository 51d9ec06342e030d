//! Engines in iterations against closed forms of the roofline, and against laws that they cannot break.
#![allow(clippy::unwrap_used, missing_docs)]

use bench_worlds::driver::{Rows, run};
use bench_worlds::engine::{Engine, EngineServer};
use bench_worlds::server::{Job, Server, Told};
use bench_worlds::spec::Request;
use serde_json::{Value, json};

/// 8 billion parameters in 16 bits on a GPU of 400 TFLOP/s and 2 TB/s, as they are reached.
fn roof() -> Value {
    json!({"flops": 4e14, "bandwidth": 2e12, "weight_bytes": 1.6e10, "token_flops": 1.6e10, "attention_flops": 5e5,
        "kv_bytes": 131_072, "overhead_s": 0.002, "sequence_s": 1e-5})
}

fn with(base: &Value, changes: &Value) -> Value {
    let mut found = base.clone();
    for (name, value) in changes.as_object().unwrap() {
        found[name] = value.clone();
    }
    found
}

fn engine(changes: &Value) -> Value {
    let base = json!({"roof": roof(), "batched_tokens": 512, "sequences": 64, "cache_tokens": 400_000, "block": 16,
        "watermark": 0.01});
    with(&base, changes)
}

fn fixed(prompt: u32, output: u32) -> Value {
    json!({"pairs": [[prompt, output]]})
}

fn mixed() -> Value {
    json!({"pairs": [[100, 200], [800, 60], [3000, 90], [40, 400], [1500, 20], [300, 1], [600, 150]]})
}

fn ask(changes: &Value, lengths: &Value, load: &Value, gpus: usize, seed: u64) -> Rows {
    let load = with(&json!({"router": "least_loaded", "requests": 3000, "warmup_requests": 300}), load);
    let world = json!({"mechanics": {"engine": engine(changes)}, "lengths": lengths});
    let request = json!({"world": world, "load": load, "gpus": gpus, "seed": seed});
    let rows = run(&serde_json::from_value::<Request>(request).unwrap()).unwrap();
    for row in 0..rows.due_ns.len() {
        let (due, first, end) = (rows.due_ns[row], rows.first_token_ns[row], rows.end_ns[row]);
        assert!(due < first && first <= end, "row {row}: {due} {first} {end}");
        assert_eq!(first == end, rows.tokens_out[row] == 1);
    }
    rows
}

fn mean(values: impl Iterator<Item = i64>) -> f64 {
    let all: Vec<i64> = values.collect();
    all.iter().sum::<i64>() as f64 / all.len() as f64 / 1e9
}

fn mean_runtime_s(rows: &Rows) -> f64 {
    mean((300..rows.due_ns.len()).map(|row| rows.end_ns[row] - rows.due_ns[row]))
}

fn rate(rows: &Rows) -> f64 {
    let mut ends = rows.end_ns.clone();
    ends.sort_unstable();
    let inner = &ends[ends.len() / 5..ends.len() * 4 / 5];
    (inner.len() - 1) as f64 / ((inner[inner.len() - 1] - inner[0]) as f64 / 1e9)
}

fn close(found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() < within, "{found} instead of {expected}");
}

/// The formula of an iteration, written out.
fn iteration_s(sequences: f64, tokens: f64, pairs: f64, read: f64) -> f64 {
    let compute = (tokens * 1.6e10 + pairs * 5e5) / 4e14;
    let memory = (1.6e10 + read * 131_072.0) / 2e12;
    0.002 + 1e-5 * sequences + compute.max(memory)
}

/// Chunks of a prompt, the iterations that decode; every one of them by the formula.
fn alone_s(prompt: u32, output: u32, budget: u32) -> (f64, f64) {
    let (mut done, mut first_s) = (0, 0.0);
    while done < prompt {
        let chunk = budget.min(prompt - done);
        let (c, d) = (f64::from(chunk), f64::from(done));
        first_s += iteration_s(1.0, c, c * (d + f64::midpoint(c, 1.0)), d);
        done += chunk;
    }
    let rest = (1..output).map(|made| iteration_s(1.0, 1.0, 0.0, f64::from(prompt + made))).sum::<f64>();
    (first_s, first_s + rest)
}

#[test]
fn a_request_alone_takes_its_chunks_and_its_iterations() {
    for (prompt, output, budget) in [(100, 50, 512), (512, 2, 512), (513, 300, 512), (8000, 200, 1024), (8192, 1, 256)]
    {
        let rows = ask(&json!({"batched_tokens": budget}), &fixed(prompt, output), &json!({"users": 1}), 1, 1);
        let (first_s, whole_s) = alone_s(prompt, output, budget);
        close(mean((0..100).map(|row| rows.first_token_ns[row] - rows.due_ns[row])), first_s, 1e-7);
        close(mean_runtime_s(&rows), whole_s, 1e-7);
    }
}

/// With prompts that cost nothing and one context for all, a full batch makes `sequences` tokens in every iteration.
#[test]
fn a_full_batch_reaches_the_roof() {
    for (sequences, kv_bytes) in [(16_u32, 0.0), (64, 131_072.0), (250, 131_072.0)] {
        let changes = json!({"sequences": sequences, "roof": with(&roof(), &json!({"kv_bytes": kv_bytes})),
            "batched_tokens": 4096});
        let rows = ask(&changes, &fixed(1, 100), &json!({"users": 3 * sequences, "requests": 20_000}), 1, 1);
        let n = f64::from(sequences);
        // Contexts are 2 to 100 tokens long, evenly; a prompt of one token is a token like others.
        let memory = (1.6e10 + n * 50.5 * kv_bytes) / 2e12;
        let step = 0.002 + 1e-5 * n + memory.max(n * 1.6e10 / 4e14);
        close(rate(&rows), n / (100.0 * step), 0.01);
    }
}

/// Where prompts are all there is, FLOP bound the rate.
#[test]
fn long_prompts_reach_the_other_roof() {
    let rows = ask(&json!({"batched_tokens": 2048}), &fixed(4096, 1), &json!({"users": 40}), 1, 1);
    let flop = 4096.0 * 1.6e10 + 5e5 * 4096.0 * 4097.0 / 2.0;
    let per_request = flop / 4e14 + 2.0 * (0.002 + 1e-5);
    close(rate(&rows), 1.0 / per_request, 0.01);
}

/// Everything at once: no request is lost, none is told twice, nothing stays behind, and what the cache held fits.
#[test]
fn whatever_happens_everybody_is_answered_once() {
    let speculative = json!({"tokens": 3, "accept": 0.6, "spread": 0.2, "draft_s": 0.001});
    let prefix = json!({"common": 64, "turn_share": 0.5, "turn_low": 0.3, "turn_high": 0.9, "evicts": true});
    let split = json!({"prefillers": 2, "decoders": 3, "link_bandwidth": 2e10, "link_s": 0.002});
    let tight = json!({"cache_tokens": 6000});
    for (name, parts) in [
        ("tight", vec![("cache_tokens", json!(6000))]),
        ("first", vec![("cache_tokens", json!(6000)), ("prompts", json!("first"))]),
        ("split", vec![("cache_tokens", json!(6000)), ("split", split)]),
        ("speculative", vec![("cache_tokens", json!(6000)), ("speculative", speculative)]),
        ("prefix", vec![("cache_tokens", json!(6000)), ("prefix", prefix)]),
    ] {
        let mut changes = tight.clone();
        for (key, value) in parts {
            changes[key] = value;
        }
        let config: Engine = serde_json::from_value(engine(&changes)).unwrap();
        config.check().unwrap();
        let mut server = EngineServer::new(&config, 3, 0);
        let mut told = Vec::new();
        for row in 0..3000_u32 {
            let now_s = f64::from(row) * 0.03;
            while server.next_s().is_some_and(|at_s| at_s <= now_s) {
                server.step(&mut told);
            }
            let job = Job { row, prompt: 70 + row * 13 % 900, output: 1 + row * 7 % 250, factor: 1.0, work: 0.0 };
            server.arrive(now_s, job);
        }
        while server.next_s().is_some() {
            server.step(&mut told);
        }
        assert!(server.is_empty(), "{name}");
        assert!(server.preemptions() > 20, "{name}: {}", server.preemptions());
        let (mut first, mut done) = (Vec::new(), Vec::new());
        for each in told {
            match each {
                Told::Started { .. } => {}
                Told::First { row, .. } => first.push(row),
                Told::Done { row, .. } => done.push(row),
            }
        }
        first.sort_unstable();
        done.sort_unstable();
        assert_eq!(first, (0..3000).collect::<Vec<u32>>(), "{name}");
        assert_eq!(done, first, "{name}");
    }
}

/// What is computed is every prompt once; with preemptions more, and with a prefix less.
#[test]
fn tokens_are_counted() {
    let computed = |changes: &Value| {
        let config: Engine = serde_json::from_value(engine(changes)).unwrap();
        let mut server = EngineServer::new(&config, 3, 0);
        let mut told = Vec::new();
        for row in 0..200 {
            server.arrive(0.0, Job { row, prompt: 400, output: 100, factor: 1.0, work: 0.0 });
        }
        while server.next_s().is_some() {
            server.step(&mut told);
        }
        (server.prompt_tokens(), server.preemptions())
    };
    assert_eq!(computed(&json!({})), (200 * 400, 0));
    assert_eq!(computed(&json!({"prompts": "first"})), (200 * 400, 0));
    // 256 of 260 common tokens are whole blocks.
    assert_eq!(computed(&json!({"prefix": {"common": 260}})), (200 * (400 - 256), 0));
    let (tokens, preemptions) = computed(&json!({"cache_tokens": 5000}));
    assert!(preemptions > 10);
    // Each is computed again with its prompt, and with less than its whole answer.
    assert!(tokens >= 200 * 400 + preemptions * 400, "{tokens}");
    assert!(tokens < 200 * 400 + preemptions * 500, "{tokens}");
}

/// Two that fit until they have grown: the younger one leaves at the step that can be worked out, and comes back after the other.
#[test]
fn the_youngest_leaves_when_the_cache_is_full() {
    let config: Engine = serde_json::from_value(engine(&json!({"cache_tokens": 1000, "watermark": 0.05}))).unwrap();
    let mut server = EngineServer::new(&config, 1, 0);
    for row in 0..2 {
        server.arrive(0.0, Job { row, prompt: 400, output: 300, factor: 1.0, work: 0.0 });
    }
    let mut told = Vec::new();
    while server.next_s().is_some() {
        server.step(&mut told);
    }
    assert_eq!(server.preemptions(), 1);
    // Each holds half a block as well, 8 tokens: 92 tokens of an answer fit to both, one more or less for who began first.
    assert!((1200 + 91..=1200 + 93).contains(&server.prompt_tokens()), "{}", server.prompt_tokens());
    let done = told.iter().filter_map(|each| if let Told::Done { row, .. } = each { Some(*row) } else { None });
    assert_eq!(done.collect::<Vec<u32>>(), [0, 1]);
}

/// Users are neither made nor lost, and no user asks before it is answered.
#[test]
fn littles_law_holds_on_the_rows() {
    let split = json!({"prefillers": 1, "decoders": 2, "link_bandwidth": 5e10, "link_s": 0.001});
    let speculative = json!({"tokens": 2, "accept": 0.7, "draft_s": 0.001});
    for changes in [
        json!({"jitter_sigma": 0.2, "speed_sigma": 0.03}),
        json!({"prompts": "first", "cache_tokens": 9000}),
        json!({"split": split}),
        json!({"speculative": speculative, "cache_tokens": 12_000}),
    ] {
        for (router, gpus) in [("least_loaded", 1), ("round_robin", 3)] {
            let load = json!({"users": 60, "think_s": 1.0, "think": "exponential", "router": router, "requests": 9000});
            let rows = ask(&changes, &mixed(), &load, gpus, 3);
            close(rate(&rows) * (mean_runtime_s(&rows) + 1.0), 60.0, 0.04);
            for user in 0..60 {
                let own: Vec<usize> = (0..rows.user.len()).filter(|&row| rows.user[row] == user).collect();
                assert!(own.windows(2).all(|pair| rows.due_ns[pair[1]] >= rows.end_ns[pair[0]]));
            }
        }
    }
}

/// With prompts first, one that arrives while others decode stops them all for its iteration; in chunks they go on.
#[test]
fn prompts_first_stop_the_answers() {
    let gap = |prompts: &str| {
        let config: Engine =
            serde_json::from_value(engine(&json!({"prompts": prompts, "batched_tokens": 4096}))).unwrap();
        let mut server = EngineServer::new(&config, 1, 0);
        let mut told = Vec::new();
        server.arrive(0.0, Job { row: 0, prompt: 10, output: 100, factor: 1.0, work: 0.0 });
        server.step(&mut told);
        server.arrive(0.3, Job { row: 1, prompt: 4000, output: 1, factor: 1.0, work: 0.0 });
        while server.next_s().is_some() {
            server.step(&mut told);
        }
        told.iter().find_map(|each| if let Told::Done { row: 0, at_s } = each { Some(*at_s) } else { None }).unwrap()
    };
    let alone = alone_s(10, 100, 512).1;
    let prompt = iteration_s(1.0, 4000.0, 4000.0 * 2000.5, 0.0);
    close(gap("first"), alone + prompt, 1e-6);
    // The iteration that has the prompt makes a token as well.
    let (both, read) = (iteration_s(2.0, 4001.0, 4000.0 * 2000.5, 40.0), iteration_s(1.0, 1.0, 0.0, 40.0));
    close(gap("chunked"), alone + both - read, 1e-4);
}

/// Prefill, the link and the decoder one after the other; and the slowest of them bounds the rate.
#[test]
fn a_split_replica_is_a_line_of_servers() {
    let split = json!({"prefillers": 2, "decoders": 1, "link_bandwidth": 1e9, "link_s": 0.01});
    let changes = json!({"split": split, "batched_tokens": 2048});
    let rows = ask(&changes, &fixed(2000, 10), &json!({"users": 1}), 1, 1);
    let (first_s, whole_s) = alone_s(2000, 10, 2048);
    let link_s = 2000.0 * 131_072.0 / 1e9;
    close(mean((0..100).map(|row| rows.first_token_ns[row] - rows.due_ns[row])), first_s, 1e-7);
    close(mean_runtime_s(&rows), whole_s + link_s + 0.01, 1e-7);
    let rows = ask(&changes, &fixed(2000, 10), &json!({"users": 30}), 1, 1);
    close(rate(&rows), 1.0 / link_s, 0.005);
    let fast = json!({"split": with(&split, &json!({"link_bandwidth": 1e12})), "batched_tokens": 2048});
    let rows = ask(&fast, &fixed(2000, 10), &json!({"users": 30}), 1, 1);
    let prompt_s = alone_s(2000, 1, 2048).0;
    // Batches of two prompts share an iteration's overhead now and then.
    assert!(rate(&rows) > 1.99 / prompt_s && rate(&rows) < 2.2 / prompt_s);
}

/// Steps that give several tokens take as many iterations fewer, each of them with the drafts and all tokens to verify.
#[test]
fn drafts_save_steps() {
    let speculative = json!({"tokens": 4, "accept": 0.7, "draft_s": 0.003});
    let rows = ask(&json!({"speculative": speculative}), &fixed(100, 401), &json!({"users": 1}), 1, 1);
    let per_token = mean((0..3000).map(|row| rows.end_ns[row] - rows.first_token_ns[row])) / 400.0;
    // The last step of an answer may give more than are wanted: about half a step.
    let step_s = 0.003 + iteration_s(1.0, 5.0, 0.0, 300.0);
    close(per_token, step_s / 2.7731, 0.01);
}

#[test]
fn jitter_and_speed_have_their_spread_and_no_bias() {
    let plain = mean_runtime_s(&ask(&json!({}), &fixed(100, 50), &json!({"users": 4}), 1, 1));
    let jittered = ask(&json!({"jitter_sigma": 0.3}), &fixed(100, 50), &json!({"users": 4, "requests": 20_000}), 1, 1);
    close(mean_runtime_s(&jittered), plain, 0.01);
    let runs: Vec<f64> = (0..200)
        .map(|seed| {
            let load = json!({"users": 4, "requests": 400});
            mean_runtime_s(&ask(&json!({"speed_sigma": 0.05}), &fixed(100, 50), &load, 1, seed)) / plain
        })
        .collect();
    let mean = runs.iter().sum::<f64>() / 200.0;
    let spread = (runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / 200.0).sqrt();
    assert!((mean - 1.0).abs() < 0.015 && (spread - 0.05).abs() < 0.012, "{mean} {spread}");
}

/// How often it is looked at does not matter: arrivals that change nothing cut stretches and leave times alone.
#[test]
fn stretches_may_be_cut_anywhere() {
    let config: Engine = serde_json::from_value(engine(&json!({"sequences": 2}))).unwrap();
    let ends = |cuts: u32| {
        let mut server = EngineServer::new(&config, 1, 0);
        let mut told = Vec::new();
        server.arrive(0.0, Job { row: 0, prompt: 700, output: 500, factor: 1.0, work: 0.0 });
        for cut in 0..cuts {
            let now_s = 1.0 + 0.01 * f64::from(cut);
            while server.next_s().is_some_and(|at_s| at_s <= now_s) {
                server.step(&mut told);
            }
            if cut == 0 {
                server.arrive(now_s, Job { row: 1, prompt: 1, output: 1, factor: 1.0, work: 0.0 });
            }
        }
        while server.next_s().is_some() {
            server.step(&mut told);
        }
        told.iter().find_map(|each| if let Told::Done { row: 0, at_s } = each { Some(*at_s) } else { None }).unwrap()
    };
    // The other one costs its own tokens and nothing else: less than a tenth of a millisecond.
    let (alone, cut) = (ends(0), ends(20));
    close(alone, alone_s(700, 500, 512).1, 1e-9);
    assert!(cut > alone && cut < alone + 1e-4, "{alone} {cut}");
}

#[test]
fn what_cannot_run_is_refused() {
    let refused = |changes: &Value| {
        let config: Engine = serde_json::from_value(engine(changes)).map_err(|error| error.to_string())?;
        config.check()
    };
    assert!(refused(&json!({})).is_ok());
    for (changes, word) in [
        (json!({"batched_tokens": 64}), "batched_tokens"),
        (json!({"cache_tokens": 10}), "cache_tokens"),
        (json!({"roof": with(&roof(), &json!({"flops": 0}))}), "roof"),
        (json!({"prefix": {"turn_share": 1.5}}), "prefix"),
        (json!({"speculative": {"tokens": 2, "accept": 0.9, "spread": 0.2, "draft_s": 0}}), "accept"),
        (json!({"split": {"prefillers": 0, "decoders": 1, "link_bandwidth": 1, "link_s": 0}}), "split"),
        (json!({"watermark": 0.9}), "watermark"),
        (json!({"magic": 1}), "magic"),
    ] {
        assert!(refused(&changes).unwrap_err().contains(word), "{word}");
    }
}
