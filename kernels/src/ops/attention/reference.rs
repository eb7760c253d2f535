//! The meaning of `attention`, in Burn ops.

use burn::tensor::Tensor;

use burn::tensor::activation::{sigmoid, softmax};

use super::{Attention, AttentionInput};

use crate::{Implementation, KernelCase, Unsupported, ops::wide};

/// One document after the other, scores and all.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceAttention;

impl Implementation for ReferenceAttention {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl Attention for ReferenceAttention {
    fn forward(&self, input: AttentionInput<'_>) -> Tensor<3> {
        let AttentionInput { query, key, value, gate, scale, queries, keys } = input;
        let outputs: Vec<_> = queries
            .documents()
            .zip(keys.documents())
            .filter(|(q, _)| !q.is_empty())
            .map(|(q, k)| {
                document(
                    query.clone().narrow(0, q.start, q.len()),
                    key.clone().narrow(0, k.start, k.len()),
                    value.clone().narrow(0, k.start, k.len()),
                    scale,
                )
            })
            .collect();
        let output = if outputs.is_empty() { query } else { Tensor::cat(outputs, 0) };
        match gate {
            Some(gate) => {
                let dtype = output.dtype();
                let wide = wide(&output.device());
                (output.cast(wide) * sigmoid(gate.cast(wide))).cast(dtype)
            }
            None => output,
        }
    }
}

/// `query` `[n, H, D]`, `key`, `value` `[m, HK, D]`, m >= n -> `[n, H, D]`.
fn document(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, scale: f64) -> Tensor<3> {
    let dtype = query.dtype();
    let wide = wide(&query.device());
    let [n, num_heads, head_dim] = query.dims();
    let [m, num_key_value_heads, _] = key.dims();
    let group = num_heads / num_key_value_heads;

    // The query heads of one key-value head become rows of one matrix: [HK, group * n, D].
    let query = query
        .cast(wide)
        .reshape([n, num_key_value_heads, group, head_dim])
        .permute([1, 2, 0, 3])
        .reshape([num_key_value_heads, group * n, head_dim]);
    let key = key.cast(wide).permute([1, 2, 0]);
    let value = value.cast(wide).permute([1, 0, 2]);

    let scores = (query * scale).matmul(key).reshape([num_key_value_heads, group, n, m]);
    let future = Tensor::<2, burn::tensor::Int>::ones([n, m], &scores.device())
        .triu((m - n + 1) as i64)
        .bool()
        .unsqueeze::<4>()
        .expand([num_key_value_heads, group, n, m]);
    let weights = softmax(scores.mask_fill(future, f32::NEG_INFINITY), 3);

    weights
        .reshape([num_key_value_heads, group * n, m])
        .matmul(value)
        .reshape([num_key_value_heads, group, n, head_dim])
        .permute([2, 0, 1, 3])
        .reshape([n, num_heads, head_dim])
        .cast(dtype)
}
