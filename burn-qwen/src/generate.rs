//! Token after token from a model.

use burn_qwen_kernels::Kernels;
use rand::{Rng, SeedableRng, rngs::ChaCha8Rng};

use crate::model::Model;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the most likely token; otherwise logits are divided by it.
    pub temperature: f64,
    /// Keep this many of the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the most likely tokens that together reach this probability; 1 keeps all.
    pub top_p: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// The most likely token, always.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 }
    }
}

/// Continues `prompt` until a token of `stop`, `max_new_tokens`, or until `on_token` returns false.
/// Returns the new tokens without the stop token.
///
/// # Panics
/// If the prompt is empty: whoever rendered it owes at least one token.
pub fn generate(
    model: &Model,
    kernels: &Kernels,
    prompt: &[u32],
    sampling: &Sampling,
    stop: &[u32],
    max_new_tokens: usize,
    mut on_token: impl FnMut(u32) -> bool,
) -> Vec<u32> {
    assert!(!prompt.is_empty(), "a prompt needs at least one token");
    let mut rng = ChaCha8Rng::seed_from_u64(sampling.seed);
    let mut caches = model.new_caches();
    let mut input: Vec<i32> = prompt.iter().map(|&id| id as i32).collect();
    let mut num_past_tokens = 0;
    let mut output = Vec::new();
    while output.len() < max_new_tokens {
        let logits = model.next_token_logits(&input, num_past_tokens, &mut caches, kernels);
        num_past_tokens += input.len();
        let logits = logits.into_data_dtype(burn::tensor::DType::F32);
        let logits = logits.as_slice::<f32>().expect("the data was just read as f32");
        let token = sample(logits, sampling, &mut rng);
        if stop.contains(&token) {
            break;
        }
        output.push(token);
        if !on_token(token) {
            break;
        }
        input = vec![token as i32];
    }
    output
}

/// Draws a token id from logits `[V]`.
fn sample(logits: &[f32], sampling: &Sampling, rng: &mut ChaCha8Rng) -> u32 {
    if sampling.temperature <= 0.0 {
        return argmax(logits);
    }
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    // Ties by id, so that equal logits give equal draws everywhere.
    order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
    if sampling.top_k > 0 {
        order.truncate(sampling.top_k);
    }
    let max = f64::from(logits[order[0] as usize]);
    let weight = |&id: &u32| ((f64::from(logits[id as usize]) - max) / sampling.temperature).exp();
    let mut weights: Vec<f64> = order.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    let mut kept = 0.0;
    let enough = weights.iter().position(|weight| {
        kept += weight / total;
        kept >= sampling.top_p
    });
    if let Some(last) = enough {
        weights.truncate(last + 1);
    }
    let total: f64 = weights.iter().sum();
    let mut left = rng.next_u32() as f64 / (u32::MAX as f64 + 1.0) * total;
    for (&id, weight) in order.iter().zip(&weights) {
        left -= weight;
        if left < 0.0 {
            return id;
        }
    }
    order[weights.len() - 1]
}

fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if logit.total_cmp(&logits[best]).is_gt() {
            best = id;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        assert_eq!(argmax(&[0.0, 2.0, 2.0, -1.0]), 1);
    }

    #[test]
    fn filters_leave_what_they_should() {
        let logits = [1.0, 3.0, 2.0, 0.0];
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut draw = |top_k, top_p| {
            let sampling = Sampling { temperature: 1.0, top_k, top_p, seed: 0 };
            let mut seen: Vec<u32> =
                (0..400).map(|_| sample(&logits, &sampling, &mut rng)).collect();
            seen.sort_unstable();
            seen.dedup();
            seen
        };
        assert_eq!(draw(1, 1.0), [1]);
        assert_eq!(draw(2, 1.0), [1, 2]);
        assert_eq!(draw(0, 0.5), [1]);
        assert_eq!(draw(0, 1.0), [0, 1, 2, 3]);
    }
}
