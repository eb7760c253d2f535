//! The parameters of each block: names, shapes, roles, and views of a flat shard.
//!
//! A training engine keeps the parameters of a block in one flat tensor and walks the blocks:
//! embedding, decoder layers, head.

use burn::tensor::{Gradients, Tensor};

use crate::config::{Family, LayerType, QwenConfig};

/// What a parameter is, which decides its initial values and whether it decays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamRole {
    /// The token table.
    Embedding,
    /// The weight of a linear map.
    Matrix,
    /// A depthwise convolution, stored as `[C, 1, K]`.
    Conv,
    /// A norm that multiplies by w.
    Norm,
    /// A norm that multiplies by 1 + w.
    ZeroCenteredNorm,
    /// A bias.
    Bias,
    /// Logarithm of the decay rate.
    ALog,
    /// Offset of the decay gate.
    DtBias,
}

/// One parameter of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSpec {
    /// Name below the text model, e.g. `layers.3.self_attn.q_proj.weight`.
    pub name: String,
    /// Shape as stored.
    pub shape: Vec<usize>,
    /// What it is.
    pub role: ParamRole,
}

impl ParamSpec {
    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether weight decay applies: to matrices, not to norms, biases, `A_log`, `dt_bias`.
    pub fn decays(&self) -> bool {
        self.shape.len() >= 2
    }

    /// The name inside its block, e.g. `self_attn.q_proj.weight`.
    fn local_name(&self) -> &str {
        match self.name.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
            Some((_, local)) => local,
            None => &self.name,
        }
    }
}

/// The parameters that one step of the walk needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSpec {
    /// `embed_tokens`, `layers.3`, `head`.
    pub name: String,
    /// In the order of the flat shard.
    pub params: Vec<ParamSpec>,
}

impl BlockSpec {
    /// Elements of the flat shard.
    pub fn num_elements(&self) -> usize {
        self.params.iter().map(ParamSpec::num_elements).sum()
    }

    /// Each parameter with its first element in the flat shard.
    pub fn offsets(&self) -> impl Iterator<Item = (usize, &ParamSpec)> {
        let mut next = 0;
        self.params.iter().map(move |param| {
            let offset = next;
            next += param.num_elements();
            (offset, param)
        })
    }
}

/// All blocks of a model: embedding, decoder layers, head.
///
/// A tied head has its norm only; its matrix is the embedding's.
pub fn block_specs(config: &QwenConfig) -> Vec<BlockSpec> {
    let c = config;
    let norm = norm_role(c);
    let embed = ParamSpec {
        name: "embed_tokens.weight".to_string(),
        shape: vec![c.vocab_size, c.hidden_size],
        role: ParamRole::Embedding,
    };
    let mut blocks = vec![BlockSpec { name: "embed_tokens".to_string(), params: vec![embed] }];
    blocks.extend((0..c.num_hidden_layers).map(|layer| layer_spec(c, layer)));
    let mut head =
        vec![ParamSpec { name: "norm.weight".to_string(), shape: vec![c.hidden_size], role: norm }];
    if !c.tie_word_embeddings {
        head.push(ParamSpec {
            name: "lm_head.weight".to_string(),
            shape: vec![c.vocab_size, c.hidden_size],
            role: ParamRole::Matrix,
        });
    }
    blocks.push(BlockSpec { name: "head".to_string(), params: head });
    blocks
}

fn norm_role(config: &QwenConfig) -> ParamRole {
    match config.family {
        Family::Qwen2 | Family::Qwen3 => ParamRole::Norm,
        Family::Qwen3_5 => ParamRole::ZeroCenteredNorm,
    }
}

fn layer_spec(c: &QwenConfig, layer: usize) -> BlockSpec {
    let prefix = format!("layers.{layer}");
    let norm = norm_role(c);
    let mut list = Vec::new();
    let mut add = |name: &str, shape: &[usize], role: ParamRole| {
        let name = format!("{prefix}.{name}");
        list.push(ParamSpec { name, shape: shape.to_vec(), role });
    };
    let (h, i) = (c.hidden_size, c.intermediate_size);
    add("input_layernorm.weight", &[h], norm);
    match c.layer_types[layer] {
        LayerType::FullAttention => {
            let (q, kv) = (c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim);
            let q_out = if c.has_attention_gate() { 2 * q } else { q };
            add("self_attn.q_proj.weight", &[q_out, h], ParamRole::Matrix);
            add("self_attn.k_proj.weight", &[kv, h], ParamRole::Matrix);
            add("self_attn.v_proj.weight", &[kv, h], ParamRole::Matrix);
            add("self_attn.o_proj.weight", &[h, q], ParamRole::Matrix);
            if c.qkv_bias {
                add("self_attn.q_proj.bias", &[q_out], ParamRole::Bias);
                add("self_attn.k_proj.bias", &[kv], ParamRole::Bias);
                add("self_attn.v_proj.bias", &[kv], ParamRole::Bias);
            }
            if c.o_bias {
                add("self_attn.o_proj.bias", &[h], ParamRole::Bias);
            }
            if c.has_qk_norm() {
                add("self_attn.q_norm.weight", &[c.head_dim], norm);
                add("self_attn.k_norm.weight", &[c.head_dim], norm);
            }
        }
        LayerType::LinearAttention => {
            let (conv, value) = (c.linear_conv_dim(), c.linear_value_dim());
            let heads = c.linear_num_value_heads;
            add("linear_attn.in_proj_qkv.weight", &[conv, h], ParamRole::Matrix);
            add("linear_attn.in_proj_z.weight", &[value, h], ParamRole::Matrix);
            add("linear_attn.in_proj_b.weight", &[heads, h], ParamRole::Matrix);
            add("linear_attn.in_proj_a.weight", &[heads, h], ParamRole::Matrix);
            let kernel = [conv, 1, c.linear_conv_kernel_dim];
            add("linear_attn.conv1d.weight", &kernel, ParamRole::Conv);
            add("linear_attn.A_log", &[heads], ParamRole::ALog);
            add("linear_attn.dt_bias", &[heads], ParamRole::DtBias);
            add("linear_attn.norm.weight", &[c.linear_value_head_dim], ParamRole::Norm);
            add("linear_attn.out_proj.weight", &[h, value], ParamRole::Matrix);
        }
    }
    add("post_attention_layernorm.weight", &[h], norm);
    add("mlp.gate_proj.weight", &[i, h], ParamRole::Matrix);
    add("mlp.up_proj.weight", &[i, h], ParamRole::Matrix);
    add("mlp.down_proj.weight", &[h, i], ParamRole::Matrix);
    BlockSpec { name: prefix, params: list }
}

/// A parameter as a tensor; a convolution as `[C, K]`.
#[derive(Clone, Debug)]
pub enum ParamTensor {
    /// Norms, biases, gates.
    Vector(Tensor<1>),
    /// Everything else.
    Matrix(Tensor<2>),
}

/// The parameters of a block as tensors.
#[derive(Clone, Debug)]
pub struct BlockParams {
    params: Vec<(String, ParamTensor)>,
}

impl BlockParams {
    /// Views of a flat shard.
    ///
    /// # Panics
    /// If the shard does not have the block's number of elements: the engine made it.
    pub fn from_flat(spec: &BlockSpec, flat: &Tensor<1>) -> Self {
        assert_eq!(flat.dims()[0], spec.num_elements(), "flat shard of {}", spec.name);
        let params = spec
            .offsets()
            .map(|(offset, param)| {
                let values = flat.clone().narrow(0, offset, param.num_elements());
                let tensor = match param.shape.as_slice() {
                    [_] => ParamTensor::Vector(values),
                    [rows, .., columns] => ParamTensor::Matrix(values.reshape([*rows, *columns])),
                    [] => unreachable!("no parameter is a scalar"),
                };
                (param.local_name().to_string(), tensor)
            })
            .collect();
        Self { params }
    }

    /// The same values as leaves of a new graph.
    #[must_use]
    pub fn require_grad(self) -> Self {
        let leaf = |tensor| match tensor {
            ParamTensor::Vector(t) => ParamTensor::Vector(t.autodiff().require_grad()),
            ParamTensor::Matrix(t) => ParamTensor::Matrix(t.autodiff().require_grad()),
        };
        Self { params: self.params.into_iter().map(|(name, t)| (name, leaf(t))).collect() }
    }

    /// The gradients, joined in the order of the flat shard.
    ///
    /// # Errors
    /// The name of a parameter that got no gradient.
    pub fn grads(&self, grads: &mut Gradients) -> Result<Tensor<1>, String> {
        let flat = |(name, tensor): &(String, ParamTensor)| {
            match tensor {
                ParamTensor::Vector(t) => t.grad_remove(grads),
                ParamTensor::Matrix(t) => t.grad_remove(grads).map(|g| g.flatten::<1>(0, 1)),
            }
            .ok_or_else(|| name.clone())
        };
        let parts = self.params.iter().map(flat).collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::cat(parts, 0))
    }

    /// A vector by its name inside the block.
    ///
    /// # Panics
    /// If the block has no such parameter: specs and layers are made from one configuration.
    pub fn vector(&self, name: &str) -> Tensor<1> {
        match self.find(name) {
            Some(ParamTensor::Vector(tensor)) => tensor.clone(),
            other => panic!("{name} should be a vector of this block, found {other:?}"),
        }
    }

    /// A vector by its name inside the block, if the block has it.
    pub fn optional_vector(&self, name: &str) -> Option<Tensor<1>> {
        self.find(name).map(|_| self.vector(name))
    }

    /// A matrix by its name inside the block.
    ///
    /// # Panics
    /// As [`Self::vector`].
    pub fn matrix(&self, name: &str) -> Tensor<2> {
        match self.find(name) {
            Some(ParamTensor::Matrix(tensor)) => tensor.clone(),
            other => panic!("{name} should be a matrix of this block, found {other:?}"),
        }
    }

    fn find(&self, name: &str) -> Option<&ParamTensor> {
        self.params.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor)
    }
}
