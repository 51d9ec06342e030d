//! JSON pointers compiled for one walk per document, and conditions on what they find.

use std::borrow::Cow;

use sonic_rs::{JsonValueTrait, LazyValue, PointerNode, PointerTree};

use crate::spec::{Condition, Literal};

/// Deepest nesting that is read: what `serde_json` takes too, and far beyond any API's.
pub const MAX_DEPTH: usize = 128;

/// What is found at each pointer of one document.
#[derive(Debug)]
pub struct Values<'a> {
    found: Vec<Option<LazyValue<'a>>>,
    slots: &'a [usize],
}

impl<'a> Values<'a> {
    /// What stands at the pointer with this number.
    pub fn get(&self, pointer: usize) -> Option<&LazyValue<'a>> {
        self.found.get(self.slots[pointer])?.as_ref()
    }
}

/// A document that is not JSON, or nested beyond reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson;

/// A set of pointers. Each is kept once, however many uses it has.
#[derive(Debug, Default)]
pub struct Pointers {
    paths: Vec<Vec<PointerNode>>,
    /// Which of them most documents lead to.
    usual: Vec<bool>,
    walk: Walk,
    /// Where among the found each pointer's value lies.
    slots: Vec<usize>,
}

/// One walk over a document. It may end short of a pointer, and what stands there is walked only if it is an object or
/// an array: servers write `null` for an object that they do not have, and a walk that meets one fails as a whole.
#[derive(Debug, Default)]
struct Walk {
    /// None where one walk cannot serve all: a name stands where another pointer has an index.
    tree: Option<PointerTree>,
    leaves: Vec<Vec<PointerNode>>,
    /// Slot of the first leaf; the others follow.
    first: usize,
    /// The walks that go on, each from a slot of this one.
    further: Vec<(usize, Walk)>,
}

impl Pointers {
    /// The number of this pointer.
    pub fn add(&mut self, pointer: &str) -> usize {
        let path = nodes(pointer);
        self.paths.iter().position(|p| *p == path).unwrap_or_else(|| {
            self.paths.push(path);
            self.usual.push(false);
            self.paths.len() - 1
        })
    }

    /// As `add`, for a pointer that most documents lead to: one walk goes all the way.
    pub fn add_usual(&mut self, pointer: &str) -> usize {
        let number = self.add(pointer);
        self.usual[number] = true;
        number
    }

    /// All pointers are known.
    pub fn seal(&mut self) {
        let all: Vec<_> = self.paths.iter().map(Vec::as_slice).enumerate().collect();
        self.slots = vec![0; all.len()];
        self.walk = Walk::new(&all, &self.usual, &mut 0, &mut self.slots);
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// What a document holds at each pointer.
    pub fn read<'a>(&'a self, data: &'a [u8]) -> Result<Values<'a>, NotJson> {
        if too_deep(data) {
            return Err(NotJson);
        }
        let mut found = Vec::new();
        if !self.walk.at_once(data, &mut found) {
            // The walk has met a null or an empty array on its way, or the document is broken. What serde_json skips it
            // does not decode, so the bytes are checked here.
            let text = std::str::from_utf8(data).map_err(|_| NotJson)?;
            if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
                return Err(NotJson);
            }
            self.walk.one_by_one(data, &mut found);
        }
        Ok(Values { found, slots: &self.slots })
    }
}

/// What is left of some pointers, each with its number.
type Paths<'a> = Vec<(usize, &'a [PointerNode])>;

impl Walk {
    /// `next` is the first free slot; the slot of each pointer goes into `slots`.
    fn new(paths: &Paths<'_>, usual: &[bool], next: &mut usize, slots: &mut [usize]) -> Self {
        // What a usual pointer begins with is there in most documents: its neighbours are read in the same walk.
        let there: Vec<_> = paths.iter().filter(|(number, _)| usual[*number]).map(|(_, path)| path.first()).collect();
        let mut walk = Self { first: *next, ..Self::default() };
        let mut rests: Vec<Paths<'_>> = Vec::new();
        for (number, path) in paths {
            let end = if there.contains(&path.first()) { path.len() } else { path.len().min(1) };
            let place = walk.leaves.iter().position(|leaf| leaf == &path[..end]).unwrap_or_else(|| {
                walk.leaves.push(path[..end].to_vec());
                rests.push(Vec::new());
                rests.len() - 1
            });
            if end == path.len() {
                slots[*number] = walk.first + place;
            } else {
                rests[place].push((*number, &path[end..]));
            }
        }
        *next += walk.leaves.len();
        for (place, rest) in rests.iter().enumerate().filter(|(_, rest)| !rest.is_empty()) {
            walk.further.push((walk.first + place, Self::new(rest, usual, next, slots)));
        }
        let leaves = &walk.leaves;
        let conflicts = (1..leaves.len()).any(|i| leaves[..i].iter().any(|other| conflict(&leaves[i], other)));
        walk.tree = (!conflicts && !leaves.iter().any(Vec::is_empty)).then(|| {
            let mut tree = PointerTree::new();
            for leaf in leaves {
                tree.add_path(leaf.iter());
            }
            tree
        });
        walk
    }

    /// One walk for all; false where it fails.
    fn at_once<'a>(&self, data: &'a [u8], found: &mut Vec<Option<LazyValue<'a>>>) -> bool {
        let Some(Ok(values)) = self.tree.as_ref().map(|tree| sonic_rs::get_many(data, tree)) else { return false };
        self.put(values, found);
        true
    }

    /// A search for each leaf, in a document that is known to be JSON.
    fn one_by_one<'a>(&self, data: &'a [u8], found: &mut Vec<Option<LazyValue<'a>>>) {
        self.put(self.leaves.iter().map(|leaf| sonic_rs::get(data, leaf).ok()).collect(), found);
    }

    fn put<'a>(&self, values: Vec<Option<LazyValue<'a>>>, found: &mut Vec<Option<LazyValue<'a>>>) {
        if found.is_empty() {
            *found = values;
        } else {
            found.resize(found.len().max(self.first + values.len()), None);
            found[self.first..][..values.len()].clone_from_slice(&values);
        }
        for (slot, walk) in &self.further {
            if let Some(Cow::Borrowed(text)) = found[*slot].as_ref().map(LazyValue::as_raw_cow)
                && text.starts_with(['{', '['])
                && !walk.at_once(text.as_bytes(), found)
            {
                walk.one_by_one(text.as_bytes(), found);
            }
        }
    }
}

/// A condition whose pointer has a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    path: usize,
    is: Option<Vec<Literal>>,
}

impl Test {
    /// Put the condition's pointer among the others.
    pub fn new(condition: &Condition, pointers: &mut Pointers) -> Self {
        Self { path: pointers.add(&condition.at), is: condition.is.clone() }
    }

    /// Whether a document satisfies the condition.
    pub fn holds(&self, values: &Values<'_>) -> bool {
        let Some(value) = values.get(self.path) else { return false };
        match &self.is {
            None => !value.is_null() && value.as_bool() != Some(false),
            Some(any) => any.iter().any(|literal| is(value, literal)),
        }
    }
}

/// Whether a value is this text, number or truth.
fn is(value: &LazyValue<'_>, literal: &Literal) -> bool {
    match literal {
        Literal::Bool(wanted) => value.as_bool() == Some(*wanted),
        Literal::Number(wanted) => value.as_f64().is_some_and(|x| x.total_cmp(wanted).is_eq()),
        Literal::Text(wanted) => is_string(value, wanted),
    }
}

/// Whether a value is this text.
pub fn is_string(value: &LazyValue<'_>, wanted: &str) -> bool {
    let raw = value.as_raw_str();
    match raw.strip_prefix('"').and_then(|r| r.strip_suffix('"')) {
        Some(inner) if !inner.contains('\\') => inner == wanted,
        Some(_) => value.as_str() == Some(wanted),
        None => false,
    }
}

fn conflict(a: &[PointerNode], b: &[PointerNode]) -> bool {
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((x, y)) => std::mem::discriminant(x) != std::mem::discriminant(y),
        None => a.len() != b.len(),
    }
}

fn nodes(pointer: &str) -> Vec<PointerNode> {
    if pointer.is_empty() {
        return Vec::new();
    }
    let parts = pointer.strip_prefix('/').unwrap_or(pointer);
    parts
        .split('/')
        .map(|part| match part.parse::<usize>() {
            // RFC 6901: an index is written without sign and leading zeros; all else is a name.
            Ok(index) if index.to_string() == part => PointerNode::Index(index),
            _ => PointerNode::Key(part.replace("~1", "/").replace("~0", "~").into()),
        })
        .collect()
}

/// Whether a document is nested so deep that a recursive parser could overflow its stack: its sender is not trusted.
pub fn too_deep(data: &[u8]) -> bool {
    // The number of opening brackets bounds the depth, and counting them is nearly free.
    if data.len() <= MAX_DEPTH || memchr::memchr2_iter(b'[', b'{', data).nth(MAX_DEPTH).is_none() {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in data {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pointers: &[&str], document: &str) -> Vec<Option<String>> {
        let mut set = Pointers::default();
        let numbers: Vec<usize> = pointers.iter().map(|p| set.add(p)).collect();
        set.seal();
        let values = set.read(document.as_bytes()).unwrap();
        numbers.iter().map(|n| values.get(*n).map(|v| v.as_raw_str().to_owned())).collect()
    }

    #[test]
    fn pointers_that_cannot_share_a_walk_are_read_one_by_one() {
        let text = |t: &str| Some(t.to_owned());
        assert_eq!(found(&["/a/0", "/a/b"], r#"{"a":[7]}"#), [text("7"), None]);
        assert_eq!(found(&["/a/0", "/a/b"], r#"{"a":{"b":8}}"#), [None, text("8")]);
        assert_eq!(
            found(&["/a", "/a/b", "/a"], r#"{"a":{"b":8}}"#),
            [text(r#"{"b":8}"#), text("8"), text(r#"{"b":8}"#)]
        );
        assert_eq!(found(&["", "/a"], r#"{"a":1}"#), [text(r#"{"a":1}"#), text("1")]);
    }

    /// Values as a search for each pointer by itself finds them.
    fn searched(pointers: &[&str], document: &str) -> Vec<Option<String>> {
        let one = |p: &&str| sonic_rs::get(document, nodes(p)).ok().map(|v| v.as_raw_str().to_owned());
        pointers.iter().map(one).collect()
    }

    #[test]
    fn walks_find_what_searches_find_whatever_is_missing() {
        let pointers =
            ["/c/0/d/t", "/c/0/d/r", "/u/p", "/u/x/y", "/u/x/z", "/u/q", "/e", "/e/m", "/r/u/1", "/r/e", "/c/1"];
        let cs =
            [r#"[{"d":{"t":"a","r":1}},7]"#, r#"[{"d":{"r":[]}}]"#, r#"[{"d":null}]"#, "[]", "{}", "null", "\"c\""];
        let us = [
            r#"{"p":1,"x":{"y":2,"z":{}},"q":3}"#,
            r#"{"x":null,"q":[]}"#,
            r#"{"x":{},"p":0}"#,
            "{}",
            "null",
            "[1]",
            "5",
        ];
        let es = [r#"{"m":"no"}"#, "null", "\"text\"", "[]"];
        let rs = [r#"{"u":[1,2],"e":null}"#, r#"{"u":[],"e":1}"#, r#"{"u":null}"#, "true"];
        for usual in [&["/c/0/d/t"][..], &[], &["/u/p", "/r/e"], &pointers] {
            let mut set = Pointers::default();
            let add = |set: &mut Pointers, p: &&str| if usual.contains(p) { set.add_usual(p) } else { set.add(p) };
            let numbers: Vec<usize> = pointers.iter().map(|p| add(&mut set, p)).collect();
            set.seal();
            for (at, c) in cs.iter().enumerate() {
                for u in us {
                    let (e, r) = (es[at % es.len()], rs[(at + u.len()) % rs.len()]);
                    for document in [
                        format!(r#"{{"i":"x","c":{c},"u":{u},"e":{e},"r":{r},"z":1}}"#),
                        format!(r#"{{"r":{r},"u":{u},"c":{c}}}"#),
                        format!(r#"{{"u":{u}}}"#),
                    ] {
                        let values = set.read(document.as_bytes()).expect(&document);
                        let seen: Vec<_> =
                            numbers.iter().map(|n| values.get(*n).map(|v| v.as_raw_str().to_owned())).collect();
                        assert_eq!(seen, searched(&pointers, &document), "{document}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_null_on_the_way_to_a_rare_value_leaves_one_walk() {
        let mut set = Pointers::default();
        set.add_usual("/choices/0/delta/content");
        set.add("/usage/prompt_tokens");
        set.seal();
        let document = br#"{"choices":[{"delta":{"content":"a"}}],"usage":null}"#;
        assert!(set.walk.at_once(document, &mut Vec::new()));
        assert_eq!((set.walk.leaves.len(), set.walk.further.len()), (2, 1));
    }

    #[test]
    fn conditions_compare_texts_numbers_and_truths() {
        let holds = |condition: &str, document: &str| {
            let mut set = Pointers::default();
            let test = Test::new(&serde_json::from_str(condition).unwrap(), &mut set);
            set.seal();
            test.holds(&set.read(document.as_bytes()).unwrap())
        };
        let is = r#"{"at":"/t","is":["a\"b",2,true]}"#;
        for (document, want) in [
            (r#"{"t":"a\"b"}"#, true),
            (r#"{"t":"a\u0022b"}"#, true),
            (r#"{"t":"a"}"#, false),
            (r#"{"t":2.0}"#, true),
            (r#"{"t":"2"}"#, false),
            (r#"{"t":true}"#, true),
            (r#"{"t":false}"#, false),
            (r#"{"t":null}"#, false),
            (r#"{"u":1}"#, false),
            (r#"{"t":["a"]}"#, false),
        ] {
            assert_eq!(holds(is, document), want, "{document}");
        }
        let some = r#"{"at":"/t"}"#;
        for (document, want) in [
            (r#"{"t":0}"#, true),
            (r#"{"t":""}"#, true),
            (r#"{"t":null}"#, false),
            (r#"{"t":false}"#, false),
            ("{}", false),
        ] {
            assert_eq!(holds(some, document), want, "{document}");
        }
    }
}
