//! The header that says which request a call made on its behalf belongs to (W3C Trace Context).

/// The header's name.
pub const NAME: &str = "traceparent";

/// Bytes of its value.
const LEN: usize = 55;

/// A value.
pub type Value = [u8; LEN];

/// What no other tool is likely to choose: the first digits of our trace ids.
const MARK: u16 = 0x6770;

/// The value for one request: version 00, a trace id of the mark, visit, stream and sequence number, a parent id made of
/// the sequence number, sampled.
pub fn value(visit: u32, stream: u16, seq: u64) -> Value {
    let mut out = *b"00-00000000000000000000000000000000-0000000000000000-01";
    digits(&mut out[3..7], u64::from(MARK));
    digits(&mut out[7..15], u64::from(visit));
    digits(&mut out[15..19], u64::from(stream));
    digits(&mut out[19..35], seq);
    // A parent id of zeros is not valid; the sequence number begins at 0.
    digits(&mut out[36..52], seq.wrapping_add(1).max(1));
    out
}

/// Whether a header is this one.
pub fn is_named(name: &str) -> bool {
    name.eq_ignore_ascii_case(NAME)
}

fn digits(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_place() {
        for (visit, stream, seq, want) in [
            (0, 0, 0, "00-67700000000000000000000000000000-0000000000000001-01"),
            (3, 0, 41, "00-67700000000300000000000000000029-000000000000002a-01"),
            (u32::MAX, 0xabcd, 0xfedc_ba98_7654_3210, "00-6770ffffffffabcdfedcba9876543210-fedcba9876543211-01"),
            (1, 0, u64::MAX, "00-6770000000010000ffffffffffffffff-0000000000000001-01"),
        ] {
            assert_eq!(String::from_utf8(value(visit, stream, seq).to_vec()).unwrap(), want);
        }
    }
}
