//! Situations that are neither bad input nor the usual one.

use burn_qwen_trainer::settings;
use serde_json::{Value, json};

use crate::{
    kit::{Bench, assert_same_run, assert_says, copy_folder, metrics},
    tiny,
};

const TRAIN: &str = "train --model model --data chats.jsonl --output run --set data.max_tokens=64";

/// A prompt that fills several rows: its pieces are read, and nothing is learnt from them.
#[test]
fn steps_without_a_target_are_reported_and_resumed() {
    let bench = Bench::new("qwen3_5_text");
    let chat = |question: &str| {
        let messages = json!([{"role": "user", "content": question},
                              {"role": "assistant", "content": "Yes."}]);
        json!({ "messages": messages }).to_string() + "\n"
    };
    bench.write("chats.jsonl", &(chat(&"word ".repeat(60)) + &chat("Why?") + &chat("How?")));
    let train = TRAIN.replace("--output run", "--set data.long_samples=split");
    let train = format!(
        "{train} --set train.epochs=2 --set train.lr=1e-2 \
                         --set checkpoint.every_steps=1 --set checkpoint.keep=0"
    );
    let (_, stderr) = bench.ends(&format!("{train} --output run"), 0);
    assert_says(&stderr, &["has no trained token: nothing changes"]);
    let lines = metrics(&bench.path("run"));
    let records: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let silent = records.iter().filter(|record| record["loss"].is_null()).count();
    assert!(silent >= 4 && silent < records.len(), "{lines:?}");
    for step in 1..records.len() {
        let name = format!("run-{step}");
        copy_folder(&bench.path("run"), &bench.path(&name));
        bench.succeeds(&format!("{train} --output {name} --resume {step}"));
        assert_same_run(&bench.path("run"), &bench.path(&name));
    }
}

#[test]
fn a_run_that_diverges_stops_and_saves_no_broken_model() {
    let bench = Bench::new("qwen3");
    let diverging = format!("{TRAIN} --max-steps 9 --set train.lr=1e30");
    let message = bench.refuses(&format!("{diverging} --set checkpoint.every_steps=4"));
    assert_says(&message, &["step 2", "train.lr"]);
    // The last update is seen by no later loss.
    let message = bench.refuses(&format!("{TRAIN} --force --max-steps 1 --set train.lr=1e40"));
    assert_says(&message, &["step 1", "parameter", "nothing was saved"]);
    assert!(!bench.path("run/checkpoints").exists());
    assert!(!bench.path("run/export").exists());
}

#[test]
fn an_exam_that_cannot_be_held_is_no_surprise_at_the_end() {
    let bench = Bench::new("qwen2");
    let message = bench.refuses(&format!("{TRAIN} --max-steps 1 --set exam.data=nosuch.jsonl"));
    assert_says(&message, &["nosuch.jsonl"]);
    assert!(!bench.path("run").exists());
    bench.succeeds(&format!("{TRAIN} --max-steps 1 --set exam.data=chats.jsonl"));
    let summary = tiny::read_json(&bench.path("run/summary.json"));
    assert_eq!(summary["exact_match"], 0.0);
}

#[test]
fn a_longer_run_goes_on_and_says_so() {
    let bench = Bench::new("qwen2");
    bench.succeeds(&format!("{TRAIN} --set train.epochs=1"));
    let first = metrics(&bench.path("run"));
    let (_, stderr) = bench.ends(&format!("{TRAIN} --set train.epochs=2 --resume auto"), 0);
    assert_says(&stderr, &["train.epochs is 2, it was 1", "schedule"]);
    let both = metrics(&bench.path("run"));
    assert!(both.len() > first.len());
    assert_eq!(both[..first.len()], first);
}

#[test]
fn a_checkpoint_is_exported_from_anywhere() {
    let bench = Bench::new("qwen3");
    bench.succeeds(&format!("{TRAIN} --max-steps 1"));
    let other = tempfile::tempdir().unwrap();
    let checkpoint = bench.path("run/checkpoints/step-00000001");
    let args = format!("export {} out", checkpoint.display());
    bench.command(&args).current_dir(other.path()).assert().success();
    assert!(other.path().join("out/model.safetensors").exists());
}

#[test]
fn a_tokenizer_of_another_model_is_refused_everywhere() {
    let mut config = tiny::config("qwen3");
    config["vocab_size"] = json!(100);
    let bench = Bench::with_config(&config);
    for command in [
        "train --output run --data chats.jsonl",
        "eval --data chats.jsonl",
        "generate --prompt hi",
        "chat",
    ] {
        let message = bench.refuses(&format!("{command} --model model"));
        assert_says(&message, &["259", "100", "vocab_size"]);
    }
}

#[test]
fn an_output_without_a_name_is_refused() {
    let bench = Bench::new("qwen2");
    let mut command = bench.command("train --model model --data chats.jsonl --output");
    let output = command.arg("").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--output"));
    assert!(!bench.path("config.toml").exists());
    assert_says(
        &bench.refuses("train --model model --data chats.jsonl --output ."),
        &["--output ."],
    );
}

#[test]
fn odd_prompts() {
    let bench = Bench::new("qwen3_5_text");
    let generate = |prompt: &str, more: &str| {
        let mut command = bench.command(&format!("generate --model model --json {more}"));
        let output = command.args(["--prompt", prompt]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("bug in burn-qwen"), "{stderr}");
        (output.status.code().unwrap(), stderr)
    };
    assert_eq!(generate("", "--max-new-tokens 2").0, 0);
    assert_eq!(generate("<|im_end|>", "--max-new-tokens 2").0, 0);
    assert_eq!(generate(&"long ".repeat(500), "--max-new-tokens 1").0, 0);
    assert_eq!(generate("hi", "--max-new-tokens 0").0, 0);
    assert_eq!(generate("hi", "--max-new-tokens 2 --top-k 1000000 --temperature 1e-9").0, 0);
    let (code, stderr) = generate("", "--raw");
    assert_eq!(code, 2);
    assert_says(&stderr, &["--prompt is empty"]);
}

/// Every setting with values at the edge of its type: a run or one message, never a panic.
#[test]
fn settings_at_the_edge_of_their_type() {
    let bench = Bench::new("qwen3_5_text");
    let most = i64::MAX.to_string();
    let endless = ["data.workers", "train.steps", "train.gradient_accumulation"];
    let mut runs = 0;
    for key in settings::all_keys().iter().filter(|key| !key.starts_with("kernels.")) {
        for value in ["", "-1", "0", "1", &most, "1e300", "nan", "[]", "\"\"\"", "/dev/null"] {
            if value == most && endless.contains(&key.as_str()) {
                continue;
            }
            let mut command = bench.command("train --model model --data chats.jsonl");
            let setting = format!("--set={key}={value}");
            let more = ["--output=run", "--force", "--set=data.max_tokens=96", &setting];
            let steps =
                if key.starts_with("train.") { "--set=train.epochs=1" } else { "--max-steps=1" };
            let output = command.args(more).arg(steps).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 2)), "{setting}: {code:?} {stderr}");
            assert_eq!(stderr.contains("error: "), code == Some(2), "{setting}: {stderr}");
            runs += 1;
        }
    }
    assert!(runs > 300, "{runs}");
}

#[test]
fn a_model_that_cannot_fit_is_refused_before_memory_runs_out() {
    let mut config = tiny::config("qwen3");
    let bench = Bench::with_config(&config);
    config["vocab_size"] = json!(1u64 << 40);
    tiny::write_json(&bench.path("model/config.json"), &config);
    let message = bench.refuses(&format!("{TRAIN} --max-steps 1 --set model.init=random"));
    assert_says(&message, &["GiB", "parameters"]);
}
