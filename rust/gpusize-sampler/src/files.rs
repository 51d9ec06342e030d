//! Which file of a group has which signals, and how often each is read.

use super::bytes::{self, Key};
use super::columns::{Column, Reading};

/// How often a file is read. Counters of the scheduler move with its tick, throttling with the period of the limit, and
/// `memory.stat` costs ten times what the small files do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// At every tick.
    Fast,
    /// Every 100 ms unless told otherwise.
    Medium,
    /// Every 500 ms unless told otherwise.
    Slow,
}

/// How a file is read.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// One number.
    One(Column),
    /// Lines of a key and a number.
    Keyed(&'static [Key]),
    /// `memory.stat` of v2: keys, and the sum of kernel memory.
    Stat2(&'static [Key]),
    /// A pressure file: some, full.
    Pressure(Column, Column),
    /// `io.stat`.
    IoStat,
    /// A `blkio.throttle` file: read, written.
    Blkio(Column, Column),
}

/// One file.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The controller of v1, or `unified`.
    pub controller: &'static str,
    /// The file's name.
    pub name: &'static str,
    /// How it is read.
    pub format: Format,
    /// How often.
    pub tier: Tier,
    /// Since when the kernel has it, for whoever misses it.
    pub since: &'static str,
}

impl Format {
    /// The columns that it may fill.
    pub fn columns(self) -> Vec<Column> {
        match self {
            Self::One(column) => vec![column],
            Self::Keyed(keys) => keys.iter().map(|key| key.1).collect(),
            Self::Stat2(keys) => keys.iter().map(|key| key.1).chain([Column::Kernel]).collect(),
            Self::Pressure(a, b) | Self::Blkio(a, b) => vec![a, b],
            Self::IoStat => vec![Column::ReadBytes, Column::WrittenBytes, Column::Reads, Column::Writes],
        }
    }

    /// Read a file's text.
    pub fn read(self, text: &[u8], reading: &mut Reading) {
        match self {
            Self::One(column) => {
                if let Some(value) = bytes::number(text) {
                    reading.set(column, value);
                }
            }
            Self::Keyed(keys) => bytes::keyed(text, keys, reading),
            Self::Stat2(keys) => {
                bytes::keyed(text, keys, reading);
                if let Some(value) = bytes::kernel_memory(text) {
                    reading.set(Column::Kernel, value);
                }
            }
            Self::Pressure(some, full) => bytes::pressure(text, some, full, reading),
            Self::IoStat => bytes::io_stat(text, reading),
            Self::Blkio(read, write) => bytes::blkio(text, read, write, reading),
        }
    }
}

/// `cpuacct.stat` counts in hundredths of a second, whatever the kernel's tick is.
pub const USER_TICK_NS: i64 = 10_000_000;

const MEMORY_STAT_2: &[Key] = &[
    (b"anon", Column::Anon, 1),
    (b"file", Column::FileBytes, 1),
    (b"shmem", Column::Shmem, 1),
    (b"inactive_file", Column::InactiveFile, 1),
    (b"active_file", Column::ActiveFile, 1),
    (b"slab_reclaimable", Column::SlabReclaimable, 1),
    (b"slab_unreclaimable", Column::SlabUnreclaimable, 1),
];

const MEMORY_STAT_1: &[Key] = &[
    (b"total_rss", Column::Anon, 1),
    (b"total_cache", Column::FileBytes, 1),
    (b"total_shmem", Column::Shmem, 1),
    (b"total_inactive_file", Column::InactiveFile, 1),
    (b"total_active_file", Column::ActiveFile, 1),
    (b"total_swap", Column::Swap, 1),
];

const CPU_STAT_2: &[Key] = &[
    (b"usage_usec", Column::Cpu, 1_000),
    (b"user_usec", Column::CpuUser, 1_000),
    (b"system_usec", Column::CpuSystem, 1_000),
    (b"nr_periods", Column::Periods, 1),
    (b"nr_throttled", Column::ThrottledPeriods, 1),
    (b"throttled_usec", Column::Throttled, 1_000),
];

const CPU_STAT_1: &[Key] = &[
    (b"nr_periods", Column::Periods, 1),
    (b"nr_throttled", Column::ThrottledPeriods, 1),
    (b"throttled_time", Column::Throttled, 1),
];

const CPUACCT_STAT: &[Key] = &[(b"user", Column::CpuUser, USER_TICK_NS), (b"system", Column::CpuSystem, USER_TICK_NS)];

const EVENTS_2: &[Key] = &[(b"max", Column::MaxEvents, 1), (b"oom", Column::Oom, 1), (b"oom_kill", Column::OomKill, 1)];

const PSI: &str = "kernel 4.20 with pressure switched on (psi=1)";
const ALWAYS: &str = "";

const fn v2(name: &'static str, format: Format, tier: Tier, since: &'static str) -> Wanted {
    Wanted { controller: "unified", name, format, tier, since }
}

const fn v1(controller: &'static str, name: &'static str, format: Format, tier: Tier) -> Wanted {
    Wanted { controller, name, format, tier, since: ALWAYS }
}

/// All files. Where two have the same column, the first that can be read gives it: v1 first, as there the process is in that
/// controller; v2 gives what v1 lacks.
pub const WANTED: &[Wanted] = &[
    v1("cpuacct", "cpuacct.usage", Format::One(Column::Cpu), Tier::Fast),
    v1("cpuacct", "cpuacct.stat", Format::Keyed(CPUACCT_STAT), Tier::Medium),
    v1("cpu", "cpu.stat", Format::Keyed(CPU_STAT_1), Tier::Medium),
    v1("memory", "memory.usage_in_bytes", Format::One(Column::Mem), Tier::Fast),
    v1("memory", "memory.stat", Format::Keyed(MEMORY_STAT_1), Tier::Slow),
    v1("memory", "memory.max_usage_in_bytes", Format::One(Column::MemPeak), Tier::Slow),
    v1("memory", "memory.failcnt", Format::One(Column::MaxEvents), Tier::Slow),
    v1("memory", "memory.oom_control", Format::Keyed(&[(b"oom_kill", Column::OomKill, 1)]), Tier::Slow),
    v1("memory", "memory.kmem.usage_in_bytes", Format::One(Column::Kernel), Tier::Slow),
    v1("pids", "pids.current", Format::One(Column::Pids), Tier::Fast),
    v1("pids", "pids.peak", Format::One(Column::PidsPeak), Tier::Slow),
    v1(
        "blkio",
        "blkio.throttle.io_service_bytes_recursive",
        Format::Blkio(Column::ReadBytes, Column::WrittenBytes),
        Tier::Slow,
    ),
    v1("blkio", "blkio.throttle.io_serviced_recursive", Format::Blkio(Column::Reads, Column::Writes), Tier::Slow),
    v1("blkio", "blkio.throttle.io_service_bytes", Format::Blkio(Column::ReadBytes, Column::WrittenBytes), Tier::Slow),
    v1("blkio", "blkio.throttle.io_serviced", Format::Blkio(Column::Reads, Column::Writes), Tier::Slow),
    v2("cpu.stat", Format::Keyed(CPU_STAT_2), Tier::Fast, "kernel 4.15"),
    v2("memory.current", Format::One(Column::Mem), Tier::Fast, "kernel 4.5"),
    v2("pids.current", Format::One(Column::Pids), Tier::Fast, "kernel 4.5"),
    v2("cpu.pressure", Format::Pressure(Column::CpuSome, Column::CpuFull), Tier::Medium, PSI),
    v2("memory.pressure", Format::Pressure(Column::MemSome, Column::MemFull), Tier::Medium, PSI),
    v2("io.pressure", Format::Pressure(Column::IoSome, Column::IoFull), Tier::Medium, PSI),
    v2("memory.stat", Format::Stat2(MEMORY_STAT_2), Tier::Slow, "kernel 4.5"),
    v2("memory.peak", Format::One(Column::MemPeak), Tier::Slow, "kernel 5.19"),
    v2("memory.events", Format::Keyed(EVENTS_2), Tier::Slow, "kernel 4.5"),
    v2("memory.swap.current", Format::One(Column::Swap), Tier::Slow, "a kernel that counts swap"),
    v2("io.stat", Format::IoStat, Tier::Slow, "kernel 4.5"),
    v2("pids.peak", Format::One(Column::PidsPeak), Tier::Slow, "kernel 6.1"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What each kernel writes into `memory.stat` and `cpu.stat`, shortened to the kinds of keys; the numbers are made up.
    #[test]
    fn every_kernels_keys_are_read() {
        let common = "anon 400\nfile 300\nkernel_stack 16\n";
        let lru = "inactive_anon 1\nactive_anon 2\ninactive_file 100\nactive_file 150\nunevictable 0\n";
        let slab = "slab_reclaimable 30\nslab_unreclaimable 20\nslab 50\n";
        for (kernel, text, kernel_bytes) in [
            (
                "4.18",
                format!("{common}slab 50\nsock 0\nshmem 7\n{lru}slab_reclaimable 30\nslab_unreclaimable 20\n"),
                66,
            ),
            ("5.4", format!("{common}slab 50\nsock 0\nshmem 7\nanon_thp 0\n{lru}{slab}pgfault 9\n"), 66),
            ("5.15", format!("{common}pagetables 8\npercpu 4\nsock 0\nshmem 7\nswapcached 0\n{lru}{slab}"), 78),
            ("6.1", format!("{common}kernel 99\npagetables 8\nsec_pagetables 0\nshmem 7\nzswap 0\n{lru}{slab}"), 99),
            ("6.12", format!("{lru}kernel 99\n{slab}shmem 7\n{common}pgdemote_kswapd 0\nhugetlb 0\n"), 99),
        ] {
            let mut reading = Reading::default();
            Format::Stat2(MEMORY_STAT_2).read(text.as_bytes(), &mut reading);
            let found: Vec<i64> = reading.values().map(|(_, value)| value).collect();
            assert_eq!(found, [100, 150, 400, 300, 7, 30, 20, kernel_bytes], "{kernel}");
        }
    }

    #[test]
    fn cpu_time_is_in_nanoseconds_whatever_the_file_counts_in() {
        let read = |format: Format, text: &str| {
            let mut reading = Reading::default();
            format.read(text.as_bytes(), &mut reading);
            reading.values().map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(read(Format::Keyed(CPU_STAT_2), "usage_usec 9\nuser_usec 5\nsystem_usec 4\n"), [9000, 5000, 4000]);
        let limited = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnice_usec 0\ncore_sched.force_idle_usec 0\n\
                       nr_periods 10\nnr_throttled 3\nthrottled_usec 7\nnr_bursts 0\nburst_usec 0\n";
        assert_eq!(read(Format::Keyed(CPU_STAT_2), limited), [9000, 5000, 4000, 10, 3, 7000]);
        assert_eq!(read(Format::Keyed(CPU_STAT_1), "nr_periods 10\nnr_throttled 3\nthrottled_time 7\n"), [10, 3, 7]);
        assert_eq!(read(Format::Keyed(CPUACCT_STAT), "user 3\nsystem 1\n"), [30_000_000, 10_000_000]);
    }

    #[test]
    fn no_file_is_read_faster_than_its_cost_allows() {
        let stat = WANTED.iter().filter(|file| file.name == "memory.stat" || file.name == "io.stat");
        assert!(stat.clone().count() == 3 && stat.clone().all(|file| file.tier == Tier::Slow));
        assert!(Tier::Fast < Tier::Medium && Tier::Medium < Tier::Slow);
    }
}
