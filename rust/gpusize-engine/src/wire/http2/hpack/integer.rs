//! Whole numbers with a prefix (RFC 7541, section 5.1).

/// The number whose first byte has `prefix` bits of it, and the bytes after it. None: cut off, or larger than any that is meant.
pub fn read(input: &[u8], prefix: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = input.split_first()?;
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value < most {
        return Some((value, rest));
    }
    for shift in [0, 7, 14, 21] {
        let (byte, after) = rest.split_first()?;
        rest = after;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// Append it; `mark` are the bits before the prefix.
pub fn write(value: usize, prefix: u32, mark: u8, out: &mut Vec<u8>) {
    let most = (1_usize << prefix) - 1;
    if value < most {
        out.push(mark | value as u8);
        return;
    }
    out.push(mark | most as u8);
    let mut left = value - most;
    while left >= 0x80 {
        out.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        // The examples of the RFC's appendix C.1.
        for (value, prefix, bytes) in [(10, 5, &[10][..]), (1_337, 5, &[31, 154, 10]), (42, 8, &[42])] {
            let mut out = Vec::new();
            write(value, prefix, 0, &mut out);
            assert_eq!(out, bytes);
        }
        for prefix in 4..=8 {
            for value in (0..2_000).chain([1 << 20, (1 << 28) - 1]) {
                let mut out = Vec::new();
                write(value, prefix, 0, &mut out);
                assert_eq!(read(&out, prefix), Some((value, &[][..])));
                for cut in 0..out.len() {
                    assert_eq!(read(&out[..cut], prefix), None);
                }
            }
        }
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 7), None);
    }
}
