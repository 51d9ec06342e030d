//! A list of a kind's objects, page by page, and what it says beside what watches told.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::book::Book;
use crate::object::Object;
use crate::text::Text;
use crate::there::Known;

/// A list.
#[derive(Debug, Default)]
pub struct Listing {
    kind: String,
    version: String,
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    uid: String,
    version: String,
    name: String,
    /// All of it, as it came.
    text: Box<str>,
}

/// How a list differs from what had been told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Names of objects that nobody had told.
    pub appeared: Vec<String>,
    /// How many have another version.
    pub changed: usize,
    /// Names of those that are not there any more.
    pub vanished: Vec<String>,
}

impl Listing {
    /// Of a kind, without a page.
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), ..Self::default() }
    }

    /// The list's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// How many objects it has.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Add a page. What to ask for the next one with; none after the last.
    ///
    /// An empty list of partial metadata has null for its items.
    pub fn add_page(&mut self, body: &[u8]) -> serde_json::Result<Option<String>> {
        #[derive(Deserialize)]
        struct Page<'a> {
            #[serde(borrow)]
            metadata: Metadata<'a>,
            #[serde(borrow, default)]
            items: Option<Vec<&'a RawValue>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata<'a> {
            #[serde(borrow)]
            resource_version: Text<'a>,
            #[serde(borrow)]
            r#continue: Option<Text<'a>>,
        }
        let page: Page<'_> = serde_json::from_slice(body)?;
        for raw in page.items.into_iter().flatten() {
            let object = Object::of_item(&self.kind, raw.get())?;
            let of = object.metadata();
            self.items.push(Item {
                uid: of.uid.to_string(),
                version: of.resource_version.to_string(),
                name: of.name.to_string(),
                text: raw.get().into(),
            });
        }
        self.version = page.metadata.resource_version.to_string();
        Ok(page.metadata.r#continue.filter(|onward| !onward.is_empty()).map(|onward| onward.to_string()))
    }
}

impl Book {
    /// Whether a list has anything that was not told, or lacks anything that was.
    pub fn differs(&self, listing: &Listing) -> bool {
        let Some(there) = self.there(&listing.kind) else { return !listing.is_empty() };
        let listed: HashSet<&str> = listing.items.iter().map(|item| &*item.uid).collect();
        let told = |item: &Item| match there.known(&item.uid) {
            Known::Never => false,
            Known::There(version) => version == item.version,
            Known::Gone => true,
        };
        !listing.items.iter().all(told) || there.uids().any(|uid| !listed.contains(uid))
    }

    /// Write down what a list has and nobody had told. What it lacks is gone.
    pub fn compare(&mut self, listing: &Listing, at_ns: i64) -> serde_json::Result<Differences> {
        let kind = &*listing.kind;
        let mut found = Differences::default();
        for item in &listing.items {
            match self.there_mut(kind).known(&item.uid) {
                Known::Never => found.appeared.push(item.name.clone()),
                Known::There(version) if version != item.version => found.changed += 1,
                Known::There(_) | Known::Gone => continue,
            }
            self.there_mut(kind).set(&item.uid, &item.version);
            self.take(kind, &Object::of_item(kind, &item.text)?, at_ns, false);
        }
        let listed: HashSet<&str> = listing.items.iter().map(|item| &*item.uid).collect();
        let missing = self.there_mut(kind).uids().filter(|uid| !listed.contains(uid));
        for uid in missing.map(str::to_owned).collect::<Vec<_>>() {
            self.there_mut(kind).delete(&uid);
            // Events are forgotten after an hour; that is no moment of theirs.
            if kind != "Event" {
                found.vanished.extend(self.vanished(&uid, at_ns));
            }
        }
        Ok(found)
    }
}
