//! The one batch form: a packed row of documents, without padding.

/// A micro-batch: one row of T packed tokens in N documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token ids `[T]`.
    pub input_ids: Vec<i32>,
    /// Positions `[T]`, from 0 in every document.
    pub position_ids: Vec<i32>,
    /// Document boundaries `[N+1]`, from 0 to T.
    pub cu_seqlens: Vec<i32>,
    /// Targets `[T]`, shifted inside each document: `labels[t]` is the token after `t`, or -100
    /// where it is not trained; always -100 at the last token of a document.
    pub labels: Vec<i32>,
    /// Index of each document's sample in the data set `[N]`, to name it in reports.
    pub sample_ids: Vec<u64>,
}

/// The label of a position that carries no loss.
pub const IGNORE_INDEX: i32 = -100;

impl Batch {
    /// Tokens in the row, T.
    pub fn num_tokens(&self) -> usize {
        self.input_ids.len()
    }

    /// Documents in the row, N.
    pub fn num_documents(&self) -> usize {
        self.cu_seqlens.len().saturating_sub(1)
    }

    /// Positions that carry a loss.
    pub fn num_trained(&self) -> usize {
        self.labels.iter().filter(|&&label| label != IGNORE_INDEX).count()
    }
}
