//! Buckets of many seconds in little memory: numbers and counts of the filled ones, seven bits to a byte.

use super::histogram::{Bucket, bucket_at};
use super::tally::{METRICS, Tally};

/// Append the times of a tally, of all metrics.
pub fn pack(tally: &Tally, bytes: &mut Vec<u8>) {
    for times in &tally.times {
        put(bytes, times.places().count() as u64);
        let mut last = 0;
        for (place, count) in times.places() {
            put(bytes, u64::from(place - last));
            put(bytes, count);
            last = place;
        }
    }
}

/// The buckets of each metric of the first tally in `bytes`, which are the rest afterwards.
pub fn unpack(bytes: &mut &[u8]) -> [Vec<Bucket>; METRICS.len()] {
    std::array::from_fn(|_| {
        let mut place = 0;
        (0..next(bytes))
            .map(|_| {
                place += next(bytes) as u16;
                bucket_at(place, next(bytes))
            })
            .collect()
    })
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn next(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tally::Metric;

    #[test]
    fn what_is_packed_comes_back() {
        let mut tally = Tally::default();
        for i in 0..50_000_i64 {
            tally.record(Metric::Runtime, i * i * 3);
            tally.record(Metric::Lateness, 100);
        }
        tally.record(Metric::NoConnection, i64::MAX);
        let mut packed = Vec::new();
        pack(&Tally::default(), &mut packed);
        pack(&tally, &mut packed);
        let mut rest = packed.as_slice();
        assert!(unpack(&mut rest).iter().all(Vec::is_empty));
        let found = unpack(&mut rest);
        for (times, buckets) in tally.times.iter().zip(&found) {
            assert_eq!(&times.buckets(), buckets);
        }
        let filled: usize = found.iter().map(Vec::len).sum();
        assert!(rest.is_empty() && packed.len() < filled * 4);
    }
}
