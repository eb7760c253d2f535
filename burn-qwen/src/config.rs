//! `config.json` in all the spellings that checkpoints use, under the checkpoint's own key names.

use std::path::Path;

use burn::tensor::DType;
use burn_qwen_kernels::{BackendKind, KernelCase, ops::rms_norm::NormForm};
use serde_json::{Map, Value, json};

use crate::{config_fields::Fields, error::QwenError};

/// Which of the supported architectures a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Qwen2 and Qwen2.5: bias on q, k and v; no query and key norm.
    Qwen2,
    /// Qwen3: query and key norm.
    Qwen3,
    /// Qwen3.5, 3.6, 3.8 dense: Gated DeltaNet layers and gated attention.
    Qwen3_5,
}

impl Family {
    /// The text model's `model_type`.
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Qwen3_5 => "qwen3_5_text",
        }
    }

    /// The class that other tools load the text model with.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Qwen3_5 => "Qwen3_5ForCausalLM",
        }
    }
}

/// The mixer of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerType {
    /// Softmax attention.
    FullAttention,
    /// Gated delta rule.
    LinearAttention,
}

/// A text model's configuration; fields have the names of `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct QwenConfig {
    /// The architecture.
    pub family: Family,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key-value heads.
    pub num_key_value_heads: usize,
    /// Width of an attention head.
    pub head_dim: usize,
    /// Channels of a head that are rotated.
    pub rotary_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f64,
    /// Whether the head is the embedding's matrix.
    pub tie_word_embeddings: bool,
    /// Bias on q, k, v (always in Qwen2).
    pub qkv_bias: bool,
    /// Bias on o.
    pub o_bias: bool,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
    /// Longest position the model was made for.
    pub max_position_embeddings: usize,
    /// Mixer of each layer.
    pub layer_types: Vec<LayerType>,
    /// Key heads of the delta rule; 0 without one.
    pub linear_num_key_heads: usize,
    /// Value heads of the delta rule.
    pub linear_num_value_heads: usize,
    /// Width of a key head of the delta rule.
    pub linear_key_head_dim: usize,
    /// Width of a value head of the delta rule.
    pub linear_value_head_dim: usize,
    /// Taps of the convolution before the delta rule.
    pub linear_conv_kernel_dim: usize,
    /// Tokens that end a generation, as far as the configuration says.
    pub eos_token_ids: Vec<u32>,
    /// What was derived or taken from an unusual place, for the first screen of a run.
    pub derived: Vec<String>,
    /// The file as it was, unknown keys included.
    pub raw: Value,
}

impl QwenConfig {
    /// Reads `config.json` of a checkpoint folder.
    ///
    /// # Errors
    /// A missing or malformed file, and whatever [`Self::from_json`] refuses.
    pub fn from_folder(folder: &Path) -> Result<Self, QwenError> {
        Self::from_file(&folder.join("config.json"))
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// As [`Self::from_folder`].
    pub fn from_file(path: &Path) -> Result<Self, QwenError> {
        let text = std::fs::read_to_string(path).map_err(|source| QwenError::io(path, source))?;
        let origin = path.display().to_string();
        let json = serde_json::from_str(&text).map_err(|error| QwenError::Config {
            origin: origin.clone(),
            problem: format!("is not JSON: {error}"),
        })?;
        Self::from_json(json, &origin)
    }

    /// Reads a configuration; `origin` names it in errors.
    ///
    /// # Errors
    /// Variants that are not supported are refused by name; missing, mistyped or contradictory
    /// keys are named.
    pub fn from_json(raw: Value, origin: &str) -> Result<Self, QwenError> {
        let Some(top) = raw.as_object().cloned() else {
            return Err(QwenError::Config {
                origin: origin.to_string(),
                problem: "must be a JSON object".to_string(),
            });
        };
        let (family, text) = select_family(&top, origin)?;
        let mut fields = Fields::new(text, top, origin);
        let config = read(family, &mut fields)?;
        Ok(Self { raw, derived: fields.derived, ..config })
    }

    /// Whether the weights of a norm stand for `w` or for `1 + w`.
    pub fn norm_form(&self) -> NormForm {
        match self.family {
            Family::Qwen2 | Family::Qwen3 => NormForm::Plain,
            Family::Qwen3_5 => NormForm::ZeroCentered,
        }
    }

    /// Whether attention has query and key norms.
    pub fn has_qk_norm(&self) -> bool {
        self.family != Family::Qwen2
    }

    /// Whether attention has an output gate inside `q_proj`.
    pub fn has_attention_gate(&self) -> bool {
        self.family == Family::Qwen3_5
    }

    /// Channels of queries, keys and values of the delta rule together.
    pub fn linear_conv_dim(&self) -> usize {
        2 * self.linear_key_dim() + self.linear_value_dim()
    }

    /// Channels of all key heads of the delta rule.
    pub fn linear_key_dim(&self) -> usize {
        self.linear_num_key_heads * self.linear_key_head_dim
    }

    /// Channels of all value heads of the delta rule.
    pub fn linear_value_dim(&self) -> usize {
        self.linear_num_value_heads * self.linear_value_head_dim
    }

    /// The facts by which kernels judge whether they can run this model.
    pub fn kernel_case(
        &self,
        backend: BackendKind,
        dtype: DType,
        training: bool,
        max_tokens: usize,
    ) -> KernelCase {
        KernelCase {
            backend,
            dtype,
            training,
            max_tokens,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            vocab_size: self.vocab_size,
            num_attention_heads: self.num_attention_heads,
            num_key_value_heads: self.num_key_value_heads,
            head_dim: self.head_dim,
            linear_num_key_heads: self.linear_num_key_heads,
            linear_num_value_heads: self.linear_num_value_heads,
            linear_key_head_dim: self.linear_key_head_dim,
            linear_value_head_dim: self.linear_value_head_dim,
            linear_conv_kernel_dim: self.linear_conv_kernel_dim,
        }
    }

    /// What was read, unknown keys included, with the dtype of an export (`bfloat16`, ...) in every
    /// place that names one.
    pub fn to_json(&self, dtype: &str) -> Value {
        let mut raw = self.raw.clone();
        if let Some(Value::Object(text)) = raw.get_mut("text_config") {
            replace_dtype(text, dtype);
        }
        if let Some(top) = raw.as_object_mut()
            && !replace_dtype(top, dtype)
        {
            top.insert("dtype".to_string(), json!(dtype));
        }
        raw
    }

    /// The text model alone, as other tools load it: the flat form of [`Self::to_json`], with the
    /// class that reads it.
    pub fn to_text_json(&self, dtype: &str) -> Value {
        let Value::Object(raw) = self.to_json(dtype) else { return Value::Null };
        let mut text = match raw.get("text_config") {
            Some(Value::Object(text)) => text.clone(),
            _ => raw,
        };
        if !replace_dtype(&mut text, dtype) {
            text.insert("dtype".to_string(), json!(dtype));
        }
        text.insert("model_type".to_string(), json!(self.family.model_type()));
        text.insert("tie_word_embeddings".to_string(), json!(self.tie_word_embeddings));
        text.entry("architectures").or_insert_with(|| json!([self.family.architecture()]));
        Value::Object(text)
    }
}

/// Whether there was a dtype to replace.
fn replace_dtype(object: &mut Map<String, Value>, dtype: &str) -> bool {
    let mut found = false;
    for key in ["dtype", "torch_dtype"] {
        if let Some(value) = object.get_mut(key) {
            *value = json!(dtype);
            found = true;
        }
    }
    found
}

/// The text part of a configuration, and which architecture it has.
fn select_family(
    top: &Map<String, Value>,
    origin: &str,
) -> Result<(Family, Map<String, Value>), QwenError> {
    let refuse = |problem: String| QwenError::Config { origin: origin.to_string(), problem };
    let supported = "supported are qwen2, qwen3, qwen3_5_text and qwen3_5";
    let model_type = top.get("model_type").and_then(Value::as_str).ok_or_else(|| {
        refuse(format!(
            "model_type is missing or no text, so the architecture is unknown; {supported}"
        ))
    })?;
    let family = match model_type {
        "qwen2" => Family::Qwen2,
        "qwen3" => Family::Qwen3,
        "qwen3_5_text" | "qwen3_5" => Family::Qwen3_5,
        other if other.contains("moe") || other == "qwen3_next" => {
            return Err(refuse(format!(
                "model_type \"{other}\" is a mixture of experts, which is not supported; {supported}"
            )));
        }
        other => {
            return Err(refuse(format!("model_type \"{other}\" is not supported; {supported}")));
        }
    };
    let text = match top.get("text_config") {
        Some(Value::Object(text)) => text.clone(),
        Some(_) => return Err(refuse("text_config must be an object".to_string())),
        None if model_type == "qwen3_5" => {
            return Err(refuse("model_type \"qwen3_5\" needs a text_config".to_string()));
        }
        None => top.clone(),
    };
    if let Some(inner) = text.get("model_type").and_then(Value::as_str)
        && !matches!(inner, "qwen2" | "qwen3" | "qwen3_5_text" | "qwen3_5")
    {
        return Err(refuse(format!(
            "text_config.model_type \"{inner}\" is not supported; {supported}"
        )));
    }
    Ok((family, text))
}

fn read(family: Family, fields: &mut Fields) -> Result<QwenConfig, QwenError> {
    let hidden_size = fields.size("hidden_size")?;
    let num_hidden_layers = fields.size("num_hidden_layers")?;
    fields.refuse_unsupported(num_hidden_layers)?;
    let num_attention_heads = fields.size("num_attention_heads")?;
    let num_key_value_heads =
        fields.size_or("num_key_value_heads", num_attention_heads, "num_attention_heads")?;
    if !num_attention_heads.is_multiple_of(num_key_value_heads) {
        return Err(fields.error(format!(
            "num_attention_heads {num_attention_heads} is not a multiple of num_key_value_heads \
             {num_key_value_heads}"
        )));
    }
    let head_dim = match (fields.optional_size("head_dim")?, family) {
        (Some(head_dim), _) => head_dim,
        (None, Family::Qwen2) if hidden_size.is_multiple_of(num_attention_heads) => {
            let head_dim = hidden_size / num_attention_heads;
            fields.derive("head_dim", head_dim, "hidden_size / num_attention_heads")
        }
        (None, Family::Qwen2) => {
            return Err(fields.error(format!(
                "hidden_size {hidden_size} is not a multiple of num_attention_heads \
                 {num_attention_heads}, and there is no head_dim"
            )));
        }
        (None, Family::Qwen3) => fields.derive("head_dim", 128, "the class default"),
        (None, Family::Qwen3_5) => fields.derive("head_dim", 256, "the class default"),
    };
    let default_partial = if family == Family::Qwen3_5 { 0.25 } else { 1.0 };
    let rope = fields.rope(default_partial)?;
    let rotary_dim = (head_dim as f64 * rope.partial_rotary_factor) as usize;
    if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) || rotary_dim > head_dim {
        return Err(fields.error(format!(
            "head_dim {head_dim} times partial_rotary_factor {} gives {rotary_dim} rotated \
             channels; an even number from 2 to head_dim is needed",
            rope.partial_rotary_factor
        )));
    }
    let layer_types = fields.layer_types(family, num_hidden_layers)?;
    let linear = LinearSizes::read(fields, &layer_types)?;
    let attention_bias = fields.bool_or("attention_bias", false)?;
    Ok(QwenConfig {
        family,
        vocab_size: fields.size("vocab_size")?,
        hidden_size,
        intermediate_size: fields.size("intermediate_size")?,
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads,
        head_dim,
        rotary_dim,
        rope_theta: rope.theta,
        rms_norm_eps: fields.number_or("rms_norm_eps", 1e-6)?,
        tie_word_embeddings: fields.tie_word_embeddings()?,
        qkv_bias: attention_bias || family == Family::Qwen2,
        o_bias: attention_bias && family != Family::Qwen2,
        initializer_range: fields.number_or("initializer_range", 0.02)?,
        max_position_embeddings: fields.size_or("max_position_embeddings", 32768, "a default")?,
        layer_types,
        linear_num_key_heads: linear.num_key_heads,
        linear_num_value_heads: linear.num_value_heads,
        linear_key_head_dim: linear.key_head_dim,
        linear_value_head_dim: linear.value_head_dim,
        linear_conv_kernel_dim: linear.conv_kernel_dim,
        eos_token_ids: fields.token_ids("eos_token_id")?,
        derived: Vec::new(),
        raw: Value::Null,
    })
}

/// Sizes of the delta rule; all 0 in a model without one.
#[derive(Default)]
struct LinearSizes {
    num_key_heads: usize,
    num_value_heads: usize,
    key_head_dim: usize,
    value_head_dim: usize,
    conv_kernel_dim: usize,
}

impl LinearSizes {
    fn read(fields: &mut Fields, layer_types: &[LayerType]) -> Result<Self, QwenError> {
        if !layer_types.contains(&LayerType::LinearAttention) {
            return Ok(Self::default());
        }
        let sizes = Self {
            num_key_heads: fields.size("linear_num_key_heads")?,
            num_value_heads: fields.size("linear_num_value_heads")?,
            key_head_dim: fields.size("linear_key_head_dim")?,
            value_head_dim: fields.size("linear_value_head_dim")?,
            conv_kernel_dim: fields.size_or("linear_conv_kernel_dim", 4, "the class default")?,
        };
        if !sizes.num_value_heads.is_multiple_of(sizes.num_key_heads) {
            return Err(fields.error(format!(
                "linear_num_value_heads {} is not a multiple of linear_num_key_heads {}",
                sizes.num_value_heads, sizes.num_key_heads
            )));
        }
        Ok(sizes)
    }
}
