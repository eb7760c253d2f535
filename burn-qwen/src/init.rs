//! Initial values of training from scratch.

use rand::{Rng, SeedableRng, rngs::ChaCha8Rng};

use crate::{
    config::QwenConfig,
    params::{BlockSpec, ParamRole, ParamSpec},
};

/// The flat shard of a block with random initial values.
///
/// Every parameter draws from a stream of its own, made from the seed and its name, so the values
/// depend on nothing else.
pub fn init_block(config: &QwenConfig, spec: &BlockSpec, seed: u64) -> Vec<f32> {
    let mut values = Vec::with_capacity(spec.num_elements());
    for param in &spec.params {
        init_param(config, param, seed, &mut values);
    }
    values
}

fn init_param(config: &QwenConfig, param: &ParamSpec, seed: u64, values: &mut Vec<f32>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ fnv1a(&param.name));
    let n = param.num_elements();
    match param.role {
        ParamRole::Embedding | ParamRole::Matrix | ParamRole::Conv => {
            values.extend((0..n).map(|_| normal(&mut rng) * config.initializer_range as f32));
        }
        ParamRole::Norm | ParamRole::DtBias => values.extend(std::iter::repeat_n(1.0, n)),
        ParamRole::ZeroCenteredNorm | ParamRole::Bias => values.extend(std::iter::repeat_n(0.0, n)),
        ParamRole::ALog => {
            values.extend((0..n).map(|_| (0.01 + 15.99 * uniform(&mut rng)).ln() as f32));
        }
    }
}

/// Uniform in (0, 1).
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    ((rng.next_u64() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// Standard normal (Box and Muller, 1958).
fn normal(rng: &mut ChaCha8Rng) -> f32 {
    let radius = (-2.0 * uniform(rng).ln()).sqrt();
    (radius * (std::f64::consts::TAU * uniform(rng)).cos()) as f32
}

/// Fowler-Noll-Vo hash of a name.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
