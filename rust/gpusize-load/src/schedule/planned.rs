//! Due times that are handed over beside the plan.

use crate::spec::{Arrivals, Open};
use gpusize_base::error::{Error, Result};

/// Due times that were handed over beside the plan, in ascending order. Lists are as long as `due_ns`.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// After the level's start.
    pub due_ns: Vec<i64>,
    /// Dataset rows, or none to follow the level's order.
    pub rows: Option<Vec<u32>>,
    /// Addresses, or none to follow the balance rule.
    pub targets: Option<Vec<u16>>,
    /// Ids of streams, or none when all belong to the first.
    pub streams: Option<Vec<u16>>,
}

impl Planned {
    /// From little-endian arrays of 64, 32, 16 and 16 bits; none when none is given.
    pub fn from_bytes(
        due: Option<&[u8]>,
        rows: Option<&[u8]>,
        targets: Option<&[u8]>,
        streams: Option<&[u8]>,
    ) -> Result<Option<Self>> {
        let Some(due) = due else {
            let beside = [("rows", rows), ("targets", targets), ("streams", streams)];
            return match beside.iter().find(|(_, bytes)| bytes.is_some()) {
                Some((place, _)) => Err(Error::usage("given without due times", *place, "hand over due as well")),
                None => Ok(None),
            };
        };
        Ok(Some(Self {
            due_ns: numbers("due", due, i64::from_le_bytes)?,
            rows: rows.map(|b| numbers("rows", b, u32::from_le_bytes)).transpose()?,
            targets: targets.map(|b| numbers("targets", b, u16::from_le_bytes)).transpose()?,
            streams: streams.map(|b| numbers("streams", b, u16::from_le_bytes)).transpose()?,
        }))
    }

    /// Refuse what does not fit the load, a dataset of so many rows, or the addresses (where their number is known).
    pub fn check(&self, open: &Open, dataset_rows: usize, addresses: Option<usize>) -> Result<()> {
        let bad = |what: String, place: &str, todo: &str| Err(Error::usage(what, place, todo));
        let lengths = [
            ("rows", self.rows.as_ref().map(Vec::len)),
            ("targets", self.targets.as_ref().map(Vec::len)),
            ("streams", self.streams.as_ref().map(Vec::len)),
        ];
        let due = self.due_ns.len();
        for (place, length) in lengths {
            if let Some(length) = length.filter(|n| *n != due) {
                return bad(format!("{length} entries for {due} due times"), place, "give one for each due time");
            }
        }
        if self.due_ns.first().is_some_and(|ns| *ns < 0) {
            return bad("a due time is before the level's start".into(), "due", "give times of 0 or more");
        }
        if let Some(at) = self.due_ns.windows(2).position(|pair| pair[1] < pair[0]) {
            return bad(format!("due time {} is before the one before it", at + 1), "due", "sort them");
        }
        if let Some(row) = self.rows.iter().flatten().find(|row| **row as usize >= dataset_rows) {
            return bad(format!("there is no row {row}"), "rows", "give rows of the dataset, counted from 0");
        }
        if let Some(addresses) = addresses
            && let Some(target) = self.targets.iter().flatten().find(|target| usize::from(**target) >= addresses)
        {
            return bad(
                format!("there is no address {target}"),
                "targets",
                "give addresses of the target, counted from 0",
            );
        }
        let known = |id: u16| open.streams.iter().any(|s| s.id == id);
        if let Some(id) = self.streams.iter().flatten().find(|id| !known(**id)) {
            return bad(format!("there is no stream {id}"), "streams", "give ids of load.open.streams");
        }
        for stream in open.streams.iter().filter(|s| s.count.is_some_and(|most| most < due as u64)) {
            let mine = match &self.streams {
                Some(ids) => ids.iter().filter(|id| **id == stream.id).count(),
                None if stream.id == open.streams[0].id => due,
                None => 0,
            };
            if stream.count.is_some_and(|most| most < mine as u64) {
                return bad(format!("stream {} has more due times than its count", stream.id), "due", "leave them out");
            }
        }
        Ok(())
    }
}

/// Whether a load and what was handed over beside it belong together.
pub(super) fn belongs(open: &Open, planned: Option<&Planned>) -> Result<()> {
    let by_plan = open.streams.iter().any(|s| matches!(s.arrivals, Arrivals::Plan));
    match planned {
        None if by_plan => {
            Err(Error::usage("the plan's due times are missing", "due", "hand them over with the level"))
        }
        Some(_) if !by_plan => {
            Err(Error::usage("the streams have rates, and due times were given", "due", "make the arrivals \"plan\""))
        }
        _ => Ok(()),
    }
}

fn numbers<T, const N: usize>(place: &str, bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
    let (whole, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        let todo = format!("give little-endian numbers of {N} bytes each");
        return Err(Error::usage(format!("{} bytes are not a whole number of entries", bytes.len()), place, todo));
    }
    Ok(whole.iter().map(|chunk| read(*chunk)).collect())
}
