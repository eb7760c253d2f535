//! Executes a call with one implementation.

use std::{collections::BTreeMap, sync::Arc};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::{Call, VerifyError};
use crate::{BackendKind, Implementation, KernelCase, Packing, ops};

/// Outputs by name, and `grad_NAME` of every input if the call has upstream gradients.
pub type Outputs = BTreeMap<String, Vec<f32>>;

/// Runs a call with the implementation of that name; `Err` inside is its own refusal.
///
/// # Errors
/// A name that the op does not have.
pub fn run(
    call: &Call,
    implementation: &str,
    device: &Device,
    backend: BackendKind,
) -> Result<Result<Outputs, String>, VerifyError> {
    let run = Run { call, device: device.clone().autodiff(), case: case(call, backend) };
    let name = implementation;
    match call.op {
        "embedding" => run.with(ops::embedding::implementations(), name, |op| run.embedding(op)),
        "rms_norm" => run.with(ops::rms_norm::implementations(), name, |op| run.rms_norm(op)),
        "rope" => run.with(ops::rope::implementations(), name, |op| run.rope(op)),
        "linear" => run.with(ops::linear::implementations(), name, |op| run.linear(op)),
        "swiglu" => run.with(ops::swiglu::implementations(), name, |op| run.swiglu(op)),
        "attention" => run.with(ops::attention::implementations(), name, |op| run.attention(op)),
        "causal_conv1d" => {
            run.with(ops::causal_conv1d::implementations(), name, |op| run.causal_conv1d(op))
        }
        "decay_gate" => run.with(ops::decay_gate::implementations(), name, |op| run.decay_gate(op)),
        "gated_delta_rule" => {
            run.with(ops::gated_delta_rule::implementations(), name, |op| run.gated_delta_rule(op))
        }
        "linear_cross_entropy" => {
            run.with(ops::linear_cross_entropy::implementations(), name, |op| run.loss(op))
        }
        "adamw" => run.with(ops::adamw::implementations(), name, |op| run.adamw(op)),
        "grad_norm" => run.with(ops::grad_norm::implementations(), name, |op| run.grad_norm(op)),
        op => panic!("{op} is no op of the registry"),
    }
}

/// What a call asks an implementation to support.
fn case(call: &Call, backend: BackendKind) -> KernelCase {
    let size = |name: &str, axis: usize| {
        call.tensors.get(name).and_then(|array| array.shape.get(axis).copied()).unwrap_or(0)
    };
    let is_delta_rule = call.op == "gated_delta_rule";
    let of = |wanted: bool, size: usize| if wanted { size } else { 0 };
    let is_attention = matches!(call.op, "attention" | "rope");
    KernelCase {
        backend,
        dtype: DType::F32,
        training: true,
        max_tokens: call.cu_seqlens.last().map_or(0, |&t| t as usize),
        hidden_size: size("x", 1),
        intermediate_size: size("gate", 1),
        vocab_size: of(call.op == "linear_cross_entropy", size("w", 0)),
        num_attention_heads: of(is_attention, size("q", 1)),
        num_key_value_heads: of(is_attention, size("k", 1)),
        head_dim: of(is_attention, size("q", 2).max(of(call.op == "rope", size("x", 2)))),
        linear_num_key_heads: of(is_delta_rule, size("k", 1)),
        linear_num_value_heads: of(is_delta_rule, size("v", 1)),
        linear_key_head_dim: of(is_delta_rule, size("k", 2)),
        linear_value_head_dim: of(is_delta_rule, size("v", 2)),
        linear_conv_kernel_dim: of(call.op == "causal_conv1d", size("w", 1)),
    }
}

struct Run<'a> {
    call: &'a Call,
    device: Device,
    case: KernelCase,
}

/// Outputs and inputs of a call, all tracked.
#[derive(Default)]
struct Graph {
    /// Sum over outputs of output times upstream gradient.
    loss: Option<Tensor<1>>,
    outputs: Outputs,
    /// Takes the gradient of an input.
    inputs: Vec<(String, TakeGrad)>,
}

type TakeGrad = Box<dyn Fn(&mut burn::tensor::Gradients) -> Option<Vec<f32>>>;

impl Graph {
    fn output<const D: usize>(&mut self, run: &Run<'_>, name: &str, output: Tensor<D>) {
        self.outputs.insert(name.to_string(), values(output.clone()));
        let up = format!("up_{name}");
        if run.call.has(&up) {
            let term = (output * run.call.tensor::<D>(&up, &run.device)).sum();
            self.loss = Some(match self.loss.take() {
                Some(loss) => loss + term,
                None => term,
            });
        }
    }

    fn finish(mut self) -> Outputs {
        let Some(loss) = self.loss else { return self.outputs };
        let mut grads = loss.backward();
        for (name, take) in self.inputs {
            if let Some(grad) = take(&mut grads) {
                self.outputs.insert(format!("grad_{name}"), grad);
            }
        }
        self.outputs
    }
}

impl Run<'_> {
    fn with<T: Implementation + ?Sized>(
        &self,
        implementations: Vec<Arc<T>>,
        name: &str,
        execute: impl FnOnce(&T) -> Outputs,
    ) -> Result<Result<Outputs, String>, VerifyError> {
        let known: Vec<_> = implementations.iter().map(|op| op.name()).collect();
        let Some(op) = implementations.into_iter().find(|op| op.name() == name) else {
            return Err(VerifyError::UnknownImplementation {
                op: crate::registry::OPS.iter().find(|op| **op == self.call.op).unwrap_or(&""),
                name: name.to_string(),
                known: known.join(", "),
            });
        };
        Ok(op.supports(&self.case).map_err(|reason| reason.0).map(|()| execute(&op)))
    }

    /// An input that is tracked.
    fn input<const D: usize>(&self, graph: &mut Graph, name: &str) -> Tensor<D> {
        let tensor = self.call.tensor::<D>(name, &self.device).require_grad();
        let handle = tensor.clone();
        let take = move |grads: &mut _| handle.grad_remove(grads).map(values);
        graph.inputs.push((name.to_string(), Box::new(take)));
        tensor
    }

    fn optional<const D: usize>(&self, graph: &mut Graph, name: &str) -> Option<Tensor<D>> {
        self.call.has(name).then(|| self.input(graph, name))
    }

    fn packing(&self) -> Packing {
        Packing::new(self.call.cu_seqlens.as_slice())
    }

    fn embedding(&self, op: &dyn ops::embedding::Embedding) -> Outputs {
        let mut graph = Graph::default();
        let w = self.input(&mut graph, "w");
        let ids = Tensor::<1, Int>::from_ints(self.call.ids.as_slice(), &self.device);
        let y = op.forward(w, ids);
        graph.output(self, "y", y);
        graph.finish()
    }

    fn rms_norm(&self, op: &dyn ops::rms_norm::RmsNorm) -> Outputs {
        let mut graph = Graph::default();
        let (x, w) = (self.input(&mut graph, "x"), self.input(&mut graph, "w"));
        let (eps, form) = (self.call.settings.eps, self.call.settings.form);
        if let Some(z) = self.optional(&mut graph, "z") {
            let y = op.gated(x, z, w, eps);
            graph.output(self, "y", y);
        } else if let Some(residual) = self.optional(&mut graph, "residual") {
            let (h, y) = op.add(x, residual, w, eps, form);
            graph.output(self, "h", h);
            graph.output(self, "y", y);
        } else {
            let y = op.forward(x, w, eps, form);
            graph.output(self, "y", y);
        }
        graph.finish()
    }

    fn rope(&self, op: &dyn ops::rope::Rope) -> Outputs {
        let mut graph = Graph::default();
        let x = self.input(&mut graph, "x");
        let tables = ops::rope::RopeTables {
            cos: self.call.tensor("cos", &self.device),
            sin: self.call.tensor("sin", &self.device),
        };
        let y = op.forward(x, &tables);
        graph.output(self, "y", y);
        graph.finish()
    }

    fn linear(&self, op: &dyn ops::linear::Linear) -> Outputs {
        let mut graph = Graph::default();
        let (x, w) = (self.input(&mut graph, "x"), self.input(&mut graph, "w"));
        let bias = self.optional(&mut graph, "b");
        let residual = self.optional(&mut graph, "residual");
        let y = op.forward(x, w, bias, residual);
        graph.output(self, "y", y);
        graph.finish()
    }

    fn swiglu(&self, op: &dyn ops::swiglu::Swiglu) -> Outputs {
        let mut graph = Graph::default();
        let (gate, up) = (self.input(&mut graph, "gate"), self.input(&mut graph, "up"));
        let y = op.forward(gate, up);
        graph.output(self, "y", y);
        graph.finish()
    }

    fn attention(&self, op: &dyn ops::attention::Attention) -> Outputs {
        let mut graph = Graph::default();
        let packing = self.packing();
        let input = ops::attention::AttentionInput {
            query: self.input(&mut graph, "q"),
            key: self.input(&mut graph, "k"),
            value: self.input(&mut graph, "v"),
            gate: self.optional(&mut graph, "gate"),
            scale: (self.call.shape("q")[2] as f64).powf(-0.5),
            queries: &packing,
            keys: &packing,
        };
        let o = op.forward(input);
        graph.output(self, "o", o);
        graph.finish()
    }

    fn causal_conv1d(&self, op: &dyn ops::causal_conv1d::CausalConv1d) -> Outputs {
        let mut graph = Graph::default();
        let (x, w) = (self.input(&mut graph, "x"), self.input(&mut graph, "w"));
        let bias = self.optional(&mut graph, "b");
        let y = op.forward(x, w, bias, &self.packing());
        graph.output(self, "y", y);
        graph.finish()
    }

    fn decay_gate(&self, op: &dyn ops::decay_gate::DecayGate) -> Outputs {
        let mut graph = Graph::default();
        let (a, b) = (self.input(&mut graph, "a"), self.input(&mut graph, "b"));
        let (a_log, dt_bias) = (self.input(&mut graph, "A_log"), self.input(&mut graph, "dt_bias"));
        let (g, beta) = op.forward(a, b, a_log, dt_bias);
        graph.output(self, "g", g);
        graph.output(self, "beta", beta);
        graph.finish()
    }

    fn gated_delta_rule(&self, op: &dyn ops::gated_delta_rule::GatedDeltaRule) -> Outputs {
        let mut graph = Graph::default();
        let packing = self.packing();
        let input = ops::gated_delta_rule::GatedDeltaRuleInput {
            query: self.input(&mut graph, "q"),
            key: self.input(&mut graph, "k"),
            value: self.input(&mut graph, "v"),
            decay: self.input(&mut graph, "g"),
            beta: self.input(&mut graph, "beta"),
            packing: &packing,
            initial_state: self.optional(&mut graph, "initial_state"),
            output_final_state: true,
        };
        let output = op.forward(input);
        graph.output(self, "o", output.output);
        if let Some(state) = output.final_state {
            graph.output(self, "final_state", state);
        }
        graph.finish()
    }

    fn loss(&self, op: &dyn ops::linear_cross_entropy::LinearCrossEntropy) -> Outputs {
        let mut graph = Graph::default();
        let (h, w) = (self.input(&mut graph, "h"), self.input(&mut graph, "w"));
        let loss = op.forward(h, w, &self.call.ids) * self.call.settings.scale;
        graph.output(self, "loss", loss.clone());
        graph.loss = Some(loss);
        graph.finish()
    }

    fn adamw(&self, op: &dyn ops::adamw::AdamW) -> Outputs {
        let settings = &self.call.settings;
        let step = ops::adamw::AdamWStep {
            lr: settings.lr,
            beta1: settings.betas[0],
            beta2: settings.betas[1],
            eps: settings.eps,
            weight_decay: settings.weight_decay,
            grad_scale: settings.scale,
            step: settings.step,
        };
        let device = self.device.clone().inner();
        let state = ops::adamw::AdamWState {
            param: self.call.tensor("param", &device),
            exp_avg: self.call.tensor("exp_avg", &device),
            exp_avg_sq: self.call.tensor("exp_avg_sq", &device),
        };
        let state = op.step(state, self.call.tensor("grad", &device), step);
        Outputs::from([
            ("param".to_string(), values(state.param)),
            ("exp_avg".to_string(), values(state.exp_avg)),
            ("exp_avg_sq".to_string(), values(state.exp_avg_sq)),
        ])
    }

    fn grad_norm(&self, op: &dyn ops::grad_norm::GradNorm) -> Outputs {
        let sum = op.sum_of_squares(self.call.tensor("grad", &self.device.clone().inner()));
        Outputs::from([("sum_of_squares".to_string(), vec![sum as f32])])
    }
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data: TensorData = tensor.into_data();
    data.convert::<f32>().try_into_vec().expect("just converted to f32")
}
