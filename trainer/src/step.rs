//! One optimizer step: its packed rows forward and backward, then one update.

use std::time::Instant;

use burn_qwen_data::{Batch, DataError};

use crate::{
    engine::{AdamWConfig, Engine},
    error::TrainError,
};

/// Sample numbers that an error names.
const NAMED_SAMPLES: usize = 16;

/// What a step did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// Passes over the data that were complete when the last row was read.
    pub epoch: u64,
    /// Mean loss over the targets of all rows; `None` where there was none.
    pub loss: Option<f64>,
    /// Global gradient norm before clipping; `None` where nothing changed.
    pub grad_norm: Option<f64>,
    /// Tokens read.
    pub num_tokens: u64,
    /// Targets.
    pub num_trained: u64,
    /// Samples of all documents, in order.
    pub sample_ids: Vec<u64>,
    /// Time spent waiting for rows.
    pub data_wait_secs: f64,
}

/// Runs `micro_batches` rows and updates the model once, by the mean over all their targets.
///
/// # Errors
/// Data that cannot be read; a loss or gradient that is not finite, with step, samples and place.
pub fn optimizer_step(
    engine: &mut Engine,
    next_row: &mut dyn FnMut() -> Result<(u64, Batch), DataError>,
    micro_batches: u64,
    step: u64,
    lr: f64,
    adamw: &AdamWConfig,
) -> Result<StepOutcome, TrainError> {
    let mut done = StepOutcome::default();
    let mut loss_sum = 0.0;
    for _ in 0..micro_batches {
        let waiting = Instant::now();
        let (epoch, batch) = next_row()?;
        done.data_wait_secs += waiting.elapsed().as_secs_f64();
        done.epoch = epoch;
        loss_sum += engine
            .forward_backward(&batch)
            .map_err(|error| locate(error, step, &batch.sample_ids))?;
        done.num_tokens += batch.num_tokens() as u64;
        done.num_trained += batch.num_trained() as u64;
        done.sample_ids.extend(batch.sample_ids);
    }
    done.grad_norm = engine
        .update(done.num_trained as usize, lr, adamw)
        .map_err(|error| locate(error, step, &done.sample_ids))?;
    done.loss = (done.num_trained > 0).then(|| loss_sum / done.num_trained as f64);
    Ok(done)
}

/// Adds step and samples to a number that left the finite range.
fn locate(error: TrainError, step: u64, sample_ids: &[u64]) -> TrainError {
    let TrainError::NotFinite(what) = error else { return error };
    let named = &sample_ids[..sample_ids.len().min(NAMED_SAMPLES)];
    let more = match sample_ids.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    TrainError::NotFinite(format!("step {step}: {what}; samples {named:?}{more}"))
}
