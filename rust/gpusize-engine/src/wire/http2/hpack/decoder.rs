//! Reading compressed fields.

use std::borrow::Cow;
use std::rc::Rc;

use super::tables::{Entry, FIXED, STATIC, Table};
use super::{FIRST_TABLE_BYTES, Fields, huffman, integer};

/// So many blocks are remembered: servers repeat themselves, in heads and in trailers.
const BLOCKS: usize = 4;
/// Longer ones are not.
const LONGEST_BLOCK: usize = 1_024;

/// The fields cannot be told from the bytes, and neither can those that follow on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// What a connection needs to read its answers' fields.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// Fields of one answer take at most so many bytes.
    most: usize,
    /// Blocks that stand for these as long as the table is what it was.
    blocks: Vec<(Box<[u8]>, Rc<Fields>)>,
    next: usize,
}

impl Decoder {
    /// For a connection of which nothing has come; fields of one answer take at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { table: Table::new(FIRST_TABLE_BYTES), most, blocks: Vec::new(), next: 0 }
    }

    /// The fields that a block stands for.
    pub fn decode(&mut self, block: &[u8]) -> Result<Rc<Fields>, Broken> {
        if let Some((_, fields)) = self.blocks.iter().find(|(bytes, _)| **bytes == *block) {
            return Ok(fields.clone());
        }
        let mut fields = Fields::default();
        let changes = self.read(block, &mut fields).ok_or(Broken)?;
        fields.finish();
        let fields = Rc::new(fields);
        if changes {
            self.blocks.clear();
            self.next = 0;
        } else if block.len() <= LONGEST_BLOCK {
            let block = (block.into(), fields.clone());
            if self.blocks.len() < BLOCKS {
                self.blocks.push(block);
            } else {
                self.blocks[self.next] = block;
                self.next = (self.next + 1) % BLOCKS;
            }
        }
        Ok(fields)
    }

    fn read(&mut self, block: &[u8], fields: &mut Fields) -> Option<bool> {
        let most = self.most;
        self.each(block, &mut |name, value| fields.push(name, value, most))
    }

    /// Go through the fields of a block; says whether the table has changed.
    fn each(&mut self, mut block: &[u8], field: &mut impl FnMut(&[u8], &[u8])) -> Option<bool> {
        let (mut changes, mut begun) = (false, false);
        while let Some(first) = block.first() {
            match first.leading_zeros() {
                // A field that has a number.
                0 => {
                    let (index, rest) = integer::read(block, 7)?;
                    block = rest;
                    let (name, value) = self.numbered(index)?;
                    field(name, value);
                }
                // The table's size changes, before the first field (section 4.2).
                2 => {
                    let (size, rest) = integer::read(block, 5)?;
                    block = rest;
                    if begun || size > FIRST_TABLE_BYTES {
                        return None;
                    }
                    self.table.resize(size);
                    changes = true;
                    continue;
                }
                // A field that is said, and is remembered in the first case.
                zeros => {
                    let (index, rest) = integer::read(block, if zeros == 1 { 6 } else { 4 })?;
                    let (name, rest) =
                        if index == 0 { text(rest)? } else { (Cow::Borrowed(self.numbered(index)?.0), rest) };
                    let (value, rest) = text(rest)?;
                    block = rest;
                    field(&name, &value);
                    if zeros == 1 {
                        let entry = Entry::new(&name, &value);
                        self.table.insert(entry);
                        changes = true;
                    }
                }
            }
            begun = true;
        }
        Some(changes)
    }

    /// The fields of a block whatever they are, for tests.
    #[cfg(test)]
    pub fn said(&mut self, block: &[u8]) -> Vec<String> {
        let mut said = Vec::new();
        self.each(block, &mut |name, value| {
            said.push(format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        });
        said
    }

    fn numbered(&self, index: usize) -> Option<(&[u8], &[u8])> {
        match index {
            0 => None,
            1..STATIC => FIXED.get(index - 1).map(|(name, value)| (name.as_bytes(), value.as_bytes())),
            _ => self.table.get(index - STATIC).map(|entry| (&*entry.name, &*entry.value)),
        }
    }
}

/// A string as it stands or coded, and what follows it.
fn text(input: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let is_coded = input.first()? & 0x80 != 0;
    let (length, rest) = integer::read(input, 7)?;
    let (bytes, rest) = rest.split_at_checked(length)?;
    if !is_coded {
        return Some((Cow::Borrowed(bytes), rest));
    }
    let mut text = Vec::with_capacity(2 * length);
    huffman::decode(bytes, &mut text).then_some((Cow::Owned(text), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(decoder: &mut Decoder, hex: &str) -> Rc<Fields> {
        let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        decoder.decode(&bytes).unwrap()
    }

    fn said(fields: &Fields) -> Vec<String> {
        let status = fields.status.map(|s| format!(":status: {s}"));
        let rest = fields.fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        status.into_iter().chain(rest).collect()
    }

    /// The RFC's appendix C.6: three answers with coded strings, here with a table that forgets nothing.
    #[test]
    fn answers_of_the_rfc_are_read() {
        let mut decoder = Decoder::new(10_000);
        let first = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3";
        let want = [
            ":status: 302",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ];
        assert_eq!(said(&read(&mut decoder, first)), want);
        let second = "4883640effc1c0bf";
        assert_eq!(said(&read(&mut decoder, second))[0], ":status: 307");
        assert_eq!(
            said(&read(&mut decoder, second))[0],
            ":status: 307",
            "the table has changed, but what it adds has not"
        );
    }

    #[test]
    fn equal_blocks_are_read_once_while_the_table_stays() {
        let mut decoder = Decoder::new(10_000);
        let (adds, refers) = ("88 40 01 78 01 31", "88 be");
        let first = read(&mut decoder, adds);
        assert_eq!(said(&first), [":status: 200", "x: 1"]);
        let second = read(&mut decoder, refers);
        assert!(Rc::ptr_eq(&second, &read(&mut decoder, refers)));
        assert_eq!(said(&second), said(&first));
        read(&mut decoder, "40 01 79 01 32");
        assert_eq!(said(&read(&mut decoder, refers)), [":status: 200", "y: 2"], "another field has the number now");
        for k in 0..9 {
            read(&mut decoder, &format!("88 00 01 7a 01 3{k}"));
        }
        assert!(decoder.blocks.len() <= BLOCKS);
    }

    #[test]
    fn blocks_that_cannot_be_read_break_the_connection() {
        for bytes in [
            &[0x80][..],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0xbe],
            &[0x40, 0x05, b'a'],
            &[0x40, 0x81, 0xff, 0x01, b'a'],
            &[0x3f, 0xe2, 0x1f],
            &[0x88, 0x20],
            &[0x7f],
        ] {
            assert_eq!(Decoder::new(100).decode(bytes).err(), Some(Broken), "{bytes:x?}");
        }
    }

    #[test]
    fn what_no_answer_may_have_is_told_and_the_table_stays_right() {
        let mut decoder = Decoder::new(200);
        for (hex, words) in [
            ("88 88", "second :status"),
            ("40 01 78 01 31 88", "second :status"),
            ("82", "pseudo"),
            ("48 02 32 30", "three digits"),
            ("40 01 58 01 31", "lower case"),
            ("00 0a 636f6e6e656374696f6e 01 31", "forbids"),
            ("00 01 78 01 0a", "control"),
            ("0f 0d 01 78", "no number"),
            ("0f 0d 01 31 0f 0d 01 32", "two lengths"),
        ] {
            let fields = read(&mut decoder, hex);
            assert!(fields.malformed.is_some_and(|why| why.contains(words)), "{hex}: {fields:?}");
        }
        assert_eq!(decoder.table.get(0).map(|e| e.name.to_vec()), Some(b"X".to_vec()));
        let long = format!("00 01 78 7f 11 {}", "61".repeat(144));
        let fields = read(&mut decoder, &format!("88 {long} 00 01 79 01 32"));
        assert!(!fields.is_too_long || fields.fields.is_empty());
        assert!(read(&mut decoder, &format!("88 {long} {long}")).is_too_long);
    }
}
