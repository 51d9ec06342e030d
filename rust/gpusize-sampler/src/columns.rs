//! What a reading holds: times, and one optional integer per signal (docs/reference/sampler.md).

use std::sync::{Arc, LazyLock};

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use gpusize_base::sparse::Sparse;

macro_rules! columns {
    ($($variant:ident $name:literal $doc:literal,)*) => {
        /// A signal; the units stand in the names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Column { $(#[doc = $doc] $variant),* }

        impl Column {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name of the column.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

columns! {
    Cpu "cpu_ns" "CPU time.",
    CpuUser "cpu_user_ns" "CPU time in user mode.",
    CpuSystem "cpu_system_ns" "CPU time in the kernel.",
    Periods "cpu_periods" "Enforcement periods of the CPU limit.",
    ThrottledPeriods "cpu_throttled_periods" "Those in which it was throttled.",
    Throttled "cpu_throttled_ns" "Time throttled.",
    Mem "mem_bytes" "Memory now, page cache included.",
    MemPeak "mem_peak_bytes" "The kernel's high-water mark of it.",
    InactiveFile "mem_inactive_file_bytes" "Page cache that was not used lately.",
    ActiveFile "mem_active_file_bytes" "Page cache in use.",
    Anon "mem_anon_bytes" "Anonymous memory.",
    FileBytes "mem_file_bytes" "Page cache and shared memory.",
    Shmem "mem_shmem_bytes" "Shared memory and tmpfs.",
    SlabReclaimable "mem_slab_reclaimable_bytes" "Kernel objects that can be freed.",
    SlabUnreclaimable "mem_slab_unreclaimable_bytes" "Kernel objects that cannot.",
    Kernel "mem_kernel_bytes" "All kernel memory.",
    Swap "swap_bytes" "Swap.",
    MaxEvents "mem_max_events" "How often the memory limit was met.",
    Oom "oom_events" "How often an allocation failed at the limit.",
    OomKill "oom_kill_events" "Processes killed for it.",
    ReadBytes "io_read_bytes" "Bytes read from devices.",
    WrittenBytes "io_write_bytes" "Bytes written to devices.",
    Reads "io_reads" "Read operations.",
    Writes "io_writes" "Write operations.",
    Pids "pids" "Threads.",
    PidsPeak "pids_peak" "The kernel's high-water mark of it.",
    CpuSome "cpu_some_ns" "Time in which some task waited for a CPU.",
    CpuFull "cpu_full_ns" "Time in which all did.",
    MemSome "mem_some_ns" "Time in which some task waited for memory.",
    MemFull "mem_full_ns" "Time in which all did.",
    IoSome "io_some_ns" "Time in which some task waited for a device.",
    IoFull "io_full_ns" "Time in which all did.",
    Pss "mem_pss_bytes" "Resident memory, shared pages divided among those who share them.",
    Tmpfs "tmpfs_bytes" "Files in memory (tmpfs) that the process sees, whoever wrote them.",
    Waited "cpu_waited_ns" "Time in which threads could have run and waited for a CPU, all of them together.",
}

const COUNT: usize = Column::ALL.len();
/// No value, in a column: no counter and no amount of memory is negative.
const NONE: i64 = i64::MIN;

impl Column {
    /// Its bit in a set of columns.
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// One row.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The middle of the fast files' reading.
    pub t_ns: i64,
    /// How long that took.
    pub width_ns: i64,
    /// How often the source has begun anew.
    pub epoch: i32,
    /// The columns that have a value, by their bits.
    present: u64,
    values: [i64; COUNT],
}

impl Default for Reading {
    fn default() -> Self {
        Self { t_ns: 0, width_ns: 0, epoch: 0, present: 0, values: [0; COUNT] }
    }
}

impl Reading {
    /// The value of a column.
    pub fn get(&self, column: Column) -> Option<i64> {
        (self.present & column.bit() != 0).then(|| self.values[column as usize])
    }

    /// Set a value.
    pub fn set(&mut self, column: Column, value: i64) {
        self.present |= column.bit();
        self.values[column as usize] = value;
    }

    /// Add to a value, which is 0 until then.
    pub fn add(&mut self, column: Column, value: i64) {
        let before = self.get(column).unwrap_or(0);
        self.set(column, before.saturating_add(value));
    }

    /// Whether no column has a value.
    pub fn is_empty(&self) -> bool {
        self.present == 0
    }

    /// Forget all values.
    pub fn clear(&mut self) {
        self.present = 0;
    }

    /// Take over every value that the other has.
    pub fn update(&mut self, other: &Self) {
        (self.t_ns, self.width_ns, self.epoch) = (other.t_ns, other.width_ns, other.epoch);
        self.take(other, u64::MAX);
    }

    /// Take over those of the other's values that are in a set of columns.
    pub fn take(&mut self, other: &Self, columns: u64) {
        self.present |= other.present & columns;
        for at in bits(other.present & columns) {
            self.values[at] = other.values[at];
        }
    }

    /// The columns that have a value.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// The columns with a value.
    pub fn values(&self) -> impl Iterator<Item = (Column, i64)> + '_ {
        Column::ALL.iter().filter_map(|column| Some((*column, self.get(*column)?)))
    }
}

/// The numbers of the bits that are set.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (set != 0).then_some(set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(at)
    })
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let mut fields = vec![
        Field::new("t_ns", DataType::Int64, false),
        Field::new("width_ns", DataType::Int64, true),
        Field::new("epoch", DataType::Int32, true),
    ];
    fields.extend(Column::ALL.iter().map(|column| Field::new(column.name(), DataType::Int64, true)));
    Arc::new(Schema::new(fields))
});

/// The columns of a table of readings.
pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

/// Readings until they are taken: one after the other, of each its times, which columns it has, and those. A row is a line or
/// two of the cache, wherever a thread that sleeps between its ticks finds that.
#[derive(Debug, Default)]
pub struct Table {
    rows: usize,
    packed: Vec<i64>,
}

/// Time, width, epoch, columns.
const HEAD: usize = 4;

impl Table {
    /// Append a row.
    pub fn push(&mut self, reading: &Reading) {
        self.rows += 1;
        self.packed.extend([reading.t_ns, reading.width_ns, i64::from(reading.epoch), reading.present as i64]);
        self.packed.extend(bits(reading.present).map(|at| reading.values[at]));
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// As an Arrow batch of [`schema`].
    pub fn into_batch(self) -> RecordBatch {
        let rows = self.rows;
        let (mut t_ns, mut width_ns, mut epoch) = (Vec::new(), Vec::new(), Vec::new());
        let mut columns: Vec<Sparse<i64>> = std::iter::repeat_with(Sparse::default).take(COUNT).collect();
        let mut rest = self.packed.as_slice();
        for row in 0..rows {
            let (head, values) = rest.split_at(HEAD);
            t_ns.push(head[0]);
            width_ns.push(head[1]);
            epoch.push(head[2] as i32);
            let present = head[3] as u64;
            for (at, value) in bits(present).zip(values) {
                columns[at].push(row, *value, NONE);
            }
            rest = &values[present.count_ones() as usize..];
        }
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(PrimitiveArray::<Int64Type>::from(t_ns)),
            Arc::new(PrimitiveArray::<Int64Type>::from(width_ns)),
            Arc::new(PrimitiveArray::<Int32Type>::from(epoch)),
        ];
        arrays.extend(columns.into_iter().map(|column| column.into_array::<Int64Type>(rows, NONE)));
        RecordBatch::try_new(schema(), arrays).expect("every column has the schema's type and as many rows")
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;

    use super::*;

    #[test]
    fn a_table_keeps_values_and_gaps_apart() {
        let mut table = Table::default();
        for k in 0..5_i64 {
            let mut reading = Reading { t_ns: k, width_ns: 1, epoch: 0, ..Reading::default() };
            reading.set(Column::Cpu, k * 10);
            if k == 2 {
                reading.set(Column::MemPeak, 0);
            }
            table.push(&reading);
        }
        let batch = table.into_batch();
        assert_eq!((batch.num_rows(), batch.num_columns()), (5, COUNT + 3));
        let peak = batch.column_by_name("mem_peak_bytes").expect("a column");
        assert_eq!((peak.null_count(), peak.is_null(2)), (4, false));
        assert_eq!(batch.column_by_name("cpu_ns").expect("a column").null_count(), 0);
        assert_eq!(batch.column_by_name("io_reads").expect("a column").null_count(), 5);
    }

    #[test]
    fn the_last_values_are_those_that_were_read_last() {
        let mut last = Reading::default();
        let mut one = Reading { t_ns: 1, ..Reading::default() };
        one.set(Column::Mem, 5);
        one.set(Column::Cpu, 1);
        last.update(&one);
        let mut two = Reading { t_ns: 2, ..Reading::default() };
        two.set(Column::Cpu, 2);
        last.update(&two);
        assert_eq!((last.t_ns, last.get(Column::Mem), last.get(Column::Cpu)), (2, Some(5), Some(2)));
    }
}
