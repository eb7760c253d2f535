//! A run that was stopped and resumed is the run that never stopped.

use std::path::{Path, PathBuf};

use crate::{
    kit::{Bench, assert_same_run, assert_says, copy_folder, metrics},
    tiny,
};

/// Three passes, rows of several documents, steps of several rows, evaluations, dropped targets.
const RUN: &str = "train --model model --data chats.jsonl --set train.epochs=3 \
    --set train.lr=1e-3 --set train.warmup_steps=2 --set train.gradient_accumulation=2 \
    --set data.max_tokens=256 --set data.eval=chats.jsonl --set eval.every_steps=4 \
    --set checkpoint.every_steps=1 --set checkpoint.keep=0";

fn step_folder(run: &Path, step: u64) -> PathBuf {
    run.join(format!("checkpoints/step-{step:08}"))
}

/// Steps whose checkpoints a run folder has.
fn steps(run: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(run.join("checkpoints")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut steps: Vec<u64> =
        names.map(|name| name.strip_prefix("step-").unwrap().parse().unwrap()).collect();
    steps.sort_unstable();
    steps
}

/// A copy of a finished run as it was right after a step's checkpoint, two steps of metrics ahead.
fn stopped_after(bench: &Bench, step: u64) -> PathBuf {
    let run = bench.path(&format!("stopped-{step}"));
    copy_folder(&bench.path("whole"), &run);
    for later in steps(&run).into_iter().filter(|&s| s > step) {
        std::fs::remove_dir_all(step_folder(&run, later)).unwrap();
    }
    std::fs::remove_dir_all(run.join("export")).unwrap();
    std::fs::remove_file(run.join("summary.json")).unwrap();
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let kept = metrics(&run).iter().take_while(|line| step_of(line) <= step + 2).count();
    let mut lines: Vec<&str> = text.lines().take(kept).collect();
    // A crash cuts the last line.
    lines.push("{\"step\": 99, \"lo");
    std::fs::write(run.join("metrics.jsonl"), lines.join("\n")).unwrap();
    run
}

fn step_of(line: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(line).unwrap()["step"].as_u64().unwrap()
}

#[test]
fn resumed_anywhere_equals_never_stopped() {
    for family in tiny::FAMILIES {
        let bench = Bench::new(family);
        bench.succeeds(&format!("{RUN} --output whole"));
        let whole = bench.path("whole");
        let all = steps(&whole);
        let epochs: Vec<u64> = metrics(&whole)
            .iter()
            .filter_map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["epoch"].as_u64()
            })
            .collect();
        assert_eq!(epochs.last(), Some(&2), "{epochs:?}");
        assert!(all.len() >= 9, "{all:?}");
        let in_second_epoch = epochs.iter().position(|&e| e == 1).unwrap() as u64 + 2;
        // The hybrid stands for the others at the ends.
        let stops = match family {
            "qwen3_5_text" => vec![1, in_second_epoch, all.len() as u64 - 1],
            _ => vec![in_second_epoch],
        };
        for step in stops {
            let run = stopped_after(&bench, step);
            let name = run.file_name().unwrap().to_str().unwrap();
            let (_, stderr) = bench.ends(&format!("{RUN} --output {name} --resume auto"), 0);
            assert_says(&stderr, &[&format!("resumed after step {step}")]);
            assert_same_run(&whole, &run);
            assert_eq!(steps(&run), all);
        }
    }
}

#[test]
fn going_back_to_an_earlier_step_repeats_its_work() {
    let bench = Bench::new("qwen3");
    bench.succeeds(&format!("{RUN} --output whole"));
    copy_folder(&bench.path("whole"), &bench.path("back"));
    bench.succeeds(&format!("{RUN} --output back --resume 3"));
    assert_same_run(&bench.path("whole"), &bench.path("back"));
}

#[test]
fn auto_passes_over_what_is_damaged_and_says_so() {
    let bench = Bench::new("qwen3");
    bench.succeeds(&format!("{RUN} --output whole"));
    let run = stopped_after(&bench, 6);
    // Every kind of damage that a crash or a disk leaves.
    std::fs::rename(step_folder(&run, 6), run.join("checkpoints/step-00000006.partial")).unwrap();
    std::fs::remove_file(step_folder(&run, 5).join("COMPLETE")).unwrap();
    let shard = step_folder(&run, 4).join("block-00001.safetensors");
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    let manifest = step_folder(&run, 3).join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replacen("\"num_rows\": ", "\"num_rows\": 1", 1)).unwrap();

    let asked = bench.refuses(&format!("{RUN} --output stopped-6 --resume 4"));
    assert_says(&asked, &["step-00000004", "block-00001.safetensors", "damaged"]);
    let (_, stderr) = bench.ends(&format!("{RUN} --output stopped-6 --resume auto"), 0);
    let passed = ["step-00000006.partial", "step-00000005", "step-00000004", "step-00000003"];
    assert_says(&stderr, &passed);
    assert_says(&stderr, &["passed over", "resumed after step 2"]);
    assert_same_run(&bench.path("whole"), &run);
    assert!(!run.join("checkpoints/step-00000006.partial").exists());
    // A crash after the last checkpoint but before the export: only the export is missing.
    std::fs::remove_dir_all(run.join("export")).unwrap();
    bench.succeeds(&format!("{RUN} --output stopped-6 --resume auto"));
    assert_same_run(&bench.path("whole"), &run);
}

#[test]
fn a_step_that_does_not_exist_is_no_fresh_start() {
    let bench = Bench::new("qwen3");
    bench.succeeds(&format!("{RUN} --output whole --set checkpoint.keep=2"));
    let left = steps(&bench.path("whole"));
    assert_eq!(left.len(), 2);
    let before = metrics(&bench.path("whole"));
    let message = bench.refuses(&format!("{RUN} --output whole --resume 500"));
    assert_says(&message, &["--resume 500", &format!("{}, {}", left[0], left[1])]);
    assert_eq!(metrics(&bench.path("whole")), before);
    let message = bench.refuses(&format!("{RUN} --output nowhere --resume 1"));
    assert_says(&message, &["--resume 1", "none"]);
    let message = bench.refuses(&format!("{RUN} --output whole --resume soon"));
    assert_says(&message, &["--resume soon", "auto", "never", "step"]);
}

#[test]
fn a_changed_setting_is_named_with_both_values() {
    let bench = Bench::new("qwen3");
    bench.succeeds(&format!("{RUN} --output whole"));
    for (setting, parts) in [
        ("train.lr=2e-3", ["train.lr", "0.002", "0.001"]),
        ("data.seed=7", ["data.seed", "7", "0"]),
        ("train.gradient_accumulation=3", ["train.gradient_accumulation", "3", "2"]),
        ("kernels.attention=reference", ["kernels.attention", "reference", "absent"]),
    ] {
        let again = format!("{RUN} --output whole --resume 3 --set {setting}");
        assert_says(&bench.refuses(&again), &parts);
    }
    // Other data under the same name.
    tiny::write_chats(&bench.path("chats.jsonl"), 30);
    let message = bench.refuses(&format!("{RUN} --output whole --resume 3"));
    assert_says(&message, &["data files", "new run"]);
    // What does not change the result may change.
    tiny::write_chats(&bench.path("chats.jsonl"), 24);
    let harmless = "--set engine.recompute=none --set data.workers=1 --set log.every_steps=1";
    let before = metrics(&bench.path("whole"));
    bench.succeeds(&format!("{RUN} --output whole --resume 3 {harmless}"));
    assert_eq!(metrics(&bench.path("whole")), before);
}

#[test]
fn a_folder_that_exists_is_not_overwritten() {
    let bench = Bench::new("qwen2");
    let run = "train --model model --data chats.jsonl --max-steps 1 --output run";
    bench.succeeds(run);
    let before = metrics(&bench.path("run"));
    assert_says(&bench.refuses(run), &["--output run", "exists", "--resume", "--force"]);
    assert_eq!(metrics(&bench.path("run")), before);
    bench.succeeds(&format!("{run} --force --set train.lr=1e-3"));
    assert_ne!(metrics(&bench.path("run")), before);
    // Not a run's folder: --force must not remove it.
    let foreign = "train --model model --data chats.jsonl --max-steps 1 --output model --force";
    assert_says(&bench.refuses(foreign), &["--output model", "another folder"]);
    assert!(bench.path("model/config.json").exists());
    let file = "train --model model --data chats.jsonl --output chats.jsonl --force";
    assert_says(&bench.refuses(file), &["--output chats.jsonl", "is a file"]);
}

/// An error after the run's folder was accepted must not destroy the run that --force replaces.
#[test]
fn force_removes_nothing_if_the_new_run_cannot_start() {
    let bench = Bench::new("qwen2");
    let run = "train --model model --data chats.jsonl --max-steps 1 --output run";
    bench.succeeds(run);
    bench.refuses(&format!("{run} --force --set kernels.attention=magic"));
    bench.refuses("train --model model --data nothing.jsonl --output run --force");
    let from_itself = "train --model run/export --data chats.jsonl --output run --force";
    assert_says(&bench.refuses(from_itself), &["--force", "run/export", "another --output"]);
    assert!(bench.path("run/export/model.safetensors").exists());
}
