//! A column of lists of times.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, ListArray, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};

use super::schema::item;
use gpusize_base::sparse::keep;

/// Lists, one a row; an empty list is a null.
#[derive(Debug, Default)]
pub struct Lists {
    values: Vec<i64>,
    lengths: Vec<usize>,
}

impl Lists {
    /// Add the list of the next row.
    pub fn push(&mut self, list: &[i64]) {
        self.values.extend_from_slice(list);
        self.lengths.push(list.len());
    }

    /// Times held.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of the times.
    pub fn bytes(&self) -> u64 {
        self.values.len() as u64 * 8
    }

    /// Keep the lists that are marked.
    pub fn keep(&mut self, marks: &[bool]) {
        let of_times: Vec<bool> =
            marks.iter().zip(&self.lengths).flat_map(|(mark, length)| std::iter::repeat_n(*mark, *length)).collect();
        keep(&mut self.values, &of_times);
        keep(&mut self.lengths, marks);
    }

    /// As an Arrow array.
    pub fn into_array(self) -> ArrayRef {
        let lengths = &self.lengths;
        let nulls = NullBuffer::new(BooleanBuffer::collect_bool(lengths.len(), |i| lengths[i] > 0));
        let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
        let values = PrimitiveArray::<Int64Type>::new(ScalarBuffer::from(self.values), None);
        Arc::new(ListArray::new(item(), offsets, Arc::new(values), Some(nulls)))
    }
}
