//! What holds of any load: checked on many made-up ones.

use std::collections::HashMap;
use std::sync::Arc;

use gpusize_load::schedule::{Curve, Item, Planned, Schedule, Sessions};
use gpusize_load::spec::{Arrivals, LoadSpec, Open, Order, Process, Rate, StopSpec, Stream, Unit};
use gpusize_load::stop::Rules;

use crate::common::{made_up, of_workers, open, pieces, schedule, stream};

const LOADS: u64 = 150;
const DURATION_NS: i64 = 40_000_000_000;

fn until(load: &Open, seed: u64, stop: &StopSpec) -> Vec<Item> {
    let rules = Rules::new(stop);
    schedule(load, seed).take_while(|item| rules.allows(item.index, item.offset_ns).is_ok()).collect()
}

fn by_time() -> StopSpec {
    StopSpec { duration_ns: Some(DURATION_NS), ..StopSpec::default() }
}

#[test]
fn items_are_in_order_and_within_their_bounds() {
    for number in 0..LOADS {
        let load = made_up(number);
        LoadSpec::Open(load.clone()).check().unwrap();
        let items = until(&load, number, &by_time());
        let mut seen: HashMap<u16, u64> = HashMap::new();
        for (index, item) in items.iter().enumerate() {
            let of = load.streams.iter().find(|s| s.id == item.stream).unwrap();
            assert_eq!((item.index, item.priority, item.target), (index as u64, of.priority, None));
            assert!((of.start_ns..DURATION_NS).contains(&item.offset_ns), "{number}: {item:?}");
            let (first, count) = of.rows.unwrap_or((0, 10));
            assert!((first..first + count).contains(&item.row), "{number}: {item:?}");
            let next = seen.entry(item.stream).or_default();
            assert_eq!(item.seq, *next, "{number}");
            *next += 1;
        }
        let place = |item: &Item| load.streams.iter().position(|s| s.id == item.stream);
        let key = |item: &Item| (item.offset_ns, place(item), item.seq);
        assert!(items.is_sorted_by_key(key), "{number}: {load:?}");
        for of in &load.streams {
            assert!(of.count.is_none_or(|most| seen.get(&of.id).is_none_or(|n| *n <= most)), "{number}");
        }
    }
}

#[test]
fn there_are_as_many_as_the_integral_of_the_rate_says() {
    for number in 0..LOADS {
        let load = made_up(number);
        for mut of in load.streams {
            of.count = None;
            let Arrivals::Rate(rate) = of.arrivals.clone() else { unreachable!("made-up streams have rates") };
            let expected = Curve::new(&rate).expected(DURATION_NS - of.start_ns);
            let found = until(&open(vec![of]), number, &by_time()).len() as f64;
            // A grid misses less than one; counts of random gaps have a variance of their mean over the shape.
            let room = match rate.process {
                Process::Constant => 1.0,
                Process::Poisson => 5.0 + 5.0 * expected.sqrt(),
                Process::Gamma => 10.0 + 5.0 * (expected / rate.shape).sqrt(),
            };
            assert!(
                (found - (expected - rate.lead.min(expected))).abs() <= room,
                "{number}: {found} of {expected}: {rate:?}"
            );
        }
    }
}

#[test]
fn the_merge_is_the_union_of_its_streams() {
    for number in 0..LOADS {
        let load = made_up(number);
        let merged = until(&load, number, &by_time());
        let mut single: Vec<(usize, Item)> = Vec::new();
        for (place, of) in load.streams.iter().enumerate() {
            single.extend(until(&open(vec![of.clone()]), number, &by_time()).into_iter().map(|item| (place, item)));
        }
        single.sort_by_key(|(place, item)| (item.offset_ns, *place, item.seq));
        let single: Vec<Item> = single.iter().zip(0..).map(|((_, item), index)| Item { index, ..*item }).collect();
        assert!(merged == single, "{number}: {load:?}");
    }
}

#[test]
fn counting_and_sharing_out_agree_with_the_walk() {
    for number in 0..LOADS {
        let load = made_up(number);
        for count in [None, Some(0), Some(97)] {
            let stop = StopSpec { count, ..by_time() };
            let items = until(&load, number, &stop);
            assert_eq!(Schedule::count(&load, number, None, &stop).unwrap(), items.len() as u64, "{number}: {load:?}");
            for workers in [2, 3, 8] {
                assert!(of_workers(&schedule(&load, number), workers, items.len() as u64) == items, "{number}");
            }
        }
    }
}

fn by_plan(ids: &[u16]) -> Open {
    let steady = Rate::steady(1.0, Process::Constant);
    let of = |id: &u16| Stream { arrivals: Arrivals::Plan, ..stream(*id, steady.clone()) };
    open(ids.iter().map(of).collect())
}

#[test]
fn a_plan_made_of_a_schedule_gives_the_schedule() {
    for number in 0..LOADS {
        let load = made_up(number);
        let items = until(&load, number, &by_time());
        let planned = Planned {
            due_ns: items.iter().map(|item| item.offset_ns).collect(),
            rows: Some(items.iter().map(|item| item.row).collect()),
            targets: None,
            streams: Some(items.iter().map(|item| item.stream).collect()),
        };
        let mut again = load.clone();
        for of in &mut again.streams {
            (of.arrivals, of.start_ns, of.count) = (Arrivals::Plan, 0, None);
        }
        planned.check(&again, 10, None).unwrap();
        let planned = Arc::new(planned);
        let replay = Schedule::new(&again, number, Order::File, 10, Some(planned.clone())).unwrap();
        assert!(replay.clone().eq(items.iter().copied()), "{number}");
        assert!(of_workers(&replay, 3, u64::MAX) == items, "{number}");
        let half = StopSpec { duration_ns: Some(DURATION_NS / 2), ..StopSpec::default() };
        let count = Schedule::count(&again, number, Some(&planned), &half).unwrap();
        assert_eq!(count, Schedule::count(&load, number, None, &half).unwrap(), "{number}");
    }
}

#[test]
fn a_plan_alone_follows_the_order_of_its_stream() {
    let planned = Planned { due_ns: vec![5, 5, 9], ..Planned::default() };
    let load = by_plan(&[4]);
    let items: Vec<Item> = Schedule::new(&load, 1, Order::File, 2, Some(Arc::new(planned))).unwrap().collect();
    let told: Vec<_> = items.iter().map(|i| (i.index, i.stream, i.seq, i.offset_ns, i.row, i.target)).collect();
    assert_eq!(told, [(0, 4, 0, 5, 0, None), (1, 4, 1, 5, 1, None), (2, 4, 2, 9, 0, None)]);
}

#[test]
fn a_plan_that_does_not_fit_is_refused() {
    let load = by_plan(&[0, 4]);
    let good =
        Planned { due_ns: vec![5, 9], rows: Some(vec![0, 1]), targets: Some(vec![0, 1]), streams: Some(vec![0, 4]) };
    good.check(&load, 2, Some(2)).unwrap();
    let bad = [
        Planned { due_ns: vec![9, 5], ..good.clone() },
        Planned { due_ns: vec![-1, 5], ..good.clone() },
        Planned { rows: Some(vec![0]), ..good.clone() },
        Planned { rows: Some(vec![0, 2]), ..good.clone() },
        Planned { targets: Some(vec![0, 2]), ..good.clone() },
        Planned { streams: Some(vec![0, 1]), ..good.clone() },
    ];
    for planned in bad {
        assert!(planned.check(&load, 2, Some(2)).is_err(), "{planned:?}");
    }
    let mut short = load.clone();
    short.streams[1].count = Some(1);
    good.check(&short, 2, None).unwrap();
    short.streams[1].count = Some(0);
    assert!(good.check(&short, 2, None).is_err());
    let good = Arc::new(good);
    assert!(Schedule::new(&load, 1, Order::File, 2, None).is_err(), "no due times");
    let rates = open(vec![stream(0, Rate::steady(1.0, Process::Constant))]);
    assert!(Schedule::new(&rates, 1, Order::File, 2, Some(good)).is_err(), "due times and a rate");
    for (due, rows) in [(Some(&[0; 9][..]), None), (None, Some(&[0; 4][..]))] {
        assert!(Planned::from_bytes(due, rows, None, None).is_err());
    }
    let read = Planned::from_bytes(Some(&[1, 0, 0, 0, 0, 0, 0, 0]), Some(&[0, 1, 0, 0]), None, None).unwrap().unwrap();
    assert_eq!((read.due_ns, read.rows), (vec![1], Some(vec![256])));
}

#[test]
fn loads_that_cannot_be_meant_are_refused() {
    let steady = || stream(0, Rate::steady(1.0, Process::Constant));
    let silent = || stream(2, pieces(Process::Poisson, &[(5.0, 0.0, 0.0)]));
    LoadSpec::Open(open(vec![silent()])).check().unwrap();
    assert_eq!(schedule(&open(vec![silent()]), 1).next(), None, "a level may be a pause");
    assert_eq!(schedule(&open(vec![silent(), steady()]), 1).take(3).count(), 3);
    for load in [open(vec![]), open(vec![steady(), steady()]), by_plan(&[1, 1])] {
        assert!(LoadSpec::Open(load).check().is_err());
    }
    let mut shifted = by_plan(&[1]);
    shifted.streams[0].start_ns = 5;
    assert!(LoadSpec::Open(shifted).check().is_err());
    let beyond = open(vec![Stream { rows: Some((8, 3)), ..steady() }]);
    assert!(Schedule::new(&beyond, 1, Order::File, 10, None).is_err());
}

#[test]
fn an_arrival_may_be_a_conversation() {
    let sessions = Arc::new(Sessions::new(7, Some(&[3, 3, 5, 5, 3, 8, 8]), Some(&[1, 0, 0, 1, 2, 0, 1])).unwrap());
    let mut load = open(vec![stream(0, Rate::steady(1.0, Process::Constant))]);
    load.unit = Unit::Session;
    let rows = |load: &Open, order| {
        let items = Schedule::by_unit(load, 1, order, &sessions, None).unwrap();
        items.take(6).map(|item| item.row).collect::<Vec<_>>()
    };
    assert_eq!(rows(&load, Order::File), [1, 2, 5, 1, 2, 5]);
    let mut shuffled = rows(&load, Order::Shuffled)[..3].to_vec();
    shuffled.sort_unstable();
    assert_eq!(shuffled, [1, 2, 5]);
    load.streams[0].rows = Some((2, 5));
    assert_eq!(rows(&load, Order::File), [2, 5, 2, 5, 2, 5]);
    load.streams[0].rows = Some((3, 2));
    assert!(Schedule::by_unit(&load, 1, Order::File, &sessions, None).is_err(), "no conversation begins there");
    let inside = Planned { due_ns: vec![0], rows: Some(vec![3]), ..Planned::default() };
    let by_plan = Open { unit: Unit::Session, ..by_plan(&[0]) };
    assert!(Schedule::by_unit(&by_plan, 1, Order::File, &sessions, Some(Arc::new(inside))).is_err());
}
