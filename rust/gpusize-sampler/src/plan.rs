//! What to sample and how often, as the caller says it (docs/reference/sampler.md).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cgroup::Cgroup;
use super::host::Host;
use super::layout::Asked;
use super::process::Process;
use super::source::Source;
use gpusize_base::error::{Error, Result};

const MS_NS: i64 = 1_000_000;
const LEAST_NS: i64 = MS_NS;
const MOST_NS: i64 = 3_600_000 * MS_NS;

/// What to sample and how often.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Time between readings of the fast files: 1 ms to an hour.
    #[serde(default = "interval")]
    pub interval_ns: i64,
    /// Time between readings of pressure, throttling and the host's memory; at least `interval_ns`.
    #[serde(default = "medium")]
    pub medium_ns: i64,
    /// Time between readings of `memory.stat`, IO, events and high-water marks; at least `interval_ns`.
    #[serde(default = "slow")]
    pub slow_ns: i64,
    /// Time between readings of proportional memory, where a source asks for it.
    #[serde(default = "pss")]
    pub pss_ns: i64,
    /// The directory that stands for `/`.
    #[serde(default = "root")]
    pub root: PathBuf,
    /// What to sample.
    pub sources: Vec<SourcePlan>,
}

/// One source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcePlan {
    /// What the caller calls it.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The process, of `cgroup` and `process`.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The group, of `cgroup`: its path in the hierarchies, or a directory.
    #[serde(default)]
    pub path: Option<String>,
    /// Of `cgroup`: a group above that is kept, for the totals of what is gone.
    #[serde(default)]
    pub parent: Option<String>,
    /// Of `process`: work out proportional memory, too.
    #[serde(default)]
    pub pss: bool,
}

/// The kinds of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A cgroup, by a process in it or by its path.
    Cgroup,
    /// A process and its descendants.
    Process,
    /// The machine.
    Host,
}

fn interval() -> i64 {
    20 * MS_NS
}

fn medium() -> i64 {
    100 * MS_NS
}

fn slow() -> i64 {
    500 * MS_NS
}

fn pss() -> i64 {
    5_000 * MS_NS
}

fn root() -> PathBuf {
    PathBuf::from("/")
}

impl Plan {
    /// Refuse what is invalid.
    pub fn check(&self) -> Result<()> {
        for (name, value) in [
            ("interval_ns", self.interval_ns),
            ("medium_ns", self.medium_ns),
            ("slow_ns", self.slow_ns),
            ("pss_ns", self.pss_ns),
        ] {
            if !(LEAST_NS..=MOST_NS).contains(&value) {
                return Err(Error::usage(format!("{value} ns is not a time between readings"), name, "1 ms to 1 h"));
            }
        }
        if self.sources.is_empty() {
            return Err(Error::usage("there is nothing to sample", "sources", "name a cgroup, a process or the host"));
        }
        let mut names = HashSet::new();
        for source in &self.sources {
            if !names.insert(source.name.as_str()) {
                return Err(Error::usage("two sources have this name", &source.name, "give each a name of its own"));
            }
            source.check()?;
        }
        Ok(())
    }
}

impl SourcePlan {
    fn check(&self) -> Result<()> {
        let wrong = |what: &str, todo: &str| Err(Error::usage(what, &self.name, todo));
        match (self.kind, self.pid, &self.path) {
            (Kind::Cgroup, Some(_), Some(_)) | (Kind::Cgroup, None, None) => {
                wrong("a cgroup is named by a pid or by a path", "give one of the two")
            }
            (Kind::Process, None, _) => wrong("a process is named by its pid", "give a pid"),
            (Kind::Process, _, Some(_)) => wrong("a process has no path", "leave path out, or make it a cgroup"),
            (Kind::Host, Some(_), _) | (Kind::Host, _, Some(_)) => {
                wrong("the host has neither pid nor path", "leave them out")
            }
            _ if self.parent.is_some() && self.kind != Kind::Cgroup => {
                wrong("only a cgroup has a parent", "leave parent out")
            }
            _ if self.pss && self.kind != Kind::Process => {
                wrong("only of processes is there proportional memory", "leave pss out")
            }
            _ => Ok(()),
        }
    }

    /// Open it.
    pub fn open(&self, root: &Path, pss_ns: i64) -> Result<Box<dyn Source>> {
        let parent = self.parent.as_deref();
        Ok(match (self.kind, self.pid, &self.path) {
            (Kind::Cgroup, Some(pid), _) => Box::new(Cgroup::open(root, Asked::Pid(pid), parent)?),
            (Kind::Cgroup, None, path) => {
                Box::new(Cgroup::open(root, Asked::Path(path.as_deref().unwrap_or_default()), parent)?)
            }
            (Kind::Process, pid, _) => {
                Box::new(Process::open(root, pid.unwrap_or_default(), self.pss.then_some(pss_ns))?)
            }
            (Kind::Host, ..) => Box::new(Host::open(root)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(plan: &str) -> String {
        serde_json::from_str::<Plan>(plan).expect("a plan").check().expect_err("refused").to_string()
    }

    #[test]
    fn plans_that_cannot_be_meant_are_refused() {
        let of = |source: &str| refused(&format!(r#"{{"sources": [{source}]}}"#));
        assert_eq!(refused(r#"{"sources": []}"#), "there is nothing to sample");
        assert_eq!(of(r#"{"name": "a", "kind": "cgroup"}"#), "a cgroup is named by a pid or by a path");
        assert_eq!(
            of(r#"{"name": "a", "kind": "cgroup", "pid": 1, "path": "/x"}"#),
            "a cgroup is named by a pid or by a path"
        );
        assert_eq!(of(r#"{"name": "a", "kind": "process"}"#), "a process is named by its pid");
        assert_eq!(of(r#"{"name": "a", "kind": "host", "pid": 1}"#), "the host has neither pid nor path");
        assert_eq!(of(r#"{"name": "a", "kind": "host", "parent": "/"}"#), "only a cgroup has a parent");
        assert_eq!(of(r#"{"name": "a", "kind": "host"}, {"name": "a", "kind": "host"}"#), "two sources have this name");
        let fast = r#"{"interval_ns": 999999, "sources": [{"name": "a", "kind": "host"}]}"#;
        assert_eq!(refused(fast), "999999 ns is not a time between readings");
    }

    #[test]
    fn the_times_have_defaults() {
        let plan: Plan = serde_json::from_str(r#"{"sources": [{"name": "a", "kind": "host"}]}"#).expect("a plan");
        assert!(plan.check().is_ok());
        assert_eq!((plan.interval_ns, plan.medium_ns, plan.slow_ns), (20_000_000, 100_000_000, 500_000_000));
        assert!(serde_json::from_str::<Plan>(r#"{"sources": [], "intervall_ns": 1}"#).is_err());
    }
}
