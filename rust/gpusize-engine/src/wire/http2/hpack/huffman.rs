//! The code of strings (RFC 7541, appendix B). It is canonical, so the lengths of its words say all of it.

/// Words end at this length.
const LONGEST: usize = 30;
/// The symbol after the last byte: it ends no string.
const END: u16 = 256;
const SYMBOLS: usize = 257;

/// Bits of each byte's word, and of the end's.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The words of one length, at the left end of 30 bits.
#[derive(Clone, Copy)]
struct Words {
    first: u32,
    /// The first that is longer.
    beyond: u32,
    /// Where its symbols begin.
    symbols: usize,
}

struct Tables {
    words: [Words; LONGEST + 1],
    /// By length, then by value.
    symbols: [u16; SYMBOLS],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut words = [Words { first: 0, beyond: 0, symbols: 0 }; LONGEST + 1];
    let mut symbols = [0; SYMBOLS];
    let (mut length, mut next, mut at) = (0, 0_u32, 0);
    while length <= LONGEST {
        words[length] = Words { first: next, beyond: next, symbols: at };
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                symbols[at] = symbol as u16;
                at += 1;
                next += 1 << (LONGEST - length);
            }
            symbol += 1;
        }
        words[length].beyond = next;
        length += 1;
    }
    Tables { words, symbols }
}

/// Append the string that `input` stands for; false: it stands for none.
pub fn decode(input: &[u8], out: &mut Vec<u8>) -> bool {
    // The bits that are left, at the right end.
    let (mut bits, mut have, mut input) = (0_u64, 0_usize, input.iter());
    loop {
        while have < LONGEST {
            let Some(byte) = input.next() else { break };
            bits = bits << 8 | u64::from(*byte);
            have += 8;
        }
        // What follows the last bit may be taken for ones, with which a string is filled up.
        let window = if have >= LONGEST {
            (bits >> (have - LONGEST)) as u32 & ((1 << LONGEST) - 1)
        } else {
            let missing = LONGEST - have;
            ((bits << missing) as u32 | ((1 << missing) - 1)) & ((1 << LONGEST) - 1)
        };
        let Some(length) = (5..=LONGEST).find(|length| window < TABLES.words[*length].beyond) else {
            // All ones: nothing but what fills up.
            return have < 8;
        };
        if length > have {
            return have < 8 && window >> (LONGEST - have) == (1 << have) - 1;
        }
        let Words { first, symbols, .. } = TABLES.words[length];
        let symbol = TABLES.symbols[symbols + ((window - first) >> (LONGEST - length)) as usize];
        if symbol == END {
            return false;
        }
        out.push(symbol as u8);
        have -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits: Vec<bool> = Vec::new();
        for byte in text {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let rank = TABLES.symbols.iter().position(|s| *s == u16::from(*byte)).unwrap();
            let Words { first, symbols, .. } = TABLES.words[length];
            let word = (first >> (LONGEST - length)) + (rank - symbols) as u32;
            bits.extend((0..length).rev().map(|k| word >> k & 1 == 1));
        }
        bits.resize(bits.len().div_ceil(8) * 8, true);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | u8::from(*bit))).collect()
    }

    #[test]
    fn examples_of_the_rfc_and_every_byte_are_read() {
        let examples: [(&[u8], &[u8]); 3] = [
            (b"www.example.com", &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]),
            (b"no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            (b"custom-value", &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]),
        ];
        for (text, bytes) in examples {
            assert_eq!(encode(text), bytes);
        }
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for text in (0..all.len()).map(|k| &all[k..]).chain(all.chunks(1)).chain([&b""[..]]) {
            let mut out = Vec::new();
            assert!(decode(&encode(text), &mut out) && out == text);
        }
    }

    #[test]
    fn padding_is_less_than_a_byte_of_ones_and_the_end_ends_nothing() {
        let read = |bytes: &[u8]| decode(bytes, &mut Vec::new());
        assert!(!read(&[0xff]) && !read(&[0x1f, 0xff]) && read(&[0x1f]));
        assert!(!read(&[0x1e]), "zeros");
        assert!(!read(&[0xff, 0xff, 0xff, 0xfc]), "the end");
        assert!(!read(&[0xff, 0xff, 0xff, 0xff]), "the end, and more");
    }
}
