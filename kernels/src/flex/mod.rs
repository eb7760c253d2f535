//! What the native CPU kernels share: access to Flex tensors, hand-written backward passes, SIMD.
//!
//! A kernel here is plain Rust over slices. It is compiled for several instruction sets
//! ([`simd`]), runs its tasks on rayon, and enters Burn's graph as one node ([`node`]).

pub(crate) mod lanes;
pub(crate) mod math;
pub(crate) mod matmul;
pub(crate) mod node;
pub(crate) mod panel;
pub(crate) mod shared;
pub(crate) mod simd;
pub(crate) mod tile;

use burn::tensor::DType;

use crate::{BackendKind, KernelCase, Unsupported};

/// What every kernel of this kind demands.
pub(crate) fn supports_f32_on_flex(case: &KernelCase) -> Result<(), Unsupported> {
    if case.backend != BackendKind::Flex {
        return Err(Unsupported("runs on the Flex CPU backend only".to_string()));
    }
    if case.dtype != DType::F32 {
        return Err(Unsupported(format!("computes in f32, the run is in {:?}", case.dtype)));
    }
    Ok(())
}
