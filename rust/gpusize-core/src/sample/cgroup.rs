//! A cgroup as a source: files that stay open, its end and what begins anew in its place.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::bytes::value;
use super::columns::{Column, Reading};
use super::files::{Tier, WANTED, Wanted};
use super::kept::{Buffer, is_gone, open};
use super::layout::{Asked, Layout, V2, discover};
use super::limits::{self, Limits};
use super::source::{End, Ends, Source, values};
use crate::clock::now_ns;
use crate::error::{Error, Result};

/// A file that is read again and again.
#[derive(Debug)]
struct Open {
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

/// A cgroup that is watched.
#[derive(Debug)]
pub struct Cgroup {
    root: PathBuf,
    pid: Option<u32>,
    layout: Layout,
    files: Vec<Open>,
    /// Columns that nothing gives, and why.
    missing: BTreeMap<&'static str, String>,
    limits: Limits,
    buffer: Buffer,
    ends: Ends,
    inode: u64,
    epoch: i32,
    /// The largest use at which `memory.stat` was read.
    stat_at_bytes: i64,
    exited_ns: Option<i64>,
    emptied_ns: Option<i64>,
    gone_ns: Option<i64>,
    first: Reading,
    last: Reading,
    parent: Option<Parent>,
}

/// A group above, which keeps the totals of those that are gone.
#[derive(Debug)]
struct Parent {
    path: String,
    group: std::result::Result<Box<Cgroup>, String>,
}

impl Cgroup {
    /// Find and open the group of a process or of a path. A process that has ended already is no error when there is a parent:
    /// its totals are there.
    pub fn open(root: &Path, asked: Asked<'_>, parent: Option<&str>) -> Result<Self> {
        let parent = parent.map(|path| Parent::open(root, path));
        let layout = match discover(root, asked) {
            Ok(layout) if layout.controllers.is_empty() && parent.is_none() => return Err(nowhere(asked, &layout)),
            Ok(layout) => layout,
            Err(_) if parent.is_some() => Layout::default(),
            Err(error) => return Err(error),
        };
        let pid = if let Asked::Pid(pid) = asked { Some(pid) } else { None };
        let mut group = Self {
            root: root.to_owned(),
            pid,
            layout,
            files: Vec::new(),
            missing: BTreeMap::new(),
            limits: Limits::default(),
            buffer: Buffer::default(),
            ends: pid.filter(|_| root == Path::new("/")).map_or_else(Ends::default, Ends::of_process),
            inode: 0,
            epoch: 0,
            stat_at_bytes: 0,
            exited_ns: None,
            emptied_ns: None,
            gone_ns: None,
            first: Reading::default(),
            last: Reading::default(),
            parent,
        };
        if group.layout.controllers.is_empty() {
            group.gone_ns = Some(now_ns());
        } else {
            group.open_files();
            group.limits = limits::read(&group.layout.controllers);
        }
        Ok(group)
    }

    fn open_files(&mut self) {
        self.files.clear();
        self.missing.clear();
        let mut given = 0;
        for what in WANTED {
            let Some(group) = self.layout.controllers.iter().find(|group| group.controller == what.controller) else {
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
                        self.files.push(Open { what: *what, path, file: Some(file), gives, whole, resettable });
                    }
                }
                Err(error) => {
                    let why = self.why_not(what, &dir, &path, &error);
                    self.note_missing(&columns, 0, &why);
                }
            }
        }
        self.files.sort_by_key(|file| file.what.tier);
        self.explain(given);
        self.watch_events();
        self.inode = self.layout.primary().and_then(|group| inode(&group.dir).ok()).unwrap_or(0);
    }

    fn why_not(&self, what: &Wanted, dir: &Path, path: &Path, error: &io::Error) -> String {
        let controller = what.name.split('.').next().unwrap_or_default();
        if what.controller == V2 && error.kind() == io::ErrorKind::NotFound {
            if self.layout.controllers.iter().any(|group| group.version == 1 && group.controller == controller) {
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

    fn explain(&mut self, given: u64) {
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
            let why = self.layout.left_out.iter().find(|(name, _)| controllers.contains(&name.as_str()));
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

    fn watch_events(&mut self) {
        let unified = self.layout.controllers.iter().find(|group| group.version == 2);
        let file = unified.and_then(|group| File::open(group.dir.join("cgroup.events")).ok());
        // A poll tells of changes since the last reading.
        if let Some(file) = &file {
            let _ = self.buffer.read(file);
        }
        self.ends.set_events(file);
    }

    fn read_files(&mut self, tier: Tier, reading: &mut Reading) {
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
            let with_growth = grown && matches!(self.files[at].what.name, "memory.stat" | "memory.peak");
            if file_tier <= tier || with_growth {
                self.read_file(at, reading);
            }
        }
        let after = if stamped { after } else { now_ns() };
        (reading.t_ns, reading.width_ns, reading.epoch) = (before + (after - before) / 2, after - before, self.epoch);
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

    fn check_end(&mut self) {
        let fast = self.files.iter().filter(|file| file.what.tier == Tier::Fast);
        let all_gone = if fast.clone().count() > 0 {
            fast.clone().all(|file| file.file.is_none())
        } else {
            self.files.iter().all(|file| file.file.is_none())
        };
        if all_gone {
            self.end();
        }
    }

    /// The group is gone: what its parent has of it now is what will be left.
    fn end(&mut self) {
        self.gone_ns.get_or_insert_with(now_ns);
        self.ends.set_events(None);
        for file in &mut self.files {
            file.file = None;
        }
        if let Some(Parent { group: Ok(parent), .. }) = &mut self.parent {
            let mut totals = Reading::default();
            parent.read(Tier::Slow, &mut totals);
        }
    }

    /// Whether another group stands at the path: the container was started again.
    fn check_restart(&mut self) {
        let Some(primary) = self.layout.primary() else { return };
        match inode(&primary.dir) {
            Ok(now) if now != self.inode || self.gone_ns.is_some() => {
                self.open_files();
                if self.files.is_empty() {
                    // Its files are not there yet.
                    self.gone_ns.get_or_insert_with(now_ns);
                    return;
                }
                self.epoch += 1;
                self.stat_at_bytes = 0;
                (self.gone_ns, self.emptied_ns) = (None, None);
                self.limits = limits::read(&self.layout.controllers);
            }
            Err(error) if self.gone_ns.is_none() && is_gone(&error) => self.end(),
            _ => {}
        }
    }

    fn signals(&self) -> Value {
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

impl Source for Cgroup {
    fn read(&mut self, tier: Tier, reading: &mut Reading) {
        if tier == Tier::Slow || (self.gone_ns.is_some() && tier == Tier::Medium) {
            self.check_restart();
        }
        if self.gone_ns.is_some() {
            return;
        }
        self.read_files(tier, reading);
        if !reading.is_empty() {
            if self.first.is_empty() {
                self.first = reading.clone();
            }
            self.last.update(reading);
        }
        self.check_end();
    }

    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn ended(&mut self, end: End, t_ns: i64) {
        if end == End::Process {
            self.exited_ns = Some(t_ns);
            self.ends.drop_process();
        } else if let Some(file) = self.ends.events() {
            match self.buffer.read(&file).map(|text| value(text, b"populated")) {
                Ok(Some(0)) => self.emptied_ns = Some(t_ns),
                Ok(_) => self.emptied_ns = None,
                // Once its group is removed, the descriptor is ready for ever.
                Err(_) => self.ends.set_events(None),
            }
        }
    }

    fn reset_peak(&mut self) -> bool {
        let peak = self.files.iter().find(|open| open.resettable);
        peak.and_then(|open| open.file.as_ref()).is_some_and(|file| file.write_at(b"reset\n", 0).is_ok())
    }

    fn facts(&mut self) -> Value {
        if self.gone_ns.is_none() && !self.files.is_empty() {
            let limits = limits::read(&self.layout.controllers);
            // A group that was removed meanwhile has none; those that it had are kept.
            if self.layout.primary().is_some_and(|group| inode(&group.dir).is_ok_and(|now| now == self.inode)) {
                self.limits = limits;
            }
        }
        let resettable = self.files.iter().any(|open| open.resettable);
        json!({
            "kind": "cgroup", "pid": self.pid, "root": self.root, "restarts": self.epoch,
            "gone": self.gone_ns.is_some(), "gone_ns": self.gone_ns, "exited_ns": self.exited_ns,
            "emptied_ns": self.emptied_ns, "layout": self.layout, "limits": self.limits,
            "signals": self.signals(), "missing": self.missing, "peak_resettable": resettable,
            "first_ns": self.first.t_ns, "first": values(&self.first),
            "last_ns": self.last.t_ns, "last": values(&self.last),
            "parent": self.parent.as_mut().map(Parent::facts),
        })
    }
}

impl Parent {
    fn open(root: &Path, path: &str) -> Self {
        let group = Cgroup::open(root, Asked::Path(path), None).map(|mut group| {
            group.read(Tier::Slow, &mut Reading::default());
            Box::new(group)
        });
        Self { path: path.to_owned(), group: group.map_err(|error| error.to_string()) }
    }

    fn facts(&mut self) -> Value {
        let group = match &mut self.group {
            Ok(group) => group,
            Err(why) => return json!({"path": self.path, "why": why}),
        };
        group.read(Tier::Slow, &mut Reading::default());
        json!({
            "path": self.path, "why": null, "limits": group.limits, "gone": group.gone_ns.is_some(),
            "first_ns": group.first.t_ns, "first": values(&group.first),
            "last_ns": group.last.t_ns, "last": values(&group.last),
        })
    }
}

fn inode(dir: &Path) -> io::Result<u64> {
    fs::metadata(dir).map(|metadata| metadata.ino())
}

fn nowhere(asked: Asked<'_>, layout: &Layout) -> Error {
    let whys: Vec<String> = layout.left_out.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let place = match asked {
        Asked::Pid(pid) => format!("/proc/{pid}/cgroup"),
        Asked::Path(path) => path.to_owned(),
    };
    let todo = "name a group that is there, or watch the process tree or the host instead";
    Error::environment(format!("no controller of this group can be read ({})", whys.join("; ")), place, todo)
}
