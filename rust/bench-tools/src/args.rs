//! `--name value` pairs of the command line, nothing more.

use std::collections::HashMap;
use std::str::FromStr;

/// The options that were given.
#[derive(Debug, Default)]
pub struct Args {
    values: HashMap<String, String>,
}

impl Args {
    /// Reads `--name value` pairs; a name outside `allowed` or a missing value is an error text.
    pub fn parse(words: impl IntoIterator<Item = String>, allowed: &[&str]) -> Result<Self, String> {
        let mut values = HashMap::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").filter(|name| allowed.contains(name));
            let name = name.ok_or_else(|| format!("unknown option {word}; known: {}", allowed.join(", ")))?;
            let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
            values.insert(name.to_owned(), value);
        }
        Ok(Self { values })
    }

    /// The value of `name`, or `default` when it was not given.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.values.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("--{name} cannot be {text:?}")),
        }
    }

    /// Whether `name` was given.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Args;

    fn words(text: &str) -> impl Iterator<Item = String> {
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn pairs_and_defaults() {
        let args = Args::parse(words("--port 80"), &["port", "rate"]).unwrap();
        assert_eq!(args.get("port", 0_u16), Ok(80));
        assert_eq!(args.get("rate", 2.5_f64), Ok(2.5));
        assert!(args.has("port") && !args.has("rate"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert!(Args::parse(words("--prot 80"), &["port"]).unwrap_err().contains("--prot"));
        assert!(Args::parse(words("--port"), &["port"]).unwrap_err().contains("needs a value"));
        let args = Args::parse(words("--port many"), &["port"]).unwrap();
        assert!(args.get("port", 0_u16).unwrap_err().contains("many"));
    }
}
