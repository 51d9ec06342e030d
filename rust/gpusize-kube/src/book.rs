//! What objects have said already; what is new becomes rows, each occurrence once.

use std::collections::HashMap;
use std::hash::BuildHasher;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use foldhash::quality::RandomState;
use serde::Deserialize;

use crate::object::Object;
use crate::rows::{Row, Rows};
use crate::shapes::{Event, Workload};
use crate::there::There;
use crate::words::{self, Word};

/// The source of a row that says when something reached us.
const WATCH: &str = "watch";
const DELETED: &str = "deleted";

/// An object that is met for the first time: all that tells which workload it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// Of the object.
    pub kind: String,
    /// Of the object.
    pub uid: String,
    /// Of the object.
    pub namespace: Option<String>,
    /// Of the object.
    pub name: String,
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// The uid of its first owner.
    pub owner: Option<String>,
    /// What it calls its workload itself.
    pub workload: Option<String>,
    /// Of a pod: the claims that it mounts.
    pub claims: Vec<String>,
}

/// A moment of an object that had not been told before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Of the object.
    pub kind: String,
    /// Of the object.
    pub uid: String,
    /// Of the object.
    pub name: String,
    /// Which moment.
    pub moment: String,
}

/// An object, as rows have it.
#[derive(Clone, Debug)]
struct Named {
    kind: String,
    namespace: Option<String>,
    name: String,
}

/// What an object has said.
#[derive(Debug, Default)]
struct Said {
    /// None until it is met.
    of: Option<Named>,
    /// Words, each by its moment, part, token and source.
    words: Keys,
    /// Rows, each by its moment, part, source and time; arrivals by moment and part.
    rows: Keys,
}

/// Hashes, in order: an object has some ten, and they lie together. 64 bits stand for the whole.
#[derive(Debug, Default)]
struct Keys(Vec<u64>);

impl Keys {
    /// Whether it was not there.
    fn insert(&mut self, key: u64) -> bool {
        let place = self.0.binary_search(&key);
        if let Err(place) = place {
            self.0.insert(place, key);
        }
        place.is_err()
    }
}

/// An Event whose object nobody has met yet.
#[derive(Debug)]
struct Waiting {
    event: Event<'static>,
    received_ns: i64,
    reported: bool,
}

/// What has been said, and the rows that nobody has taken yet.
#[derive(Debug, Default)]
pub struct Book {
    there: HashMap<String, There>,
    said: HashMap<String, Said, RandomState>,
    waiting: HashMap<String, Vec<Waiting>>,
    met: Vec<Met>,
    stamps: Stamps,
}

/// What is new, until somebody takes it.
#[derive(Debug, Default)]
struct Stamps {
    hasher: RandomState,
    rows: Rows,
    /// None where nobody asks.
    news: Option<Vec<News>>,
}

/// How something came.
#[derive(Clone, Copy, Debug)]
struct Came {
    received_ns: i64,
    reported: bool,
}

impl Book {
    /// With nothing in it; `news` says whether those are asked for.
    pub fn new(news: bool) -> Self {
        Self { stamps: Stamps { news: news.then(Vec::new), ..Stamps::default() }, ..Self::default() }
    }

    /// The objects of a kind that there are; none where nobody has told of that kind.
    pub fn there(&self, kind: &str) -> Option<&There> {
        self.there.get(kind)
    }

    /// The objects of a kind that there are.
    pub fn there_mut(&mut self, kind: &str) -> &mut There {
        if !self.there.contains_key(kind) {
            self.there.insert(kind.to_owned(), There::default());
        }
        self.there.get_mut(kind).expect("it was put there")
    }

    /// Write down what an object says.
    ///
    /// `received_ns` is when it came by our clock, `reported` whether it came as it happened and not in a list.
    pub fn take(&mut self, kind: &str, object: &Object<'_>, received_ns: i64, reported: bool) {
        let came = Came { received_ns, reported };
        if let Object::Event(event) = object {
            self.take_event(event, came);
            return;
        }
        let uid = &*object.metadata().uid;
        if self.said.get(uid).is_none_or(|said| said.of.is_none()) {
            self.meet(kind, object);
        }
        if let Some(said) = self.said.get_mut(uid) {
            for word in object.words() {
                self.stamps.hear(uid, said, &word, came);
            }
        }
    }

    /// Write down that an object is no longer there.
    pub fn gone(&mut self, uid: &str, received_ns: i64, reported: bool) {
        if let Some(said) = self.said.get_mut(uid) {
            self.stamps.hear(uid, said, &Word::shown(DELETED, ""), Came { received_ns, reported });
        }
    }

    /// Write down that a list lacks an object; its name.
    pub(crate) fn vanished(&mut self, uid: &str, at_ns: i64) -> Option<String> {
        self.gone(uid, at_ns, false);
        self.said.get(uid)?.of.as_ref().map(|of| of.name.clone())
    }

    /// What has a row already, by an earlier command.
    pub fn remember(&mut self, uid: &str, moment: &str, part: Option<&str>, source: &str, at_ns: i64) {
        let stamps = &self.stamps;
        let said = self.said.entry(uid.to_owned()).or_default();
        if source != WATCH {
            said.rows.insert(stamps.row_key(moment, part, source, at_ns));
            return;
        }
        said.rows.insert(stamps.arrival_key(moment, part));
        if moment == DELETED {
            said.words.insert(stamps.word_key(&Word::shown(DELETED, "")));
        }
    }

    /// How many rows wait to be taken.
    pub fn rows(&self) -> usize {
        self.stamps.rows.len()
    }

    /// The rows since the last call.
    pub fn take_rows(&mut self) -> Result<RecordBatch, ArrowError> {
        self.stamps.rows.take()
    }

    /// The objects that were met since the last call.
    pub fn take_met(&mut self) -> Vec<Met> {
        std::mem::take(&mut self.met)
    }

    /// The news since the last call.
    pub fn take_news(&mut self) -> Vec<News> {
        self.stamps.news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Forget Events that came before a time, and whose object has not come: nobody watches it.
    pub fn forget_events(&mut self, before_ns: i64) {
        self.waiting.retain(|_, events| events.first().is_some_and(|first| first.received_ns >= before_ns));
    }

    fn meet(&mut self, kind: &str, object: &Object<'_>) {
        let met = met(kind, object);
        let of = Named { kind: met.kind.clone(), namespace: met.namespace.clone(), name: met.name.clone() };
        self.said.entry(met.uid.clone()).or_default().of = Some(of);
        let waiting = self.waiting.remove(&met.uid);
        self.met.push(met);
        for Waiting { event, received_ns, reported } in waiting.into_iter().flatten() {
            self.take_event(&event, Came { received_ns, reported });
        }
    }

    fn take_event(&mut self, event: &Event<'_>, came: Came) {
        let Some(about) = event.regarding.as_ref().filter(|about| !about.uid.is_empty()) else { return };
        let words = words::event(event);
        if words.is_empty() {
            return;
        }
        let uid = &*about.uid;
        let Some(said) = self.said.get_mut(uid).filter(|said| said.of.is_some()) else {
            // The watch of its object may be behind that of Events.
            let Came { received_ns, reported } = came;
            let waiting = Waiting { event: event.clone().into_owned(), received_ns, reported };
            self.waiting.entry(uid.to_owned()).or_default().push(waiting);
            return;
        };
        for word in words {
            self.stamps.hear(uid, said, &word, came);
        }
    }
}

impl Stamps {
    fn hear(&mut self, uid: &str, said: &mut Said, word: &Word<'_>, came: Came) {
        if let Some(of) = &said.of
            && said.words.insert(self.word_key(word))
        {
            self.stamp(uid, of, &mut said.rows, word, came);
        }
    }

    fn stamp(&mut self, uid: &str, of: &Named, written: &mut Keys, word: &Word<'_>, came: Came) {
        let Came { received_ns, reported } = came;
        let moment = word.moment.to_string();
        let row = Row {
            kind: &of.kind,
            namespace: of.namespace.as_deref(),
            name: &of.name,
            uid,
            part: word.part,
            moment: &moment,
            at_ns: received_ns,
            resolution_ns: 1,
            source: WATCH,
            clock: "client",
            received_ns,
            reason: word.reason,
            message: word.message,
            reported,
        };
        if let Some((source, (at_ns, resolution_ns))) = word.source.zip(word.time()) {
            let source = source.to_string();
            if written.insert(self.row_key(&moment, word.part, &source, at_ns)) {
                self.rows.push(&Row { at_ns, resolution_ns, source: &source, clock: "server", ..row });
            }
        }
        // What an earlier command saw as it happened is no news in a list.
        if word.shows && (written.insert(self.arrival_key(&moment, word.part)) || reported) {
            self.rows.push(&row);
        }
        if let Some(news) = &mut self.news {
            news.push(News { kind: of.kind.clone(), uid: uid.to_owned(), name: of.name.clone(), moment });
        }
    }

    fn word_key(&self, word: &Word<'_>) -> u64 {
        self.hasher.hash_one((word.moment, word.part, word.token, word.source))
    }

    fn row_key(&self, moment: &str, part: Option<&str>, source: &str, at_ns: i64) -> u64 {
        self.hasher.hash_one((moment, part, source, at_ns))
    }

    fn arrival_key(&self, moment: &str, part: Option<&str>) -> u64 {
        self.hasher.hash_one((moment, part))
    }
}

fn met(kind: &str, object: &Object<'_>) -> Met {
    let metadata = object.metadata();
    let labels = metadata.labels.iter().flat_map(|labels| &labels.0);
    let (workload, claims) = match object {
        Object::Other(other) if kind.ends_with("Workload") && kind != "Workload" => (run_ai_name(other), Vec::new()),
        Object::Pod(pod) => {
            let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            let claims = volumes.filter_map(|each| each.persistent_volume_claim.as_ref());
            (None, claims.map(|claim| claim.claim_name.to_string()).collect())
        }
        _ => (None, Vec::new()),
    };
    Met {
        kind: kind.to_owned(),
        uid: metadata.uid.to_string(),
        namespace: metadata.namespace.as_deref().map(str::to_owned),
        name: metadata.name.to_string(),
        labels: labels.map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        owner: metadata.owner_references.iter().flatten().next().map(|owner| owner.uid.to_string()),
        workload,
        claims,
    }
}

/// The name that a Run:ai workload gives its job and pods: `spec.name.value`; none in other objects.
fn run_ai_name(item: &Workload<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Spec {
        name: Option<Value>,
    }
    #[derive(Deserialize)]
    struct Value {
        value: Option<String>,
    }
    serde_json::from_str::<Spec>(item.spec?.get()).ok()?.name?.value
}
