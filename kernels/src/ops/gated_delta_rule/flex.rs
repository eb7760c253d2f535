//! The chunk form on the CPU: one task per document and key head, its state in cache.

use std::{ops::Range, sync::Arc};

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::{
    GatedDeltaRule, GatedDeltaRuleInput, GatedDeltaRuleOutput,
    flex_backward::{ChunkGrads, normalize_backward},
    flex_chunk::{CHUNK, HeadChunk, KeyChunk, Sizes},
};
use crate::{
    Implementation, KernelCase, Packing, Unsupported,
    flex::{
        node::{BackwardFn, Input, node},
        shared::SharedSlice,
        simd::simd_dispatch,
        supports_f32_on_flex,
    },
};

/// Chunks between two states that the backward pass keeps; those between are made again.
const CHUNKS_PER_SEGMENT: usize = 16;

/// Native chunkwise gated delta rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexGatedDeltaRule;

impl Implementation for FlexGatedDeltaRule {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl GatedDeltaRule for FlexGatedDeltaRule {
    fn forward(&self, input: GatedDeltaRuleInput<'_>) -> GatedDeltaRuleOutput {
        let GatedDeltaRuleInput { query, key, value, decay, beta, packing, .. } = input;
        let [num_tokens, num_key_heads, key_dim] = key.dims();
        let [_, num_value_heads, value_dim] = value.dims();
        let sizes = Sizes { num_key_heads, num_value_heads, key_dim, value_dim };
        let plan = Plan {
            sizes,
            packing: packing.clone(),
            num_tokens,
            with_final_state: input.output_final_state,
        };
        let inputs = [
            query.into_dispatch(),
            key.into_dispatch(),
            value.into_dispatch(),
            decay.into_dispatch(),
            beta.into_dispatch(),
        ];
        let output: Tensor<1> = match input.initial_state {
            None => plan.run(inputs),
            Some(state) => {
                let [query, key, value, decay, beta] = inputs;
                plan.run([query, key, value, decay, beta, state.into_dispatch()])
            }
        };
        let num_values = plan.num_values();
        let shape = [num_tokens, num_value_heads, value_dim];
        if !plan.with_final_state {
            return GatedDeltaRuleOutput { output: output.reshape(shape), final_state: None };
        }
        let num_documents = packing.num_documents();
        let num_states = num_documents * num_value_heads * sizes.state();
        let states = output.clone().narrow(0, num_values, num_states);
        GatedDeltaRuleOutput {
            output: output.narrow(0, 0, num_values).reshape(shape),
            final_state: Some(states.reshape([num_documents, num_value_heads, key_dim, value_dim])),
        }
    }
}

/// The shape of the work; the output is `[T, HV, DV]`, followed by the states if they are wanted.
#[derive(Clone)]
struct Plan {
    sizes: Sizes,
    packing: Packing,
    num_tokens: usize,
    with_final_state: bool,
}

/// The inputs as slices.
#[derive(Clone, Copy)]
struct Slices<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    decay: &'a [f32],
    beta: &'a [f32],
    initial_state: Option<&'a [f32]>,
}

impl<'a> Slices<'a> {
    fn new(inputs: &'a [Input]) -> Self {
        Self {
            query: inputs[0].values(),
            key: inputs[1].values(),
            value: inputs[2].values(),
            decay: inputs[3].values(),
            beta: inputs[4].values(),
            initial_state: inputs.get(5).map(Input::values),
        }
    }
}

impl Plan {
    fn num_values(&self) -> usize {
        self.num_tokens * self.sizes.num_value_heads * self.sizes.value_dim
    }

    fn num_states(&self) -> usize {
        self.packing.num_documents() * self.sizes.num_value_heads * self.sizes.state()
    }

    fn run<const N: usize>(&self, inputs: [burn::tensor::DispatchTensor; N]) -> Tensor<1> {
        let num_states = if self.with_final_state { self.num_states() } else { 0 };
        node(inputs, [self.num_values() + num_states], |inputs, tracked| {
            let output = self.forward(Slices::new(inputs), num_states);
            let backward = tracked.then(|| -> BackwardFn<N> {
                let (plan, inputs) = (self.clone(), inputs.clone());
                Arc::new(move |grad, wanted| plan.backward(&inputs, grad, wanted))
            });
            (output, backward)
        })
    }

    /// (document, key head), the longest documents first so that the last tasks are short.
    fn tasks(&self) -> Vec<Task> {
        let mut documents: Vec<_> = self.packing.documents().enumerate().collect();
        documents.sort_by_key(|(_, tokens)| std::cmp::Reverse(tokens.len()));
        let heads = self.sizes.num_key_heads;
        documents
            .into_iter()
            .flat_map(|(document, tokens)| {
                (0..heads).map(move |key_head| Task { document, tokens: tokens.clone(), key_head })
            })
            .collect()
    }

    fn forward(&self, inputs: Slices<'_>, num_states: usize) -> Vec<f32> {
        let mut output = vec![0.0; self.num_values() + num_states];
        let (values, states) = output.split_at_mut(self.num_values());
        let outputs =
            Outputs { values: SharedSlice::new(values), states: SharedSlice::new(states) };
        self.tasks().into_par_iter().for_each_init(
            || Scratch::new(self.sizes),
            |scratch, task| forward_task(self, inputs, &outputs, scratch, &task),
        );
        output
    }

    fn backward<const N: usize>(
        &self,
        inputs: &[Input; N],
        grad: &[f32],
        wanted: [bool; N],
    ) -> [Option<Vec<f32>>; N] {
        let slices = Slices::new(inputs);
        let mut grads: [Vec<f32>; N] = std::array::from_fn(|i| vec![0.0; inputs[i].values().len()]);
        {
            let mut shared = grads.iter_mut().map(|grad| SharedSlice::new(grad));
            let mut next = || shared.next().expect("there are at least five inputs");
            let grads = Grads {
                query: next(),
                key: next(),
                value: next(),
                decay: next(),
                beta: next(),
                initial_state: slices.initial_state.map(|_| next()),
            };
            self.tasks().into_par_iter().for_each_init(
                || BackwardScratch::new(self.sizes),
                |scratch, task| backward_task(self, slices, grad, &grads, scratch, &task),
            );
        }
        let mut wanted = wanted.into_iter();
        grads.map(|grad| wanted.next().unwrap_or(false).then_some(grad))
    }
}

struct Task {
    document: usize,
    tokens: Range<usize>,
    key_head: usize,
}

impl Task {
    /// First row and number of rows of each chunk.
    fn chunks(&self) -> impl ExactSizeIterator<Item = (usize, usize)> + DoubleEndedIterator + '_ {
        let end = self.tokens.end;
        let count = self.tokens.len().div_ceil(CHUNK);
        (0..count).map(move |i| {
            let first = self.tokens.start + i * CHUNK;
            (first, (end - first).min(CHUNK))
        })
    }
}

struct Outputs<'a> {
    values: SharedSlice<'a>,
    states: SharedSlice<'a>,
}

struct Grads<'a> {
    query: SharedSlice<'a>,
    key: SharedSlice<'a>,
    value: SharedSlice<'a>,
    decay: SharedSlice<'a>,
    beta: SharedSlice<'a>,
    initial_state: Option<SharedSlice<'a>>,
}

struct Scratch {
    chunk: KeyChunk,
    head: HeadChunk,
    /// `[group, DK, DV]`.
    states: Vec<f32>,
    /// `[n, DV]`.
    output: Vec<f32>,
}

impl Scratch {
    fn new(sizes: Sizes) -> Self {
        Self {
            chunk: KeyChunk::new(sizes),
            head: HeadChunk::new(sizes),
            states: vec![0.0; sizes.group() * sizes.state()],
            output: vec![0.0; CHUNK * sizes.value_dim],
        }
    }

    fn load_initial_states(&mut self, sizes: Sizes, inputs: Slices<'_>, task: &Task) {
        match inputs.initial_state {
            None => self.states.fill(0.0),
            Some(states) => {
                let len = self.states.len();
                let head = task.document * sizes.num_value_heads + task.key_head * sizes.group();
                self.states.copy_from_slice(&states[head * sizes.state()..][..len]);
            }
        }
    }
}

#[inline(always)]
fn forward_body<const FMA: bool>(
    plan: &Plan,
    inputs: Slices<'_>,
    outputs: &Outputs<'_>,
    scratch: &mut Scratch,
    task: &Task,
) {
    let sizes = plan.sizes;
    let (group, dv) = (sizes.group(), sizes.value_dim);
    scratch.load_initial_states(sizes, inputs, task);
    let Scratch { chunk, head, states, output } = scratch;
    for (first, n) in task.chunks() {
        chunk.load::<FMA>(sizes, inputs.query, inputs.key, (first, n), task.key_head, true);
        for (r, state) in states.chunks_exact_mut(sizes.state()).enumerate() {
            let value_head = task.key_head * group + r;
            head.load_gates::<FMA>(sizes, chunk, inputs.decay, inputs.beta, first, value_head);
            head.load_p(chunk);
            head.solve::<FMA>(sizes, chunk, inputs.value, first, value_head, state);
            head.output::<FMA>(sizes, chunk, state, output);
            for i in 0..n {
                let at = ((first + i) * sizes.num_value_heads + value_head) * dv;
                // SAFETY: only this task writes the rows of its document and value heads.
                let row = unsafe { outputs.values.row(at..at + dv) };
                row.copy_from_slice(&output[i * dv..][..dv]);
            }
            head.update::<FMA>(sizes, chunk, state);
        }
    }
    if plan.with_final_state {
        let head = task.document * sizes.num_value_heads + task.key_head * group;
        let at = head * sizes.state();
        // SAFETY: only this task writes the states of its document and value heads.
        unsafe { outputs.states.row(at..at + states.len()) }.copy_from_slice(states);
    }
}

simd_dispatch! {
    fn forward_task(
        plan: &Plan,
        inputs: Slices<'_>,
        outputs: &Outputs<'_>,
        scratch: &mut Scratch,
        task: &Task,
    ) => forward_body
}

struct BackwardScratch {
    forward: Scratch,
    grads: ChunkGrads,
    /// `[group, DK, DV]`.
    dstates: Vec<f32>,
    /// States at the start of every segment of the document.
    kept: Vec<f32>,
    /// States at the start of every chunk of the segment in hand.
    segment: Vec<f32>,
}

impl BackwardScratch {
    fn new(sizes: Sizes) -> Self {
        Self {
            forward: Scratch::new(sizes),
            grads: ChunkGrads::new(sizes),
            dstates: vec![0.0; sizes.group() * sizes.state()],
            kept: Vec::new(),
            segment: Vec::new(),
        }
    }
}

/// Advances all states of a task over one chunk.
#[inline(always)]
fn advance<const FMA: bool>(
    sizes: Sizes,
    inputs: Slices<'_>,
    scratch: &mut Scratch,
    (first, n): (usize, usize),
    key_head: usize,
) {
    let Scratch { chunk, head, states, .. } = scratch;
    chunk.load::<FMA>(sizes, inputs.query, inputs.key, (first, n), key_head, false);
    for (r, state) in states.chunks_exact_mut(sizes.state()).enumerate() {
        let value_head = key_head * sizes.group() + r;
        head.load_gates::<FMA>(sizes, chunk, inputs.decay, inputs.beta, first, value_head);
        head.solve::<FMA>(sizes, chunk, inputs.value, first, value_head, state);
        head.update::<FMA>(sizes, chunk, state);
    }
}

#[inline(always)]
fn backward_body<const FMA: bool>(
    plan: &Plan,
    inputs: Slices<'_>,
    grad: &[f32],
    grads: &Grads<'_>,
    scratch: &mut BackwardScratch,
    task: &Task,
) {
    let sizes = plan.sizes;
    let chunks: Vec<_> = task.chunks().collect();
    let segments: Vec<_> = chunks.chunks(CHUNKS_PER_SEGMENT).collect();
    let (values_grad, states_grad) = grad.split_at(plan.num_values());
    let states_at =
        (task.document * sizes.num_value_heads + task.key_head * sizes.group()) * sizes.state();
    let len = scratch.dstates.len();
    if plan.with_final_state {
        scratch.dstates.copy_from_slice(&states_grad[states_at..][..len]);
    } else {
        scratch.dstates.fill(0.0);
    }

    // States at the start of every segment.
    scratch.forward.load_initial_states(sizes, inputs, task);
    scratch.kept.clear();
    for (index, segment) in segments.iter().enumerate() {
        scratch.kept.extend_from_slice(&scratch.forward.states);
        if index + 1 < segments.len() {
            for &rows in *segment {
                advance::<FMA>(sizes, inputs, &mut scratch.forward, rows, task.key_head);
            }
        }
    }

    for (index, segment) in segments.iter().enumerate().rev() {
        scratch.forward.states.copy_from_slice(&scratch.kept[index * len..][..len]);
        scratch.segment.clear();
        for (i, &rows) in segment.iter().enumerate() {
            scratch.segment.extend_from_slice(&scratch.forward.states);
            if i + 1 < segment.len() {
                advance::<FMA>(sizes, inputs, &mut scratch.forward, rows, task.key_head);
            }
        }
        for (i, &rows) in segment.iter().enumerate().rev() {
            let states = i * len..(i + 1) * len;
            backward_chunk::<FMA>(sizes, inputs, values_grad, grads, scratch, states, task, rows);
        }
    }
    if let Some(states) = &grads.initial_state {
        // SAFETY: only this task writes the states of its document and value heads.
        unsafe { states.row(states_at..states_at + len) }.copy_from_slice(&scratch.dstates);
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn backward_chunk<const FMA: bool>(
    sizes: Sizes,
    inputs: Slices<'_>,
    grad: &[f32],
    grads: &Grads<'_>,
    scratch: &mut BackwardScratch,
    states: Range<usize>,
    task: &Task,
    (first, n): (usize, usize),
) {
    let (dk, dv, group) = (sizes.key_dim, sizes.value_dim, sizes.group());
    let Scratch { chunk, head, .. } = &mut scratch.forward;
    let sums = &mut scratch.grads;
    chunk.load::<FMA>(sizes, inputs.query, inputs.key, (first, n), task.key_head, true);
    sums.clear();
    let states = scratch.segment[states].chunks_exact(sizes.state());
    let dstates = scratch.dstates.chunks_exact_mut(sizes.state());
    for (r, (state, dstate)) in states.zip(dstates).enumerate() {
        let value_head = task.key_head * group + r;
        head.load_gates::<FMA>(sizes, chunk, inputs.decay, inputs.beta, first, value_head);
        head.load_p(chunk);
        head.solve::<FMA>(sizes, chunk, inputs.value, first, value_head, state);
        sums.add_head::<FMA>(sizes, chunk, head, grad, (first, value_head), state, dstate);
        for i in 0..n {
            let at = (first + i) * sizes.num_value_heads + value_head;
            // SAFETY: only this task writes the rows of its document and value heads.
            unsafe {
                let value = grads.value.row(at * dv..(at + 1) * dv);
                value.copy_from_slice(&sums.dv[i * dv..][..dv]);
                grads.decay.row(at..at + 1)[0] = sums.dg[i] as f32;
                grads.beta.row(at..at + 1)[0] = sums.dbeta[i] as f32;
            }
        }
    }
    sums.finish::<FMA>(sizes, chunk);
    let scale = 1.0 / (dk as f64).sqrt();
    for i in 0..n {
        let at = ((first + i) * sizes.num_key_heads + task.key_head) * dk;
        // SAFETY: only this task writes the rows of its document and key head.
        let (query, key) = unsafe { (grads.query.row(at..at + dk), grads.key.row(at..at + dk)) };
        let (y, dy) = (&chunk.q[i * dk..][..dk], &sums.dq[i * dk..][..dk]);
        normalize_backward(y, dy, chunk.q_rsqrt[i], scale, query);
        let (y, dy) = (&chunk.k[i * dk..][..dk], &sums.dk[i * dk..][..dk]);
        normalize_backward(y, dy, chunk.k_rsqrt[i], 1.0, key);
    }
}

simd_dispatch! {
    fn backward_task(
        plan: &Plan,
        inputs: Slices<'_>,
        grad: &[f32],
        grads: &Grads<'_>,
        scratch: &mut BackwardScratch,
        task: &Task,
    ) => backward_body
}
