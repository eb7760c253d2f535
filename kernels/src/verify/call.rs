//! One use of an op, on the host.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor, TensorData};

use crate::ops::rms_norm::NormForm;

/// A dense f32 array.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Values in row-major order.
    pub values: Vec<f32>,
}

/// What an op takes beside tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Of norms.
    pub eps: f64,
    /// Of `rms_norm`; gated where the call has a `z`.
    pub form: NormForm,
    /// Update number of `adamw`, from 1.
    pub step: u64,
    /// Of `adamw`.
    pub lr: f64,
    /// Of `adamw`.
    pub betas: [f64; 2],
    /// Of `adamw`.
    pub weight_decay: f64,
    /// Factor of the gradient of `adamw`; of the loss of `linear_cross_entropy`.
    pub scale: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            eps: 1e-6,
            form: NormForm::Plain,
            step: 1,
            lr: 1e-2,
            betas: [0.9, 0.95],
            weight_decay: 0.0,
            scale: 1.0,
        }
    }
}

/// An op with its inputs.
///
/// Inputs have the names of the golden files: `x`, `w`, `q`, `k`, `v`, ...; `up_NAME` is the upstream
/// gradient of the output `NAME`.
#[derive(Clone, Debug)]
pub struct Call {
    /// The op, as in the registry.
    pub op: &'static str,
    /// Inputs and upstream gradients.
    pub tensors: BTreeMap<String, Array>,
    /// Document boundaries `[N+1]`, for ops that know documents.
    pub cu_seqlens: Vec<i32>,
    /// Labels of the loss, ids of the embedding.
    pub ids: Vec<i32>,
    /// The rest.
    pub settings: Settings,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.op)?;
        for (name, array) in self.tensors.iter().filter(|(name, _)| !name.starts_with("up_")) {
            write!(f, " {name}{:?}", array.shape)?;
        }
        if !self.cu_seqlens.is_empty() {
            write!(f, " in {} documents", self.cu_seqlens.len() - 1)?;
        }
        Ok(())
    }
}

impl Call {
    /// An op without inputs yet.
    pub fn new(op: &'static str) -> Self {
        Self {
            op,
            tensors: BTreeMap::new(),
            cu_seqlens: Vec::new(),
            ids: Vec::new(),
            settings: Settings::default(),
        }
    }

    /// Whether the call has a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Adds a tensor.
    ///
    /// # Panics
    /// If the values do not fill the shape: callers make both.
    pub fn insert(&mut self, name: &str, shape: &[usize], values: Vec<f32>) {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{name} of {shape:?}");
        self.tensors.insert(name.to_string(), Array { shape: shape.to_vec(), values });
    }

    /// The shape of an input.
    ///
    /// # Panics
    /// Without such an input.
    pub(super) fn shape(&self, name: &str) -> &[usize] {
        &self.array(name).shape
    }

    pub(super) fn tensor<const D: usize>(&self, name: &str, device: &Device) -> Tensor<D> {
        let array = self.array(name);
        Tensor::from_data(TensorData::new(array.values.clone(), array.shape.clone()), device)
    }

    fn array(&self, name: &str) -> &Array {
        let array = self.tensors.get(name);
        array.unwrap_or_else(|| panic!("{} lacks its input {name}", self.op))
    }
}
