//! Tiny checkpoints that tests write, damage and read.

use std::{collections::BTreeMap, path::Path};

use burn_qwen::{QwenConfig, block_specs, init::init_block, weights::dtype::encode};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

/// A configuration of a family.
pub fn config(model_type: &str) -> Value {
    let mut config = json!({
        "model_type": model_type, "vocab_size": 24, "hidden_size": 16, "intermediate_size": 20,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 128,
        "tie_word_embeddings": false, "initializer_range": 0.02, "hidden_act": "silu",
    });
    if model_type != "qwen2" {
        config["head_dim"] = json!(8);
    }
    if model_type == "qwen3_5_text" {
        for (key, value) in [
            ("linear_num_key_heads", 1),
            ("linear_num_value_heads", 2),
            ("linear_key_head_dim", 4),
            ("linear_value_head_dim", 6),
            ("linear_conv_kernel_dim", 4),
            ("full_attention_interval", 2),
        ] {
            config[key] = json!(value);
        }
    }
    config
}

/// One tensor of a checkpoint that is to be written.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
    pub file: usize,
}

impl StoredTensor {
    pub fn new(dtype: Dtype, shape: &[usize], values: &[f32]) -> Self {
        Self { dtype, shape: shape.to_vec(), bytes: encode(dtype, values), file: 0 }
    }
}

/// A checkpoint that is to be written: change it, then [`Self::write`] it.
#[derive(Clone, Debug)]
pub struct Tiny {
    pub config: Value,
    pub tensors: BTreeMap<String, StoredTensor>,
}

impl Tiny {
    /// Random values in f32 under `prefix`.
    pub fn new(config: Value, prefix: &str) -> Self {
        let parsed = QwenConfig::from_json(config.clone(), "tiny").unwrap();
        let mut tensors = BTreeMap::new();
        for block in block_specs(&parsed) {
            let values = init_block(&parsed, &block, 5);
            for (offset, param) in block.offsets() {
                let values = &values[offset..offset + param.num_elements()];
                let name = match param.name.as_str() {
                    "lm_head.weight" => param.name.clone(),
                    name => format!("{prefix}{name}"),
                };
                tensors.insert(name, StoredTensor::new(Dtype::F32, &param.shape, values));
            }
        }
        Self { config, tensors }
    }

    /// Spreads the tensors over files, one after the other.
    pub fn spread(mut self, num_files: usize) -> Self {
        for (i, tensor) in self.tensors.values_mut().enumerate() {
            tensor.file = i % num_files;
        }
        self
    }

    /// Stores a tensor in another dtype.
    pub fn recode(&mut self, name: &str, dtype: Dtype) {
        let tensor = self.tensors.get_mut(name).unwrap();
        assert_eq!(tensor.dtype, Dtype::F32);
        let values: Vec<f32> =
            tensor.bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        *tensor =
            StoredTensor { file: tensor.file, ..StoredTensor::new(dtype, &tensor.shape, &values) };
    }

    pub fn parsed(&self) -> QwenConfig {
        QwenConfig::from_json(self.config.clone(), "tiny").unwrap()
    }

    pub fn write(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        let num_files = self.tensors.values().map(|t| t.file).max().unwrap() + 1;
        for file in 0..num_files {
            let views = self.tensors.iter().filter(|(_, t)| t.file == file).map(|(name, t)| {
                (name, TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap())
            });
            safetensors::serialize_to_file(views, None, &folder.join(file_name(file, num_files)))
                .unwrap();
        }
        write_json(&folder.join("config.json"), &self.config);
        if num_files > 1 {
            let map: BTreeMap<&str, String> = self
                .tensors
                .iter()
                .map(|(name, t)| (name.as_str(), file_name(t.file, num_files)))
                .collect();
            let total: usize = self.tensors.values().map(|t| t.bytes.len()).sum();
            let index = json!({"metadata": {"total_size": total}, "weight_map": map});
            write_json(&folder.join("model.safetensors.index.json"), &index);
        }
    }
}

pub fn file_name(file: usize, num_files: usize) -> String {
    if num_files == 1 {
        return "model.safetensors".to_string();
    }
    format!("model-{:05}-of-{num_files:05}.safetensors", file + 1)
}

pub fn write_json(path: &Path, value: &Value) {
    std::fs::write(path, serde_json::to_string_pretty(value).unwrap()).unwrap();
}

/// Changes a JSON file.
pub fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value = crate::golden::read_json(path);
    edit(&mut value);
    write_json(path, &value);
}

/// Fails unless the text has every part.
#[track_caller]
pub fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "should say {part:?}: {text}");
    }
}
