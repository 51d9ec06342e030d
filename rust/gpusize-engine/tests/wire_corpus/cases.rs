//! The files of a corpus (their form: tests/corpus/README.md), and the ways of cutting a message into pieces.

use std::path::Path;

use serde_json::Value;

/// Messages up to this length are cut in two at every place.
const SMALL: usize = 700;
/// Ways of cutting at random.
const DRAWS: u64 = 12;

/// One message with what is expected of it.
pub struct Case {
    /// File and name, for messages of failed tests.
    pub name: String,
    pub wire: Vec<u8>,
    all: Value,
}

impl Case {
    /// What stands under this key; null if nothing does.
    pub fn get(&self, key: &str) -> &Value {
        &self.all[key]
    }
}

/// All cases of a corpus, by file and place.
pub fn load(corpus: &str) -> Vec<Case> {
    let folder = Path::new("tests/corpus").join(corpus);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut names = std::collections::HashSet::new();
    let mut cases = Vec::new();
    for file in files {
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let all: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for case in all {
            let name = format!("{stem}: {}", case["name"].as_str().unwrap());
            assert!(names.insert(name.clone()), "{name} stands twice");
            cases.push(Case { name, wire: bytes(&case["wire"]), all: case });
        }
    }
    cases
}

/// The bytes that a text, or a list of texts and repeated texts, stands for: each character is one byte.
pub fn bytes(value: &Value) -> Vec<u8> {
    let text = |t: &Value| -> Vec<u8> {
        t.as_str().unwrap().chars().map(|c| u8::try_from(u32::from(c)).expect("a character is a byte")).collect()
    };
    match value {
        Value::Array(parts) => parts
            .iter()
            .flat_map(|part| match part {
                Value::Array(repeated) => text(&repeated[0]).repeat(repeated[1].as_u64().unwrap() as usize),
                one => text(one),
            })
            .collect(),
        one => text(one),
    }
}

/// Ways of cutting `wire` into pieces; each piece has at least one byte.
pub fn ways(wire: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut ways = vec![vec![wire], wire.chunks(1).collect()];
    if wire.len() <= SMALL {
        ways.extend((1..wire.len()).map(|at| vec![&wire[..at], &wire[at..]]));
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ wire.len() as u64;
    for draw in 0..DRAWS {
        let longest = 1 + (wire.len() >> (draw % 6)).min(4_096);
        let (mut pieces, mut rest) = (Vec::new(), wire);
        while !rest.is_empty() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let (piece, after) = rest.split_at((1 + state as usize % longest).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        ways.push(pieces);
    }
    ways
}
