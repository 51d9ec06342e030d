//! Kernel texts to integers, over bytes and without allocation. What is not there is left out, never taken for 0.

use super::columns::{Column, Reading};

/// One key of a text of keys and values: its name, the column and what one of its units is.
pub type Key = (&'static [u8], Column, i64);

/// The number at the beginning, after blanks; `None` for anything else, `max` included.
pub fn number(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = text[..digits].iter().try_fold(0_i64, |value, byte| {
        value.checked_mul(10).and_then(|value| value.checked_add(i64::from(byte - b'0')))
    });
    match (digits, value) {
        (0, _) => None,
        // What does not fit into 63 bits is a limit that nothing reaches.
        (_, None) => Some(i64::MAX),
        (_, value) => value,
    }
}

/// Lines of a text, the last one also without its end.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(line)
    })
}

/// The value of one key in a text of lines `key value`.
pub fn value(text: &[u8], key: &[u8]) -> Option<i64> {
    lines(text).find_map(|line| number(line.strip_prefix(key)?.strip_prefix(b" ")?))
}

/// A text of lines `key value`, keys in any order.
pub fn keyed(text: &[u8], keys: &[Key], reading: &mut Reading) {
    for line in lines(text) {
        let Some(blank) = memchr::memchr(b' ', line) else { continue };
        let (name, rest) = line.split_at(blank);
        if let Some((_, column, unit)) = keys.iter().find(|key| key.0 == name)
            && let Some(value) = number(rest)
        {
            reading.set(*column, value.saturating_mul(*unit));
        }
    }
}

/// A pressure file: the totals of its lines `some` and `full`, in microseconds there.
pub fn pressure(text: &[u8], some: Column, full: Column, reading: &mut Reading) {
    for line in lines(text) {
        let column = match line {
            [b's', b'o', b'm', b'e', ..] => some,
            [b'f', b'u', b'l', b'l', ..] => full,
            _ => continue,
        };
        // The total is the last field.
        if let Some(total_us) = memchr::memrchr(b'=', line).and_then(|at| number(&line[at + 1..])) {
            reading.set(column, total_us.saturating_mul(1_000));
        }
    }
}

/// `io.stat` of v2, summed over devices; an empty file is no IO yet.
pub fn io_stat(text: &[u8], reading: &mut Reading) {
    const FIELDS: [(&[u8], Column); 4] = [
        (b" rbytes=", Column::ReadBytes),
        (b" wbytes=", Column::WrittenBytes),
        (b" rios=", Column::Reads),
        (b" wios=", Column::Writes),
    ];
    for (_, column) in FIELDS {
        reading.set(column, 0);
    }
    for line in lines(text) {
        for (field, column) in FIELDS {
            reading.add(column, after(line, field).unwrap_or(0));
        }
    }
}

/// A `blkio.throttle.*` file of v1: lines `8:0 Read 4096`, summed over devices.
pub fn blkio(text: &[u8], read: Column, write: Column, reading: &mut Reading) {
    reading.set(read, 0);
    reading.set(write, 0);
    for line in lines(text) {
        for (word, column) in [(&b" Read "[..], read), (&b" Write "[..], write)] {
            reading.add(column, after(line, word).unwrap_or(0));
        }
    }
}

/// The parts of kernel memory in a `memory.stat` from before the kernel summed them itself (5.18).
const KERNEL_PARTS: [&[u8]; 5] = [b"kernel_stack", b"pagetables", b"percpu", b"vmalloc", b"slab"];

/// Kernel memory from a `memory.stat` of v2: its sum, or that of the parts that are there.
pub fn kernel_memory(text: &[u8]) -> Option<i64> {
    value(text, b"kernel").or_else(|| KERNEL_PARTS.iter().filter_map(|part| value(text, part)).reduce(|a, b| a + b))
}

/// The number after a word in a line.
pub fn after(line: &[u8], word: &[u8]) -> Option<i64> {
    let at = memchr::memmem::find(line, word)?;
    number(&line[at + word.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(fill: impl FnOnce(&mut Reading)) -> Vec<(&'static str, i64)> {
        let mut reading = Reading::default();
        fill(&mut reading);
        reading.values().map(|(column, value)| (column.name(), value)).collect()
    }

    #[test]
    fn numbers_are_whole_or_absent() {
        assert_eq!(number(b"0\n"), Some(0));
        assert_eq!(number(b" 42 rest"), Some(42));
        assert_eq!(number(b"9223372036854771712\n"), Some(9_223_372_036_854_771_712));
        assert_eq!(number(b"18446744073709551615"), Some(i64::MAX));
        for text in [&b""[..], b"max\n", b"-1", b"\n"] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }

    #[test]
    fn keys_are_found_whole_wherever_they_stand() {
        let text = b"anon_thp 7\nslab 9\nanon 5\ninactive_anon 8";
        assert_eq!(filled(|r| keyed(text, &[(b"anon", Column::Anon, 2)], r)), [("mem_anon_bytes", 10)]);
        assert_eq!(value(text, b"slab"), Some(9));
        assert_eq!(value(text, b"kernel"), None);
    }

    #[test]
    fn pressure_without_a_full_line_has_none() {
        let old = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=17\n";
        assert_eq!(filled(|r| pressure(old, Column::CpuSome, Column::CpuFull, r)), [("cpu_some_ns", 17_000)]);
        let new = b"some avg10=1.50 avg60=0.00 avg300=0.00 total=17\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        let both = filled(|r| pressure(new, Column::CpuSome, Column::CpuFull, r));
        assert_eq!(both, [("cpu_some_ns", 17_000), ("cpu_full_ns", 3_000)]);
    }

    #[test]
    fn io_is_summed_over_devices() {
        let v2 =
            b"8:0 rbytes=100 wbytes=1 rios=2 wios=3 dbytes=9 dios=9\n253:0 rbytes=11 wbytes=0 rios=1 wios=0\n8:16 \n";
        let sums = [("io_read_bytes", 111), ("io_write_bytes", 1), ("io_reads", 3), ("io_writes", 3)];
        assert_eq!(filled(|r| io_stat(v2, r)), sums);
        assert_eq!(filled(|r| io_stat(b"", r)).iter().map(|v| v.1).collect::<Vec<_>>(), [0; 4]);
        let v1 = b"8:0 Read 4096\n8:0 Write 512\n8:0 Total 4608\n8:16 Read 4\nTotal 4612\n";
        let found = filled(|r| blkio(v1, Column::ReadBytes, Column::WrittenBytes, r));
        assert_eq!(found, [("io_read_bytes", 4100), ("io_write_bytes", 512)]);
    }

    #[test]
    fn kernel_memory_is_summed_where_the_kernel_does_not() {
        assert_eq!(kernel_memory(b"anon 1\nkernel 7\nkernel_stack 2\nslab 3\n"), Some(7));
        assert_eq!(kernel_memory(b"anon 1\nkernel_stack 2\nslab 3\n"), Some(5));
        assert_eq!(kernel_memory(b"cache 1\nrss 2\n"), None);
    }
}
