//! Data files that are wrong, through the program: refused by file and line, or skipped and
//! counted.

use serde_json::Value;

use crate::kit::{Bench, assert_says};

const GOOD: &str =
    r#"{"messages":[{"role":"user","content":"Hi?"},{"role":"assistant","content":"Hello."}]}"#;
const STATS: &str = "data stats --model model --data bad.jsonl";
const TRAIN: &str = "train --model model --data bad.jsonl --output run";

fn bench(text: &str) -> Bench {
    let bench = Bench::new("qwen2");
    bench.write("bad.jsonl", text);
    bench
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let bench = bench(text);
    assert_says(&bench.refuses(STATS), parts);
    assert_says(&bench.refuses(TRAIN), parts);
    assert_says(&bench.refuses("eval --model model --data bad.jsonl"), parts);
    assert!(!bench.path("run").exists(), "nothing is left behind");
}

fn stats(bench: &Bench, more: &str) -> Value {
    serde_json::from_str(&bench.succeeds(&format!("{STATS} --json {more}"))).unwrap()
}

#[test]
fn half_a_line_is_refused_by_line() {
    refused(&format!("{GOOD}\n{GOOD}\n{{\"messages\":[{{\"role\":\"us"), &["bad.jsonl:3"]);
    refused(&format!("{GOOD}\n]\n"), &["bad.jsonl:2"]);
    refused(&format!("{GOOD}\n{{\"messages\":\"hello\"}}\n"), &["bad.jsonl:2", "messages"]);
    refused(&format!("{GOOD}\n{{\"text\":5,\"messages\":7}}\n"), &["bad.jsonl:2"]);
}

#[test]
fn an_empty_file_is_refused() {
    refused("", &["bad.jsonl"]);
    refused("\n\n  \n", &["bad.jsonl"]);
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let bench = Bench::new("qwen2");
    std::fs::write(bench.path("bad.jsonl"), [b'{', 0xff, 0xfe, b'\n']).unwrap();
    assert_says(&bench.refuses(STATS), &["bad.jsonl"]);
    std::fs::write(bench.path("bad.parquet"), b"PAR1 not really").unwrap();
    assert_says(&bench.refuses("data stats --model model --data bad.parquet"), &["bad.parquet"]);
}

#[test]
fn samples_that_cannot_be_trained_on_are_counted() {
    let no_answer = r#"{"messages":[{"role":"user","content":"Hi?"}]}"#;
    let null =
        r#"{"messages":[{"role":"user","content":"Hi?"},{"role":"assistant","content":null}]}"#;
    let bench = bench(&format!("{GOOD}\n{no_answer}\n{null}\n{GOOD}\n"));
    let report = stats(&bench, "");
    assert_eq!(report["num_documents"], 2, "{report}");
    let text = report.to_string();
    assert_says(&text, &["bad.jsonl:2", "bad.jsonl:3"]);
    // And the run goes on with the rest, saying so.
    let (_, stderr) = bench.ends(TRAIN, 0);
    assert_says(&stderr, &["left out", "bad.jsonl:2"]);
}

#[test]
fn nothing_left_to_train_on_is_an_error() {
    let no_answer = r#"{"messages":[{"role":"user","content":"Hi?"}]}"#;
    let bench = bench(&format!("{no_answer}\n{no_answer}\n"));
    assert_says(&bench.refuses(TRAIN), &["data.train", "2 samples", "bad.jsonl:1"]);
    assert_says(&bench.refuses("eval --model model --data bad.jsonl"), &["bad.jsonl"]);
    assert!(!bench.path("run").exists(), "nothing is left behind");
    // An evaluation set without a target is found before the first step, not after the last.
    let late = "train --model model --data chats.jsonl --set data.eval=bad.jsonl --output run";
    assert_says(&bench.refuses(late), &["data.eval"]);
}

#[test]
fn a_trailing_user_turn_carries_no_loss() {
    let asks_again = r#"{"messages":[{"role":"user","content":"Hi?"},{"role":"assistant","content":"Hello."},{"role":"user","content":"And?"}]}"#;
    let with = stats(&bench(&format!("{GOOD}\n{asks_again}\n")), "");
    let without = stats(&bench(&format!("{GOOD}\n{GOOD}\n")), "");
    assert_eq!(with["num_trained"], without["num_trained"], "{with}");
}

#[test]
fn long_samples_follow_the_policy() {
    let long = GOOD.replace("Hello.", &"word ".repeat(60));
    let bench = bench(&format!("{GOOD}\n{long}\n"));
    let limit = "--set data.max_tokens=64 --set data.long_samples=";
    let by = |policy: &str| stats(&bench, &format!("{limit}{policy}"));
    let (drop, cut, split) = (by("drop"), by("cut"), by("split"));
    assert_eq!(drop["long"]["samples_dropped"], 1, "{drop}");
    assert_eq!(drop["num_documents"], 1);
    assert_eq!(cut["num_documents"], 2, "{cut}");
    assert!(cut["long"]["tokens_lost"].as_u64().unwrap() > 200, "{cut}");
    assert_eq!(split["long"]["tokens_lost"], 0, "{split}");
    assert!(split["num_documents"].as_u64().unwrap() >= 6, "{split}");
    // A prompt that fills the row leaves no answer to learn.
    let prompt = GOOD.replace("Hi?", &"word ".repeat(60));
    bench.write("bad.jsonl", &format!("{GOOD}\n{prompt}\n"));
    assert_eq!(by("drop")["num_documents"], 1);
    assert_eq!(by("cut")["num_documents"], 1, "{}", by("cut"));
    // All of them longer than a row.
    bench.write("bad.jsonl", &format!("{long}\n{long}\n"));
    let message = bench.refuses(&format!("{TRAIN} --set data.max_tokens=64"));
    assert_says(&message, &["data.train", "2 samples", "longer than 64 tokens"]);
}
