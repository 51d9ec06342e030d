//! Vectors as Arrow arrays, which take them over without a copy.

use std::sync::{Arc, LazyLock};

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};

/// Rows of the largest columns that are made here (a chunk of records).
pub const LARGEST_ROWS: usize = 1 << 18;

/// A column without nulls.
pub fn full<T: ArrowPrimitiveType>(mut values: Vec<T::Native>) -> ArrayRef {
    values.shrink_to_fit();
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), None))
}

/// A column of one value.
pub fn filled<T: ArrowPrimitiveType>(n: usize, value: T::Native) -> ArrayRef {
    if value == T::Native::default() {
        return Arc::new(PrimitiveArray::<T>::new(zeros(n), None));
    }
    full::<T>(vec![value; n])
}

/// A column of nulls.
pub fn nothing<T: ArrowPrimitiveType>(n: usize) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(zeros(n), Some(NullBuffer::new_null(n))))
}

/// Every column in which nothing but zeros would stand shares them: memory that nobody has written to takes no room.
fn zeros<T: ArrowNativeType>(n: usize) -> ScalarBuffer<T> {
    static ZEROS: LazyLock<Buffer> = LazyLock::new(|| Buffer::from_vec(vec![0_u64; LARGEST_ROWS]));
    if n > LARGEST_ROWS {
        return vec![T::default(); n].into();
    }
    ScalarBuffer::new(ZEROS.clone(), 0, n)
}

/// A column with a null wherever `none` stands.
pub fn gaps<T: ArrowPrimitiveType>(mut values: Vec<T::Native>, none: T::Native) -> ArrayRef
where
    T::Native: PartialEq,
{
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(values.len(), |i| values[i] != none));
    values.shrink_to_fit();
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls))
}
