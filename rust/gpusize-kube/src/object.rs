//! An object of any kind, out of a line of a watch or an item of a list.

use serde::Deserialize;

use crate::shapes::{Claim, Event, Managed, Metadata, Pod, Workload};
use crate::text::Text;
use crate::words::{self, Word};

/// An object, in the shape of its kind.
#[derive(Debug)]
pub enum Object<'a> {
    /// A pod.
    Pod(Pod<'a>),
    /// A volume claim.
    Claim(Claim<'a>),
    /// What somebody said of another object.
    Event(Event<'a>),
    /// Anything else.
    Other(Workload<'a>),
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct Line<'a, T> {
    #[serde(borrow)]
    r#type: Text<'a>,
    object: T,
}

impl<'a> Object<'a> {
    /// The object of a line, with what the line says became of it: `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`, `ERROR`.
    pub fn of_line(kind: &str, line: &'a str) -> serde_json::Result<(Text<'a>, Self)> {
        fn read<'a, T: Deserialize<'a>>(line: &'a str) -> serde_json::Result<(Text<'a>, T)> {
            serde_json::from_str::<Line<'a, T>>(line).map(|line| (line.r#type, line.object))
        }
        Ok(match kind {
            "Pod" => read(line).map(|(what, pod)| (what, Self::Pod(pod)))?,
            "PersistentVolumeClaim" => {
                let (what, claim) = read(line)?;
                (what, Self::claim(claim, read::<Managed<'a>>(line)?.1))
            }
            "Event" => read(line).map(|(what, event)| (what, Self::Event(event)))?,
            _ => read(line).map(|(what, other)| (what, Self::Other(other)))?,
        })
    }

    /// An object by itself.
    pub fn of_item(kind: &str, item: &'a str) -> serde_json::Result<Self> {
        Ok(match kind {
            "Pod" => Self::Pod(serde_json::from_str(item)?),
            "PersistentVolumeClaim" => Self::claim(serde_json::from_str(item)?, serde_json::from_str(item)?),
            "Event" => Self::Event(serde_json::from_str(item)?),
            _ => Self::Other(serde_json::from_str(item)?),
        })
    }

    fn claim(claim: Claim<'a>, managed: Managed<'a>) -> Self {
        Self::Claim(Claim { written: managed.metadata.managed_fields.unwrap_or_default(), ..claim })
    }

    /// Its metadata.
    pub fn metadata(&self) -> &Metadata<'a> {
        match self {
            Self::Pod(pod) => &pod.metadata,
            Self::Claim(claim) => &claim.metadata,
            Self::Event(event) => &event.metadata,
            Self::Other(other) => &other.metadata,
        }
    }

    /// What it says of its moments, or, of an Event, of those of the object that it is about.
    pub fn words(&self) -> Vec<Word<'_>> {
        match self {
            Self::Pod(pod) => words::pod(pod),
            Self::Claim(claim) => words::claim(claim),
            Self::Event(event) => words::event(event),
            Self::Other(other) => words::workload(other),
        }
    }
}
