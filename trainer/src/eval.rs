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

/// The first `n` samples of rows that hold a whole data set, however they are packed; rows that are
/// left without a document are gone.
pub fn first_samples(rows: Vec<Batch>, n: usize) -> Vec<Batch> {
    let mut ids: Vec<u64> = rows.iter().flat_map(|row| row.sample_ids.iter().copied()).collect();
    ids.sort_unstable();
    ids.dedup();
    let Some(&first_left_out) = ids.get(n) else { return rows };
    let rows = rows.iter().map(|row| keep_documents(row, |id| id < first_left_out));
    rows.filter(|row| row.num_documents() > 0).collect()
}

fn keep_documents(row: &Batch, keep: impl Fn(u64) -> bool) -> Batch {
    let mut kept = Batch { cu_seqlens: vec![0], ..Batch::default() };
    for (&id, range) in row.sample_ids.iter().zip(row.cu_seqlens.windows(2)) {
        if keep(id) {
            let range = range[0] as usize..range[1] as usize;
            kept.input_ids.extend(&row.input_ids[range.clone()]);
            kept.position_ids.extend(&row.position_ids[range.clone()]);
            kept.labels.extend(&row.labels[range]);
            kept.cu_seqlens.push(kept.input_ids.len() as i32);
            kept.sample_ids.push(id);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_samples_do_not_depend_on_packing() {
        let document = |id: u64| Batch {
            input_ids: vec![id as i32; 2],
            position_ids: vec![0, 1],
            cu_seqlens: vec![0, 2],
            labels: vec![id as i32, -100],
            sample_ids: vec![id],
        };
        let packed = Batch {
            input_ids: vec![5, 5, 1, 1],
            position_ids: vec![0, 1, 0, 1],
            cu_seqlens: vec![0, 2, 4],
            labels: vec![5, -100, 1, -100],
            sample_ids: vec![5, 1],
        };
        let alone: Vec<Batch> = [1, 3, 5].map(document).to_vec();
        assert_eq!(first_samples(alone.clone(), 2), [document(1), document(3)]);
        assert_eq!(first_samples(vec![packed, document(3)], 2), [document(1), document(3)]);
        assert_eq!(first_samples(alone.clone(), 3), alone);
    }
}
