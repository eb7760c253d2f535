//! What a layer remembers between two calls of a generation.

use burn::tensor::Tensor;

/// State of one layer; one document.
#[derive(Clone, Debug, Default)]
pub struct LayerCache {
    /// Rotated keys and values of all tokens so far `[S, HK, D]`.
    pub(crate) key_value: Option<(Tensor<3>, Tensor<3>)>,
    /// Last K-1 inputs of the convolution `[K-1, C]`, zeros before the document.
    pub(crate) conv: Option<Tensor<2>>,
    /// State of the delta rule `[1, HV, DK, DV]`.
    pub(crate) recurrent: Option<Tensor<4>>,
}

impl LayerCache {
    /// Adds keys and values; returns all of them.
    pub(crate) fn extend(&mut self, key: Tensor<3>, value: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
        let joined = match self.key_value.take() {
            Some((keys, values)) => {
                (Tensor::cat(vec![keys, key], 0), Tensor::cat(vec![values, value], 0))
            }
            None => (key, value),
        };
        self.key_value = Some(joined.clone());
        joined
    }
}
