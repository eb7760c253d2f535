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
