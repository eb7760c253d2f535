//! Agreement of implementations with the truth: golden files, or the references on random inputs.
//!
//! A [`Call`] is one use of an op on named host arrays. [`run`] executes it with one implementation
//! and returns outputs and the gradient of every input, so that the same few lines serve golden
//! files ([`golden`]), random shapes ([`random`]) and tests of isolation and determinism.

mod call;
pub mod golden;
pub mod random;
mod run;

use serde::Serialize;

pub use call::{Array, Call, Settings};
pub use run::{Outputs, run};

/// One compared tensor.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Golden file, or shapes and seed.
    pub case: String,
    /// The op.
    pub op: &'static str,
    /// The implementation.
    pub implementation: &'static str,
    /// An output, or `grad_` and an input.
    pub tensor: String,
    /// Relative L2 distance to the truth.
    pub rel_l2: f64,
    /// The same of torch in float32 where it is known.
    pub torch_rel_l2: Option<f64>,
    /// What `rel_l2` may be.
    pub bar: f64,
}

impl Comparison {
    /// Whether the distance is within its bar; not a number is not.
    pub fn passes(&self) -> bool {
        self.rel_l2 <= self.bar
    }
}

/// What became of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Every tensor of every case with every implementation.
    pub comparisons: Vec<Comparison>,
    /// Cases and implementations that did not run, with the reason.
    pub skipped: Vec<String>,
}

/// Something that keeps a check from running.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A file that cannot be read.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An implementation that does not exist.
    #[error("there is no implementation \"{name}\" of {op}; choose from {known}")]
    UnknownImplementation {
        /// The op.
        op: &'static str,
        /// The name as given.
        name: String,
        /// The op's implementations.
        known: String,
    },
}

/// L2 norm of the difference over that of the truth; of the difference alone where the truth is 0;
/// infinite where lengths differ or a number is none.
pub fn rel_l2(ours: &[f32], truth: &[f64]) -> f64 {
    if ours.len() != truth.len() || ours.iter().any(|x| !x.is_finite()) {
        return f64::INFINITY;
    }
    let difference: f64 = ours.iter().zip(truth).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    let norm: f64 = truth.iter().map(|b| b * b).sum();
    if norm == 0.0 { difference.sqrt() } else { (difference / norm).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_to_the_truth() {
        assert_eq!(rel_l2(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert_eq!(rel_l2(&[0.0, 5.0], &[0.0, 4.0]), 0.25);
        assert_eq!(rel_l2(&[2.0], &[0.0]), 2.0);
        assert_eq!(rel_l2(&[1.0], &[1.0, 2.0]), f64::INFINITY);
        assert_eq!(rel_l2(&[f32::NAN], &[1.0]), f64::INFINITY);
    }
}
