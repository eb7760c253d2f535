//! `config.json` in every spelling, and what is refused.

use burn_qwen::{Family, LayerType, QwenConfig};
use serde_json::{Value, json};

use crate::tiny::{assert_says, config};

fn read(json: Value) -> QwenConfig {
    QwenConfig::from_json(json, "config.json").unwrap()
}

/// The same model, whatever the file looked like.
fn same_model(a: &QwenConfig, b: &QwenConfig) {
    let bare = |c: &QwenConfig| QwenConfig { raw: Value::Null, derived: Vec::new(), ..c.clone() };
    assert_eq!(bare(a), bare(b));
}

#[test]
fn rope_theta_inside_rope_parameters() {
    let mut json = config("qwen3");
    json.as_object_mut().unwrap().remove("rope_theta");
    json["rope_parameters"] = json!({"rope_theta": 1_000_000, "rope_type": "default"});
    let config = read(json);
    assert_eq!(config.rope_theta, 1e6);
    assert!(config.derived.contains(&"rope_theta 1000000 from rope_parameters".to_string()));
}

#[test]
fn old_style_without_layer_types() {
    let mut json = config("qwen2");
    json["rope_theta"] = json!(1_000_000);
    json["rope_scaling"] = Value::Null;
    json["torch_dtype"] = json!("bfloat16");
    let config = read(json);
    assert_eq!((config.rope_theta, config.family), (1e6, Family::Qwen2));
    assert_eq!(config.layer_types, [LayerType::FullAttention; 2]);
    assert!(config.qkv_bias && !config.o_bias);
    // hidden_size / num_attention_heads, and said so.
    assert_eq!(config.head_dim, 4);
    assert!(config.derived.iter().any(|note| note.starts_with("head_dim 4")));
}

#[test]
fn nested_with_everything_derived() {
    let mut flat = config("qwen3_5_text");
    flat["num_hidden_layers"] = json!(8);
    flat["layer_types"] = json!([
        "linear_attention",
        "linear_attention",
        "linear_attention",
        "full_attention",
        "linear_attention",
        "linear_attention",
        "linear_attention",
        "full_attention"
    ]);
    flat["head_dim"] = json!(256);
    flat["partial_rotary_factor"] = json!(0.25);
    flat["tie_word_embeddings"] = json!(true);
    flat.as_object_mut().unwrap().remove("full_attention_interval");

    let mut text = config("qwen3_5_text");
    for key in ["head_dim", "rope_theta", "tie_word_embeddings"] {
        text.as_object_mut().unwrap().remove(key);
    }
    text["num_hidden_layers"] = json!(8);
    text["full_attention_interval"] = json!(4);
    text["rope_parameters"] = json!({
        "rope_theta": 10000, "partial_rotary_factor": 0.25, "rope_type": "default",
        "mrope_section": [11, 11, 10], "mrope_interleaved": true
    });
    let nested = read(json!({
        "model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 1},
        "tie_word_embeddings": true
    }));
    same_model(&nested, &read(flat));
    assert_eq!(nested.rotary_dim, 64);
    for start in ["head_dim 256", "rope_theta 10000", "layer_types from full_attention_interval 4"]
    {
        let told = nested.derived.iter().any(|note| note.starts_with(start));
        assert!(told, "{start}: {:?}", nested.derived);
    }
}

#[test]
fn tie_flag_in_either_place() {
    let with = |top: Value, text: Value| {
        let mut inner = config("qwen3_5_text");
        inner["tie_word_embeddings"] = text;
        let json =
            json!({"model_type": "qwen3_5", "text_config": inner, "tie_word_embeddings": top});
        QwenConfig::from_json(json, "config.json")
    };
    assert!(with(json!(true), json!(true)).unwrap().tie_word_embeddings);
    assert!(with(Value::Null, json!(true)).unwrap().tie_word_embeddings);
    assert!(with(json!(true), Value::Null).unwrap().tie_word_embeddings);
    assert!(!with(Value::Null, Value::Null).unwrap().tie_word_embeddings);
    let error = with(json!(true), json!(false)).unwrap_err().to_string();
    assert_says(&error, &["tie_word_embeddings", "top level", "text_config"]);
}

#[test]
fn eos_is_a_number_or_a_list() {
    let mut json = config("qwen3");
    json["eos_token_id"] = json!(7);
    assert_eq!(read(json.clone()).eos_token_ids, [7]);
    json["eos_token_id"] = json!([7, 9]);
    assert_eq!(read(json).eos_token_ids, [7, 9]);
}

#[test]
fn a_sliding_window_without_effect_loads() {
    let mut json = config("qwen2");
    json["use_sliding_window"] = json!(true);
    json["sliding_window"] = json!(4096);
    json["max_window_layers"] = json!(2);
    read(json);
}

#[test]
fn every_refusal_names_its_key() {
    let cases: &[(&str, &str, Value, &[&str])] = &[
        ("qwen3", "model_type", json!("qwen3_moe"), &["qwen3_moe", "mixture of experts"]),
        ("qwen3", "model_type", json!("qwen3_5_moe"), &["qwen3_5_moe", "mixture of experts"]),
        ("qwen3", "model_type", json!("llama"), &["llama", "supported are qwen2"]),
        ("qwen3", "model_type", Value::Null, &["model_type"]),
        ("qwen3", "num_experts", json!(8), &["num_experts"]),
        (
            "qwen3",
            "rope_scaling",
            json!({"rope_type": "yarn", "factor": 4.0}),
            &["rope_scaling", "yarn"],
        ),
        ("qwen3", "rope_scaling", json!({"type": "linear"}), &["rope_scaling", "linear"]),
        (
            "qwen3",
            "rope_parameters",
            json!({"rope_type": "llama3"}),
            &["rope_parameters", "llama3"],
        ),
        ("qwen3", "hidden_act", json!("gelu"), &["hidden_act", "gelu"]),
        (
            "qwen3",
            "quantization_config",
            json!({"quant_method": "fp8"}),
            &["quantization_config", "fp8", "bf16"],
        ),
        ("qwen3", "num_key_value_heads", json!(3), &["num_attention_heads 4", "3"]),
        ("qwen3", "hidden_size", Value::Null, &["hidden_size", "missing"]),
        ("qwen3", "hidden_size", json!("big"), &["hidden_size", "big"]),
        ("qwen3", "hidden_size", json!(0), &["hidden_size", "0"]),
        ("qwen3", "head_dim", json!(7), &["head_dim 7", "even"]),
        ("qwen3", "rope_theta", json!(-1), &["rope_theta", "-1"]),
        ("qwen3", "rope_theta", Value::Null, &["rope_theta", "missing"]),
        ("qwen3", "tie_word_embeddings", json!("yes"), &["tie_word_embeddings", "yes"]),
        ("qwen3", "layer_types", json!(["sliding_attention"]), &["layer_types", "sliding"]),
        ("qwen3", "text_config", json!(3), &["text_config"]),
        ("qwen2", "hidden_size", json!(18), &["hidden_size 18", "num_attention_heads 4"]),
        ("qwen3_5_text", "layer_types", json!(["full_attention"]), &["layer_types", "1", "2"]),
        (
            "qwen3_5_text",
            "layer_types",
            json!(["full_attention", "mamba"]),
            &["layer_types", "mamba"],
        ),
        ("qwen3_5_text", "linear_num_value_heads", Value::Null, &["linear_num_value_heads"]),
        ("qwen3_5_text", "linear_num_key_heads", json!(4), &["linear_num_key_heads", "4", "2"]),
    ];
    for (model_type, key, value, parts) in cases {
        let mut json = config(model_type);
        json[*key] = value.clone();
        let error = QwenConfig::from_json(json, "folder/config.json").unwrap_err().to_string();
        assert_says(&error, parts);
        assert_says(&error, &["folder/config.json"]);
    }
}

#[test]
fn a_sliding_window_with_effect_is_refused() {
    let mut json = config("qwen2");
    json["use_sliding_window"] = json!(true);
    json["sliding_window"] = json!(16);
    json["max_window_layers"] = json!(1);
    let error = QwenConfig::from_json(json, "config.json").unwrap_err().to_string();
    assert_says(&error, &["use_sliding_window", "from 1 on"]);
}

#[test]
fn files_that_are_no_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let error = QwenConfig::from_folder(folder.path()).unwrap_err().to_string();
    assert_says(&error, &["config.json", "No such file"]);
    std::fs::write(folder.path().join("config.json"), "{\"model_type\": ").unwrap();
    let error = QwenConfig::from_folder(folder.path()).unwrap_err().to_string();
    assert_says(&error, &["config.json", "not JSON", "line 1"]);
    std::fs::write(folder.path().join("config.json"), "[]").unwrap();
    let error = QwenConfig::from_folder(folder.path()).unwrap_err().to_string();
    assert_says(&error, &["must be a JSON object"]);
}

#[test]
fn written_forms_keep_what_was_read() {
    let mut text = config("qwen3_5_text");
    text["dtype"] = json!("bfloat16");
    text["a_new_key"] = json!({"deep": [1, 2.5, null]});
    let raw = json!({"model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 1}});
    let config = read(raw.clone());
    assert_eq!(config.raw, raw);
    let written = config.to_json("float32");
    assert_eq!(written["text_config"]["dtype"], "float32");
    assert_eq!(written["text_config"]["a_new_key"], raw["text_config"]["a_new_key"]);
    same_model(&read(written), &config);

    let flat = config.to_text_json("float32");
    assert_eq!(flat["model_type"], "qwen3_5_text");
    assert_eq!(flat["architectures"], json!(["Qwen3_5ForCausalLM"]));
    assert!(flat.get("vision_config").is_none());
    same_model(&read(flat), &config);
}
