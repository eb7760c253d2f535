//! Where numbers left the finite range first.

use burn::tensor::{Int, Tensor};
use burn_qwen::{ForwardContext, embed};

use super::{Engine, store::to_vec};

impl Engine {
    /// After a loss that is not finite: the first block whose parameters or output are not.
    pub(super) fn first_non_finite_block(
        &self,
        input_ids: Tensor<1, Int>,
        ctx: &ForwardContext,
    ) -> String {
        if let Some(place) = self.first_non_finite_param() {
            return place;
        }
        let overflows = |x: &Tensor<2>| !finite(&to_vec(x.clone().flatten(0, 1)));
        let advice = "all parameters are finite; lower train.lr or check the data";
        let mut x = embed(&self.store.params(0), input_ids, ctx);
        for block in 1..self.store.num_blocks() - 1 {
            x = self.layer(block, &self.store.params(block)).forward(x, ctx, None);
            if overflows(&x) {
                return format!(
                    "{} is the first to overflow; {advice}",
                    self.store.specs()[block].name
                );
            }
        }
        format!("the head overflows; {advice}")
    }

    /// The first parameter with a value that is not finite.
    pub(crate) fn first_non_finite_param(&self) -> Option<String> {
        for (block, spec) in self.store.specs().iter().enumerate() {
            for (i, param) in spec.params.iter().enumerate() {
                let values = self.store.param_values(block, i);
                if let Some(at) = values.iter().position(|x| !x.is_finite()) {
                    return Some(format!(
                        "parameter {} has the value {} at element {at}; block {}",
                        param.name, values[at], spec.name
                    ));
                }
            }
        }
        None
    }

    /// The first parameter whose gradient has a value that is not finite.
    pub(super) fn first_non_finite_grad(&self) -> Option<String> {
        for (block, spec) in self.store.specs().iter().enumerate() {
            let Some(grad) = self.store.grad(block) else { continue };
            for (offset, param) in spec.offsets() {
                if !finite(&grad[offset..offset + param.num_elements()]) {
                    return Some(format!("gradient of {} in block {}", param.name, spec.name));
                }
            }
        }
        None
    }
}

fn finite(values: &[f32]) -> bool {
    values.iter().all(|x| x.is_finite())
}
