//! Attention on the CPU: one task per document and key-value head, a block of queries at a time.
//!
//! A block's scores against all its keys are one short, wide tile, so memory grows with the length
//! of a document and not with its square. The backward pass makes the same weights again from the
//! maximum and the sum of each row;
//! a task owns all queries, keys and values that it touches, so nothing is shared.

use std::{ops::Range, sync::Arc};

use burn::tensor::{DispatchTensor, Tensor};
use rayon::prelude::*;

use super::{Attention, AttentionInput};
use crate::{
    Implementation, KernelCase, Packing, Unsupported,
    flex::{
        math::{exp, sigmoid64},
        node::{BackwardFn, Input, node},
        shared::SharedSlice,
        simd::simd_dispatch,
        supports_f32_on_flex,
        tile::{product, rows, transpose, transposed},
    },
};

/// Queries of a block.
const BLOCK: usize = 32;

/// Native packed attention.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexAttention;

impl Implementation for FlexAttention {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl Attention for FlexAttention {
    fn forward(&self, input: AttentionInput<'_>) -> Tensor<3> {
        let AttentionInput { query, key, value, gate, scale, queries, keys } = input;
        let [num_queries, num_heads, head_dim] = query.dims();
        let [_, num_key_value_heads, _] = key.dims();
        let plan = Plan {
            num_queries,
            num_heads,
            num_key_value_heads,
            head_dim,
            scale: scale as f32,
            queries: queries.clone(),
            keys: keys.clone(),
        };
        let inputs = [query.into_dispatch(), key.into_dispatch(), value.into_dispatch()];
        match gate {
            None => plan.run(inputs),
            Some(gate) => {
                let [query, key, value] = inputs;
                plan.run([query, key, value, gate.into_dispatch()])
            }
        }
    }
}

#[derive(Clone)]
struct Plan {
    num_queries: usize,
    num_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    scale: f32,
    queries: Packing,
    keys: Packing,
}

struct Task {
    queries: Range<usize>,
    keys: Range<usize>,
    key_head: usize,
}

impl Task {
    /// First query and number of queries of each block, and the keys that its last query sees.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let (n, past) = (self.queries.len(), self.keys.len() - self.queries.len());
        (0..n).step_by(BLOCK).map(move |first| {
            let len = BLOCK.min(n - first);
            (first, len, past + first + len)
        })
    }
}

impl Plan {
    fn run<const N: usize>(self, inputs: [DispatchTensor; N]) -> Tensor<3> {
        let shape = [self.num_queries, self.num_heads, self.head_dim];
        node(inputs, shape, |inputs, tracked| {
            let (attended, norms) = self.forward(inputs);
            let output = match inputs.get(3) {
                Some(gate) => gated(&attended, gate.values()),
                None => attended.clone(),
            };
            let backward = tracked.then(|| -> BackwardFn<N> {
                let inputs = inputs.clone();
                Arc::new(move |grad, wanted| {
                    self.backward(&inputs, &attended, &norms, grad, wanted)
                })
            });
            (output, backward)
        })
    }

    fn group(&self) -> usize {
        self.num_heads / self.num_key_value_heads
    }

    /// The longest documents first, so that the last tasks are short.
    fn tasks(&self) -> Vec<Task> {
        let mut documents: Vec<_> = self
            .queries
            .documents()
            .zip(self.keys.documents())
            .filter(|(q, _)| !q.is_empty())
            .collect();
        documents.sort_by_key(|(_, keys)| std::cmp::Reverse(keys.len()));
        documents
            .into_iter()
            .flat_map(|(queries, keys)| {
                (0..self.num_key_value_heads).map(move |key_head| Task {
                    queries: queries.clone(),
                    keys: keys.clone(),
                    key_head,
                })
            })
            .collect()
    }

    /// Attended values `[T, H, D]` before the gate, and of each row of scores the maximum and the
    /// reciprocal of the sum of exponentials `[T, H, 2]`.
    fn forward(&self, inputs: &[Input]) -> (Vec<f32>, Vec<f32>) {
        let mut attended = vec![0.0; self.num_queries * self.num_heads * self.head_dim];
        let mut norms = vec![0.0; self.num_queries * self.num_heads * 2];
        let out = Outputs {
            values: SharedSlice::new(&mut attended),
            norms: SharedSlice::new(&mut norms),
        };
        let [q, k, v] = [0, 1, 2].map(|i| inputs[i].values());
        self.tasks().into_par_iter().for_each_init(Scratch::default, |scratch, task| {
            forward_task(self, (q, k, v), &out, scratch, &task);
        });
        (attended, norms)
    }

    fn backward<const N: usize>(
        &self,
        inputs: &[Input; N],
        attended: &[f32],
        norms: &[f32],
        grad: &[f32],
        wanted: [bool; N],
    ) -> [Option<Vec<f32>>; N] {
        let [q, k, v] = [0, 1, 2].map(|i| inputs[i].values());
        // Through the gate: dO = dy sigmoid(gate), dgate = dy O sigmoid'(gate).
        let (dout, dgate) = match inputs.get(3) {
            Some(gate) => {
                let (dout, dgate) = gate_backward(attended, gate.values(), grad);
                (dout, Some(dgate))
            }
            None => (grad.to_vec(), None),
        };
        let mut dq = vec![0.0; q.len()];
        let mut dk = vec![0.0; k.len()];
        let mut dv = vec![0.0; v.len()];
        {
            let grads = Grads {
                query: SharedSlice::new(&mut dq),
                key: SharedSlice::new(&mut dk),
                value: SharedSlice::new(&mut dv),
            };
            let given = Given { q, k, v, attended, norms, dout: &dout };
            self.tasks().into_par_iter().for_each_init(Scratch::default, |scratch, task| {
                backward_task(self, &given, &grads, scratch, &task);
            });
        }
        let mut grads = [Some(dq), Some(dk), Some(dv), dgate].into_iter();
        std::array::from_fn(|i| grads.next().flatten().filter(|_| wanted[i]))
    }
}

struct Outputs<'a> {
    values: SharedSlice<'a>,
    norms: SharedSlice<'a>,
}

struct Given<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    attended: &'a [f32],
    norms: &'a [f32],
    dout: &'a [f32],
}

struct Grads<'a> {
    query: SharedSlice<'a>,
    key: SharedSlice<'a>,
    value: SharedSlice<'a>,
}

#[derive(Default)]
struct Scratch {
    k_transposed: Vec<f32>,
    v_transposed: Vec<f32>,
    scores: Vec<f32>,
    dscores: Vec<f32>,
    rows: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

/// A buffer of at least `len` elements, its values to be overwritten.
fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

fn gated(values: &[f32], gate: &[f32]) -> Vec<f32> {
    let gate = gate.par_iter().with_min_len(4096);
    values
        .par_iter()
        .with_min_len(4096)
        .zip(gate)
        .map(|(&o, &z)| (f64::from(o) * sigmoid64(f64::from(z))) as f32)
        .collect()
}

fn gate_backward(attended: &[f32], gate: &[f32], grad: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let attended = attended.par_iter().with_min_len(4096);
    attended
        .zip(gate.par_iter().with_min_len(4096).zip(grad.par_iter().with_min_len(4096)))
        .map(|(&o, (&z, &dy))| {
            let s = sigmoid64(f64::from(z));
            let dy = f64::from(dy);
            ((dy * s) as f32, (dy * f64::from(o) * s * (1.0 - s)) as f32)
        })
        .unzip()
}

#[inline(always)]
fn forward_body<const FMA: bool>(
    plan: &Plan,
    (q, k, v): (&[f32], &[f32], &[f32]),
    out: &Outputs<'_>,
    scratch: &mut Scratch,
    task: &Task,
) {
    let (d, m) = (plan.head_dim, task.keys.len());
    let (q_stride, k_stride) = (plan.num_heads * d, plan.num_key_value_heads * d);
    let key_start = task.keys.start * k_stride + task.key_head * d;
    let k_transposed = sized(&mut scratch.k_transposed, d * m);
    transpose(m, d, &k[key_start..], k_stride, k_transposed);
    for head in task.key_head * plan.group()..(task.key_head + 1) * plan.group() {
        for (first, n, visible) in task.blocks() {
            let query_row = task.queries.start + first;
            let start = query_row * q_stride + head * d;
            let scores = sized(&mut scratch.scores, n * visible);
            let query = rows(&q[start..], q_stride);
            product((n, visible, d), query, (k_transposed, m), (scores, visible), false);
            let mut norms = [[0.0f32; 2]; BLOCK];
            for i in 0..n {
                let row = &mut scores[i * visible..][..visible];
                norms[i] = softmax::<FMA>(row, visible - n + i + 1, plan.scale);
            }
            let values = sized(&mut scratch.rows, n * d);
            let weights = rows(scores, visible);
            product((n, d, visible), weights, (&v[key_start..], k_stride), (values, d), false);
            for i in 0..n {
                let row = query_row + i;
                let at = row * q_stride + head * d;
                // SAFETY: only this task writes the rows of its document and heads.
                unsafe {
                    out.values.row(at..at + d).copy_from_slice(&values[i * d..][..d]);
                    let at = (row * plan.num_heads + head) * 2;
                    out.norms.row(at..at + 2).copy_from_slice(&norms[i]);
                }
            }
        }
    }
}

/// Weights of the first `visible` of a row of raw scores, 0 for the rest; returns the maximum and
/// the reciprocal of the sum.
#[inline(always)]
fn softmax<const FMA: bool>(row: &mut [f32], visible: usize, scale: f32) -> [f32; 2] {
    let (seen, future) = row.split_at_mut(visible);
    future.fill(0.0);
    let mut max = f32::NEG_INFINITY;
    for x in seen.iter_mut() {
        *x *= scale;
        max = max.max(*x);
    }
    for x in seen.iter_mut() {
        *x = exp::<FMA>(*x - max);
    }
    let sum: f64 = seen.iter().map(|&x| f64::from(x)).sum();
    let inverse = (1.0 / sum) as f32;
    for x in seen.iter_mut() {
        *x *= inverse;
    }
    [max, inverse]
}

simd_dispatch! {
    fn forward_task(
        plan: &Plan,
        inputs: (&[f32], &[f32], &[f32]),
        out: &Outputs<'_>,
        scratch: &mut Scratch,
        task: &Task,
    ) => forward_body
}

#[inline(always)]
fn backward_body<const FMA: bool>(
    plan: &Plan,
    given: &Given<'_>,
    grads: &Grads<'_>,
    scratch: &mut Scratch,
    task: &Task,
) {
    let (d, m, scale) = (plan.head_dim, task.keys.len(), plan.scale);
    let (q_stride, k_stride) = (plan.num_heads * d, plan.num_key_value_heads * d);
    let key_start = task.keys.start * k_stride + task.key_head * d;
    let (k, v) = (&given.k[key_start..], &given.v[key_start..]);
    let k_transposed = sized(&mut scratch.k_transposed, d * m);
    transpose(m, d, k, k_stride, k_transposed);
    let v_transposed = sized(&mut scratch.v_transposed, d * m);
    transpose(m, d, v, k_stride, v_transposed);
    let dk = sized(&mut scratch.dk, m * d);
    dk.fill(0.0);
    let dv = sized(&mut scratch.dv, m * d);
    dv.fill(0.0);
    for head in task.key_head * plan.group()..(task.key_head + 1) * plan.group() {
        for (first, n, visible) in task.blocks() {
            let query_row = task.queries.start + first;
            let start = query_row * q_stride + head * d;
            let query = rows(&given.q[start..], q_stride);
            let dout = rows(&given.dout[start..], q_stride);
            let weights = sized(&mut scratch.scores, n * visible);
            product((n, visible, d), query, (k_transposed, m), (weights, visible), false);
            let dscores = sized(&mut scratch.dscores, n * visible);
            product((n, visible, d), dout, (v_transposed, m), (dscores, visible), false);
            for i in 0..n {
                let seen = visible - n + i + 1;
                let at = (query_row + i) * q_stride + head * d;
                let delta: f64 = given.dout[at..at + d]
                    .iter()
                    .zip(&given.attended[at..at + d])
                    .map(|(&x, &y)| f64::from(x) * f64::from(y))
                    .sum();
                let norms = ((query_row + i) * plan.num_heads + head) * 2;
                let [max, inverse] = [given.norms[norms], given.norms[norms + 1]];
                let weights = &mut weights[i * visible..][..visible];
                let dscores = &mut dscores[i * visible..][..visible];
                score_gradients::<FMA>(weights, dscores, seen, (scale, max, inverse, delta as f32));
            }
            let dq = sized(&mut scratch.rows, n * d);
            product((n, d, visible), rows(dscores, visible), (k, k_stride), (dq, d), false);
            for i in 0..n {
                let at = (query_row + i) * q_stride + head * d;
                // SAFETY: only this task writes the rows of its document and heads.
                let out = unsafe { grads.query.row(at..at + d) };
                out.copy_from_slice(&dq[i * d..][..d]);
            }
            let (q, dout) = (&given.q[start..], &given.dout[start..]);
            let dscores = transposed(dscores, visible);
            product((visible, d, n), dscores, (q, q_stride), (dk, d), true);
            let weights = transposed(weights, visible);
            product((visible, d, n), weights, (dout, q_stride), (dv, d), true);
        }
    }
    for i in 0..m {
        let at = key_start + i * k_stride;
        // SAFETY: only this task writes the rows of its document and key-value head.
        unsafe {
            grads.key.row(at..at + d).copy_from_slice(&dk[i * d..][..d]);
            grads.value.row(at..at + d).copy_from_slice(&dv[i * d..][..d]);
        }
    }
}

/// Raw scores become weights; dP becomes the gradient of the raw scores.
#[inline(always)]
fn score_gradients<const FMA: bool>(
    weights: &mut [f32],
    dscores: &mut [f32],
    seen: usize,
    (scale, max, inverse, delta): (f32, f32, f32, f32),
) {
    weights[seen..].fill(0.0);
    dscores[seen..].fill(0.0);
    for (p, ds) in weights[..seen].iter_mut().zip(&mut dscores[..seen]) {
        *p = exp::<FMA>(*p * scale - max) * inverse;
        *ds = *p * (*ds - delta) * scale;
    }
}

simd_dispatch! {
    fn backward_task(
        plan: &Plan,
        given: &Given<'_>,
        grads: &Grads<'_>,
        scratch: &mut Scratch,
        task: &Task,
    ) => backward_body
}
