//! JSON pointers compiled for one walk per document, and conditions on what they find.

use sonic_rs::{JsonValueTrait, LazyValue, PointerNode, PointerTree};

use crate::spec::{Condition, Literal};

/// Deepest nesting that is read: what `serde_json` takes too, and far beyond any API's.
pub const MAX_DEPTH: usize = 128;

/// What is found at each pointer of one document.
pub type Values<'a> = [Option<LazyValue<'a>>];

/// A document that is not JSON, or nested beyond reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson;

/// A set of pointers. Each is kept once, however many uses it has.
#[derive(Debug, Default)]
pub struct Pointers {
    paths: Vec<Vec<PointerNode>>,
    /// None where one walk cannot serve all: a pointer ends inside another, or a name stands where another has an index.
    tree: Option<PointerTree>,
}

impl Pointers {
    /// The number of this pointer.
    pub fn add(&mut self, pointer: &str) -> usize {
        let path = nodes(pointer);
        self.paths.iter().position(|p| *p == path).unwrap_or_else(|| {
            self.paths.push(path);
            self.paths.len() - 1
        })
    }

    /// All pointers are known.
    pub fn seal(&mut self) {
        let conflicts =
            (1..self.paths.len()).any(|i| self.paths[..i].iter().any(|other| conflict(&self.paths[i], other)));
        self.tree = (!conflicts && !self.paths.iter().any(Vec::is_empty)).then(|| {
            let mut tree = PointerTree::new();
            self.paths.iter().for_each(|path| tree.add_path(path.iter()));
            tree
        });
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// What a document holds at each pointer, in the order in which they were first added.
    pub fn read<'a>(&self, data: &'a [u8]) -> Result<Vec<Option<LazyValue<'a>>>, NotJson> {
        if too_deep(data) {
            return Err(NotJson);
        }
        if let Some(tree) = &self.tree
            && let Ok(values) = sonic_rs::get_many(data, tree)
        {
            return Ok(values);
        }
        // One walk for all pointers fails as a whole where a single path meets an empty array or a null: ask one by one.
        // What serde_json skips it does not decode, so the bytes are checked here.
        let text = std::str::from_utf8(data).map_err(|_| NotJson)?;
        if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
            return Err(NotJson);
        }
        Ok(self.paths.iter().map(|path| sonic_rs::get(data, path).ok()).collect())
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
        let Some(value) = &values[self.path] else { return false };
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
        numbers.iter().map(|n| values[*n].as_ref().map(|v| v.as_raw_str().to_owned())).collect()
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
