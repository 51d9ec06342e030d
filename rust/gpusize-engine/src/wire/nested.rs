//! Pointers that lead on into JSON that stands inside a document as text.

use sonic_rs::{JsonValueTrait, LazyValue};

use super::places::{Pointers, Values};

/// So many times a document may stand inside another as text.
const MAX_TEXTS: usize = 2;
/// Longer texts are not read as documents.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// A set of pointers, in the order in which they were given.
#[derive(Debug)]
pub struct Nested {
    pointers: Pointers,
    /// The place of each pointer in the result, and its number.
    whole: Vec<(usize, usize)>,
    /// The number of a pointer's beginning, and what is left of all that begin so.
    inside: Vec<(usize, Nested)>,
}

impl Nested {
    /// Pointers by their place in the result.
    pub fn new(pointers: &[(usize, &str)]) -> Self {
        Self::within(pointers, MAX_TEXTS)
    }

    fn within(wanted: &[(usize, &str)], texts: usize) -> Self {
        let mut pointers = Pointers::default();
        let mut whole = Vec::new();
        let mut rests: Vec<(usize, Vec<(usize, &str)>)> = Vec::new();
        for (place, pointer) in wanted {
            whole.push((*place, pointers.add_usual(pointer)));
            let cuts = pointer.match_indices('/').map(|(at, _)| at).skip(1).filter(|_| texts > 0);
            for cut in cuts {
                let beginning = pointers.add(&pointer[..cut]);
                let known = rests.iter().position(|(b, _)| *b == beginning).unwrap_or_else(|| {
                    rests.push((beginning, Vec::new()));
                    rests.len() - 1
                });
                rests[known].1.push((*place, &pointer[cut..]));
            }
        }
        pointers.seal();
        let inside = rests.into_iter().map(|(at, rest)| (at, Self::within(&rest, texts - 1))).collect();
        Self { pointers, whole, inside }
    }

    /// The JSON text at each pointer, none where there is nothing; `count` is the number of places.
    pub fn read(&self, document: &[u8], count: usize) -> Vec<Option<String>> {
        let mut found = vec![None; count];
        self.read_into(document, &mut found);
        found
    }

    fn read_into(&self, document: &[u8], found: &mut [Option<String>]) {
        let Ok(values) = self.pointers.read(document) else { return };
        for (place, number) in &self.whole {
            if let Some(value) = values.get(*number) {
                found[*place].get_or_insert_with(|| value.as_raw_str().to_owned());
            }
        }
        for (number, rest) in &self.inside {
            if let Some(text) = text_at(&values, *number) {
                rest.read_into(text.as_bytes(), found);
            }
        }
    }
}

fn text_at(values: &Values<'_>, number: usize) -> Option<String> {
    let is_text = |v: &&LazyValue<'_>| v.as_raw_str().starts_with('"') && v.as_raw_str().len() <= MAX_TEXT_BYTES;
    values.get(number).filter(is_text)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pointers: &[&str], document: &str) -> Vec<Option<String>> {
        let wanted: Vec<_> = pointers.iter().copied().enumerate().collect();
        Nested::new(&wanted).read(document.as_bytes(), wanted.len())
    }

    #[test]
    fn objects_and_texts_read_the_same() {
        let inner = r#"{"kind":"start","more":{"id":"a\"b","n":[1,2]}}"#;
        let want: Vec<_> = ["\"start\"", r#""a\"b""#, "2", "\"root\""].map(|t| Some(t.to_owned())).into();
        let pointers = ["/p/kind", "/p/more/id", "/p/more/n/1", "/id"];
        let text = |t: &str| serde_json::to_string(t).unwrap();
        let twice = format!(r#"{{"kind":"start","more":{}}}"#, text(r#"{"id":"a\"b","n":[1,2]}"#));
        for p in [inner.to_owned(), text(inner), twice.clone(), text(&twice)] {
            assert_eq!(read(&pointers, &format!(r#"{{"id":"root","p":{p}}}"#)), want, "{p}");
        }
    }

    #[test]
    fn what_is_no_document_is_left_alone() {
        let pointers = ["/p/kind", "/id"];
        for p in [r#""plain words""#, "\"\"", "null", "7", r#""{\"kind\":""#, r#"["kind"]"#] {
            let found = read(&pointers, &format!(r#"{{"p":{p},"id":1}}"#));
            assert_eq!(found, [None, Some("1".to_owned())], "{p}");
        }
        assert_eq!(read(&pointers, "not JSON"), [None, None]);
    }

    #[test]
    fn texts_in_texts_and_large_ones_are_bounded() {
        let mut document = r#"{"a":"deep"}"#.to_owned();
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(read(&["/a/a/a/a/a"], &document)[0].is_some());
            document = format!(r#"{{"a":{}}}"#, serde_json::to_string(&document).unwrap());
        }
        assert_eq!(seen, [false; 4], "a pointer of five names needs five documents");
        assert_eq!(read(&["/a/a/a"], r#"{"a":"{\"a\":\"{\\\"a\\\":1}\"}"}"#), [Some("1".to_owned())]);
        let large = format!(r#"{{"p":"{{\"kind\":1,\"x\":\"{}\"}}"}}"#, "x".repeat(MAX_TEXT_BYTES));
        assert_eq!(read(&["/p/kind"], &large), [None]);
        let brackets = format!(r#"{{"p":"{}"}}"#, "[".repeat(100_000));
        assert_eq!(read(&["/p/kind"], &brackets), [None]);
    }
}
