//! Document boundaries of a packed row, known on the host.

use std::{ops::Range, sync::Arc};

/// `cu_seqlens` `[N+1]`: document n is the tokens `cu_seqlens[n] .. cu_seqlens[n+1]` of the row.
///
/// Ops plan their work from it on the host; nothing is read back from a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    cu_seqlens: Arc<[i32]>,
}

impl Packing {
    /// Boundaries of a row.
    ///
    /// # Panics
    /// If the boundaries do not start at 0 or decrease: the loader makes them, so that is our bug.
    pub fn new(cu_seqlens: impl Into<Arc<[i32]>>) -> Self {
        let cu_seqlens = cu_seqlens.into();
        assert!(
            cu_seqlens.first() == Some(&0) && cu_seqlens.windows(2).all(|w| w[0] <= w[1]),
            "cu_seqlens must start at 0 and never decrease, got {cu_seqlens:?}"
        );
        Self { cu_seqlens }
    }

    /// One document of `num_tokens` tokens.
    pub fn single(num_tokens: usize) -> Self {
        Self::new([0, num_tokens as i32])
    }

    /// The boundaries `[N+1]`.
    pub fn cu_seqlens(&self) -> &[i32] {
        &self.cu_seqlens
    }

    /// Tokens in the row, T.
    pub fn num_tokens(&self) -> usize {
        *self.cu_seqlens.last().unwrap_or(&0) as usize
    }

    /// Documents in the row, N, empty ones included.
    pub fn num_documents(&self) -> usize {
        self.cu_seqlens.len() - 1
    }

    /// The token range of every document, empty ones included.
    pub fn documents(&self) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        self.cu_seqlens.windows(2).map(|w| w[0] as usize..w[1] as usize)
    }

    /// Length of the longest document.
    pub fn max_seqlen(&self) -> usize {
        self.documents().map(|d| d.len()).max().unwrap_or(0)
    }
}
