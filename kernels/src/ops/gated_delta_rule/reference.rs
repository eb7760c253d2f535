//! The meaning of `gated_delta_rule`: token after token, in Burn ops.

use burn::tensor::{DType, Int, Tensor};

use super::{GatedDeltaRule, GatedDeltaRuleInput, GatedDeltaRuleOutput, L2_NORM_EPS};
use crate::{Implementation, KernelCase, Packing, Unsupported, ops::wide};

/// The recurrence itself; documents advance side by side.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceGatedDeltaRule;

impl Implementation for ReferenceGatedDeltaRule {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl GatedDeltaRule for ReferenceGatedDeltaRule {
    fn forward(&self, input: GatedDeltaRuleInput<'_>) -> GatedDeltaRuleOutput {
        let device = input.value.device();
        let dtype = input.value.dtype();
        let wide = wide(&device);
        let [_, num_key_heads, key_dim] = input.key.dims();
        let [num_tokens, num_value_heads, value_dim] = input.value.dims();
        let group = num_value_heads / num_key_heads;
        let steps = Steps::new(input.packing);
        let order = Tensor::<1, Int>::from_ints(steps.rows.as_slice(), &device);

        let query = normalize(input.query.cast(wide)) / (key_dim as f64).sqrt();
        let query = repeat_heads(query, group).select(0, order.clone());
        let key = repeat_heads(normalize(input.key.cast(wide)), group).select(0, order.clone());
        let value = input.value.cast(wide).select(0, order.clone());
        let decay = input.decay.cast(wide).exp().select(0, order.clone());
        let beta = input.beta.cast(wide).select(0, order);

        let zeros = || {
            let shape = [input.packing.num_documents(), num_value_heads, key_dim, value_dim];
            Tensor::<4>::zeros(shape, (&device, wide))
        };
        let documents = Tensor::<1, Int>::from_ints(steps.documents.as_slice(), &device);
        let mut state =
            input.initial_state.map_or_else(zeros, |state| state.cast(wide)).select(0, documents);
        let mut outputs = Vec::with_capacity(steps.num_active.len());
        let mut final_states = Vec::new();
        let mut row = 0;
        for &active in &steps.num_active {
            let [num_states, ..] = state.dims();
            if active < num_states {
                final_states.push(state.clone().narrow(0, active, num_states - active));
                state = state.narrow(0, 0, active);
            }
            let rows = |x: &Tensor<3>| x.clone().narrow(0, row, active);
            let per_head = |x: &Tensor<2>| {
                x.clone().narrow(0, row, active).reshape([active, num_value_heads, 1, 1])
            };
            let k = rows(&key);
            let k_row = k.clone().unsqueeze_dim::<4>(2);
            let k_column = k.unsqueeze_dim::<4>(3);
            let v = rows(&value).unsqueeze_dim::<4>(2);

            state = state * per_head(&decay);
            let update = (v - k_row.matmul(state.clone())) * per_head(&beta);
            state = state + k_column.matmul(update);
            outputs.push(rows(&query).unsqueeze_dim::<4>(2).matmul(state.clone()));
            row += active;
        }
        final_states.push(state);
        // States left in the order of their documents' ends: the last to end stands last.
        final_states.reverse();

        let output = if outputs.is_empty() {
            value
        } else {
            let back = Tensor::<1, Int>::from_ints(steps.inverse().as_slice(), &device);
            let shape = [num_tokens, num_value_heads, value_dim];
            Tensor::cat(outputs, 0).reshape(shape).select(0, back)
        };
        let final_state = input.output_final_state.then(|| {
            let back = Tensor::<1, Int>::from_ints(invert(&steps.documents).as_slice(), &device);
            Tensor::cat(final_states, 0).select(0, back).cast(DType::F32)
        });
        GatedDeltaRuleOutput { output: output.cast(dtype), final_state }
    }
}

/// `x / sqrt(sum x^2 + eps)` per head.
fn normalize(x: Tensor<3>) -> Tensor<3> {
    let sum = x.clone().square().sum_dim(2);
    x / (sum + L2_NORM_EPS).sqrt()
}

/// `[T, HK, D]` -> `[T, HK * group, D]`, each head `group` times in a row.
fn repeat_heads(x: Tensor<3>, group: usize) -> Tensor<3> {
    let [num_tokens, num_heads, dim] = x.dims();
    x.unsqueeze_dim::<4>(2).expand([num_tokens, num_heads, group, dim]).reshape([
        num_tokens,
        num_heads * group,
        dim,
    ])
}

/// Step t handles token t of every document that is long enough: a prefix of the documents when
/// they are sorted by length.
struct Steps {
    /// Documents, longest first.
    documents: Vec<i32>,
    /// Rows in the order in which they are handled.
    rows: Vec<i32>,
    /// Documents that step t handles.
    num_active: Vec<usize>,
}

impl Steps {
    fn new(packing: &Packing) -> Self {
        let ranges: Vec<_> = packing.documents().collect();
        let mut documents: Vec<i32> = (0..ranges.len() as i32).collect();
        documents.sort_by_key(|&d| std::cmp::Reverse(ranges[d as usize].len()));
        let mut rows = Vec::with_capacity(packing.num_tokens());
        let mut num_active = Vec::with_capacity(packing.max_seqlen());
        for step in 0..packing.max_seqlen() {
            let before = rows.len();
            let active = documents.iter().map(|&d| &ranges[d as usize]);
            rows.extend(
                active.take_while(|range| step < range.len()).map(|r| (r.start + step) as i32),
            );
            num_active.push(rows.len() - before);
        }
        Self { documents, rows, num_active }
    }

    fn inverse(&self) -> Vec<i32> {
        invert(&self.rows)
    }
}

fn invert(permutation: &[i32]) -> Vec<i32> {
    let mut inverse = vec![0; permutation.len()];
    for (position, &index) in permutation.iter().enumerate() {
        inverse[index as usize] = position as i32;
    }
    inverse
}
