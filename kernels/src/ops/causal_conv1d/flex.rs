//! The convolution channel by channel of a row, document by document.

use std::sync::Arc;

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::CausalConv1d;
use crate::{
    Implementation, KernelCase, Packing, Unsupported,
    flex::{
        math::sigmoid64,
        node::{BackwardFn, node},
        simd::{fma, simd_dispatch},
        supports_f32_on_flex,
    },
};

/// Tokens of a task: dw sums of the tasks are joined in order.
const TOKENS_PER_TASK: usize = 256;

/// Native causal convolution and SiLU.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexCausalConv1d;

impl Implementation for FlexCausalConv1d {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl CausalConv1d for FlexCausalConv1d {
    fn forward(
        &self,
        x: Tensor<2>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        packing: &Packing,
    ) -> Tensor<2> {
        let shape = x.dims();
        let [num_channels, kernel_size] = weight.dims();
        let device = x.device();
        let bias = bias.unwrap_or_else(|| Tensor::zeros([num_channels], &device));
        let plan = Plan { num_channels, kernel_size, distances: distances(packing, kernel_size) };
        // One row of weights per tap: channels lie side by side as in x.
        let weight = weight.transpose();
        let inputs = [x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch()];
        node(inputs, shape, |inputs, tracked| {
            let (x, taps, bias) = (inputs[0].values(), inputs[1].values(), inputs[2].values());
            let mut output = vec![0.0; x.len()];
            let task = TOKENS_PER_TASK * num_channels;
            output.par_chunks_mut(task).enumerate().for_each(|(t, out)| {
                convolve(&plan, x, taps, bias, t * TOKENS_PER_TASK, out);
                activate(out);
            });
            let backward = tracked.then(|| -> BackwardFn<3> {
                let (inputs, plan) = (inputs.clone(), plan.clone());
                Arc::new(move |grad, _| {
                    let (x, taps, bias) =
                        (inputs[0].values(), inputs[1].values(), inputs[2].values());
                    let mut dy = vec![0.0; x.len()];
                    let task = TOKENS_PER_TASK * num_channels;
                    dy.par_chunks_mut(task).zip(grad.par_chunks(task)).enumerate().for_each(
                        |(t, (dy, grad))| {
                            convolve(&plan, x, taps, bias, t * TOKENS_PER_TASK, dy);
                            activate_backward(dy, grad);
                        },
                    );
                    let mut dx = vec![0.0; x.len()];
                    dx.par_chunks_mut(task).enumerate().for_each(|(t, dx)| {
                        spread(&plan, &dy, taps, t * TOKENS_PER_TASK, dx);
                    });
                    let (dtaps, dbias) = plan.weight_gradients(x, &dy);
                    [Some(dx), Some(dtaps), Some(dbias)]
                })
            });
            (output, backward)
        })
    }
}

#[derive(Clone)]
struct Plan {
    num_channels: usize,
    kernel_size: usize,
    /// Tokens of the same document before each token, at most `kernel_size - 1`.
    distances: Vec<usize>,
}

impl Plan {
    fn weight_gradients(&self, x: &[f32], dy: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (c, k) = (self.num_channels, self.kernel_size);
        let tasks: Vec<Vec<f64>> = (0..self.distances.len().div_ceil(TOKENS_PER_TASK))
            .into_par_iter()
            .map(|task| {
                let mut sums = vec![0.0f64; (k + 1) * c];
                let first = task * TOKENS_PER_TASK;
                for t in first..self.distances.len().min(first + TOKENS_PER_TASK) {
                    let dy = &dy[t * c..][..c];
                    for m in 0..=self.distances[t] {
                        let x = &x[(t - m) * c..][..c];
                        let sums = &mut sums[(k - 1 - m) * c..][..c];
                        for ((s, &x), &dy) in sums.iter_mut().zip(x).zip(dy) {
                            *s += f64::from(x) * f64::from(dy);
                        }
                    }
                    for (s, &dy) in sums[k * c..].iter_mut().zip(dy) {
                        *s += f64::from(dy);
                    }
                }
                sums
            })
            .collect();
        let mut sums = vec![0.0f64; (k + 1) * c];
        for task in tasks {
            sums.iter_mut().zip(task).for_each(|(sum, x)| *sum += x);
        }
        let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect();
        (narrow(&sums[..k * c]), narrow(&sums[k * c..]))
    }
}

fn distances(packing: &Packing, kernel_size: usize) -> Vec<usize> {
    packing.documents().flat_map(|d| (0..d.len()).map(move |i| i.min(kernel_size - 1))).collect()
}

#[inline(always)]
fn convolve_body<const FMA: bool>(
    plan: &Plan,
    x: &[f32],
    taps: &[f32],
    bias: &[f32],
    first: usize,
    out: &mut [f32],
) {
    let c = plan.num_channels;
    for (i, out) in out.chunks_mut(c).enumerate() {
        let t = first + i;
        out.copy_from_slice(bias);
        for m in 0..=plan.distances[t] {
            let x = &x[(t - m) * c..][..c];
            let tap = &taps[(plan.kernel_size - 1 - m) * c..][..c];
            for ((y, &x), &w) in out.iter_mut().zip(x).zip(tap) {
                *y = fma::<FMA>(x, w, *y);
            }
        }
    }
}

simd_dispatch! {
    fn convolve(plan: &Plan, x: &[f32], taps: &[f32], bias: &[f32], first: usize, out: &mut [f32])
        => convolve_body
}

#[inline(always)]
fn activate_body<const _FMA: bool>(y: &mut [f32]) {
    for y in y {
        let x = f64::from(*y);
        *y = (x * sigmoid64(x)) as f32;
    }
}

simd_dispatch! {
    fn activate(y: &mut [f32]) => activate_body
}

#[inline(always)]
fn activate_backward_body<const _FMA: bool>(y: &mut [f32], grad: &[f32]) {
    for (y, &dy) in y.iter_mut().zip(grad) {
        let x = f64::from(*y);
        let s = sigmoid64(x);
        *y = (f64::from(dy) * s * (1.0 + x * (1.0 - s))) as f32;
    }
}

simd_dispatch! {
    fn activate_backward(y: &mut [f32], grad: &[f32]) => activate_backward_body
}

/// `dx_t = sum_m w[K-1-m] dy_{t+m}` over the tokens of the same document.
#[inline(always)]
fn spread_body<const FMA: bool>(
    plan: &Plan,
    dy: &[f32],
    taps: &[f32],
    first: usize,
    dx: &mut [f32],
) {
    let c = plan.num_channels;
    for (i, dx) in dx.chunks_mut(c).enumerate() {
        let t = first + i;
        for m in 0..plan.kernel_size {
            // Token t + m reads token t only if it has m tokens of its document before it.
            if plan.distances.get(t + m).is_none_or(|&distance| distance < m) {
                break;
            }
            let dy = &dy[(t + m) * c..][..c];
            let tap = &taps[(plan.kernel_size - 1 - m) * c..][..c];
            for ((dx, &dy), &w) in dx.iter_mut().zip(dy).zip(tap) {
                *dx = fma::<FMA>(dy, w, *dx);
            }
        }
    }
}

simd_dispatch! {
    fn spread(plan: &Plan, dy: &[f32], taps: &[f32], first: usize, dx: &mut [f32]) => spread_body
}
