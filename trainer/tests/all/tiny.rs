//! Tiny checkpoints, tokenizer and chats that tests write, damage and train on.

use std::{collections::BTreeMap, path::Path};

use burn_qwen::{QwenConfig, block_specs, init::init_block};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

pub const FAMILIES: [&str; 3] = ["qwen2", "qwen3", "qwen3_5_text"];

/// Control tokens come first, then the 256 bytes.
const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
pub const VOCAB_SIZE: usize = 259;

/// A configuration of a family; hybrids have a delta-rule and an attention layer.
pub fn config(model_type: &str) -> Value {
    let mut config = json!({
        "model_type": model_type, "vocab_size": VOCAB_SIZE, "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "max_position_embeddings": 2048, "tie_word_embeddings": false,
        "initializer_range": 0.05, "hidden_act": "silu",
    });
    if model_type != "qwen2" {
        config["head_dim"] = json!(16);
    }
    if model_type == "qwen3_5_text" {
        for (key, value) in [
            ("linear_num_key_heads", 2),
            ("linear_num_value_heads", 4),
            ("linear_key_head_dim", 8),
            ("linear_value_head_dim", 8),
            ("linear_conv_kernel_dim", 4),
            ("full_attention_interval", 2),
        ] {
            config[key] = json!(value);
        }
        config["partial_rotary_factor"] = json!(0.5);
    }
    config
}

pub fn parse(config: &Value) -> QwenConfig {
    QwenConfig::from_json(config.clone(), "tiny").unwrap()
}

/// Names, shapes and values of a checkpoint.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Random values for every parameter of a configuration.
pub fn tensors(config: &Value) -> Tensors {
    let config = parse(config);
    let mut tensors = BTreeMap::new();
    for block in block_specs(&config) {
        let values = init_block(&config, &block, 5);
        for (offset, param) in block.offsets() {
            let name = match param.name.as_str() {
                "lm_head.weight" => param.name.clone(),
                name => format!("model.{name}"),
            };
            let values = values[offset..offset + param.num_elements()].to_vec();
            tensors.insert(name, (param.shape.clone(), values));
        }
    }
    tensors
}

pub fn write_tensors(path: &Path, tensors: &Tensors) {
    let bytes: Vec<(&String, &Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, (shape, values))| {
            (name, shape, values.iter().flat_map(|x| x.to_le_bytes()).collect())
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        (name, TensorView::new(Dtype::F32, (*shape).clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

pub fn read_tensors(path: &Path) -> Tensors {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let read = |(name, view): (String, TensorView<'_>)| {
        assert_eq!(view.dtype(), Dtype::F32, "{name}");
        let values = view.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        (name, (view.shape().to_vec(), values))
    };
    file.tensors().into_iter().map(read).collect()
}

/// A whole model folder: configuration, weights, tokenizer and template.
pub fn write_model(folder: &Path, config: &Value) {
    write_tokenizer(folder);
    write_json(&folder.join("config.json"), config);
    write_tensors(&folder.join("model.safetensors"), &tensors(config));
}

/// One token per byte, and ChatML's control tokens.
pub fn write_tokenizer(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let mut bytes: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    bytes.sort_unstable();
    let names = CONTROL.iter().map(ToString::to_string).chain(bytes.iter().map(char::to_string));
    let vocab: BTreeMap<String, usize> = names.zip(0..).collect();
    assert_eq!(vocab.len(), VOCAB_SIZE);
    let control = |(id, content): (usize, &&str)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": true})
    };
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
                            "trim_offsets": false, "use_regex": false});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": CONTROL.iter().enumerate().map(control).collect::<Vec<_>>(),
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": []},
    });
    write_json(&folder.join("tokenizer.json"), &tokenizer);
    let template = "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + \
                    message.content + '<|im_end|>\\n' }}{%- endfor %}\
                    {%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
    let settings = json!({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": null,
                          "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                          "chat_template": template});
    write_json(&folder.join("tokenizer_config.json"), &settings);
}

/// Questions with answers of growing length, one conversation a line.
pub fn write_chats(path: &Path, count: usize) {
    let line = |i: usize| {
        let answer = "yes and no ".repeat(1 + i % 5);
        let messages = json!([
            {"role": "user", "content": format!("Question number {i}?")},
            {"role": "assistant", "content": format!("{answer}{}.", i * i % 17)},
        ]);
        json!({ "messages": messages }).to_string() + "\n"
    };
    std::fs::write(path, (0..count).map(line).collect::<String>()).unwrap();
}

pub fn write_json(path: &Path, value: &Value) {
    std::fs::write(path, serde_json::to_string_pretty(value).unwrap()).unwrap();
}

pub fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Changes a JSON file.
pub fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value = read_json(path);
    edit(&mut value);
    write_json(path, &value);
}
