//! The operations of a Qwen model, each with a plain reference and any number of faster
//! implementations behind one trait.
//!
//! | op | formula | module |
//! | --- | --- | --- |
//! | `embedding` | rows of a table | [`ops::embedding`] |
//! | `rms_norm` | plain, zero-centered, gated, with the residual add | [`ops::rms_norm`] |
//! | `rope` | rotary position embedding, full or partial | [`ops::rope`] |
//! | `linear` | `x W^T + b (+ residual)` | [`ops::linear`] |
//! | `swiglu` | `silu(gate) * up` | [`ops::swiglu`] |
//! | `attention` | causal, grouped heads, packed documents, optional output gate | [`ops::attention`] |
//! | `causal_conv1d` | depthwise convolution and SiLU, packed documents | [`ops::causal_conv1d`] |
//! | `decay_gate` | `g` and `beta` of the delta rule | [`ops::decay_gate`] |
//! | `gated_delta_rule` | the recurrence of a Gated DeltaNet | [`ops::gated_delta_rule`] |
//! | `linear_cross_entropy` | head and loss together | [`ops::linear_cross_entropy`] |
//! | `adamw` | one optimizer update of a flat shard | [`ops::adamw`] |
//! | `grad_norm` | sum of squares of a flat shard | [`ops::grad_norm`] |
//!
//! A [`Kernels`] holds the implementation chosen for every op; it travels with the forward pass, so
//! nothing is global. [`Kernels::resolve`] chooses from a [`KernelConfig`] (a name per op, or
//! `auto`) for a [`KernelCase`] (the shapes of the run) and explains itself in a
//! [`SelectionReport`].
//!
//! # Adding an implementation
//! Write a struct in the op's folder, implement [`Implementation`] and the op's trait for it, and
//! add it to the op's `implementations()` list, best first. `auto` takes the first of the list
//! that supports the case; a name in the configuration is a demand.

pub mod case;
pub mod error;
#[allow(unsafe_code, reason = "SIMD dispatch, and tasks that share an output buffer")]
mod flex;
pub mod ops;
pub mod packing;
pub mod registry;
pub mod report;
pub mod verify;

pub use case::{BackendKind, KernelCase};
pub use error::{KernelError, Unsupported};
pub use packing::Packing;
pub use registry::{Implementation, KernelConfig, Kernels};
pub use report::{Choice, Refusal, SelectionReport};
