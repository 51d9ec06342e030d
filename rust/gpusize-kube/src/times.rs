//! Times as an API server writes them, in ns since 1970, with their resolution.

use chrono::{DateTime, Timelike};

/// So many in a second.
pub const SECOND_NS: i64 = 1_000_000_000;

/// May 2014, before Kubernetes: what a name's hexadecimal ending says to be earlier is no time.
const EARLIEST_NS: i64 = 1_400_000_000 * SECOND_NS;

/// `2026-11-28T01:02:03.456789Z` as ns since 1970, and its resolution in ns; none for what is no time.
///
/// The resolution is that of the last digit written: 1 s without a fraction, as the API truncates to seconds.
pub fn parse_time(text: &str) -> Option<(i64, i64)> {
    let digits = match text.split_once('.') {
        Some((_, rest)) => rest.bytes().take_while(u8::is_ascii_digit).count(),
        None => 0,
    };
    let moment = DateTime::parse_from_rfc3339(text).ok().filter(|_| digits <= 9)?;
    // The 60th second of a minute has more than a second's ns.
    let at_ns = moment.timestamp_nanos_opt().filter(|_| i64::from(moment.nanosecond()) < SECOND_NS)?;
    Some((at_ns, 10_i64.pow(9 - digits as u32)))
}

/// The time in an Event's name, ns since 1970: recorders name it `OBJECT.HEX` by the sender's clock.
pub fn event_name_ns(name: &str) -> Option<i64> {
    let (_, ending) = name.rsplit_once('.')?;
    if ending.len() != 16 || !ending.bytes().all(|each| each.is_ascii_hexdigit()) {
        return None;
    }
    let found = i64::from_str_radix(ending, 16).ok()?;
    (EARLIEST_NS..1 << 62).contains(&found).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_resolution_of_its_last_digit() {
        let second = 1_795_825_794 * SECOND_NS;
        assert_eq!(parse_time("2026-11-28T00:29:54Z"), Some((second, SECOND_NS)));
        assert_eq!(parse_time("2026-11-28T00:29:54.5Z"), Some((second + 500_000_000, 100_000_000)));
        assert_eq!(parse_time("2026-11-28T00:29:54.123456789Z"), Some((second + 123_456_789, 1)));
        assert_eq!(parse_time("2026-11-28T01:29:54.000001+01:00"), Some((second + 1_000, 1_000)));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "soon", "2026-11-28", "2026-11-28T00:29:54", "2026-11-28T00:29:54.Z", "2026-11-28T23:59:60Z"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        assert_eq!(parse_time("2026-11-28T00:29:54.1234567890Z"), None);
        assert_eq!(parse_time("0001-01-01T00:00:00Z"), None); // Go's zero is before what 64 bits of ns reach
    }

    #[test]
    fn the_name_of_an_event_holds_when_it_was_sent() {
        assert_eq!(event_name_ns("a.b.18ec0e0cc595750c"), Some(0x18EC_0E0C_C595_750C));
        for name in ["plain", "web.0", "web.zzzzzzzzzzzzzzzz", "web.+8ec0e0cc595750c", "web.0000000000000001"] {
            assert_eq!(event_name_ns(name), None, "{name}");
        }
        assert_eq!(event_name_ns("web.ffffffffffffffff"), None);
    }
}
