//! Replicas that share one queue: what closed forms and a simulation of another kind say of them.

use gpusize_base::draw::Draw;
use gpusize_simulator::{
    Arrivals, ClusterConfig, FlowBeside, FlowConfig, Length, Load, Plan, ReplicaStep, Router, StaticBatching, run_flow,
    run_plan,
};

const MS: i64 = 1_000_000;

fn planned() -> Load {
    Load { arrivals: Arrivals::Plan, requests: None, warmup_requests: 0, ..Load::closed(1, 1) }
}

/// Due times with exponential gaps of so many seconds, and as many numbers of tokens, from 1 to `most`.
fn drawn(seed: u64, count: u64, gap_s: f64, most: u32) -> (Vec<i64>, Vec<u32>) {
    let draw = Draw::new(seed, 7, 7);
    let mut now_ns = 0;
    let row = |index| {
        now_ns += (draw.exp(2 * index) * gap_s * 1e9) as i64;
        (now_ns, 1 + (draw.unit(2 * index + 1) * f64::from(most)) as u32)
    };
    (0..count).map(row).unzip()
}

/// GPUs that make a token in a millisecond, whatever else they do.
fn gpus(gpus: u32, max_batch: u32) -> ClusterConfig {
    ClusterConfig {
        gpus,
        max_batch,
        router: Router::Shared,
        iteration_base_s: 0.001,
        iteration_per_sequence_s: 0.0,
        prefill_per_token_s: 0.0,
        output_tokens: Length::Fixed { tokens: 10 },
        ..ClusterConfig::default()
    }
}

/// First come, first served: who comes next begins when the first of the servers is free (Kiefer and Wolfowitz 1955).
fn first_free(servers: usize, due_ns: &[i64], service_ns: &[i64]) -> Vec<i64> {
    let mut free_ns = vec![0; servers];
    due_ns
        .iter()
        .zip(service_ns)
        .map(|(&due_ns, service_ns)| {
            let first = (0..servers).min_by_key(|&server| free_ns[server]).expect("a server");
            free_ns[first] = free_ns[first].max(due_ns) + service_ns;
            free_ns[first]
        })
        .collect()
}

#[test]
fn one_at_a_time_the_first_free_takes_the_next() {
    for (seed, servers) in [(1, 1), (2, 2), (3, 3), (4, 7)] {
        // 30 ms on average, and 90 % busy.
        let (due_ns, tokens) = drawn(seed, 3000, 0.0305 / f64::from(servers) / 0.9, 60);
        let service_ns: Vec<i64> = tokens.iter().map(|&tokens| i64::from(tokens) * MS).collect();
        let expected = first_free(servers as usize, &due_ns, &service_ns);
        let plan = Plan { due_ns: &due_ns, output_tokens: Some(&tokens), ..Plan::default() };
        let of_gpus = run_plan(&gpus(servers, 1), &planned(), plan).expect("a plan").columns;
        assert!(of_gpus.end_ns == expected, "{servers} GPUs");
        assert!(of_gpus.gpu.iter().all(|&gpu| gpu < servers));

        // In flow, work is a length of time; which of the lengths a row has is drawn, and stands in its record.
        let config =
            FlowConfig { gpus: servers, router: Router::Shared, max_active: Some(1), ..FlowConfig::new(vec![1e9]) };
        let sizes: Vec<f64> = service_ns.iter().map(|&service_ns| service_ns as f64).collect();
        let beside = FlowBeside { sizes: &sizes, due_ns: Some(&due_ns), ..FlowBeside::default() };
        let of_flow = run_flow(&config, &planned(), beside).expect("a plan").columns;
        let service_ns: Vec<i64> = of_flow.size.iter().map(|&size| service_ns[size as usize]).collect();
        assert!(of_flow.end_ns == first_free(servers as usize, &due_ns, &service_ns), "{servers} servers");
        assert!(of_flow.gpu.iter().all(|&gpu| gpu < servers));
    }
}

#[test]
fn one_gpu_has_a_queue_of_its_own_either_way() {
    for static_batching in [None, Some(StaticBatching { base_s: 0.004, delay_s: 0.02 })] {
        let (due_ns, tokens) = drawn(5, 2000, 0.01, 60);
        let run = |router| {
            let config = ClusterConfig { router, static_batching, ..gpus(1, 4) };
            let plan = Plan { due_ns: &due_ns, output_tokens: Some(&tokens), ..Plan::default() };
            run_plan(&config, &planned(), plan).expect("a plan").columns
        };
        let (shared, own) = (run(Router::Shared), run(Router::LeastLoaded));
        assert!((shared.start_ns, shared.end_ns, shared.gpu) == (own.start_ns, own.end_ns, own.gpu));
    }
}

/// Batches of one queue that run to their end: `(begin, members)` of each in order, by a loop of its own.
fn batches(servers: usize, most: usize, delay_ns: i64, due_ns: &[i64], lasts_ns: i64) -> Vec<(i64, usize)> {
    let (mut free_ns, mut first, mut seen) = (vec![0; servers], 0, Vec::new());
    while first < due_ns.len() {
        let server = (0..servers).min_by_key(|&server| free_ns[server]).expect("a server");
        // It begins when it is free and a batch is full, or the oldest has waited for so long.
        let full_ns = due_ns.get(first + most - 1).copied().unwrap_or(i64::MAX);
        let begin_ns = free_ns[server].max(full_ns.min(due_ns[first] + delay_ns));
        let members = due_ns[first..].iter().take(most).take_while(|&&due_ns| due_ns <= begin_ns).count();
        seen.push((begin_ns, members));
        free_ns[server] = begin_ns + lasts_ns;
        first += members;
    }
    seen
}

#[test]
fn batches_are_put_together_in_the_queue_that_all_share() {
    for (seed, servers, most, delay_ns) in [(1, 1, 4, 0), (2, 2, 4, 0), (3, 3, 8, 5 * MS), (4, 2, 2, 40 * MS)] {
        let (due_ns, _) = drawn(seed, 2000, 0.01 / f64::from(servers) / most as f64 / 0.8, 1);
        // 10 tokens of a millisecond.
        let config = ClusterConfig {
            static_batching: Some(StaticBatching { base_s: 0.0, delay_s: delay_ns as f64 / 1e9 }),
            ..gpus(servers, most as u32)
        };
        let found = run_plan(&config, &planned(), Plan { due_ns: &due_ns, ..Plan::default() }).expect("a plan").columns;
        let mut row = 0;
        for (begin_ns, members) in batches(servers as usize, most, delay_ns, &due_ns, 10 * MS) {
            for _ in 0..members {
                assert_eq!((found.start_ns[row], found.end_ns[row]), (begin_ns, begin_ns + 10 * MS), "row {row}");
                row += 1;
            }
        }
        assert_eq!(row, due_ns.len());
    }
}

#[test]
fn a_new_replica_takes_what_waits_and_a_removed_one_no_more() {
    let due_ns: Vec<i64> = (0..12).collect();
    let steps = |steps: &[(f64, u32)]| steps.iter().map(|&(at_s, replicas)| ReplicaStep { at_s, replicas }).collect();
    for max_batch in [1, 2] {
        // 10 ms each; the second is there from 15 ms to 35 ms.
        let config = ClusterConfig { replicas: steps(&[(0.0, 1), (0.015, 2), (0.035, 1)]), ..gpus(2, max_batch) };
        let plan = Plan { due_ns: &due_ns, ..Plan::default() };
        let found = run_plan(&config, &planned(), plan).expect("a plan").columns;
        let found = &found;
        let on = |gpu| {
            let rows = (0..found.len()).filter(move |&row| found.gpu[row] == gpu);
            rows.map(|row| (found.start_ns[row] / MS, found.end_ns[row] / MS)).collect::<Vec<_>>()
        };
        let second = [(15, 25), (25, 35)].into_iter().flat_map(|times| vec![times; max_batch as usize]);
        assert_eq!(on(1), second.collect::<Vec<_>>(), "{max_batch}");
        assert_eq!(on(0).len() + on(1).len(), 12);
        assert!(on(0).is_sorted());

        let servers = FlowConfig {
            gpus: 2,
            router: Router::Shared,
            max_active: Some(1),
            replicas: steps(&[(0.0, 1), (0.015, 2), (0.035, 1)]),
            ..FlowConfig::new(vec![1e9])
        };
        let beside = FlowBeside { sizes: &[1e7], due_ns: Some(&due_ns), ..FlowBeside::default() };
        let found = run_flow(&servers, &planned(), beside).expect("a plan").columns;
        let on_second: Vec<i64> =
            (0..found.len()).filter(|&row| found.gpu[row] == 1).map(|row| found.start_ns[row] / MS).collect();
        assert_eq!(on_second, [15, 25]);
    }
}
