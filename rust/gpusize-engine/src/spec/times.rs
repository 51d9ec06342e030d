//! Where an answer says how long its server kept it waiting and served it.

use serde::{Deserialize, Serialize};

/// Unit of a number that a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

impl Unit {
    /// Nanoseconds in one.
    pub const fn ns(self) -> f64 {
        match self {
            Self::S => 1e9,
            Self::Ms => 1e6,
            Self::Us => 1e3,
            Self::Ns => 1.0,
        }
    }
}

/// A duration that a server says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum TimePlace {
    /// In a document: the sum of the numbers at these pointers.
    Document(DocumentTime),
    /// In a field of the answer's head.
    Field(FieldTime),
}

/// The sum of the numbers at some pointers of one document; nothing where one of them is missing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentTime {
    /// JSON pointers.
    pub at: Pointers,
    /// Their unit.
    pub unit: Unit,
}

/// A number in a field of the answer's head.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FieldTime {
    /// The field's name; upper and lower case are the same.
    pub header: String,
    /// Its unit.
    pub unit: Unit,
}

/// One pointer, or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "OneOrSeveral", into = "Vec<String>")]
pub struct Pointers(pub Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

impl From<OneOrSeveral> for Pointers {
    fn from(given: OneOrSeveral) -> Self {
        match given {
            OneOrSeveral::One(one) => Self(vec![one]),
            OneOrSeveral::Several(several) => Self(several),
        }
    }
}

impl From<Pointers> for Vec<String> {
    fn from(pointers: Pointers) -> Self {
        pointers.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_stands_in_a_document_or_in_the_head() {
        let read = |json: &str| serde_json::from_str::<Vec<TimePlace>>(json);
        let found = read(
            r#"[{"at":"/m/q","unit":"ms"},{"at":["/t/a","/t/b"],"unit":"s"},{"header":"x-queue-time","unit":"us"}]"#,
        )
        .unwrap();
        let document = |at: &[&str], unit| {
            TimePlace::Document(DocumentTime { at: Pointers(at.iter().map(|p| (*p).to_owned()).collect()), unit })
        };
        let field = TimePlace::Field(FieldTime { header: "x-queue-time".into(), unit: Unit::Us });
        assert_eq!(found, [document(&["/m/q"], Unit::Ms), document(&["/t/a", "/t/b"], Unit::S), field]);
        assert_eq!(read(&serde_json::to_string(&found).unwrap()).unwrap(), found);
        for wrong in [r#"[{"at":"/a"}]"#, r#"[{"at":"/a","unit":"h"}]"#, r#"[{"header":"x","unit":"ms","at":"/a"}]"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
