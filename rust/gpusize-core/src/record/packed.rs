//! Buckets of many seconds in little memory: numbers and counts of the filled ones, seven bits to a byte.

use super::histogram::{Bucket, bucket_at};
use super::tally::{METRICS, Tally};

/// The times of a tally.
#[derive(Clone, Debug, Default)]
pub struct Packed(Box<[u8]>);

impl Packed {
    /// Of all metrics.
    pub fn new(tally: &Tally) -> Self {
        let mut bytes = Vec::new();
        for times in &tally.times {
            put(&mut bytes, times.places().count() as u64);
            let mut last = 0;
            for (place, count) in times.places() {
                put(&mut bytes, u64::from(place - last));
                put(&mut bytes, u64::from(count));
                last = place;
            }
        }
        Self(bytes.into())
    }

    /// The buckets of each metric.
    pub fn unpack(&self) -> [Vec<Bucket>; METRICS.len()] {
        let mut bytes = &*self.0;
        std::array::from_fn(|_| {
            let mut place = 0;
            (0..next(&mut bytes))
                .map(|_| {
                    place += next(&mut bytes) as u16;
                    bucket_at(place, next(&mut bytes))
                })
                .collect()
        })
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
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
        let packed = Packed::new(&tally);
        let found = packed.unpack();
        for (times, buckets) in tally.times.iter().zip(&found) {
            assert_eq!(&times.buckets(), buckets);
        }
        let filled: usize = found.iter().map(Vec::len).sum();
        assert!(packed.bytes() < filled * 4 && Packed::default().unpack().iter().all(Vec::is_empty));
    }
}
