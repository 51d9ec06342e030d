//! A column of which most rows have no value.

use arrow_array::ArrayRef;
use arrow_array::types::ArrowPrimitiveType;

use super::arrays::{filled, full, gaps, nothing};

/// A column that costs nothing while no row has a value.
#[derive(Debug, Default)]
pub struct Sparse<T>(Vec<T>);

impl<T: Copy + PartialEq> Sparse<T> {
    /// Set the value of row `at`, the next one.
    pub fn push(&mut self, at: usize, value: T, none: T) {
        if value != none {
            self.0.resize(at, none);
            self.0.push(value);
        }
    }

    /// The values of the first rows; none has a value after them.
    pub fn values(&self) -> &[T] {
        &self.0
    }

    /// Whether no row has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keep the rows that are marked.
    pub fn keep(&mut self, marks: &[bool]) {
        keep(&mut self.0, marks);
    }

    /// With nulls where there is no value.
    pub fn into_array<P: ArrowPrimitiveType<Native = T>>(mut self, n: usize, none: T) -> ArrayRef {
        if self.0.is_empty() {
            return nothing::<P>(n);
        }
        self.0.resize(n, none);
        gaps::<P>(self.0, none)
    }

    /// As a column without nulls, `usual` where no other value was set.
    pub fn into_full<P: ArrowPrimitiveType<Native = T>>(mut self, n: usize, usual: T) -> ArrayRef {
        if self.0.is_empty() {
            return filled::<P>(n, usual);
        }
        self.0.resize(n, usual);
        full::<P>(self.0)
    }
}

/// Keep the rows that are marked; the column may be shorter than the marks.
pub fn keep<T>(column: &mut Vec<T>, marks: &[bool]) {
    let mut at = 0;
    column.retain(|_| {
        at += 1;
        marks[at - 1]
    });
}
