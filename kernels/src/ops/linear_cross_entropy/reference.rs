//! The meaning of `linear_cross_entropy`, in Burn ops.

use burn::tensor::Tensor;

use burn::tensor::{DType, Int, activation::log_softmax};

use super::{IGNORE_INDEX, LinearCrossEntropy};

use crate::{Implementation, KernelCase, Unsupported, ops::wide};

/// All logits at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceLinearCrossEntropy;

impl Implementation for ReferenceLinearCrossEntropy {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl LinearCrossEntropy for ReferenceLinearCrossEntropy {
    fn forward(&self, hidden_states: Tensor<2>, weight: Tensor<2>, labels: &[i32]) -> Tensor<1> {
        let device = hidden_states.device();
        let rows: Vec<i32> =
            (0..labels.len() as i32).filter(|&t| labels[t as usize] != IGNORE_INDEX).collect();
        if rows.is_empty() {
            // Keeps both inputs in the graph, with zero gradients.
            return (hidden_states.sum() + weight.sum()).cast(DType::F32) * 0.0;
        }
        let targets: Vec<i32> = rows.iter().map(|&t| labels[t as usize]).collect();
        let num_rows = rows.len();
        let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), &device);
        let targets = Tensor::<1, Int>::from_ints(targets.as_slice(), &device);

        let wide = wide(&device);
        let rows = hidden_states.cast(wide).select(0, rows);
        let logits = rows.matmul(weight.cast(wide).transpose());
        let log_probs = log_softmax(logits, 1);
        log_probs.gather(1, targets.reshape([num_rows, 1])).sum().neg().cast(DType::F32)
    }
}
