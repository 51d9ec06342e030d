//! A process and its descendants as a source, for machines without cgroups of one's own.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::account::{Account, Found};
use super::columns::{Column, Reading};
use super::files::{Tier, USER_TICK_NS};
use super::held::WatchedLimits;
use super::kept::Buffer;
use super::layout::{Asked, discover};
use super::member::{Member, children_of};
use super::mounts;
use super::proc_files;
use super::proportional::Looks;
use super::source::{End, Ends, Source, values};
use super::sys::{page_bytes, tmpfs_bytes};
use gpusize_base::clock::now_ns;
use gpusize_base::error::{Error, Result};

/// Trees of more threads are searched for children at the medium rate: it takes a file per thread.
const FEW_THREADS: i64 = 16;
/// So many processes keep a descriptor; the others are opened each time.
const MOST_OPEN: usize = 256;

/// A tree of processes. Who has been seen in it stays in it, whoever its parent becomes.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    proc: PathBuf,
    /// Of this machine, so that processes' CPU clocks can be read.
    live: bool,
    /// Parents before their children.
    members: Vec<Member>,
    seen: u64,
    /// `/proc/loadavg`, and the number in it as the last search began.
    births: Option<File>,
    newest: Option<i64>,
    cpu: Account,
    user: Account,
    system: Account,
    /// How long each thread had waited for a CPU at the last look, and all of them together, those that have ended too.
    waits: HashMap<u32, i64>,
    waited_ns: i64,
    /// Where files in memory are, as the process sees it.
    tmpfs: Vec<PathBuf>,
    hwm_bytes: i64,
    status_at_bytes: i64,
    /// Page faults of all that are there.
    faults: i64,
    /// Of proportional memory, where it is asked for.
    looks: Option<Looks>,
    buffer: Buffer,
    /// Of the cgroup that the process was in when it was asked for, which it may share.
    limits: WatchedLimits,
    ends: Ends,
    exited_ns: Option<i64>,
    gone_ns: Option<i64>,
    io_refused: bool,
    pss_refused: bool,
    first: Reading,
    last: Reading,
}

impl Process {
    /// Watch a process; `pss_every_ns`: how often to work out proportional memory, which takes a millisecond and more.
    pub fn open(root: &Path, pid: u32, pss_every_ns: Option<i64>) -> Result<Self> {
        let live = root == Path::new("/");
        let mut tree = Self {
            pid,
            proc: root.join("proc"),
            live,
            members: Vec::new(),
            seen: 0,
            births: File::open(root.join("proc/loadavg")).ok(),
            newest: None,
            cpu: Account::default(),
            user: Account::default(),
            system: Account::default(),
            waits: HashMap::new(),
            waited_ns: 0,
            tmpfs: Vec::new(),
            hwm_bytes: 0,
            status_at_bytes: 0,
            faults: 0,
            looks: pss_every_ns.map(Looks::every),
            buffer: Buffer::default(),
            limits: WatchedLimits::of_a_part(),
            ends: if live { Ends::of_process(pid) } else { Ends::default() },
            exited_ns: None,
            gone_ns: None,
            io_refused: false,
            pss_refused: false,
            first: Reading::default(),
            last: Reading::default(),
        };
        if !tree.join(pid, None) {
            let what = format!("there is no process {pid} to be watched");
            let todo = "name a process that runs; it may have ended already";
            return Err(Error::environment(what, tree.proc.join(pid.to_string()).display().to_string(), todo));
        }
        let own = tree.proc.join(pid.to_string());
        let seen = std::fs::read_to_string(own.join("mountinfo")).map(|text| mounts::tmpfs(&text));
        // By its own root: a container's process has mounts of its own.
        tree.tmpfs = seen
            .unwrap_or_default()
            .iter()
            .filter_map(|at| Some(own.join("root").join(at.strip_prefix("/").ok()?)))
            .collect();
        // A machine without cgroups has no limits of any.
        if let Ok(layout) = discover(root, Asked::Pid(pid)) {
            tree.limits.begin(&layout.controllers, now_ns());
        }
        Ok(tree)
    }

    /// Take a process in, unless it is in or its number was given to another process meanwhile.
    fn join(&mut self, pid: u32, parent: Option<u32>) -> bool {
        let Ok(file) = proc_files::open(&self.proc, pid, "stat") else { return false };
        let Some(stat) = self.buffer.read(&file).ok().and_then(proc_files::stat) else { return false };
        let of_parent = !stat.waited_for && parent.is_none_or(|parent| stat.parent == parent);
        if of_parent && !self.members.iter().any(|member| member.pid == pid) {
            let file = (self.members.len() < MOST_OPEN).then_some(file);
            let own_ns = stat.user_ns + stat.system_ns;
            self.members.push(Member { pid, file, stat, own_ns });
            self.seen += 1;
        }
        of_parent
    }

    /// The number that was given out last: as long as it stays the same, no process was born.
    fn newest(&mut self) -> Option<i64> {
        self.buffer.read(self.births.as_ref()?).ok().and_then(proc_files::newest)
    }

    fn search(&mut self) {
        self.newest = self.newest();
        let listed = proc_files::has_children_files(&self.proc, self.members.first().map_or(self.pid, |m| m.pid));
        let parents = if listed { Vec::new() } else { proc_files::all_parents(&self.proc) };
        let mut at = 0;
        let mut children = Vec::new();
        while at < self.members.len() {
            let parent = self.members[at].pid;
            children.clear();
            if listed {
                proc_files::children(&self.proc, parent, &mut children);
            } else {
                children.extend(parents.iter().filter(|pair| pair.1 == parent).map(|pair| pair.0));
            }
            for child in &children {
                if !self.members.iter().any(|member| member.pid == *child) {
                    self.join(*child, Some(parent));
                }
            }
            at += 1;
        }
    }

    /// Read every member's counters; those that are no longer there leave.
    ///
    /// CPU time is told only where `searched`, or nobody was born since then: a search, or a parent's counters, would
    /// bring the time of those born meanwhile all at once, as more than the CPUs can have given since the reading before.
    fn count(&mut self, reading: &mut Reading, searched: bool) {
        let mut sums = [Found::default(); 3];
        let (mut pages, mut threads, mut faults) = (0, 0, 0);
        let mut members = std::mem::take(&mut self.members);
        members.retain_mut(|member| {
            let before = (member.stat, member.own_ns);
            let there = member.update(&self.proc, self.live, &mut self.buffer);
            let parts = member.parts();
            if there {
                let old = children_of(&before.0);
                for ((sum, part), (now, old)) in
                    sums.iter_mut().zip(parts).zip(children_of(&member.stat).iter().zip(old))
                {
                    sum.there += part;
                    sum.grown += now - old;
                }
                if !member.stat.ended {
                    pages += member.stat.pages;
                    faults += member.stat.faults;
                    threads += member.stat.threads;
                }
            } else {
                for (sum, part) in sums.iter_mut().zip(parts) {
                    sum.vanished += part;
                    sum.vanished_count += 1;
                }
            }
            there
        });
        self.members = members;
        self.faults = faults;
        // Both of a parent's counters of its children are cut to whole hundredths of a second.
        let error = 2 * USER_TICK_NS;
        let cpu = [self.cpu.add(sums[0], error), self.user.add(sums[1], error), self.system.add(sums[2], error)];
        // After the last one there is no later reading to tell it.
        let over = self.members.iter().all(|member| member.stat.ended);
        if searched || over || self.newest().is_some_and(|newest| self.newest == Some(newest)) {
            for (column, ns) in [Column::Cpu, Column::CpuUser, Column::CpuSystem].into_iter().zip(cpu) {
                reading.set(column, ns);
            }
        }
        reading.set(Column::Mem, pages * page_bytes());
        reading.set(Column::Pids, threads);
    }

    /// What the process's memory consists of, its high-water mark, and IO.
    fn details(&mut self, reading: &mut Reading) {
        let mut sums = [0; 3];
        let (mut read, mut written, mut io) = (0, 0, false);
        for member in self.members.iter().filter(|member| !member.stat.ended) {
            if let Ok(file) = proc_files::open(&self.proc, member.pid, "status")
                && let Ok(text) = self.buffer.read(&file)
            {
                let kib = |key: &[u8]| proc_files::kib(text, key).unwrap_or(0);
                self.hwm_bytes = self.hwm_bytes.max(kib(b"VmHWM:"));
                for (sum, key) in sums.iter_mut().zip([&b"RssAnon:"[..], b"RssFile:", b"RssShmem:"]) {
                    *sum += kib(key);
                }
            }
            let text = proc_files::open(&self.proc, member.pid, "io")
                .and_then(|file| self.buffer.read(&file).map(proc_files::io));
            match text {
                Ok(Some((r, w))) => (read, written, io) = (read + r, written + w, true),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => self.io_refused = true,
                _ => {}
            }
        }
        if self.hwm_bytes > 0 {
            reading.set(Column::MemPeak, self.hwm_bytes);
        }
        for (column, sum) in [Column::Anon, Column::FileBytes, Column::Shmem].into_iter().zip(sums) {
            reading.set(column, sum);
        }
        if io && !self.io_refused {
            // The kernel adds a process's to its parent's when it is waited for; until then the sum may step back.
            for (column, sum) in [(Column::ReadBytes, read), (Column::WrittenBytes, written)] {
                reading.set(column, sum.max(self.last.get(column).unwrap_or(0)));
            }
        }
    }

    fn proportional(&mut self, reading: &mut Reading) {
        let mut sum = None;
        for member in self.members.iter().filter(|member| !member.stat.ended) {
            let rollup = proc_files::open(&self.proc, member.pid, "smaps_rollup");
            match rollup.and_then(|file| self.buffer.read_all(&file).map(|text| proc_files::kib(text, b"Pss:"))) {
                Ok(Some(bytes)) => sum = Some(sum.unwrap_or(0) + bytes),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => self.pss_refused = true,
                _ => {}
            }
        }
        if let Some(bytes) = sum.filter(|_| !self.pss_refused) {
            reading.set(Column::Pss, bytes);
        }
    }

    /// How long threads have waited for a CPU. What one waits after the last look at it is in nobody's account.
    fn waited(&mut self, reading: &mut Reading) {
        let before = std::mem::take(&mut self.waits);
        for member in self.members.iter().filter(|member| !member.stat.ended) {
            for (thread, waited_ns) in proc_files::waits(&self.proc, member.pid) {
                // A number that is given out again belongs to a thread that has waited less.
                let known_ns = before.get(&thread).copied().filter(|known_ns| *known_ns <= waited_ns);
                self.waited_ns += waited_ns - known_ns.unwrap_or(0);
                self.waits.insert(thread, waited_ns);
            }
        }
        if !self.waits.is_empty() {
            reading.set(Column::Waited, self.waited_ns);
        }
    }

    /// How much files in memory take, of which a process's figures tell only what it has mapped.
    fn in_memory(&self, reading: &mut Reading) {
        let found: Vec<i64> = self.tmpfs.iter().filter_map(|at| tmpfs_bytes(at)).collect();
        if !found.is_empty() {
            reading.set(Column::Tmpfs, found.iter().sum());
        }
    }

    fn missing(&self) -> Value {
        let refused = "not permitted: it belongs to another user";
        let mut missing = serde_json::Map::new();
        for column in Column::ALL.iter().filter(|column| self.last.get(**column).is_none()) {
            let why = match column {
                Column::ReadBytes | Column::WrittenBytes if self.io_refused => refused,
                Column::Pss if self.pss_refused => refused,
                Column::Pss if self.looks.is_none() => "not asked for (pss)",
                Column::Tmpfs if self.tmpfs.is_empty() => "no files in memory are mounted",
                Column::Tmpfs => "where they are cannot be looked at: it belongs to another user, or has ended",
                Column::Waited => "the kernel does not keep it, or it ended before anybody looked",
                _ => "the kernel keeps it for cgroups only",
            };
            missing.insert(column.name().to_owned(), json!(why));
        }
        Value::Object(missing)
    }
}

impl Source for Process {
    fn read(&mut self, tier: Tier, reading: &mut Reading) {
        if self.gone_ns.is_some() {
            return;
        }
        let before = now_ns();
        let threads: i64 = self.members.iter().map(|member| member.stat.threads).sum();
        let searched = tier > Tier::Fast || threads <= FEW_THREADS;
        if searched {
            self.search();
        }
        self.count(reading, searched);
        let after = now_ns();
        (reading.t_ns, reading.width_ns) = (before + (after - before) / 2, after - before);
        if tier == Tier::Slow || (tier == Tier::Medium && threads <= FEW_THREADS) {
            self.waited(reading);
        }
        if tier >= Tier::Medium {
            self.in_memory(reading);
        }
        let mem_bytes = reading.get(Column::Mem).unwrap_or(0);
        if tier == Tier::Slow || mem_bytes > self.status_at_bytes + self.status_at_bytes / 100 {
            self.status_at_bytes = self.status_at_bytes.max(mem_bytes);
            self.details(reading);
        }
        if self.looks.as_mut().is_some_and(|looks| looks.wanted(after, mem_bytes, self.faults)) {
            self.proportional(reading);
            if let Some(looks) = &mut self.looks {
                looks.taken(after, now_ns(), mem_bytes, self.faults);
            }
        }
        if self.first.is_empty() {
            self.first = reading.clone();
        }
        self.last.update(reading);
        if self.members.iter().all(|member| member.stat.ended) {
            self.gone_ns = Some(after);
        }
        if tier == Tier::Slow || self.gone_ns.is_some() {
            self.limits.look(after);
        }
    }

    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn reset_peak(&mut self) -> bool {
        self.limits.phase();
        false
    }

    fn ended(&mut self, end: End, t_ns: i64) {
        if end == End::Process {
            self.exited_ns = Some(t_ns);
            self.ends.drop_process();
        }
    }

    fn facts(&mut self) -> Value {
        json!({
            "kind": "process", "pid": self.pid, "restarts": 0, "gone": self.gone_ns.is_some(), "gone_ns": self.gone_ns,
            "exited_ns": self.exited_ns, "processes_seen": self.seen, "processes": self.members.len(),
            "limits": self.limits.limits(), "held": self.limits.held(), "missing": self.missing(),
            "first_ns": self.first.t_ns, "first": values(&self.first),
            "last_ns": self.last.t_ns, "last": values(&self.last),
        })
    }
}
