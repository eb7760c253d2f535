//! Typed access to the keys of a configuration, with errors that name them.

use serde_json::{Map, Value};

use crate::{
    config::{Family, LayerType},
    error::QwenError,
};

/// The text part of a `config.json`, the whole of it, and what was derived so far.
pub(crate) struct Fields {
    text: Map<String, Value>,
    top: Map<String, Value>,
    origin: String,
    pub(crate) derived: Vec<String>,
}

/// The rotary embedding's settings.
pub(crate) struct RopeFields {
    pub(crate) theta: f64,
    pub(crate) partial_rotary_factor: f64,
}

impl Fields {
    pub(crate) fn new(text: Map<String, Value>, top: Map<String, Value>, origin: &str) -> Self {
        Self { text, top, origin: origin.to_string(), derived: Vec::new() }
    }

    pub(crate) fn error(&self, problem: String) -> QwenError {
        QwenError::Config { origin: self.origin.clone(), problem }
    }

    /// A key that is present and not null.
    fn value(&self, key: &str) -> Option<&Value> {
        self.text.get(key).filter(|value| !value.is_null())
    }

    fn wrong_type(&self, key: &str, expected: &str, found: &Value) -> QwenError {
        self.error(format!("{key} must be {expected}, found {found}"))
    }

    /// Notes a derived value and returns it.
    pub(crate) fn derive(&mut self, key: &str, value: usize, from: &str) -> usize {
        self.derived.push(format!("{key} {value} from {from}"));
        value
    }

    pub(crate) fn optional_size(&self, key: &str) -> Result<Option<usize>, QwenError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_u64().and_then(|size| usize::try_from(size).ok()) {
            Some(size) if size > 0 => Ok(Some(size)),
            _ => Err(self.wrong_type(key, "a whole number above 0", value)),
        }
    }

    pub(crate) fn size(&self, key: &str) -> Result<usize, QwenError> {
        self.optional_size(key)?.ok_or_else(|| {
            self.error(format!("{key} is missing; is this the configuration of a Qwen text model?"))
        })
    }

    pub(crate) fn size_or(
        &mut self,
        key: &str,
        default: usize,
        from: &str,
    ) -> Result<usize, QwenError> {
        match self.optional_size(key)? {
            Some(size) => Ok(size),
            None => Ok(self.derive(key, default, from)),
        }
    }

    pub(crate) fn number_or(&self, key: &str, default: f64) -> Result<f64, QwenError> {
        match self.value(key) {
            None => Ok(default),
            Some(value) => match value.as_f64() {
                Some(number) if number > 0.0 && number.is_finite() => Ok(number),
                _ => Err(self.wrong_type(key, "a number above 0", value)),
            },
        }
    }

    pub(crate) fn bool_or(&self, key: &str, default: bool) -> Result<bool, QwenError> {
        match self.value(key) {
            None => Ok(default),
            Some(value) => {
                value.as_bool().ok_or_else(|| self.wrong_type(key, "true or false", value))
            }
        }
    }

    /// A number or a list of numbers.
    pub(crate) fn token_ids(&self, key: &str) -> Result<Vec<u32>, QwenError> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let values = match value {
            Value::Array(values) => values.as_slice(),
            single => std::slice::from_ref(single),
        };
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        values
            .iter()
            .map(|v| {
                id(v).ok_or_else(|| self.wrong_type(key, "a token id or a list of them", value))
            })
            .collect()
    }

    /// The flag of the text part and that of the top level, which must agree.
    pub(crate) fn tie_word_embeddings(&mut self) -> Result<bool, QwenError> {
        let key = "tie_word_embeddings";
        let flag = |value: Option<&Value>| match value.filter(|value| !value.is_null()) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong_type(key, "true or false", other)),
        };
        let top = flag(self.top.get(key))?;
        let text = flag(self.text.get(key))?;
        match (top, text) {
            (Some(top), Some(text)) if top != text => Err(self.error(format!(
                "{key} is {top} at the top level and {text} in text_config; make them agree"
            ))),
            (Some(tied), _) | (None, Some(tied)) => Ok(tied),
            (None, None) => {
                self.derived.push(format!("{key} false from the class default"));
                Ok(false)
            }
        }
    }

    /// Settings that change the result and are not implemented.
    pub(crate) fn refuse_unsupported(&self, num_layers: usize) -> Result<(), QwenError> {
        let act = self.value("hidden_act").and_then(Value::as_str).unwrap_or("silu");
        if act != "silu" {
            return Err(self.error(format!("hidden_act \"{act}\" is not supported, only silu is")));
        }
        for part in [&self.text, &self.top] {
            if let Some(quantization) = part.get("quantization_config").filter(|q| !q.is_null()) {
                let method = quantization["quant_method"].as_str().unwrap_or("unknown");
                return Err(self.error(format!(
                    "quantization_config (\"{method}\"): quantised checkpoints cannot be \
                     fine-tuned; use the bf16 checkpoint of the same model"
                )));
            }
        }
        let experts = ["num_experts", "num_local_experts", "n_routed_experts"];
        if let Some(key) =
            experts.into_iter().find(|key| self.value(key).and_then(Value::as_u64) > Some(0))
        {
            return Err(self.error(format!("{key}: mixtures of experts are not supported")));
        }
        self.refuse_sliding_window(num_layers)
    }

    /// Layers from `max_window_layers` on would see `sliding_window` tokens only.
    fn refuse_sliding_window(&self, num_layers: usize) -> Result<(), QwenError> {
        if !self.bool_or("use_sliding_window", false)? || self.value("sliding_window").is_none() {
            return Ok(());
        }
        let first = self.value("max_window_layers").and_then(Value::as_u64).unwrap_or(0);
        if first >= num_layers as u64 {
            return Ok(());
        }
        Err(self.error(format!(
            "use_sliding_window is true for the layers from {first} on: sliding-window attention \
             is not supported; set it to false if no document is longer than the window"
        )))
    }

    /// `rope_parameters` (new style), or `rope_theta` with `rope_scaling` (old style).
    pub(crate) fn rope(&mut self, default_partial: f64) -> Result<RopeFields, QwenError> {
        for key in ["rope_parameters", "rope_scaling"] {
            let Some(table) = self.value(key) else { continue };
            let Some(table) = table.as_object() else {
                return Err(self.wrong_type(key, "an object or null", table));
            };
            let kind = table.get("rope_type").or_else(|| table.get("type"));
            let kind = kind.and_then(Value::as_str).unwrap_or("default");
            // Multimodal checkpoints call the plain rotation of text positions "mrope".
            if !matches!(kind, "default" | "mrope") {
                return Err(self.error(format!(
                    "{key}.rope_type \"{kind}\" is not supported, only \"default\" is: it would \
                     change the result"
                )));
            }
        }
        let nested = |key: &str| {
            let in_table = |table: &'static str| {
                let value = self.value(table)?.get(key).filter(|value| !value.is_null())?;
                Some((value.clone(), table))
            };
            in_table("rope_parameters").or_else(|| in_table("rope_scaling"))
        };
        let theta = nested("rope_theta");
        let partial = nested("partial_rotary_factor");
        let theta = self.rope_number("rope_theta", theta, None)?;
        let partial = self.rope_number("partial_rotary_factor", partial, Some(default_partial))?;
        Ok(RopeFields { theta, partial_rotary_factor: partial })
    }

    fn rope_number(
        &mut self,
        key: &str,
        nested: Option<(Value, &'static str)>,
        default: Option<f64>,
    ) -> Result<f64, QwenError> {
        let (value, from) = match (nested, self.value(key)) {
            (Some((value, table)), _) => (value, table),
            (None, Some(value)) => (value.clone(), "the top level"),
            (None, None) => {
                return default.ok_or_else(|| {
                    self.error(format!("{key} is missing, at the top and in rope_parameters"))
                });
            }
        };
        match value.as_f64() {
            Some(number) if number > 0.0 && number.is_finite() => {
                self.derived.push(format!("{key} {number} from {from}"));
                Ok(number)
            }
            _ => Err(self.wrong_type(key, "a number above 0", &value)),
        }
    }

    /// `layer_types`, or what `full_attention_interval` implies.
    pub(crate) fn layer_types(
        &mut self,
        family: Family,
        num_layers: usize,
    ) -> Result<Vec<LayerType>, QwenError> {
        if family != Family::Qwen3_5 {
            if let Some(Value::Array(types)) = self.value("layer_types")
                && let Some(other) = types.iter().find(|t| t.as_str() != Some("full_attention"))
            {
                return Err(self.error(format!(
                    "layer_types has {other}; {} models have full_attention only",
                    family.model_type()
                )));
            }
            return Ok(vec![LayerType::FullAttention; num_layers]);
        }
        let Some(value) = self.value("layer_types").cloned() else {
            let interval = self.size_or("full_attention_interval", 4, "the class default")?;
            self.derived.push(format!(
                "layer_types from full_attention_interval {interval}: every {interval}th layer is \
                 full attention"
            ));
            return Ok((1..=num_layers)
                .map(|i| {
                    if i % interval == 0 {
                        LayerType::FullAttention
                    } else {
                        LayerType::LinearAttention
                    }
                })
                .collect());
        };
        let Some(names) = value.as_array() else {
            return Err(self.wrong_type("layer_types", "a list", &value));
        };
        if names.len() != num_layers {
            return Err(self.error(format!(
                "layer_types names {} layers, num_hidden_layers is {num_layers}",
                names.len()
            )));
        }
        names
            .iter()
            .map(|name| match name.as_str() {
                Some("full_attention") => Ok(LayerType::FullAttention),
                Some("linear_attention") => Ok(LayerType::LinearAttention),
                _ => Err(self.error(format!(
                    "layer_types: {name} is not supported, only \"full_attention\" and \
                     \"linear_attention\" are"
                ))),
            })
            .collect()
    }
}
