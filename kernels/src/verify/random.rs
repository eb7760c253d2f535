//! Every op on random inputs of awkward shapes, against its reference.
//!
//! References compute in f64 where the device can; on Flex they are the truth here. That they mean
//! the right thing is shown by the golden files.

use burn::tensor::Device;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

use super::{Call, Comparison, Report, VerifyError, rel_l2, run};
use crate::{BackendKind, ops::rms_norm::NormForm, registry::implementation_names};

/// Distance that float32 makes on sums of up to 2,049 terms.
const BAR: f64 = 4e-6;

/// What is smaller than this for inputs of size 1 is 0 but for rounding, such as the gradient of the
/// only key of a document; it is measured against this size.
const SMALL: f64 = 0.3;

/// Runs a call with one implementation, or all of the op, and compares with the reference on Flex.
///
/// # Errors
/// A name that the op does not have.
pub fn check(
    call: &Call,
    implementation: Option<&str>,
    device: &Device,
    backend: BackendKind,
    report: &mut Report,
) -> Result<(), VerifyError> {
    let case = call.to_string();
    let truth = match run(call, "reference", &Device::flex(), BackendKind::Flex)? {
        Ok(truth) => truth,
        Err(reason) => {
            report.skipped.push(format!("{case}: reference {reason}"));
            return Ok(());
        }
    };
    let names = implementation_names(call.op);
    for name in names.into_iter().filter(|name| implementation.is_none_or(|i| i == *name)) {
        let ours = match run(call, name, device, backend)? {
            Ok(ours) => ours,
            Err(reason) => {
                report.skipped.push(format!("{case}: {name} {reason}"));
                continue;
            }
        };
        for (tensor, truth) in &truth {
            let truth: Vec<f64> = truth.iter().map(|&x| f64::from(x)).collect();
            let norm = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
            let scale = norm.max(SMALL * (truth.len() as f64).sqrt());
            let distance = match ours.get(tensor) {
                Some(ours) => rel_l2(ours, &truth) * if norm > 0.0 { norm } else { 1.0 },
                None => f64::INFINITY,
            };
            report.comparisons.push(Comparison {
                case: case.clone(),
                op: call.op,
                implementation: name,
                tensor: tensor.clone(),
                rel_l2: distance / scale,
                torch_rel_l2: None,
                bar: BAR,
            });
        }
    }
    Ok(())
}

/// Row lengths at and around the sizes of tiles and chunks.
pub const LENGTHS: [usize; 10] = [1, 2, 3, 4, 5, 63, 64, 65, 200, 2049];

/// Draws calls; the same seed draws the same ones.
pub struct Random(ChaCha8Rng);

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random")
    }
}

impl Random {
    /// A source of calls.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Every op once on a row of `num_tokens` tokens.
    pub fn calls(&mut self, num_tokens: usize) -> Vec<Call> {
        let mut calls = vec![
            self.embedding(num_tokens),
            self.linear(num_tokens),
            self.rope(num_tokens),
            self.swiglu(num_tokens),
            self.attention(num_tokens),
            self.causal_conv1d(num_tokens),
            self.decay_gate(num_tokens),
            self.gated_delta_rule(num_tokens),
            self.linear_cross_entropy(num_tokens),
            self.adamw(num_tokens),
            self.grad_norm(num_tokens),
        ];
        calls.extend((0..3).map(|form| self.rms_norm(num_tokens, form)));
        calls
    }

    fn values(&mut self, n: usize, scale: f32) -> Vec<f32> {
        // A sum of uniforms is normal enough.
        let mut normal = || (0..6).map(|_| self.0.random_range(-1.0f32..1.0)).sum::<f32>() / 1.414;
        (0..n).map(|_| scale * normal()).collect()
    }

    fn insert(&mut self, call: &mut Call, name: &str, shape: &[usize], scale: f32) {
        let values = self.values(shape.iter().product(), scale);
        call.insert(name, shape, values);
    }

    fn one_of(&mut self, choices: &[usize]) -> usize {
        choices[self.0.random_range(0..choices.len())]
    }

    /// Boundaries of documents, many of them of 1 to 4 tokens.
    pub fn documents(&mut self, num_tokens: usize) -> Vec<i32> {
        let mut cu_seqlens = vec![0];
        let mut left = num_tokens;
        while left > 0 {
            let length = match self.0.random_range(0..3) {
                0 => self.0.random_range(1..=4),
                1 => self.0.random_range(1..=80),
                _ => self.0.random_range(1..=left),
            };
            let length = length.min(left);
            left -= length;
            cu_seqlens.push((num_tokens - left) as i32);
        }
        cu_seqlens
    }

    fn embedding(&mut self, t: usize) -> Call {
        let (v, c) = (self.one_of(&[3, 50]), self.one_of(&[1, 16, 33]));
        let mut call = Call::new("embedding");
        call.ids = (0..t).map(|_| self.0.random_range(0..v as i32)).collect();
        self.insert(&mut call, "w", &[v, c], 1.0);
        self.insert(&mut call, "up_y", &[t, c], 1.0);
        call
    }

    fn linear(&mut self, t: usize) -> Call {
        let (i, o) = (self.one_of(&[1, 8, 40, 300]), self.one_of(&[1, 7, 32, 70]));
        let mut call = Call::new("linear");
        self.insert(&mut call, "x", &[t, i], 1.0);
        self.insert(&mut call, "w", &[o, i], (i as f32).powf(-0.5));
        if self.0.random_bool(0.5) {
            self.insert(&mut call, "b", &[o], 1.0);
        }
        if self.0.random_bool(0.5) {
            self.insert(&mut call, "residual", &[t, o], 1.0);
        }
        self.insert(&mut call, "up_y", &[t, o], 1.0);
        call
    }

    /// `form`: plain, zero-centered with the residual added, gated.
    fn rms_norm(&mut self, t: usize, form: usize) -> Call {
        let d = self.one_of(&[8, 32, 80, 129]);
        let mut call = Call::new("rms_norm");
        self.insert(&mut call, "x", &[t, d], 2.0);
        self.insert(&mut call, "w", &[d], 1.0);
        self.insert(&mut call, "up_y", &[t, d], 1.0);
        match form {
            0 => {}
            1 => {
                call.settings.form = NormForm::ZeroCentered;
                self.insert(&mut call, "residual", &[t, d], 1.0);
                self.insert(&mut call, "up_h", &[t, d], 1.0);
            }
            _ => self.insert(&mut call, "z", &[t, d], 2.0),
        }
        call
    }

    fn rope(&mut self, t: usize) -> Call {
        let (h, d) = (self.one_of(&[1, 3]), self.one_of(&[8, 64, 80]));
        let half = self.one_of(&[d / 2, d / 8]);
        let mut call = Call::new("rope");
        self.insert(&mut call, "x", &[t, h, d], 1.0);
        let angles = self.values(t * half, 3.0);
        call.insert("cos", &[t, half], angles.iter().map(|a| a.cos()).collect());
        call.insert("sin", &[t, half], angles.iter().map(|a| a.sin()).collect());
        self.insert(&mut call, "up_y", &[t, h, d], 1.0);
        call
    }

    fn swiglu(&mut self, t: usize) -> Call {
        let f = self.one_of(&[1, 48, 100]);
        let mut call = Call::new("swiglu");
        self.insert(&mut call, "gate", &[t, f], 3.0);
        self.insert(&mut call, "up", &[t, f], 1.0);
        self.insert(&mut call, "up_y", &[t, f], 1.0);
        call
    }

    fn attention(&mut self, t: usize) -> Call {
        let (hk, group) = (self.one_of(&[1, 2]), self.one_of(&[1, 2, 3]));
        let d = self.one_of(&[64, 80, 96, 128, 256]);
        let h = hk * group;
        let mut call = Call::new("attention");
        call.cu_seqlens = self.documents(t);
        self.insert(&mut call, "q", &[t, h, d], 1.0);
        self.insert(&mut call, "k", &[t, hk, d], 1.0);
        self.insert(&mut call, "v", &[t, hk, d], 1.0);
        if self.0.random_bool(0.5) {
            self.insert(&mut call, "gate", &[t, h, d], 1.0);
        }
        self.insert(&mut call, "up_o", &[t, h, d], 1.0);
        call
    }

    fn causal_conv1d(&mut self, t: usize) -> Call {
        let (c, k) = (self.one_of(&[1, 20, 64]), self.one_of(&[2, 3, 4]));
        let mut call = Call::new("causal_conv1d");
        call.cu_seqlens = self.documents(t);
        self.insert(&mut call, "x", &[t, c], 1.0);
        self.insert(&mut call, "w", &[c, k], 0.5);
        if self.0.random_bool(0.5) {
            self.insert(&mut call, "b", &[c], 0.5);
        }
        self.insert(&mut call, "up_y", &[t, c], 1.0);
        call
    }

    fn decay_gate(&mut self, t: usize) -> Call {
        let h = self.one_of(&[1, 4, 17]);
        let mut call = Call::new("decay_gate");
        for name in ["a", "b", "up_g", "up_beta"] {
            self.insert(&mut call, name, &[t, h], 2.0);
        }
        self.insert(&mut call, "A_log", &[h], 1.0);
        self.insert(&mut call, "dt_bias", &[h], 1.0);
        call
    }

    fn gated_delta_rule(&mut self, t: usize) -> Call {
        let (hk, group) = (self.one_of(&[1, 2]), self.one_of(&[1, 2]));
        let (dk, dv) = (self.one_of(&[16, 64, 128]), self.one_of(&[16, 64, 128]));
        let hv = hk * group;
        let mut call = Call::new("gated_delta_rule");
        call.cu_seqlens = self.documents(t);
        let n = call.cu_seqlens.len() - 1;
        self.insert(&mut call, "q", &[t, hk, dk], 1.0);
        self.insert(&mut call, "k", &[t, hk, dk], 1.0);
        self.insert(&mut call, "v", &[t, hv, dv], 1.0);
        // From almost no decay to forgetting at once.
        let strength = self.0.random_range(-6.0f32..1.0).exp();
        let g = self.values(t * hv, strength).into_iter().map(|g| -g.abs()).collect();
        call.insert("g", &[t, hv], g);
        let beta = self.values(t * hv, 2.0).into_iter().map(|b| 1.0 / (1.0 + (-b).exp())).collect();
        call.insert("beta", &[t, hv], beta);
        self.insert(&mut call, "up_o", &[t, hv, dv], 1.0);
        if self.0.random_bool(0.5) {
            self.insert(&mut call, "initial_state", &[n, hv, dk, dv], 0.3);
            self.insert(&mut call, "up_final_state", &[n, hv, dk, dv], 0.3);
        }
        call
    }

    fn linear_cross_entropy(&mut self, t: usize) -> Call {
        let (v, c) = (self.one_of(&[2, 100, 1000]), self.one_of(&[1, 24, 64]));
        let mut call = Call::new("linear_cross_entropy");
        // About a third of the rows has no target.
        let label = |rng: &mut ChaCha8Rng| {
            if rng.random_bool(0.3) { -100 } else { rng.random_range(0..v as i32) }
        };
        call.ids = (0..t).map(|_| label(&mut self.0)).collect();
        self.insert(&mut call, "h", &[t, c], 1.0);
        self.insert(&mut call, "w", &[v, c], 1.0);
        call
    }

    fn adamw(&mut self, n: usize) -> Call {
        let mut call = Call::new("adamw");
        self.insert(&mut call, "param", &[n], 1.0);
        self.insert(&mut call, "grad", &[n], 1.0);
        self.insert(&mut call, "exp_avg", &[n], 1.0);
        let squares = self.values(n, 1.0).into_iter().map(|x| x * x).collect();
        call.insert("exp_avg_sq", &[n], squares);
        call.settings.eps = 1e-8;
        call.settings.step = 7;
        call.settings.weight_decay = 0.1;
        call.settings.scale = 0.3;
        call
    }

    fn grad_norm(&mut self, n: usize) -> Call {
        let mut call = Call::new("grad_norm");
        self.insert(&mut call, "grad", &[n], 1.0);
        call
    }
}
