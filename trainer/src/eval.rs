//! Loss over a data set, weighted by tokens.

use burn_qwen::{Model, Row};
use burn_qwen_data::Batch;
use burn_qwen_kernels::{Kernels, Packing};
use serde::Serialize;

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean loss over all targets, in nats; NaN where there is none.
    pub loss: f64,
    /// `exp(loss)`.
    pub perplexity: f64,
    /// Targets.
    pub targets: u64,
    /// Tokens read.
    pub tokens: u64,
}

/// Sums token losses over rows and divides once, so the value does not depend on how documents are
/// batched.
pub fn evaluate(
    model: &Model,
    kernels: &Kernels,
    rows: &[Batch],
    mut on_row: impl FnMut(),
) -> Evaluation {
    let (mut sum, mut targets, mut tokens) = (0.0, 0, 0);
    for batch in rows {
        tokens += batch.num_tokens() as u64;
        if batch.num_trained() > 0 {
            let packing = Packing::new(batch.cu_seqlens.as_slice());
            let row = Row {
                input_ids: &batch.input_ids,
                position_ids: &batch.position_ids,
                packing: &packing,
            };
            let loss = model.loss(row, &batch.labels, kernels).into_scalar::<f32>();
            sum += f64::from(loss);
            targets += batch.num_trained() as u64;
        }
        on_row();
    }
    let loss = sum / targets as f64;
    Evaluation { loss, perplexity: loss.exp(), targets, tokens }
}
