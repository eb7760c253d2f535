//! `linear` on all cores: one pass forward, two backward, bias and residual in place.

use std::sync::Arc;

use burn::tensor::{DispatchTensor, Tensor};

use super::Linear;
use crate::{
    Implementation, KernelCase, Unsupported,
    flex::{
        matmul::{Matrix, matmul},
        node::{BackwardFn, Input, node},
        supports_f32_on_flex,
    },
};

/// Native linear map.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexLinear;

impl Implementation for FlexLinear {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl Linear for FlexLinear {
    fn forward(
        &self,
        x: Tensor<2>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        residual: Option<Tensor<2>>,
    ) -> Tensor<2> {
        let [num_rows, num_inputs] = x.dims();
        let [num_outputs, _] = weight.dims();
        let sizes = Sizes { num_rows, num_inputs, num_outputs };
        let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
        match (bias.map(Tensor::into_dispatch), residual.map(Tensor::into_dispatch)) {
            (None, None) => sizes.run([x, weight], &[]),
            (Some(bias), None) => sizes.run([x, weight, bias], &[Extra::Bias]),
            (None, Some(residual)) => sizes.run([x, weight, residual], &[Extra::Residual]),
            (Some(bias), Some(residual)) => {
                sizes.run([x, weight, bias, residual], &[Extra::Bias, Extra::Residual])
            }
        }
    }
}

/// What is added to the product, in the order of the inputs after x and weight.
#[derive(Clone, Copy)]
enum Extra {
    Bias,
    Residual,
}

#[derive(Clone, Copy)]
struct Sizes {
    num_rows: usize,
    num_inputs: usize,
    num_outputs: usize,
}

impl Sizes {
    fn run<const N: usize>(
        self,
        inputs: [DispatchTensor; N],
        extras: &'static [Extra],
    ) -> Tensor<2> {
        node(inputs, [self.num_rows, self.num_outputs], |inputs, tracked| {
            let output = self.forward(inputs, extras);
            let backward = tracked.then(|| -> BackwardFn<N> {
                let inputs = inputs.clone();
                Arc::new(move |grad, wanted| self.backward(&inputs, extras, grad, wanted))
            });
            (output, backward)
        })
    }

    fn x<'a>(&self, inputs: &'a [Input]) -> Matrix<'a> {
        Matrix::new(inputs[0].values(), self.num_rows, self.num_inputs)
    }

    fn weight<'a>(&self, inputs: &'a [Input]) -> Matrix<'a> {
        Matrix::new(inputs[1].values(), self.num_outputs, self.num_inputs)
    }

    fn forward(self, inputs: &[Input], extras: &[Extra]) -> Vec<f32> {
        let len = self.num_rows * self.num_outputs;
        let mut output = vec![0.0; len];
        matmul(self.x(inputs), self.weight(inputs).transposed(), &mut output, false);
        for (extra, input) in extras.iter().zip(&inputs[2..]) {
            match extra {
                Extra::Bias => output
                    .chunks_exact_mut(self.num_outputs)
                    .for_each(|row| add(row, input.values())),
                Extra::Residual => add(&mut output, input.values()),
            }
        }
        output
    }

    fn backward<const N: usize>(
        self,
        inputs: &[Input; N],
        extras: &[Extra],
        grad: &[f32],
        wanted: [bool; N],
    ) -> [Option<Vec<f32>>; N] {
        let dy = Matrix::new(grad, self.num_rows, self.num_outputs);
        std::array::from_fn(|i| {
            wanted[i].then(|| match i {
                0 => {
                    let mut dx = vec![0.0; self.num_rows * self.num_inputs];
                    matmul(dy, self.weight(inputs), &mut dx, false);
                    dx
                }
                1 => {
                    let mut dw = vec![0.0; self.num_outputs * self.num_inputs];
                    matmul(dy.transposed(), self.x(inputs), &mut dw, false);
                    dw
                }
                _ => match extras[i - 2] {
                    Extra::Bias => column_sums(grad, self.num_outputs),
                    Extra::Residual => grad.to_vec(),
                },
            })
        })
    }
}

fn add(sum: &mut [f32], term: &[f32]) {
    for (y, &x) in sum.iter_mut().zip(term) {
        *y += x;
    }
}

/// Sums over rows, in f64: biases are few and their sums are long.
fn column_sums(values: &[f32], num_columns: usize) -> Vec<f32> {
    let mut sums = vec![0.0f64; num_columns];
    for row in values.chunks_exact(num_columns) {
        for (sum, &x) in sums.iter_mut().zip(row) {
            *sum += f64::from(x);
        }
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}
