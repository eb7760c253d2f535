//! Where every sample and token went.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::source::{Rejected, SourceSummary};

/// Counts of one pass over a data set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataReport {
    /// Files and rows.
    pub source: SourceSummary,
    /// Samples without a document, by reason.
    pub skipped: BTreeMap<String, Rejected>,
    /// Samples longer than a row.
    pub long: LongReport,
    /// Documents that are trained.
    pub num_documents: u64,
    /// Their tokens.
    pub num_tokens: u64,
    /// Positions that carry a loss.
    pub num_trained: u64,
    /// Longest document.
    pub longest: u64,
    /// Documents by length: the key is the smallest power of two that is not less.
    pub lengths: BTreeMap<u64, u64>,
    /// Packed rows.
    pub num_rows: u64,
    /// Share of the rows' room that is filled.
    pub fill_rate: f64,
}

/// Samples longer than a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongReport {
    /// How many there were.
    pub samples: u64,
    /// How many were left out.
    pub samples_dropped: u64,
    /// Tokens of these samples that are trained on.
    pub tokens_kept: u64,
    /// Tokens of these samples that are not.
    pub tokens_lost: u64,
    /// The first few that were left out.
    pub dropped_places: Vec<String>,
}

impl DataReport {
    /// Counts a document.
    pub(crate) fn add_document(&mut self, tokens: u64, trained: u64) {
        self.num_documents += 1;
        self.num_tokens += tokens;
        self.num_trained += trained;
        self.longest = self.longest.max(tokens);
        *self.lengths.entry(tokens.next_power_of_two()).or_default() += 1;
    }
}
