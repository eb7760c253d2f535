//! Checkpoints that load, and checkpoints that must not.

use std::path::Path;

use burn_qwen::{
    QwenConfig, block_specs,
    weights::{Checkpoint, dtype::encode},
};
use safetensors::Dtype;
use serde_json::json;
use tempfile::{TempDir, tempdir};

use crate::tiny::{StoredTensor, Tiny, assert_says, config, edit_json, file_name};

const INDEX: &str = "model.safetensors.index.json";
const Q_PROJ: &str = "model.layers.0.self_attn.q_proj.weight";

fn written(tiny: &Tiny) -> TempDir {
    let folder = tempdir().unwrap();
    tiny.write(folder.path());
    folder
}

fn open(folder: &Path) -> Result<Checkpoint, String> {
    let config = QwenConfig::from_folder(folder).unwrap();
    Checkpoint::open(folder, &config).map_err(|error| error.to_string())
}

#[track_caller]
fn refuses(folder: &Path, parts: &[&str]) {
    assert_says(&open(folder).expect_err("should be refused"), parts);
}

fn all_values(checkpoint: &Checkpoint, config: &QwenConfig) -> Vec<Vec<f32>> {
    block_specs(config).iter().map(|spec| checkpoint.read_block(spec).unwrap()).collect()
}

#[test]
fn every_prefix_loads_the_same_values_and_lists_extras() {
    let standard = Tiny::new(config("qwen3_5_text"), "model.");
    let folder = written(&standard);
    let expected = all_values(&open(folder.path()).unwrap(), &standard.parsed());
    for prefix in ["model.language_model.", "language_model.model."] {
        let mut tiny = Tiny::new(config("qwen3_5_text"), prefix);
        let extra = StoredTensor::new(Dtype::F32, &[2], &[1.0, 2.0]);
        let extras = ["model.visual.blocks.0.norm1.weight", "mtp.fc.weight", "vision_tower.x"];
        for name in extras {
            tiny.tensors.insert(name.to_string(), extra.clone());
        }
        if prefix == "language_model.model." {
            let head = tiny.tensors.remove("lm_head.weight").unwrap();
            tiny.tensors.insert("language_model.lm_head.weight".to_string(), head);
        }
        let folder = written(&tiny);
        let checkpoint = open(folder.path()).unwrap();
        assert_eq!(all_values(&checkpoint, &tiny.parsed()), expected, "{prefix}");
        assert_eq!(checkpoint.other_tensors(), extras.map(str::to_string), "{prefix}");

        let surplus = format!("{prefix}layers.0.mlp.extra_proj.weight");
        tiny.tensors.insert(surplus.clone(), extra);
        refuses(written(&tiny).path(), &[&surplus, "does not have"]);
    }
}

#[test]
fn shards_and_dtypes_mix_by_value() {
    let mut tiny = Tiny::new(config("qwen3"), "model.").spread(3);
    let folder = written(&tiny);
    let config = tiny.parsed();
    let exact = all_values(&open(folder.path()).unwrap(), &config);
    tiny.recode(Q_PROJ, Dtype::BF16);
    tiny.recode("model.layers.0.mlp.up_proj.weight", Dtype::F16);
    let folder = written(&tiny);
    let checkpoint = open(folder.path()).unwrap();
    assert_eq!(checkpoint.notices(), [] as [String; 0]);
    let mixed = all_values(&checkpoint, &config);
    let block = &block_specs(&config)[1];
    for (offset, param) in block.offsets() {
        let range = offset..offset + param.num_elements();
        let (exact, mixed) = (&exact[1][range.clone()], &mixed[1][range]);
        let bar = match param.name.as_str() {
            "layers.0.self_attn.q_proj.weight" => 2f32.powi(-8),
            "layers.0.mlp.up_proj.weight" => 2f32.powi(-11),
            _ => 0.0,
        };
        for (a, b) in exact.iter().zip(mixed) {
            // Below the normal range f16 has a fixed step.
            let step = if bar == 2f32.powi(-11) { 2f32.powi(-25) } else { 0.0 };
            assert!((a - b).abs() <= bar * a.abs() + step, "{}: {a} {b}", param.name);
        }
        assert_eq!(bar == 0.0, exact == mixed, "{}", param.name);
    }
}

#[test]
fn untied_without_a_head() {
    let mut tiny = Tiny::new(config("qwen3"), "model.");
    tiny.tensors.remove("lm_head.weight");
    refuses(written(&tiny).path(), &["lm_head.weight", "missing", "tie_word_embeddings: false"]);
}

#[test]
fn tied_with_a_head() {
    let mut json = config("qwen3");
    json["tie_word_embeddings"] = json!(true);
    let mut tiny = Tiny::new(json, "model.");
    let mut head = tiny.tensors["model.embed_tokens.weight"].clone();
    tiny.tensors.insert("lm_head.weight".to_string(), head.clone());
    let folder = written(&tiny);
    let checkpoint = open(folder.path()).unwrap();
    assert_says(&checkpoint.notices().join("\n"), &["lm_head.weight", "tied", "not used"]);
    // transformers would not tie these: one of the two statements is wrong.
    head.bytes[3] ^= 1;
    tiny.tensors.insert("lm_head.weight".to_string(), head);
    refuses(written(&tiny).path(), &["lm_head.weight differs", "tie_word_embeddings"]);
}

#[test]
fn a_projection_that_the_index_lost() {
    let tiny = Tiny::new(config("qwen3"), "model.").spread(2);
    let folder = written(&tiny);
    edit_json(&folder.path().join(INDEX), |index| {
        index["weight_map"].as_object_mut().unwrap().remove(Q_PROJ);
    });
    refuses(folder.path(), &[Q_PROJ, "missing", "does not list"]);

    let mut tiny = tiny;
    tiny.tensors.remove(Q_PROJ);
    refuses(written(&tiny).path(), &[Q_PROJ, "missing"]);
}

#[test]
fn an_index_that_is_wrong() {
    let tiny = Tiny::new(config("qwen3"), "model.").spread(2);
    let folder = written(&tiny);
    let index = folder.path().join(INDEX);
    edit_json(&index, |index| index["metadata"]["total_size"] = json!(17));
    let checkpoint = open(folder.path()).unwrap();
    assert_says(&checkpoint.notices().join("\n"), &["total_size 17", INDEX]);

    let other = file_name(1 - tiny.tensors[Q_PROJ].file, 2);
    edit_json(&index, |index| index["weight_map"][Q_PROJ] = json!(other));
    refuses(folder.path(), &[Q_PROJ, &other, "although"]);

    edit_json(&index, |index| index["weight_map"][Q_PROJ] = json!("../elsewhere.safetensors"));
    refuses(folder.path(), &[Q_PROJ, "elsewhere"]);

    std::fs::write(&index, "{").unwrap();
    refuses(folder.path(), &[INDEX, "not JSON"]);
    std::fs::write(&index, "{}").unwrap();
    refuses(folder.path(), &[INDEX, "weight_map"]);
}

#[test]
fn a_shard_that_is_missing_and_a_key_in_two() {
    let tiny = Tiny::new(config("qwen3"), "model.").spread(2);
    let folder = written(&tiny);
    std::fs::remove_file(folder.path().join(file_name(1, 2))).unwrap();
    refuses(folder.path(), &[&file_name(1, 2), "not in the folder"]);

    // The second shard again, with a tensor of the first.
    let mut twice = tiny.clone();
    let first = tiny.tensors.iter().find(|(_, t)| t.file == 0).unwrap().0.clone();
    twice.tensors.get_mut(&first).unwrap().file = 1;
    let other = written(&twice);
    let folder = written(&tiny);
    let name = file_name(1, 2);
    std::fs::copy(other.path().join(&name), folder.path().join(&name)).unwrap();
    refuses(folder.path(), &[&name, &first, "which of the two"]);
}

#[test]
fn shapes_and_dtypes_that_do_not_fit() {
    let mut tiny = Tiny::new(config("qwen3"), "model.").spread(2);
    let good = tiny.tensors[Q_PROJ].clone();
    let file = file_name(good.file, 2);
    let transposed = vec![good.shape[1], good.shape[0]];
    tiny.tensors.get_mut(Q_PROJ).unwrap().shape = transposed;
    refuses(written(&tiny).path(), &[&file, Q_PROJ, "[16, 32]", "[32, 16]"]);

    let fp8 = StoredTensor {
        dtype: Dtype::F8_E4M3,
        bytes: vec![0; good.bytes.len() / 4],
        ..good.clone()
    };
    tiny.tensors.insert(Q_PROJ.to_string(), fp8);
    refuses(written(&tiny).path(), &[&file, Q_PROJ, "F8_E4M3", "FP8 without scales", "bf16"]);
}

#[test]
fn files_that_are_damaged() {
    let tiny = Tiny::new(config("qwen3"), "model.");
    let folder = written(&tiny);
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    for (length, part) in [
        (0, "no safetensors file"),
        (5, "no safetensors file"),
        (100, "truncated"),
        (bytes.len() / 2, "truncated"),
        (bytes.len() - 1, "truncated"),
    ] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        refuses(folder.path(), &["model.safetensors", part, "again"]);
    }
    let mut longer = bytes.clone();
    longer.push(0);
    std::fs::write(&path, &longer).unwrap();
    refuses(folder.path(), &["model.safetensors", "damaged"]);
    let mut broken = bytes.clone();
    broken[8] = b'!';
    std::fs::write(&path, &broken).unwrap();
    refuses(folder.path(), &["model.safetensors", "header"]);
    std::fs::write(&path, b"<!DOCTYPE html>").unwrap();
    refuses(folder.path(), &["model.safetensors", "no safetensors file"]);
    std::fs::remove_file(&path).unwrap();
    refuses(folder.path(), &["neither", "model.safetensors"]);
}

#[test]
fn no_embedding_is_no_checkpoint() {
    let mut tiny = Tiny::new(config("qwen3"), "model.");
    tiny.tensors = std::mem::take(&mut tiny.tensors)
        .into_iter()
        .map(|(name, tensor)| (format!("transformer.{name}"), tensor))
        .collect();
    refuses(written(&tiny).path(), &["embed_tokens.weight", "no Qwen text checkpoint"]);
}

#[test]
fn norm_forms_that_are_swapped() {
    let set = |tiny: &mut Tiny, gated: bool, value: f32| {
        for (name, tensor) in &mut tiny.tensors {
            if name.ends_with("norm.weight") && name.contains("linear_attn") == gated {
                tensor.bytes = encode(Dtype::F32, &vec![value; tensor.shape[0]]);
            }
        }
    };
    let mut tiny = Tiny::new(config("qwen3_5_text"), "model.");
    set(&mut tiny, false, 0.02);
    set(&mut tiny, true, 0.97);
    let checkpoint = open(written(&tiny).path()).unwrap();
    assert_eq!(checkpoint.notices(), [] as [String; 0]);

    set(&mut tiny, false, 1.02);
    let checkpoint = open(written(&tiny).path()).unwrap();
    assert_says(&checkpoint.notices().join("\n"), &["1.02", "1 + w", "subtract"]);

    set(&mut tiny, true, -0.03);
    refuses(written(&tiny).path(), &["swapped", "1.02", "-0.03"]);

    let mut plain = Tiny::new(config("qwen3"), "model.");
    set(&mut plain, false, 0.01);
    let checkpoint = open(written(&plain).path()).unwrap();
    assert_says(&checkpoint.notices().join("\n"), &["0.01", "add the 1"]);
}
