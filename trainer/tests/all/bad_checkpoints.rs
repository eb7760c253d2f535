//! Checkpoints that are wrong, through the program.

use serde_json::{Value, json};

use crate::{
    kit::{Bench, assert_says},
    tiny::{self, Tensors},
};

const EVAL: &str = "eval --model model --data chats.jsonl";

/// Changes the tensors of a bench's model.
fn edit(bench: &Bench, change: impl FnOnce(&mut Tensors)) {
    let path = bench.path("model/model.safetensors");
    let mut tensors = tiny::read_tensors(&path);
    change(&mut tensors);
    tiny::write_tensors(&path, &tensors);
}

/// Evaluation and training refuse alike, and training leaves nothing behind.
#[track_caller]
fn refused(bench: &Bench, parts: &[&str]) {
    assert_says(&bench.refuses(EVAL), parts);
    assert_says(&bench.refuses("train --model model --data chats.jsonl --output run"), parts);
    assert!(!bench.path("run").exists(), "nothing is left behind");
}

#[test]
fn an_untied_head_must_be_there() {
    let bench = Bench::new("qwen3");
    edit(&bench, |tensors| drop(tensors.remove("lm_head.weight")));
    refused(&bench, &["lm_head.weight", "tie_word_embeddings"]);
}

#[test]
fn a_missing_projection_is_named() {
    let bench = Bench::new("qwen3_5_text");
    let name = "model.layers.0.linear_attn.in_proj_qkv.weight";
    edit(&bench, |tensors| assert!(tensors.remove(name).is_some()));
    refused(&bench, &[name, "model"]);
}

#[test]
fn a_surplus_tensor_of_the_text_model_is_named() {
    let bench = Bench::new("qwen3");
    edit(&bench, |tensors| {
        tensors
            .insert("model.layers.0.self_attn.extra.weight".to_string(), (vec![2], vec![0.0; 2]));
    });
    refused(&bench, &["model.layers.0.self_attn.extra.weight"]);
}

#[test]
fn a_wrong_shape_is_named_with_both_shapes() {
    let bench = Bench::new("qwen2");
    let name = "model.layers.1.mlp.up_proj.weight";
    edit(&bench, |tensors| tensors.get_mut(name).unwrap().0 = vec![32, 48]);
    refused(&bench, &[name, "[48, 32]", "[32, 48]", "model.safetensors"]);
}

#[test]
fn a_truncated_file_is_never_loaded() {
    let bench = Bench::new("qwen3");
    let path = bench.path("model/model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    for len in [0, 5, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..len]).unwrap();
        refused(&bench, &["model.safetensors"]);
    }
    std::fs::remove_file(&path).unwrap();
    refused(&bench, &["model", "safetensors"]);
}

/// Splits the model over two files with an index.
fn shard(bench: &Bench) {
    let path = bench.path("model/model.safetensors");
    let all = tiny::read_tensors(&path);
    std::fs::remove_file(&path).unwrap();
    let mut map = serde_json::Map::new();
    for part in 0..2 {
        let name = format!("model-0000{}-of-00002.safetensors", part + 1);
        let tensors: Tensors = all
            .clone()
            .into_iter()
            .enumerate()
            .filter(|(i, _)| i % 2 == part)
            .map(|x| x.1)
            .collect();
        map.extend(tensors.keys().map(|key| (key.clone(), json!(name))));
        tiny::write_tensors(&bench.path("model").join(name), &tensors);
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    tiny::write_json(&bench.path("model/model.safetensors.index.json"), &index);
}

#[test]
fn shards_give_the_same_model_and_a_missing_one_is_named() {
    let bench = Bench::new("qwen3_5_text");
    let single = bench.succeeds(EVAL);
    shard(&bench);
    let (sharded, stderr) = bench.ends(EVAL, 0);
    assert_eq!(single, sharded);
    assert_says(&stderr, &["total_size"]);

    let index = bench.path("model/model.safetensors.index.json");
    let whole = tiny::read_json(&index);
    let name = "model.layers.1.mlp.gate_proj.weight";
    tiny::edit_json(&index, |index| {
        index["weight_map"].as_object_mut().unwrap().remove(name);
    });
    refused(&bench, &[name]);
    tiny::write_json(&index, &whole);
    std::fs::remove_file(bench.path("model/model-00002-of-00002.safetensors")).unwrap();
    refused(&bench, &["model-00002-of-00002.safetensors"]);
    std::fs::write(&index, "{\"weight_map\": ").unwrap();
    refused(&bench, &["model.safetensors.index.json"]);
}

/// The spellings of one configuration describe one model.
#[test]
fn spellings_of_the_configuration_give_the_same_loss() {
    let bench = Bench::new("qwen3_5_text");
    let flat = tiny::config("qwen3_5_text");
    let expected = bench.succeeds(EVAL);
    let loss_of = |config: &Value| {
        tiny::write_json(&bench.path("model/config.json"), config);
        bench.succeeds(EVAL)
    };
    // rope_theta inside rope_parameters.
    let mut nested = flat.clone();
    let fields = nested.as_object_mut().unwrap();
    fields.remove("rope_theta");
    fields.remove("partial_rotary_factor");
    nested["rope_parameters"] =
        json!({"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5});
    assert_eq!(loss_of(&nested), expected);
    // The old form.
    let mut old = flat.clone();
    old["rope_scaling"] = Value::Null;
    assert_eq!(loss_of(&old), expected);
    // Nested in a multimodal configuration.
    let multimodal = json!({"model_type": "qwen3_5", "text_config": nested, "vision_config": {},
                            "tie_word_embeddings": false});
    assert_eq!(loss_of(&multimodal), expected);
    // Another base is another model: the key is not ignored.
    nested["rope_parameters"]["rope_theta"] = json!(100.0);
    assert_ne!(loss_of(&nested), expected);
}

#[test]
fn derived_values_are_printed() {
    let mut config = tiny::config("qwen3_5_text");
    let fields = config.as_object_mut().unwrap();
    fields.remove("rope_theta");
    fields.remove("partial_rotary_factor");
    config["rope_parameters"] =
        json!({"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.5});
    let bench = Bench::with_config(&config);
    let train = "train --model model --data chats.jsonl --output run --max-steps 1";
    let (_, stderr) = bench.ends(train, 0);
    assert_says(&stderr, &["full_attention_interval", "1000000"]);
}

#[test]
fn configurations_that_are_wrong_name_file_and_key() {
    let bench = Bench::new("qwen3");
    let path = bench.path("model/config.json");
    let right = tiny::config("qwen3");
    for (key, value, parts) in [
        ("model_type", json!("llama"), vec!["llama", "qwen3"]),
        ("model_type", json!("qwen3_moe"), vec!["qwen3_moe"]),
        ("hidden_size", json!("wide"), vec!["hidden_size"]),
        ("hidden_size", json!(0), vec!["hidden_size"]),
        ("num_key_value_heads", json!(3), vec!["num_key_value_heads"]),
        ("vocab_size", Value::Null, vec!["vocab_size"]),
        ("vocab_size", json!(100), vec!["100"]),
        ("rope_scaling", json!({"rope_type": "magic"}), vec!["magic"]),
    ] {
        let mut config = right.clone();
        config[key] = value;
        tiny::write_json(&path, &config);
        refused(&bench, &parts);
    }
    std::fs::write(&path, "{\"model_type\": ").unwrap();
    refused(&bench, &["config.json"]);
    std::fs::remove_file(&path).unwrap();
    refused(&bench, &["config.json"]);
}

#[test]
fn a_tokenizer_that_is_missing_or_broken_is_named() {
    let bench = Bench::new("qwen3");
    let path = bench.path("model/tokenizer.json");
    std::fs::write(&path, "{\"version\": ").unwrap();
    refused(&bench, &["tokenizer.json"]);
    std::fs::remove_file(&path).unwrap();
    refused(&bench, &["tokenizer.json"]);
}
