//! Output buffers that tasks fill in disjoint, interleaved pieces.

use std::{marker::PhantomData, ops::Range};

/// A mutable slice that several tasks write at the same time, each its own elements.
///
/// Heads are interleaved inside a row, so what a task owns is no contiguous slice and the borrow
/// checker cannot split it.
pub(crate) struct SharedSlice<'a> {
    pointer: *mut f32,
    len: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: access goes through `row`, whose contract forbids overlapping use.
unsafe impl Send for SharedSlice<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedSlice<'_> {}

impl<'a> SharedSlice<'a> {
    /// Shares a slice.
    pub(crate) fn new(slice: &'a mut [f32]) -> Self {
        Self { pointer: slice.as_mut_ptr(), len: slice.len(), lifetime: PhantomData }
    }

    /// A piece of the slice.
    ///
    /// # Safety
    /// No two live pieces may overlap, in this or any other thread.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn row(&self, range: Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: in bounds, and disjoint by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(range.start), range.len()) }
    }
}
