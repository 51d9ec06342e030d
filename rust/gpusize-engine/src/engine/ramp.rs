//! How many users a closed loop has while it ramps: along a straight line, up or down.

use crate::spec::Closed;

/// When the user at this place begins, after the level's start.
pub fn begins_after_ns(closed: &Closed, place: u32) -> i64 {
    match closed.from {
        Some(from) if place >= from => share(closed.ramp_ns, place - from + 1, closed.concurrency.abs_diff(from)),
        _ => 0,
    }
}

/// When the user at this place leaves, after the level's start; none: not before its end.
pub fn leaves_after_ns(closed: &Closed, place: u32) -> Option<i64> {
    let from = closed.from.filter(|_| place >= closed.concurrency)?;
    Some(share(closed.ramp_ns, from.saturating_sub(place), from.abs_diff(closed.concurrency)))
}

/// Users so long after the level's start.
pub fn users_at(closed: &Closed, after_ns: i64) -> u32 {
    let Some(from) = closed.from.filter(|_| after_ns < closed.ramp_ns) else { return closed.concurrency };
    let way = u64::from(closed.concurrency.abs_diff(from));
    let gone = (i128::from(way) * i128::from(after_ns.max(0)) / i128::from(closed.ramp_ns.max(1))) as u32;
    if closed.concurrency > from { from + gone } else { from - gone }
}

fn share(ramp_ns: i64, part: u32, parts: u32) -> i64 {
    let parts = i128::from(parts.max(1));
    ((i128::from(ramp_ns) * i128::from(part) + parts - 1) / parts) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(from: u32, concurrency: u32, ramp_ns: i64) -> Closed {
        let json = format!(r#"{{"concurrency":{concurrency},"from":{from},"ramp_ns":{ramp_ns}}}"#);
        serde_json::from_str(&json).expect("a closed loop")
    }

    #[test]
    fn users_come_and_go_along_the_line() {
        for (from, to, ramp_ns) in [(2, 10, 800), (10, 2, 800), (0, 5, 7), (7, 0, 1000), (4, 4, 100), (1, 9, 0)] {
            let load = closed(from, to, ramp_ns);
            for after_ns in 0..=ramp_ns + 3 {
                let here = (0..load.most()).filter(|place| {
                    begins_after_ns(&load, *place) <= after_ns
                        && leaves_after_ns(&load, *place).is_none_or(|leaves| after_ns < leaves)
                });
                assert_eq!(here.count() as u32, users_at(&load, after_ns), "{from}..{to} after {after_ns}");
            }
            assert_eq!(users_at(&load, ramp_ns), to);
        }
        let steady: Closed = serde_json::from_str(r#"{"concurrency":3}"#).expect("a closed loop");
        assert_eq!((begins_after_ns(&steady, 2), leaves_after_ns(&steady, 2), users_at(&steady, 0)), (0, None, 3));
    }
}
