//! What every layer of a forward pass shares.

use burn::tensor::{Device, Tensor, TensorData};
use burn_qwen_kernels::{Kernels, Packing, ops::rope::RopeTables};

use crate::config::QwenConfig;

/// Kernels, rotary tables and document boundaries of one packed row.
#[derive(Clone, Debug)]
pub struct ForwardContext {
    /// The implementation of every op.
    pub kernels: Kernels,
    /// Cosines and sines of the row's positions.
    pub rope: RopeTables,
    /// Documents of the row.
    pub packing: Packing,
}

impl ForwardContext {
    /// The context of a row; `position_ids` `[T]` restart in every document.
    pub fn new(
        config: &QwenConfig,
        kernels: Kernels,
        position_ids: &[i32],
        packing: Packing,
        device: &Device,
    ) -> Self {
        let rope = rope_tables(config.rope_theta, config.rotary_dim, position_ids, device);
        Self { kernels, rope, packing }
    }
}

/// Frequencies, angles, cosines and sines in f32, as the models were trained with: in f64 the
/// angles of far positions would differ.
pub fn rope_tables(
    theta: f64,
    rotary_dim: usize,
    positions: &[i32],
    device: &Device,
) -> RopeTables {
    let half = rotary_dim / 2;
    let frequencies: Vec<f32> =
        (0..half).map(|j| 1.0 / (theta as f32).powf((2 * j) as f32 / rotary_dim as f32)).collect();
    let angles = positions.iter().flat_map(|&position| {
        let position = position as f32;
        frequencies.iter().map(move |frequency| position * frequency)
    });
    let angles: Vec<f32> = angles.collect();
    let table = |f: fn(f32) -> f32| {
        let values: Vec<f32> = angles.iter().map(|&angle| f(angle)).collect();
        Tensor::from_data(TensorData::new(values, [positions.len(), half]), device)
    };
    RopeTables { cos: table(f32::cos), sin: table(f32::sin) }
}
