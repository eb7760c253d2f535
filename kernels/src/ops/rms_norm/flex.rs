//! RMS norms row by row: sums in f64, one pass forward, one backward.

use std::sync::Arc;

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::{NormForm, RmsNorm};
use crate::{
    Implementation, KernelCase, Unsupported,
    flex::{
        math::{ROWS_PER_TASK, sigmoid64},
        node::{BackwardFn, node},
        supports_f32_on_flex,
    },
};

/// Native RMS norm.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexRmsNorm;

impl Implementation for FlexRmsNorm {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl RmsNorm for FlexRmsNorm {
    fn forward(&self, x: Tensor<2>, weight: Tensor<1>, eps: f64, form: NormForm) -> Tensor<2> {
        let [num_rows, width] = x.dims();
        let offset = match form {
            NormForm::Plain => 0.0,
            NormForm::ZeroCentered => 1.0,
        };
        node([x.into_dispatch(), weight.into_dispatch()], [num_rows, width], |inputs, tracked| {
            let (x, weight) = (inputs[0].values(), inputs[1].values());
            let output = each_row(x, width, |row, out| {
                let r = rsqrt(row, eps);
                for ((y, &x), &w) in out.iter_mut().zip(row).zip(weight) {
                    *y = (f64::from(x) * r * (f64::from(w) + offset)) as f32;
                }
            });
            let backward = tracked.then(|| -> BackwardFn<2> {
                let inputs = inputs.clone();
                Arc::new(move |grad, _| {
                    let (x, weight) = (inputs[0].values(), inputs[1].values());
                    let scale = |d: usize| f64::from(weight[d]) + offset;
                    let (dx, [dw]) = backward_rows([x, grad], width, |[row, dy], dx, [dw]| {
                        let r = rsqrt(row, eps);
                        let terms = row.iter().zip(dy).enumerate();
                        let dot: f64 = terms
                            .map(|(d, (&x, &dy))| f64::from(dy) * scale(d) * f64::from(x))
                            .sum();
                        let along = r * r * r * dot / width as f64;
                        for d in 0..width {
                            let (x, dy) = (f64::from(row[d]), f64::from(dy[d]));
                            dx[0][d] = (dy * scale(d) * r - x * along) as f32;
                            dw[d] += dy * x * r;
                        }
                    });
                    let [dx] = dx;
                    [Some(dx), Some(dw)]
                })
            });
            (output, backward)
        })
    }

    fn gated(&self, x: Tensor<2>, gate: Tensor<2>, weight: Tensor<1>, eps: f64) -> Tensor<2> {
        let [num_rows, width] = x.dims();
        let inputs = [x.into_dispatch(), gate.into_dispatch(), weight.into_dispatch()];
        node(inputs, [num_rows, width], |inputs, tracked| {
            let weight = inputs[2].values();
            let gate = inputs[1].values();
            let output = each_row_indexed(inputs[0].values(), width, |i, row, out| {
                let r = rsqrt(row, eps);
                let gate = &gate[i * width..][..width];
                for d in 0..width {
                    let z = f64::from(gate[d]);
                    let normed = f64::from(row[d]) * r * f64::from(weight[d]);
                    out[d] = (normed * z * sigmoid64(z)) as f32;
                }
            });
            let backward = tracked.then(|| -> BackwardFn<3> {
                let inputs = inputs.clone();
                Arc::new(move |grad, _| {
                    let weight = inputs[2].values();
                    let rows = [inputs[0].values(), inputs[1].values(), grad];
                    let (grads, [dw]) = backward_rows(rows, width, |[row, z, dy], grads, [dw]| {
                        let [dx, dz] = grads;
                        let r = rsqrt(row, eps);
                        let mut dot = 0.0;
                        for d in 0..width {
                            let (x, z, dy) = (f64::from(row[d]), f64::from(z[d]), f64::from(dy[d]));
                            let w = f64::from(weight[d]);
                            let s = sigmoid64(z);
                            let gated = dy * z * s;
                            dz[d] = (dy * x * r * w * s * (1.0 + z * (1.0 - s))) as f32;
                            dw[d] += gated * x * r;
                            dot += gated * w * x;
                            dx[d] = (gated * w) as f32;
                        }
                        let along = r * r * r * dot / width as f64;
                        for d in 0..width {
                            dx[d] = (f64::from(dx[d]) * r - f64::from(row[d]) * along) as f32;
                        }
                    });
                    let [dx, dz] = grads;
                    [Some(dx), Some(dz), Some(dw)]
                })
            });
            (output, backward)
        })
    }
}

/// `1 / sqrt(mean(x^2) + eps)`.
fn rsqrt(row: &[f32], eps: f64) -> f64 {
    let sum: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    1.0 / (sum / row.len() as f64 + eps).sqrt()
}

fn each_row(x: &[f32], width: usize, f: impl Fn(&[f32], &mut [f32]) + Sync) -> Vec<f32> {
    each_row_indexed(x, width, |_, row, out| f(row, out))
}

fn each_row_indexed(
    x: &[f32],
    width: usize,
    f: impl Fn(usize, &[f32], &mut [f32]) + Sync,
) -> Vec<f32> {
    let mut output = vec![0.0; x.len()];
    let task = ROWS_PER_TASK * width;
    output.par_chunks_mut(task).zip(x.par_chunks(task)).enumerate().for_each(|(t, (out, x))| {
        for (i, (out, row)) in out.chunks_mut(width).zip(x.chunks(width)).enumerate() {
            f(t * ROWS_PER_TASK + i, row, out);
        }
    });
    output
}

/// Runs `f` on the rows of I inputs: it fills rows of O gradients and adds to one sum over rows.
/// Sums are joined task by task in order, so threads change nothing.
fn backward_rows<const I: usize, const O: usize>(
    inputs: [&[f32]; I],
    width: usize,
    f: impl Fn([&[f32]; I], &mut [&mut [f32]; O], [&mut [f64]; 1]) + Sync,
) -> ([Vec<f32>; O], [Vec<f32>; 1]) {
    let len = inputs[0].len();
    let task = ROWS_PER_TASK * width;
    let results: Vec<([Vec<f32>; O], Vec<f64>)> = (0..len.div_ceil(task))
        .into_par_iter()
        .map(|t| {
            let range = t * task..len.min((t + 1) * task);
            let mut grads: [Vec<f32>; O] = std::array::from_fn(|_| vec![0.0; range.len()]);
            let mut sum = vec![0.0; width];
            for start in (0..range.len()).step_by(width) {
                let rows = inputs.map(|input| &input[range.start + start..][..width]);
                let mut outs = grads.each_mut().map(|grad| &mut grad[start..start + width]);
                f(rows, &mut outs, [&mut sum]);
            }
            (grads, sum)
        })
        .collect();
    let mut grads: [Vec<f32>; O] = std::array::from_fn(|_| Vec::with_capacity(len));
    let mut sums = vec![0.0f64; width];
    for (parts, sum) in results {
        for (grad, part) in grads.iter_mut().zip(parts) {
            grad.extend(part);
        }
        for (total, x) in sums.iter_mut().zip(sum) {
            *total += x;
        }
    }
    (grads, [sums.into_iter().map(|x| x as f32).collect()])
}
