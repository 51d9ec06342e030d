//! The files of one group: which there are, which columns each gives, and their reading.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::columns::{Column, Reading};
use super::files::{Tier, WANTED, Wanted};
use super::kept::{Buffer, is_gone, open};
use super::layout::{Layout, V2};
use gpusize_base::clock::now_ns;

/// Read as well when memory reaches a new height.
const WITH_GROWTH: [&str; 3] = ["memory.stat", "memory.peak", "memory.max_usage_in_bytes"];

/// A file that is read again and again.
#[derive(Debug)]
struct OpenFile {
    what: Wanted,
    path: PathBuf,
    /// None: it is gone, or cannot be read.
    file: Option<File>,
    /// The columns that it gives, of all that are in it.
    gives: u64,
    /// It gives all of them.
    whole: bool,
    /// Its high-water mark can be begun anew.
    resettable: bool,
}

/// The files of a group that stay open.
#[derive(Debug, Default)]
pub struct GroupFiles {
    files: Vec<OpenFile>,
    /// Columns that nothing gives, and why.
    missing: BTreeMap<&'static str, String>,
    buffer: Buffer,
    /// The largest use at which `memory.stat` was read.
    stat_at_bytes: i64,
}

impl GroupFiles {
    /// Open what a group has; `missing` has the rest.
    pub fn open(layout: &Layout) -> Self {
        let mut files = Self::default();
        files.open_all(layout);
        files
    }

    fn open_all(&mut self, layout: &Layout) {
        let mut given = 0;
        for what in WANTED {
            let Some(group) = layout.controllers.iter().find(|group| group.controller == what.controller) else {
                continue;
            };
            let columns = what.format.columns();
            let gives = columns.iter().fold(0, |set, column| set | column.bit()) & !given;
            if gives == 0 {
                continue;
            }
            let dir = group.dir.clone();
            let path = dir.join(what.name);
            let opened = if what.name == "memory.peak" { open(&path) } else { File::open(&path).map(|f| (f, false)) };
            // What a file lacks (throttling without the controller, swap without its accounting) shows in a first reading.
            let read = opened.and_then(|(file, resettable)| {
                let mut reading = Reading::default();
                what.format.read(self.buffer.read(&file)?, &mut reading);
                Ok((file, resettable, reading))
            });
            match read {
                Ok((file, resettable, reading)) => {
                    let gives = reading.present() & gives;
                    let whole = columns.iter().all(|column| gives & column.bit() != 0);
                    self.note_missing(&columns, gives, &format!("{} does not have it", path.display()));
                    if gives != 0 {
                        given |= gives;
                        self.files.push(OpenFile { what: *what, path, file: Some(file), gives, whole, resettable });
                    }
                }
                Err(error) => {
                    let why = Self::why_not(layout, what, &dir, &path, &error);
                    self.note_missing(&columns, 0, &why);
                }
            }
        }
        self.files.sort_by_key(|file| file.what.tier);
        self.explain(layout, given);
    }

    fn why_not(layout: &Layout, what: &Wanted, dir: &Path, path: &Path, error: &io::Error) -> String {
        let controller = what.name.split('.').next().unwrap_or_default();
        if what.controller == V2 && error.kind() == io::ErrorKind::NotFound {
            if layout.controllers.iter().any(|group| group.version == 1 && group.controller == controller) {
                return "cgroup v1 does not have it".to_owned();
            }
            let enabled = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
            let of_controller = !what.name.ends_with(".pressure");
            if of_controller && !enabled.split_ascii_whitespace().any(|name| name == controller) {
                return format!(
                    "the controller {controller} is not switched on for this group (it has: {})",
                    enabled.trim()
                );
            }
        }
        let since = if what.since.is_empty() { String::new() } else { format!("; needs {}", what.since) };
        format!("{}: {error}{since}", path.display())
    }

    fn note_missing(&mut self, columns: &[Column], gives: u64, why: &str) {
        for column in columns.iter().filter(|column| gives & column.bit() == 0) {
            self.missing.entry(column.name()).or_insert_with(|| why.to_owned());
        }
    }

    fn explain(&mut self, layout: &Layout, given: u64) {
        for column in Column::ALL {
            if given & column.bit() != 0 {
                self.missing.remove(column.name());
                continue;
            }
            let controllers: Vec<&str> = WANTED
                .iter()
                .filter(|what| what.format.columns().contains(column))
                .map(|what| what.controller)
                .collect();
            let why = layout.left_out.iter().find(|(name, _)| controllers.contains(&name.as_str()));
            let why = why.map_or_else(
                || {
                    if controllers == ["unified"] { "cgroup v1 does not have it" } else { "no cgroup has it" }
                        .to_owned()
                },
                |(name, why)| format!("{name}: {why}"),
            );
            self.missing.entry(column.name()).or_insert(why);
        }
    }

    /// Read the files of this tier and of the faster ones; the time is that of the fast ones.
    pub fn read(&mut self, tier: Tier, reading: &mut Reading) {
        let before = now_ns();
        let mut after = before;
        let mut stamped = false;
        let mut grown = false;
        for at in 0..self.files.len() {
            let file_tier = self.files[at].what.tier;
            if file_tier > Tier::Fast && !stamped {
                (stamped, after) = (true, now_ns());
                grown = self.grown(reading);
            }
            // They stand in the order of their tiers.
            if file_tier > tier && !grown {
                break;
            }
            if file_tier <= tier || WITH_GROWTH.contains(&self.files[at].what.name) {
                self.read_file(at, reading);
            }
        }
        let after = if stamped { after } else { now_ns() };
        (reading.t_ns, reading.width_ns) = (before + (after - before) / 2, after - before);
    }

    /// Memory is 1 % above what it was when `memory.stat` was last read for that: what it consists of at the top is to be known.
    fn grown(&mut self, reading: &Reading) -> bool {
        let Some(mem_bytes) = reading.get(Column::Mem) else { return false };
        let grown = mem_bytes > self.stat_at_bytes + self.stat_at_bytes / 100;
        if grown {
            self.stat_at_bytes = mem_bytes;
        }
        grown
    }

    fn read_file(&mut self, at: usize, reading: &mut Reading) {
        let open = &mut self.files[at];
        let Some(file) = &open.file else { return };
        match self.buffer.read(file) {
            Ok(text) if open.whole => open.what.format.read(text, reading),
            Ok(text) => {
                let mut all = Reading::default();
                open.what.format.read(text, &mut all);
                reading.take(&all, open.gives);
            }
            Err(error) => {
                open.file = None;
                if !is_gone(&error) {
                    let why = format!("{}: {error}", open.path.display());
                    let (columns, gives) = (open.what.format.columns(), open.gives);
                    self.note_missing(&columns, !gives, &why);
                }
            }
        }
    }

    /// Whether the group is: no fast file is left, or none at all where there was no fast one.
    pub fn are_gone(&self) -> bool {
        let has_fast = self.files.iter().any(|open| open.what.tier == Tier::Fast);
        let mut counting = self.files.iter().filter(|open| open.what.tier == Tier::Fast || !has_fast);
        counting.all(|open| open.file.is_none())
    }

    /// Whether nothing could be opened.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Give the descriptors back; what they were is kept for the facts.
    pub fn close(&mut self) {
        for open in &mut self.files {
            open.file = None;
        }
    }

    /// Whether the high-water mark can be begun anew.
    pub fn is_resettable(&self) -> bool {
        self.files.iter().any(|open| open.resettable)
    }

    /// Begin the high-water mark anew; says whether that was possible.
    pub fn reset_peak(&mut self) -> bool {
        let peak = self.files.iter().find(|open| open.resettable).and_then(|open| open.file.as_ref());
        peak.is_some_and(|file| file.write_at(b"reset\n", 0).is_ok())
    }

    /// Columns that nothing gives, and why.
    pub fn missing(&self) -> &BTreeMap<&'static str, String> {
        &self.missing
    }

    /// Columns, and the file and tier of each.
    pub fn signals(&self) -> Value {
        let mut signals = serde_json::Map::new();
        for open in &self.files {
            for column in Column::ALL.iter().filter(|column| open.gives & column.bit() != 0) {
                let fact = json!({"file": open.path, "tier": open.what.tier});
                signals.insert(column.name().to_owned(), fact);
            }
        }
        Value::Object(signals)
    }
}
