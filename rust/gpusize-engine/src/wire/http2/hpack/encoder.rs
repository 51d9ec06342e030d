//! Writing compressed fields: a head is encoded once and copied from then on.

use super::tables::{Entry, FIXED, STATIC, Table};
use super::{FIRST_TABLE_BYTES, integer};
use crate::wire::http2::head::Head;

/// What a connection needs to write its requests' fields. Its table forgets nothing: a field that finds no room is said in full.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Fields in the table. Where they are more, all have other numbers.
    inserted: usize,
    /// The heads as they are written now, by their number, and how many fields the table had.
    blocks: Vec<(usize, Vec<u8>)>,
    /// The table's size is to be said before the next field.
    resized: bool,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { table: Table::new(FIRST_TABLE_BYTES), inserted: 0, blocks: Vec::new(), resized: false }
    }
}

impl Encoder {
    /// The peer's table has this size. A smaller one than ours is not used at all.
    pub fn resize(&mut self, size: usize) {
        if size < FIRST_TABLE_BYTES && !self.resized {
            self.table.resize(0);
            self.inserted = 0;
            self.blocks.clear();
            self.resized = true;
        }
    }

    /// Append the fields of a head, which has this number among those of the connection.
    pub fn encode(&mut self, head: &Head, out: &mut Vec<u8>) {
        if self.resized {
            // Once would do; a byte is cheaper than to remember it.
            integer::write(0, 5, 0x20, out);
        }
        let number = head.number;
        if let Some((inserted, block)) = self.blocks.get(number)
            && *inserted == self.inserted
            && !block.is_empty()
        {
            out.extend_from_slice(block);
            return;
        }
        let (from, before) = (out.len(), self.inserted);
        for (name, value) in &head.fields {
            self.field(name, value, out);
        }
        // What was remembered just now has a number from now on.
        if self.inserted == before {
            if self.blocks.len() <= number {
                self.blocks.resize(number + 1, (0, Vec::new()));
            }
            self.blocks[number] = (before, out[from..].to_vec());
        }
    }

    fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let fixed = FIXED.iter().position(|(n, v)| (n.as_bytes(), v.as_bytes()) == (name, value)).map(|k| k + 1);
        let known = || self.table.position(name, value).map(|k| k + STATIC);
        if let Some(index) = fixed.or_else(known) {
            integer::write(index, 7, 0x80, out);
            return;
        }
        let entry = Entry::new(name, value);
        let remembers = self.table.has_room(entry.size());
        let (prefix, mark) = if remembers { (6, 0x40) } else { (4, 0) };
        literal(name, value, prefix, mark, out);
        if remembers {
            self.table.insert(entry);
            self.inserted += 1;
        }
    }
}

/// Append a field that nobody remembers; one that `never` comes again says so.
pub fn passing(name: &[u8], value: &[u8], never: bool, out: &mut Vec<u8>) {
    literal(name, value, 4, if never { 0x10 } else { 0 }, out);
}

fn literal(name: &[u8], value: &[u8], prefix: u32, mark: u8, out: &mut Vec<u8>) {
    let known = FIXED.iter().position(|(n, _)| n.as_bytes() == name).map_or(0, |k| k + 1);
    integer::write(known, prefix, mark, out);
    if known == 0 {
        text(name, out);
    }
    text(value, out);
}

fn text(text: &[u8], out: &mut Vec<u8>) {
    integer::write(text.len(), 7, 0, out);
    out.extend_from_slice(text);
}
