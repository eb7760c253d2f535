//! The facts by which an implementation judges whether it can run.

use burn::tensor::DType;
use serde::Serialize;

/// The family of a device, as far as kernels care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// Burn's pure Rust CPU backend.
    Flex,
    /// Any CubeCL runtime.
    Cube,
}

/// Shapes, dtype and device of a run.
///
/// Sizes of ops that the model lacks are 0 (`linear_*` in a model without a delta rule).
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCase {
    /// Where it runs.
    pub backend: BackendKind,
    /// Dtype of activations and gathered weights.
    pub dtype: DType,
    /// Whether gradients are needed.
    pub training: bool,
    /// Longest packed row.
    pub max_tokens: usize,
    /// `hidden_size`.
    pub hidden_size: usize,
    /// `intermediate_size`.
    pub intermediate_size: usize,
    /// `vocab_size`.
    pub vocab_size: usize,
    /// `num_attention_heads`.
    pub num_attention_heads: usize,
    /// `num_key_value_heads`.
    pub num_key_value_heads: usize,
    /// `head_dim`.
    pub head_dim: usize,
    /// `linear_num_key_heads`.
    pub linear_num_key_heads: usize,
    /// `linear_num_value_heads`.
    pub linear_num_value_heads: usize,
    /// `linear_key_head_dim`.
    pub linear_key_head_dim: usize,
    /// `linear_value_head_dim`.
    pub linear_value_head_dim: usize,
    /// `linear_conv_kernel_dim`.
    pub linear_conv_kernel_dim: usize,
}
