//! The whole machine as a source: `/proc/stat`, `/proc/meminfo`, `/proc/vmstat`, `/proc/loadavg` and `/proc/pressure`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::bytes::{self, Key, number};
use super::columns::{Column, Reading};
use super::files::{Format, Tier, USER_TICK_NS};
use super::kept::Buffer;
use super::source::{End, Ends, Source, values};
use super::sys::online_cpus;
use gpusize_base::clock::now_ns;
use gpusize_base::error::{Error, Result};

const KIB: i64 = 1024;

const MEMINFO: &[Key] = &[
    (b"Inactive(file):", Column::InactiveFile, KIB),
    (b"Active(file):", Column::ActiveFile, KIB),
    (b"AnonPages:", Column::Anon, KIB),
    (b"Shmem:", Column::Shmem, KIB),
    (b"SReclaimable:", Column::SlabReclaimable, KIB),
    (b"SUnreclaim:", Column::SlabUnreclaimable, KIB),
];

/// The parts of kernel memory in `/proc/meminfo`.
const KERNEL: [&[u8]; 5] = [b"Slab:", b"KernelStack:", b"PageTables:", b"Percpu:", b"VmallocUsed:"];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Stat,
    Meminfo,
    Loadavg,
    Vmstat,
    Pressure(Column, Column),
}

const WANTED: [(&str, Kind, Tier); 7] = [
    ("stat", Kind::Stat, Tier::Fast),
    ("meminfo", Kind::Meminfo, Tier::Medium),
    ("loadavg", Kind::Loadavg, Tier::Medium),
    ("pressure/cpu", Kind::Pressure(Column::CpuSome, Column::CpuFull), Tier::Medium),
    ("pressure/memory", Kind::Pressure(Column::MemSome, Column::MemFull), Tier::Medium),
    ("pressure/io", Kind::Pressure(Column::IoSome, Column::IoFull), Tier::Medium),
    ("vmstat", Kind::Vmstat, Tier::Slow),
];

/// A file that is read again and again.
#[derive(Debug)]
struct OpenFile {
    name: &'static str,
    path: PathBuf,
    kind: Kind,
    tier: Tier,
    /// None: it could not be read.
    file: Option<File>,
}

/// The machine.
#[derive(Debug)]
pub struct Host {
    files: Vec<OpenFile>,
    missing: BTreeMap<&'static str, String>,
    buffer: Buffer,
    ends: Ends,
    first: Reading,
    last: Reading,
}

impl Host {
    /// Open what there is; `root` is the directory that stands for `/`.
    pub fn open(root: &Path) -> Result<Self> {
        let mut host = Self {
            files: Vec::new(),
            missing: BTreeMap::new(),
            buffer: Buffer::default(),
            ends: Ends::default(),
            first: Reading::default(),
            last: Reading::default(),
        };
        let mut given = Reading::default();
        for (name, kind, tier) in WANTED {
            let path = root.join("proc").join(name);
            match File::open(&path).and_then(|file| host.read_file(&file, kind, &mut given).map(|()| file)) {
                Ok(file) => host.files.push(OpenFile { name, path, kind, tier, file: Some(file) }),
                Err(error) if tier == Tier::Fast => {
                    let what = format!("cannot be read: {error}");
                    return Err(Error::environment(what, path.display().to_string(), "mount /proc"));
                }
                Err(error) => {
                    host.missing.insert(name, error.to_string());
                }
            }
        }
        Ok(host)
    }

    fn read_file(&mut self, file: &File, kind: Kind, reading: &mut Reading) -> std::io::Result<()> {
        // Only vmstat comes in pieces.
        let text = match kind {
            Kind::Vmstat => self.buffer.read_all(file)?,
            _ => self.buffer.read(file)?,
        };
        match kind {
            Kind::Stat => cpu(text, reading),
            Kind::Meminfo => memory(text, reading),
            Kind::Loadavg => threads(text, reading),
            Kind::Vmstat => {
                let keys: &[Key] = &[
                    (b"pgpgin", Column::ReadBytes, KIB),
                    (b"pgpgout", Column::WrittenBytes, KIB),
                    (b"oom_kill", Column::OomKill, 1),
                ];
                bytes::keyed(text, keys, reading);
            }
            Kind::Pressure(some, full) => Format::Pressure(some, full).read(text, reading),
        }
        Ok(())
    }
}

/// The line `cpu  user nice system idle iowait irq softirq steal …`; a guest's time is in user already.
fn cpu(text: &[u8], reading: &mut Reading) {
    let Some(line) = bytes::lines(text).next().and_then(|line| line.strip_prefix(b"cpu ")) else { return };
    let mut fields = line.split(|byte| *byte == b' ').filter_map(number);
    let mut next = || fields.next().unwrap_or(0).saturating_mul(USER_TICK_NS);
    let (user, nice, system) = (next(), next(), next());
    let (_idle, _iowait, irq, softirq) = (next(), next(), next(), next());
    reading.set(Column::CpuUser, user + nice);
    reading.set(Column::CpuSystem, system + irq + softirq);
    reading.set(Column::Cpu, user + nice + system + irq + softirq);
}

fn memory(text: &[u8], reading: &mut Reading) {
    let kib = |key: &[u8]| bytes::value(text, key).map(|value| value * KIB);
    bytes::keyed(text, MEMINFO, reading);
    if let Some((total, free)) = kib(b"MemTotal:").zip(kib(b"MemFree:")) {
        reading.set(Column::Mem, total - free);
    }
    if let Some((total, free)) = kib(b"SwapTotal:").zip(kib(b"SwapFree:")) {
        reading.set(Column::Swap, total - free);
    }
    if let Some((cached, buffers)) = kib(b"Cached:").zip(kib(b"Buffers:")) {
        reading.set(Column::FileBytes, cached + buffers);
    }
    if let Some(kernel) = KERNEL.iter().filter_map(|key| kib(key)).reduce(|a, b| a + b) {
        reading.set(Column::Kernel, kernel);
    }
}

/// `0.10 0.28 0.60 2/310 4711`: of the tasks, those that run and all.
fn threads(text: &[u8], reading: &mut Reading) {
    if let Some(threads) = bytes::after(text, b"/") {
        reading.set(Column::Pids, threads);
    }
}

impl Source for Host {
    fn read(&mut self, tier: Tier, reading: &mut Reading) {
        let before = now_ns();
        let mut after = None;
        let mut files = std::mem::take(&mut self.files);
        for open in &mut files {
            if open.tier > Tier::Fast {
                after.get_or_insert_with(now_ns);
            }
            if let Some(file) = open.file.as_ref().filter(|_| open.tier <= tier)
                && let Err(error) = self.read_file(file, open.kind, reading)
            {
                self.missing.insert(open.name, error.to_string());
                open.file = None;
            }
        }
        self.files = files;
        let after = after.unwrap_or_else(now_ns);
        (reading.t_ns, reading.width_ns) = (before + (after - before) / 2, after - before);
        if self.first.is_empty() {
            self.first = reading.clone();
        }
        self.last.update(reading);
    }

    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn ended(&mut self, _: End, _: i64) {}

    fn facts(&mut self) -> Value {
        let mut mem_bytes = None;
        let meminfo = self.files.iter().find(|open| matches!(open.kind, Kind::Meminfo));
        if let Some(file) = meminfo.and_then(|open| open.file.as_ref())
            && let Ok(text) = self.buffer.read(file)
        {
            mem_bytes = bytes::value(text, b"MemTotal:").map(|value| value * KIB);
        }
        let files: Vec<_> = self.files.iter().filter(|open| open.file.is_some()).map(|open| &open.path).collect();
        json!({
            "kind": "host", "gone": false, "gone_ns": null, "restarts": 0, "files": files, "missing": self.missing,
            "limits": {
                "memory_bytes": mem_bytes.map(|value| json!({"value": value, "group": "/"})),
                "cpu_cores": {"value": online_cpus(), "group": "/"},
            },
            "first_ns": self.first.t_ns, "first": values(&self.first),
            "last_ns": self.last.t_ns, "last": values(&self.last),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_files_become_columns() {
        let mut reading = Reading::default();
        cpu(b"cpu  100 20 30 4000 5 6 7 8 9 0\ncpu0 1 2 3\n", &mut reading);
        assert_eq!(reading.get(Column::Cpu), Some(1_630_000_000));
        assert_eq!(
            (reading.get(Column::CpuUser), reading.get(Column::CpuSystem)),
            (Some(1_200_000_000), Some(430_000_000))
        );
        memory(
            b"MemTotal:   1000 kB\nMemFree:    400 kB\nMemAvailable: 900 kB\nBuffers: 10 kB\nCached: 300 kB\n\
              Active(file): 7 kB\nInactive(file): 9 kB\nSwapTotal: 5 kB\nSwapFree: 2 kB\nSlab: 40 kB\nPageTables: 2 kB\n",
            &mut reading,
        );
        assert_eq!(reading.get(Column::Mem), Some(600 * KIB));
        assert_eq!(reading.get(Column::FileBytes), Some(310 * KIB));
        assert_eq!((reading.get(Column::Swap), reading.get(Column::Kernel)), (Some(3 * KIB), Some(42 * KIB)));
        threads(b"0.10 0.28 0.60 2/310 4711\n", &mut reading);
        assert_eq!(reading.get(Column::Pids), Some(310));
    }

    #[test]
    fn this_machine_can_be_read() {
        let mut host = Host::open(Path::new("/")).expect("a machine");
        let mut reading = Reading::default();
        host.read(Tier::Slow, &mut reading);
        for column in [Column::Cpu, Column::Mem, Column::InactiveFile, Column::Pids, Column::OomKill, Column::ReadBytes]
        {
            assert!(reading.get(column).is_some(), "{}", column.name());
        }
        assert!(reading.width_ns > 0);
    }
}
