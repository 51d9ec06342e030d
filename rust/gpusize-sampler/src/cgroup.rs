//! A cgroup as a source: files that stay open, its end and what begins anew in its place.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::bytes::value;
use super::columns::Reading;
use super::files::Tier;
use super::group_files::GroupFiles;
use super::held::WatchedLimits;
use super::kept::is_gone;
use super::layout::{Asked, Layout, discover};
use super::parent::Parent;
use super::source::{End, Ends, Source, values};
use gpusize_base::clock::now_ns;
use gpusize_base::error::{Error, Result};

/// So many looks a group that is made anew may be unfinished: a second at the medium rate.
const MOST_WAITS: u32 = 10;

/// A cgroup that is watched.
#[derive(Debug)]
pub struct Cgroup {
    root: PathBuf,
    pid: Option<u32>,
    layout: Layout,
    files: GroupFiles,
    limits: WatchedLimits,
    ends: Ends,
    inode: u64,
    epoch: i32,
    /// How often a group that is made anew was found unfinished.
    waits: u32,
    exited_ns: Option<i64>,
    emptied_ns: Option<i64>,
    gone_ns: Option<i64>,
    first: Reading,
    last: Reading,
    parent: Option<Parent>,
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
            files: GroupFiles::default(),
            limits: WatchedLimits::default(),
            ends: pid.filter(|_| root == Path::new("/")).map_or_else(Ends::default, Ends::of_process),
            inode: 0,
            epoch: 0,
            waits: 0,
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
            group.begin();
        }
        Ok(group)
    }

    /// Open what stands at the group's path.
    fn begin(&mut self) {
        self.files = GroupFiles::open(&self.layout);
        self.limits.begin(&self.layout.controllers, now_ns());
        self.inode = self.layout.primary().and_then(|group| inode(&group.dir).ok()).unwrap_or(0);
        self.watch_events();
    }

    fn watch_events(&mut self) {
        let unified = self.layout.controllers.iter().find(|group| group.version == 2);
        let file = unified.and_then(|group| File::open(group.dir.join("cgroup.events")).ok());
        // A poll tells of changes since the last reading.
        if let Some(file) = &file {
            let _ = populated(file);
        }
        self.ends.set_events(file);
    }

    /// The group is gone: what its parent has of it now is what will be left.
    fn end(&mut self) {
        self.gone_ns.get_or_insert_with(now_ns);
        self.ends.set_events(None);
        self.files.close();
        self.limits.end(now_ns());
        if let Some(parent) = &mut self.parent {
            parent.read();
        }
    }

    /// The directory that says whether it is there.
    pub fn primary_dir(&self) -> Option<&Path> {
        self.layout.primary().map(|group| group.dir.as_path())
    }

    /// Read everything, now.
    pub fn read_all(&mut self) {
        self.read(Tier::Slow, &mut Reading::default());
    }

    /// What was read first.
    pub fn first(&self) -> &Reading {
        &self.first
    }

    /// What was read last of each column.
    pub fn last(&self) -> &Reading {
        &self.last
    }

    /// Its limits and those above.
    pub fn told_limits(&self) -> Value {
        json!(self.limits.limits())
    }

    /// Whether it is not there any more.
    pub fn is_gone(&self) -> bool {
        self.gone_ns.is_some()
    }

    /// Whether another group stands at the path, the container was started again: says so.
    fn check_restart(&mut self) -> bool {
        let Some(primary) = self.layout.primary() else { return false };
        match inode(&primary.dir) {
            Ok(now) if now != self.inode || self.gone_ns.is_some() => {
                if self.gone_ns.is_none() {
                    self.end();
                }
                if !self.is_whole() {
                    return false;
                }
                self.begin();
                if self.files.is_empty() {
                    return false;
                }
                self.epoch += 1;
                self.last = Reading::default();
                (self.gone_ns, self.emptied_ns, self.exited_ns) = (None, None, None);
                true
            }
            Err(error) if self.gone_ns.is_none() && is_gone(&error) => {
                self.end();
                false
            }
            _ => false,
        }
    }

    /// Runtimes make a group of v1 in one hierarchy after the other: whether all are there, or have been waited for.
    fn is_whole(&mut self) -> bool {
        self.waits += 1;
        let whole = self.waits > MOST_WAITS || self.layout.controllers.iter().all(|group| group.dir.is_dir());
        if whole {
            self.waits = 0;
        }
        whole
    }
}

impl Source for Cgroup {
    fn read(&mut self, tier: Tier, reading: &mut Reading) {
        let looks = tier == Tier::Slow || (self.gone_ns.is_some() && tier == Tier::Medium);
        let tier = if looks && self.check_restart() { Tier::Slow } else { tier };
        if self.gone_ns.is_some() {
            return;
        }
        self.files.read(tier, reading);
        reading.epoch = self.epoch;
        if !reading.is_empty() {
            if self.first.is_empty() {
                self.first = reading.clone();
            }
            self.last.update(reading);
        }
        if self.files.are_gone() {
            self.end();
        } else if tier == Tier::Slow {
            self.limits.look(now_ns());
        }
    }

    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn ended(&mut self, end: End, t_ns: i64) {
        if end == End::Process {
            self.exited_ns = Some(t_ns);
            self.ends.drop_process();
        } else if let Some(file) = self.ends.events() {
            match populated(&file) {
                Ok(Some(0)) => self.emptied_ns = Some(t_ns),
                Ok(_) => self.emptied_ns = None,
                // Once its group is removed, the descriptor is ready for ever.
                Err(_) => self.ends.set_events(None),
            }
        }
        // As long as a monitor is there that is to be told apart from it.
        if let Some(parent) = &mut self.parent {
            parent.read();
        }
    }

    fn reset_peak(&mut self) -> bool {
        self.limits.phase();
        self.files.reset_peak()
    }

    fn facts(&mut self) -> Value {
        json!({
            "kind": "cgroup", "pid": self.pid, "root": self.root, "restarts": self.epoch,
            "gone": self.gone_ns.is_some(), "gone_ns": self.gone_ns, "exited_ns": self.exited_ns,
            "emptied_ns": self.emptied_ns, "layout": self.layout, "limits": self.limits.limits(),
            "held": self.limits.held(),
            "signals": self.files.signals(), "missing": self.files.missing(),
            "peak_resettable": self.files.is_resettable(),
            "first_ns": self.first.t_ns, "first": values(&self.first),
            "last_ns": self.last.t_ns, "last": values(&self.last),
            "parent": self.parent.as_mut().map(Parent::facts),
        })
    }
}

/// What `cgroup.events` says of processes in the group.
fn populated(file: &File) -> io::Result<Option<i64>> {
    let mut text = [0; 256];
    let bytes = file.read_at(&mut text, 0)?;
    Ok(value(&text[..bytes], b"populated"))
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
