//! Head and loss by chunks of rows: logits of a chunk at a time, gradients in the forward pass.

use std::sync::Arc;

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::{IGNORE_INDEX, LinearCrossEntropy};
use crate::{
    Implementation, KernelCase, Unsupported,
    flex::{
        math::exp64,
        matmul::{Matrix, matmul},
        node::{BackwardFn, node},
        simd::simd_dispatch,
        supports_f32_on_flex,
    },
};

/// Rows of a chunk.
const ROWS: usize = 256;

/// Native head and loss; never holds the logits of more than a chunk of rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexLinearCrossEntropy;

impl Implementation for FlexLinearCrossEntropy {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl LinearCrossEntropy for FlexLinearCrossEntropy {
    fn forward(&self, hidden_states: Tensor<2>, weight: Tensor<2>, labels: &[i32]) -> Tensor<1> {
        let [num_rows, hidden_size] = hidden_states.dims();
        let [vocab_size, _] = weight.dims();
        // (row, target) of rows that have a label.
        let kept: Vec<(usize, usize)> = labels
            .iter()
            .enumerate()
            .filter(|(_, label)| **label != IGNORE_INDEX)
            .map(|(row, &label)| (row, label as usize))
            .collect();
        node([hidden_states.into_dispatch(), weight.into_dispatch()], [1], |inputs, tracked| {
            let (h, w) = (inputs[0].values(), inputs[1].values());
            let w = Matrix::new(w, vocab_size, hidden_size);
            let mut loss = 0.0;
            let mut dh = vec![0.0; if tracked { num_rows * hidden_size } else { 0 }];
            let mut dw = vec![0.0; if tracked { vocab_size * hidden_size } else { 0 }];
            for chunk in kept.chunks(ROWS) {
                let rows: Vec<f32> = chunk
                    .iter()
                    .flat_map(|(row, _)| &h[row * hidden_size..][..hidden_size])
                    .copied()
                    .collect();
                let rows = Matrix::new(&rows, chunk.len(), hidden_size);
                let mut logits = vec![0.0; chunk.len() * vocab_size];
                matmul(rows, w.transposed(), &mut logits, false);
                loss += losses(&mut logits, vocab_size, chunk, tracked);
                if tracked {
                    // `logits` holds dz now.
                    let dz = Matrix::new(&logits, chunk.len(), vocab_size);
                    let mut part = vec![0.0; chunk.len() * hidden_size];
                    matmul(dz, w, &mut part, false);
                    for ((row, _), part) in chunk.iter().zip(part.chunks(hidden_size)) {
                        dh[row * hidden_size..][..hidden_size].copy_from_slice(part);
                    }
                    matmul(dz.transposed(), rows, &mut dw, true);
                }
            }
            let backward = tracked.then(|| -> BackwardFn<2> {
                Arc::new(move |grad, _| {
                    let scale = |x: &[f32]| x.par_iter().map(|x| x * grad[0]).collect();
                    [Some(scale(&dh)), Some(scale(&dw))]
                })
            });
            (vec![loss as f32], backward)
        })
    }
}

/// Sum of the losses of rows of logits; with gradients, each row becomes softmax - onehot.
fn losses(
    logits: &mut [f32],
    vocab_size: usize,
    targets: &[(usize, usize)],
    with_gradients: bool,
) -> f64 {
    let rows: Vec<f64> = logits
        .par_chunks_mut(vocab_size)
        .zip(targets)
        .map(|(row, &(_, target))| {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            sum_exp(row, max, &mut sum);
            let loss = sum.ln() + f64::from(max) - f64::from(row[target]);
            if with_gradients {
                softmax(row, max, 1.0 / sum);
                row[target] = (f64::from(row[target]) - 1.0) as f32;
            }
            loss
        })
        .collect();
    rows.iter().sum()
}

#[inline(always)]
fn sum_exp_body<const _FMA: bool>(row: &[f32], max: f32, sum: &mut f64) {
    let mut sums = [0.0f64; 16];
    let (blocks, rest) = row.as_chunks::<16>();
    for block in blocks {
        for (sum, &z) in sums.iter_mut().zip(block) {
            *sum += exp64(f64::from(z - max));
        }
    }
    *sum = sums.iter().sum();
    for &z in rest {
        *sum += exp64(f64::from(z - max));
    }
}

simd_dispatch! {
    /// Sum of `exp(z - max)`.
    fn sum_exp(row: &[f32], max: f32, sum: &mut f64) => sum_exp_body
}

#[inline(always)]
fn softmax_body<const _FMA: bool>(row: &mut [f32], max: f32, scale: f64) {
    for z in row {
        *z = (exp64(f64::from(*z - max)) * scale) as f32;
    }
}

simd_dispatch! {
    /// `z = scale exp(z - max)`.
    fn softmax(row: &mut [f32], max: f32, scale: f64) => softmax_body
}
