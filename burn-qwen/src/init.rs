//! Initial values of training from scratch.

use rand::{Rng, SeedableRng, rngs::ChaCha8Rng};

use crate::{
    config::QwenConfig,
    params::{BlockSpec, ParamRole, ParamSpec},
};

/// Smallest and largest step size softplus(dt_bias) of a delta rule's head.
///
/// Log-uniform between them as in Mamba (Gu and Dao, 2023), whose gate Gated DeltaNet (Yang, Kautz,
/// Hatamizadeh, 2024) takes over: heads remember for a few up to thousands of tokens. `dt_bias` = 1,
/// which HF transformers fills in before it loads a checkpoint, makes most heads forget within a
/// token: after equal training the quickstart's model then answered 11 % instead of 67 %.
const STEP_SIZES: (f64, f64) = (0.001, 0.1);

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
        ParamRole::Norm => values.extend(std::iter::repeat_n(1.0, n)),
        ParamRole::ZeroCenteredNorm | ParamRole::Bias => values.extend(std::iter::repeat_n(0.0, n)),
        ParamRole::DtBias => values.extend((0..n).map(|_| {
            let (smallest, largest) = STEP_SIZES;
            let step = smallest * (largest / smallest).powf(uniform(&mut rng));
            inverse_softplus(step) as f32
        })),
        ParamRole::ALog => {
            values.extend((0..n).map(|_| (0.01 + 15.99 * uniform(&mut rng)).ln() as f32));
        }
    }
}

/// x with softplus(x) = `y`, exact for small `y` too.
fn inverse_softplus(y: f64) -> f64 {
    y + (-(-y).exp_m1()).ln()
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
