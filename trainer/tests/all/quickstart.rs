//! The embedded default starts in an empty folder, without a network, and can be stopped.

use crate::{
    kit::{Bench, assert_says, metrics},
    tiny,
};

#[test]
fn quickstart_runs_resumes_and_answers() {
    let bench = Bench::new("qwen2");
    let train = "train quickstart --output run --set checkpoint.every_steps=1";
    let (text, stderr) = bench.ends(&format!("{train} --max-steps 1"), 0);
    assert_says(&stderr, &["qwen3_5_text", "random (seed 0)", "kernels", "step 1/1"]);
    assert_says(&text, &["held-out questions answered exactly right", "next:", "burn-qwen chat"]);
    assert_says(&bench.refuses(&format!("{train} --max-steps 2")), &["--output run", "--resume"]);
    bench.succeeds(&format!("{train} --max-steps 2 --resume auto --set eval.samples=5"));
    let summary = tiny::read_json(&bench.path("run/summary.json"));
    assert_eq!(summary["steps"], 2);
    assert!(summary["exact_match"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)));
    let steps = metrics(&bench.path("run")).iter().filter(|line| line.contains("\"lr\"")).count();
    assert_eq!(steps, 2);
    let answer = "generate --model run/export --max-new-tokens 3 --json --prompt Hello";
    assert_says(&bench.succeeds(answer), &["\"tokens\""]);
}

/// Nothing may be written before the settings are known to be right.
#[test]
fn a_quickstart_that_cannot_start_leaves_nothing() {
    let bench = Bench::new("qwen2");
    bench.refuses("train quickstart --output run --set train.lr=-1");
    bench.refuses("train quickstart --output model");
    for left in ["run", "run-files", "model-files"] {
        assert!(!bench.path(left).exists(), "{left}");
    }
}
