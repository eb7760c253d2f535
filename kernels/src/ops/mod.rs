//! One folder per op: `mod.rs` says what it computes, `reference.rs` means it in Burn ops.
//!
//! Shape letters: T tokens, N documents, C hidden, F intermediate, V vocabulary, H query heads, HK
//! key-value heads, D head dim; HK, HV, DK, DV the heads and head dims of the delta rule.

pub mod adamw;
pub mod attention;
pub mod causal_conv1d;
pub mod decay_gate;
pub mod embedding;
pub mod gated_delta_rule;
pub mod grad_norm;
pub mod linear;
pub mod linear_cross_entropy;
pub mod rms_norm;
pub mod rope;
pub mod swiglu;

use burn::tensor::{DType, Device};

/// The dtype in which references compute: f64 where the device has it. A reference is the meaning of
/// an op, so it is to be closer to the mathematics than any implementation it judges.
pub(crate) fn wide(device: &Device) -> DType {
    if device.supports_dtype(DType::F64) { DType::F64 } else { DType::F32 }
}
