//! How much text a request carries, without keeping it.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// The size of a prompt in whatever form it was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// Characters of text, to be counted as tokens by the cluster's rule.
    pub characters: usize,
    /// Token ids that were sent as such.
    pub tokens: usize,
    /// Elements of the outermost list; 1 for anything else that is not null.
    pub parts: usize,
    /// Stands for the text and the numbers, in their order.
    pub digest: u64,
}

/// Text, token ids, lists of either, and the text in the fields of objects, at any depth: it fits a prompt of the completions API as
/// well as the content of a message, and any JSON that is sent to `/generate`.
impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExtentVisitor)
    }
}

struct ExtentVisitor;

/// The same for the same value, in every process.
pub(super) fn digest_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Extent {
    fn of_number(bits: u64) -> Self {
        Self { characters: 0, tokens: 1, parts: 1, digest: digest_of(&bits) }
    }

    /// One text.
    pub(super) fn of_text(text: &str) -> Self {
        Self { characters: text.chars().count(), tokens: 0, parts: 1, digest: digest_of(text) }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.characters += other.characters;
        self.tokens += other.tokens;
        self.digest = digest_of(&(self.digest, other.digest));
    }
}

impl<'de> Visitor<'de> for ExtentVisitor {
    type Value = Extent;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text, token ids or a list of them")
    }

    fn visit_str<E>(self, text: &str) -> Result<Extent, E> {
        Ok(Extent::of_text(text))
    }

    fn visit_unit<E>(self) -> Result<Extent, E> {
        Ok(Extent::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Extent, E> {
        Ok(Extent { parts: 1, ..Extent::default() })
    }

    fn visit_u64<E>(self, number: u64) -> Result<Extent, E> {
        Ok(Extent::of_number(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Extent, E> {
        Ok(Extent::of_number(number as u64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Extent, E> {
        Ok(Extent::of_number(number.to_bits()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Extent, A::Error> {
        let mut sum = Extent::default();
        while let Some(element) = list.next_element::<Extent>()? {
            sum.add(element);
            sum.parts += 1;
        }
        Ok(sum)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Extent, A::Error> {
        let mut sum = Extent { parts: 1, ..Extent::default() };
        while let Some((key, value)) = object.next_entry::<String, Extent>()? {
            // The kind of a content part ("text", "image_url") is no text of the prompt.
            if key != "type" {
                sum.add(value);
            }
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_tell_texts_and_their_order_apart() {
        let digest = |json: &str| serde_json::from_str::<Extent>(json).expect(json).digest;
        assert_eq!(digest(r#"["a", "b"]"#), digest(r#"[ "a","b" ]"#));
        for (one, other) in [(r#""a""#, r#""b""#), (r#"["a", "b"]"#, r#"["b", "a"]"#), ("[1, 2]", "[1, 3]")] {
            assert_ne!(digest(one), digest(other));
        }
    }

    #[test]
    fn every_form_of_a_prompt_is_counted() {
        for (json, characters, tokens, parts) in [
            (r#""héllo""#, 5, 0, 1),
            (r#"["ab", "c"]"#, 3, 0, 2),
            ("[1, 2, 3]", 0, 3, 3),
            ("[[1, 2], [3]]", 0, 3, 2),
            (r#"[{"type": "text", "text": "abcd"}]"#, 4, 0, 1),
            ("null", 0, 0, 0),
        ] {
            let extent: Extent = serde_json::from_str(json).expect(json);
            assert_eq!((extent.characters, extent.tokens, extent.parts), (characters, tokens, parts), "{json}");
        }
    }
}
