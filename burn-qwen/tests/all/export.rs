//! Exports: the source's layout, the trained values, everything else untouched.

use std::{collections::BTreeMap, path::Path};

use burn_qwen::{
    QwenConfig, block_specs,
    init::init_block,
    weights::{Checkpoint, ExportOptions, ExportSource, dtype, export, file::TensorFile},
};
use safetensors::Dtype;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::tempdir;

use crate::{
    golden::{self, read_json},
    tiny::{Tiny, assert_says, config},
};

const INDEX: &str = "model.safetensors.index.json";

/// Values of every parameter, for an export.
fn trained(config: &QwenConfig, seed: u64) -> impl Fn(usize, usize) -> Vec<f32> {
    let specs = block_specs(config);
    let blocks: Vec<Vec<f32>> = specs.iter().map(|s| init_block(config, s, seed)).collect();
    move |block, param| {
        let (offset, spec) = specs[block].offsets().nth(param).unwrap();
        // Off the initial values, which bf16 holds exactly where they are 0 or 1.
        blocks[block][offset..offset + spec.num_elements()].iter().map(|x| x + 0.123_456).collect()
    }
}

fn hashes(folder: &Path) -> BTreeMap<String, (String, String, String)> {
    let mut hashes = BTreeMap::new();
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    for path in files {
        let file = TensorFile::open(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for (tensor, entry) in &file.tensors {
            let hash = Sha256::digest(file.read(tensor).unwrap());
            let hash = hash.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            let dtype = dtype::torch_name(entry.dtype).to_string();
            assert!(hashes.insert(tensor.clone(), (name.clone(), dtype, hash)).is_none());
        }
    }
    hashes
}

#[test]
fn a_multimodal_checkpoint_keeps_all_that_was_not_trained() {
    let case = golden::folder().join("qwen3_5-multimodal");
    let source = case.join("model");
    let config = QwenConfig::from_folder(&source).unwrap();
    let checkpoint = Checkpoint::open(&source, &config).unwrap();
    let folder = tempdir().unwrap();
    let target = folder.path().join("export");
    let values = trained(&config, 3);
    let options = ExportOptions::default();
    export(ExportSource::Checkpoint(&checkpoint), &config, &values, &target, &options).unwrap();

    let written = hashes(&target);
    let expected = read_json(&case.join("tensors.json"));
    let expected = expected.as_object().unwrap();
    assert_eq!(written.len(), expected.len());
    let mut untouched = 0;
    for (name, entry) in expected {
        let (file, dtype, hash) = &written[name];
        assert_eq!(entry["file"], *file, "{name}");
        assert_eq!(entry["dtype"], *dtype, "{name}");
        let is_trained = entry["trained"] == true;
        assert_eq!(entry["sha256"] == *hash, !is_trained, "{name}");
        untouched += usize::from(!is_trained);
    }
    assert!(untouched > 15, "vision tower and multi-token prediction: {untouched}");
    for name in ["config.json", "generation_config.json"] {
        assert_eq!(read_json(&target.join(name)), read_json(&source.join(name)), "{name}");
    }
    let (old, new) = (read_json(&source.join(INDEX)), read_json(&target.join(INDEX)));
    assert_eq!(old["weight_map"], new["weight_map"]);
    let leftovers = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(leftovers, 1, "nothing is left beside the export");

    // Untrained values come out as the bytes they were.
    let same = |block: usize, param: usize| {
        let spec = &block_specs(&config)[block];
        let (offset, param) = spec.offsets().nth(param).unwrap();
        checkpoint.read_block(spec).unwrap()[offset..offset + param.num_elements()].to_vec()
    };
    let target = folder.path().join("same");
    export(ExportSource::Checkpoint(&checkpoint), &config, &same, &target, &options).unwrap();
    for (name, (.., hash)) in hashes(&target) {
        assert_eq!(expected[&name]["sha256"], hash, "{name}");
    }
}

#[test]
fn values_round_to_the_dtype_of_the_source_or_to_the_one_asked_for() {
    let mut tiny = Tiny::new(config("qwen3"), "model.").spread(2);
    tiny.config["torch_dtype"] = json!("bfloat16");
    let names: Vec<String> = tiny.tensors.keys().cloned().collect();
    for name in names.iter().filter(|name| !name.ends_with("norm.weight")) {
        tiny.recode(name, Dtype::BF16);
    }
    let folder = tempdir().unwrap();
    let source = folder.path().join("source");
    tiny.write(&source);
    let config = tiny.parsed();
    let checkpoint = Checkpoint::open(&source, &config).unwrap();
    let values = trained(&config, 9);
    for (asked, name) in [(None, "bfloat16"), (Some(Dtype::F32), "float32")] {
        let target = folder.path().join(name);
        let options = ExportOptions { dtype: asked, ..ExportOptions::default() };
        export(ExportSource::Checkpoint(&checkpoint), &config, &values, &target, &options).unwrap();
        assert_eq!(read_json(&target.join("config.json"))["torch_dtype"], name);
        let written = Checkpoint::open(&target, &config).unwrap();
        for (b, spec) in block_specs(&config).iter().enumerate() {
            let read = written.read_block(spec).unwrap();
            for (p, (offset, param)) in spec.offsets().enumerate() {
                let norm = param.name.ends_with("norm.weight");
                let dtype = asked.unwrap_or(if norm { Dtype::F32 } else { Dtype::BF16 });
                let mut expected = Vec::new();
                dtype::decode(dtype, &dtype::encode(dtype, &values(b, p)), &mut expected);
                assert_eq!(read[offset..offset + param.num_elements()], expected, "{}", param.name);
            }
        }
    }
    let options = ExportOptions { dtype: Some(Dtype::F8_E4M3), ..ExportOptions::default() };
    let target = folder.path().join("fp8");
    let error = export(ExportSource::Fresh, &config, &values, &target, &options).unwrap_err();
    assert_says(&error.to_string(), &["F8_E4M3", "BF16"]);
}

#[test]
fn a_tied_head_is_saved_once() {
    let mut json = config("qwen3");
    json["tie_word_embeddings"] = json!(true);
    let mut tiny = Tiny::new(json, "model.").spread(2);
    let mut head = tiny.tensors["model.embed_tokens.weight"].clone();
    head.file = 1;
    tiny.tensors.insert("lm_head.weight".to_string(), head);
    let folder = tempdir().unwrap();
    let source = folder.path().join("source");
    tiny.write(&source);
    let config = tiny.parsed();
    let checkpoint = Checkpoint::open(&source, &config).unwrap();
    let target = folder.path().join("export");
    let values = trained(&config, 1);
    let options = ExportOptions::default();
    export(ExportSource::Checkpoint(&checkpoint), &config, &values, &target, &options).unwrap();

    let index = read_json(&target.join(INDEX));
    let listed: Vec<&String> = index["weight_map"].as_object().unwrap().keys().collect();
    let stored = hashes(&target);
    assert_eq!(listed, stored.keys().collect::<Vec<_>>(), "the index lists what exists");
    assert!(!stored.contains_key("lm_head.weight"));
    let exported = Checkpoint::open(&target, &config).unwrap();
    assert_eq!(exported.notices(), [] as [String; 0], "total_size included");
}

#[test]
fn an_untied_head_keeps_its_own_values() {
    let tiny = Tiny::new(config("qwen3"), "model.");
    let config = tiny.parsed();
    let folder = tempdir().unwrap();
    let first = folder.path().join("first");
    let values = trained(&config, 2);
    export(ExportSource::Fresh, &config, &values, &first, &ExportOptions::default()).unwrap();
    let checkpoint = Checkpoint::open(&first, &config).unwrap();
    let specs = block_specs(&config);
    let loaded: Vec<Vec<f32>> = specs.iter().map(|s| checkpoint.read_block(s).unwrap()).collect();
    let again = |block: usize, param: usize| {
        let (offset, spec) = specs[block].offsets().nth(param).unwrap();
        loaded[block][offset..offset + spec.num_elements()].to_vec()
    };
    let second = folder.path().join("second");
    let source = ExportSource::Checkpoint(&checkpoint);
    export(source, &config, &again, &second, &ExportOptions::default()).unwrap();
    let (a, b) = (hashes(&first), hashes(&second));
    assert_eq!(a, b);
    assert_ne!(a["lm_head.weight"].2, a["model.embed_tokens.weight"].2);
}

#[test]
fn a_fresh_export_is_what_other_tools_expect() {
    let mut json = config("qwen3_5_text");
    json["a_new_key"] = json!([1.5]);
    let config = QwenConfig::from_json(json, "test").unwrap();
    let folder = tempdir().unwrap();
    let companions = folder.path().join("tokenizer");
    std::fs::create_dir(&companions).unwrap();
    for name in ["tokenizer.json", "chat_template.jinja", "notes.txt"] {
        std::fs::write(companions.join(name), name).unwrap();
    }
    let target = folder.path().join("deep/export");
    let options = ExportOptions { companions: Some(companions), ..ExportOptions::default() };
    export(ExportSource::Fresh, &config, &trained(&config, 1), &target, &options).unwrap();
    let mut files: Vec<String> = std::fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(
        files,
        ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]
    );
    let file = TensorFile::open(&target.join("model.safetensors")).unwrap();
    assert_eq!(file.metadata["format"], "pt");
    assert!(file.tensors.contains_key("model.layers.0.linear_attn.A_log"));
    assert_eq!(file.tensors["model.layers.0.linear_attn.conv1d.weight"].shape, [20, 1, 4]);
    let written = read_json(&target.join("config.json"));
    assert_eq!(written["architectures"], json!(["Qwen3_5ForCausalLM"]));
    assert_eq!(written["dtype"], "float32");
    assert_eq!(written["a_new_key"], json!([1.5]));
}

#[test]
fn nothing_is_overwritten_unless_forced() {
    let tiny = Tiny::new(config("qwen2"), "model.");
    let config = tiny.parsed();
    let folder = tempdir().unwrap();
    let target = folder.path().join("export");
    std::fs::create_dir(&target).unwrap();
    let values = trained(&config, 1);
    // An empty folder is no loss.
    export(ExportSource::Fresh, &config, &values, &target, &ExportOptions::default()).unwrap();
    std::fs::write(target.join("mine.txt"), "mine").unwrap();
    let error = export(ExportSource::Fresh, &config, &values, &target, &ExportOptions::default());
    assert_says(&error.unwrap_err().to_string(), &["export", "not empty", "--force"]);
    assert!(target.join("mine.txt").exists());
    let options = ExportOptions { force: true, ..ExportOptions::default() };
    export(ExportSource::Fresh, &config, &values, &target, &options).unwrap();
    assert!(!target.join("mine.txt").exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn companions_fall_back_to_the_source() {
    let tiny = Tiny::new(config("qwen2"), "model.");
    let folder = tempdir().unwrap();
    let source = folder.path().join("source");
    tiny.write(&source);
    std::fs::write(source.join("generation_config.json"), "{}").unwrap();
    std::fs::write(source.join("tokenizer.json"), "old").unwrap();
    let companions = folder.path().join("tokenizer");
    std::fs::create_dir(&companions).unwrap();
    std::fs::write(companions.join("tokenizer.json"), "new").unwrap();
    let config = tiny.parsed();
    let checkpoint = Checkpoint::open(&source, &config).unwrap();
    let target = folder.path().join("export");
    let options = ExportOptions { companions: Some(companions), ..ExportOptions::default() };
    let source = ExportSource::Checkpoint(&checkpoint);
    export(source, &config, &trained(&config, 1), &target, &options).unwrap();
    assert_eq!(std::fs::read_to_string(target.join("tokenizer.json")).unwrap(), "new");
    assert!(target.join("generation_config.json").exists());
    let written: Value = read_json(&target.join("config.json"));
    assert_eq!(written, tiny.config);
}
