//! Every command: its help, its output, its files.

use std::path::Path;

use insta::assert_snapshot;
use safetensors::SafeTensors;
use serde_json::Value;

use crate::{
    kit::{Bench, assert_says},
    tiny,
};

#[test]
fn help() {
    let bench = Bench::new("qwen2");
    for command in [
        "",
        "train",
        "recipes",
        "eval",
        "generate",
        "chat",
        "data",
        "data show",
        "data stats",
        "data pack",
        "parity",
        "export",
        "devices",
        "kernels",
        "kernels list",
        "kernels verify",
    ] {
        let text = bench.succeeds(&format!("{command} --help"));
        let name = format!("help {command}").trim().replace(' ', "_");
        assert_snapshot!(name, text);
        let is_group = matches!(command, "data" | "kernels");
        assert!(is_group || text.contains("Example") || command.is_empty(), "{command}");
    }
    assert_snapshot!("recipes", bench.succeeds("recipes"));
}

#[test]
fn kernels_are_verified() {
    let bench = Bench::new("qwen2");
    let report = json(&bench.succeeds("kernels verify --op swiglu --json"));
    let comparisons = report["comparisons"].as_array().unwrap();
    for name in ["flex", "reference"] {
        let of = comparisons.iter().filter(|c| c["implementation"] == name);
        // Ten lengths, three tensors.
        assert_eq!(of.count(), 30, "{name}");
    }
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/tests/goldens");
    let file = goldens.join("rope_partial.safetensors");
    let text = bench.succeeds(&format!("kernels verify --golden {}", file.display()));
    assert_says(&text, &["rope_partial", "flex", "reference"]);

    assert_says(&bench.refuses("kernels verify --op swigluu"), &["no such op", "swiglu"]);
    let unknown = "kernels verify --op swiglu --implementation fast";
    assert_says(&bench.refuses(unknown), &["no such implementation of swiglu"]);
    assert_says(&bench.refuses("kernels verify --golden nowhere"), &["nowhere"]);
}

#[test]
fn kernels_and_devices() {
    let bench = Bench::new("qwen3_5_text");
    let list = json(&bench.succeeds("kernels list --model model --json"));
    let list = list.as_array().unwrap();
    for op in burn_qwen_kernels::registry::OPS {
        let of_op: Vec<&Value> = list.iter().filter(|entry| entry["op"] == *op).collect();
        let has = |name: &str| of_op.iter().any(|entry| entry["implementation"] == name);
        assert!(has("reference"), "{op}");
        assert_eq!(of_op.iter().filter(|entry| entry["chosen"] == true).count(), 1, "{op}");
    }
    let text = bench.succeeds("kernels list --set kernels.attention=reference");
    assert_says(&text, &["attention", "reference", "gated_delta_rule"]);

    let devices = json(&bench.succeeds("devices --json"));
    assert!(devices[0]["matmul_f32_gflops"].as_f64().unwrap() > 0.0);
    assert!(devices[0]["copy_gb_per_second"].as_f64().unwrap() > 0.0);
    assert_says(&bench.succeeds("devices"), &["GFLOP/s", "GB/s"]);
}

#[test]
fn data_commands() {
    let bench = Bench::new("qwen3");
    let args = "--model model --data chats.jsonl --set data.max_tokens=128";
    assert_snapshot!("data_show", bench.succeeds(&format!("data show {args} --samples 2")));
    assert_snapshot!("data_stats", bench.succeeds(&format!("data stats {args}")));
    let shown = json(&bench.succeeds(&format!("data show {args} --samples 2 --json")));
    assert_eq!(shown.as_array().unwrap().len(), 2);
    assert_eq!(shown[0]["place"], "chats.jsonl:1");

    let pack = format!("data pack {args} --output rows.safetensors");
    let report = json(&bench.succeeds(&format!("{pack} --json")));
    let bytes = std::fs::read(bench.path("rows.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let rows = report["num_rows"].as_u64().unwrap();
    assert_eq!(file.len() as u64, 4 * rows);
    let tokens: usize = (0..rows)
        .map(|row| file.tensor(&format!("row{row:05}.input_ids")).unwrap().shape()[0])
        .sum();
    assert_eq!(report["num_tokens"], tokens);
    assert_says(&bench.refuses(&pack), &["rows.safetensors", "--force"]);
    bench.succeeds(&format!("{pack} --force"));
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A checkpoint goes in, files that other commands read come out.
#[test]
fn train_eval_generate_export() {
    for (family, tied) in [("qwen2", true), ("qwen3", false), ("qwen3_5_text", true)] {
        let mut config = tiny::config(family);
        config["tie_word_embeddings"] = tied.into();
        let bench = Bench::with_config(&config);
        let train = "train --model model --data chats.jsonl --set data.eval=chats.jsonl \
                     --set train.epochs=4 --set train.lr=3e-3 --set data.max_tokens=256 \
                     --output run --json";
        let summary = json(&bench.succeeds(train));
        assert_eq!(summary, tiny::read_json(&bench.path("run/summary.json")));
        let (first, last) = (&summary["initial_eval_loss"], &summary["eval_loss"]);
        assert!(last.as_f64().unwrap() < 0.8 * first.as_f64().unwrap(), "{family}: {summary}");
        for file in ["config.toml", "kernels.json", "data-report.json", "metrics.jsonl"] {
            assert!(bench.path("run").join(file).exists(), "{file}");
        }

        // The export is the trained model: the same loss, in a folder that tells what it is.
        let eval = "eval --model run/export --data chats.jsonl --json --set data.max_tokens=";
        let loss =
            |max_tokens| json(&bench.succeeds(&format!("{eval}{max_tokens}")))["loss"].clone();
        assert_eq!(loss(256), *last, "{family}");
        let alone = loss(128).as_f64().unwrap();
        assert!((alone - last.as_f64().unwrap()).abs() < 1e-5, "{family}: {alone} is not {last}");
        let loose = format!("{eval}256 --set data.packing=false");
        let loose = json(&bench.succeeds(&loose))["loss"].as_f64().unwrap();
        assert!((loose - alone).abs() < 1e-5, "{family}: {loose} is not {alone}");
        let exported = tiny::read_tensors(&bench.path("run/export/model.safetensors"));
        let source = tiny::read_tensors(&bench.path("model/model.safetensors"));
        assert_eq!(exported.contains_key("lm_head.weight"), !tied);
        assert_eq!(exported.keys().collect::<Vec<_>>(), source.keys().collect::<Vec<_>>());
        for (name, (shape, values)) in &exported {
            assert_eq!(*shape, source[name].0, "{name}");
            assert!(*values != source[name].1, "{family}: {name} is as before");
        }
        for file in ["tokenizer.json", "tokenizer_config.json", "config.json"] {
            assert!(bench.path("run/export").join(file).exists(), "{file}");
        }
        let rest = |folder: &str| tiny::read_json(&bench.path(folder).join("config.json"));
        assert_eq!(rest("run/export")["model_type"], rest("model")["model_type"]);

        // `export` of the last checkpoint writes the same.
        let steps = summary["steps"].as_u64().unwrap();
        let export = format!("export run/checkpoints/step-{steps:08} again");
        bench.succeeds(&export);
        let bytes = |path: &str| std::fs::read(bench.path(path)).unwrap();
        assert!(bytes("again/model.safetensors") == bytes("run/export/model.safetensors"));
        assert_says(&bench.refuses(&export), &["again", "--force"]);
        bench.succeeds(&format!("{export} --force --dtype bf16"));
        assert!(
            bytes("again/model.safetensors").len() < bytes("run/export/model.safetensors").len()
        );
        bench.succeeds("eval --model again --data chats.jsonl");

        generates(&bench);
    }
}

fn generates(bench: &Bench) {
    let generate = |more: &str| {
        let args = "generate --model run/export --max-new-tokens 12 --json --prompt Question";
        json(&bench.succeeds(&format!("{args} {more}")))
    };
    assert_eq!(generate(""), generate(""));
    let drawn = "--temperature 2.0 --top-k 50 --top-p 0.95";
    assert_eq!(generate(&format!("{drawn} --seed 4")), generate(&format!("{drawn} --seed 4")));
    assert_ne!(generate(&format!("{drawn} --seed 4")), generate(&format!("{drawn} --seed 5")));
    let mut chat = bench.command("chat --model run/export --max-new-tokens 5");
    let output = chat.write_stdin("Question?\nAnother?\n").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_model_starts_from_random_weights_without_a_checkpoint() {
    let bench = Bench::new("qwen3_5_text");
    std::fs::remove_file(bench.path("model/model.safetensors")).unwrap();
    let train = "train --model model --data chats.jsonl --output run --max-steps 2 \
                 --set model.init=random";
    let text = bench.succeeds(train);
    assert_says(&text, &["2 steps", "model: run/export", "burn-qwen chat --model run/export"]);
    bench.succeeds("eval --model run/export --data chats.jsonl");
    bench.succeeds("export run/checkpoints/step-00000002 again");
    // The resolved settings are a configuration file.
    bench.succeeds("train --config run/config.toml --output second");
    let same = |name: &str| {
        let bytes = |run: &str| std::fs::read(bench.path(run).join(name)).unwrap();
        bytes("run") == bytes("second")
    };
    assert!(same("export/model.safetensors") && same("config.toml"));
}

/// The first screen tells what was resolved.
#[test]
fn first_screen() {
    let bench = Bench::new("qwen3_5_text");
    let train = "train --model model --data chats.jsonl --output run --max-steps 1 \
                 --set data.max_tokens=256";
    let (_, stderr) = bench.ends(train, 0);
    let screen = stderr.split("kernels\n").next().unwrap();
    insta::with_settings!({filters => vec![(r"\d+ threads", "[N] threads")]}, {
        assert_snapshot!("first_screen", bench.stable(screen));
    });
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let bench = Bench::new("qwen2");
    let pipe = format!("{} recipes full | head -n 1", crate::kit::PROGRAM);
    let output = std::process::Command::new("sh")
        .args(["-c", &pipe])
        .current_dir(Path::new(&bench.path("")))
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
