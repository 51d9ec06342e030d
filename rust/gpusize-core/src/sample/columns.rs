//! What a reading holds: times, and one optional integer per signal (docs/reference/sampler.md).

use std::sync::{Arc, LazyLock};

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::record::sparse::Sparse;

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
}

const COUNT: usize = Column::ALL.len();
/// No value: no counter and no amount of memory is negative.
const NONE: i64 = i64::MIN;

impl Column {
    /// Its bit in a set of columns.
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// The column of this name.
pub fn column(name: &str) -> Option<Column> {
    Column::ALL.iter().copied().find(|column| column.name() == name)
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
    values: [i64; COUNT],
}

impl Default for Reading {
    fn default() -> Self {
        Self { t_ns: 0, width_ns: 0, epoch: 0, values: [NONE; COUNT] }
    }
}

impl Reading {
    /// The value of a column.
    pub fn get(&self, column: Column) -> Option<i64> {
        let value = self.values[column as usize];
        (value != NONE).then_some(value)
    }

    /// Set a value.
    pub fn set(&mut self, column: Column, value: i64) {
        self.values[column as usize] = value;
    }

    /// Add to a value, which is 0 until then.
    pub fn add(&mut self, column: Column, value: i64) {
        let before = self.get(column).unwrap_or(0);
        self.set(column, before.saturating_add(value));
    }

    /// Set a counter that may not go back, whatever its parts do.
    pub fn raise(&mut self, column: Column, value: i64) {
        let before = self.get(column).unwrap_or(value);
        self.set(column, before.max(value));
    }

    /// Forget a value.
    pub fn unset(&mut self, column: Column) {
        self.values[column as usize] = NONE;
    }

    /// Whether no column has a value.
    pub fn is_empty(&self) -> bool {
        self.values.iter().all(|value| *value == NONE)
    }

    /// Take over every value that the other has.
    pub fn update(&mut self, other: &Self) {
        (self.t_ns, self.width_ns, self.epoch) = (other.t_ns, other.width_ns, other.epoch);
        for (mine, theirs) in self.values.iter_mut().zip(other.values) {
            if theirs != NONE {
                *mine = theirs;
            }
        }
    }

    /// The columns with a value.
    pub fn values(&self) -> impl Iterator<Item = (Column, i64)> + '_ {
        Column::ALL.iter().filter_map(|column| Some((*column, self.get(*column)?)))
    }
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

/// Readings by column, until they are taken.
#[derive(Debug)]
pub struct Table {
    t_ns: Vec<i64>,
    width_ns: Vec<i64>,
    epoch: Vec<i32>,
    columns: Vec<Sparse<i64>>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            t_ns: Vec::new(),
            width_ns: Vec::new(),
            epoch: Vec::new(),
            columns: std::iter::repeat_with(Sparse::default).take(COUNT).collect(),
        }
    }
}

impl Table {
    /// Append a row.
    pub fn push(&mut self, reading: &Reading) {
        let at = self.t_ns.len();
        self.t_ns.push(reading.t_ns);
        self.width_ns.push(reading.width_ns);
        self.epoch.push(reading.epoch);
        for (column, value) in self.columns.iter_mut().zip(reading.values) {
            column.push(at, value, NONE);
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.t_ns.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.t_ns.is_empty()
    }

    /// As an Arrow batch of [`schema`].
    pub fn into_batch(self) -> RecordBatch {
        let rows = self.len();
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(PrimitiveArray::<Int64Type>::from(self.t_ns)),
            Arc::new(PrimitiveArray::<Int64Type>::from(self.width_ns)),
            Arc::new(PrimitiveArray::<Int32Type>::from(self.epoch)),
        ];
        arrays.extend(self.columns.into_iter().map(|column| column.into_array::<Int64Type>(rows, NONE)));
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
        assert_eq!(column("mem_bytes"), Some(Column::Mem));
    }
}
