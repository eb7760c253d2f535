//! Samples longer than a row: left out, cut or split, and counted.

use burn_qwen_data::{Batch, DataConfig, DataReport, config::LongSamples};
use serde_json::Value;

use crate::kit::{assistant, loader, user, write};

fn run(
    conversations: &[Vec<Value>],
    max_tokens: usize,
    policy: LongSamples,
) -> (Vec<Batch>, DataReport) {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "a.jsonl", conversations);
    let config = DataConfig { max_tokens, long_samples: policy, ..DataConfig::default() };
    loader(&[file], config).eval_rows().unwrap()
}

/// Ten documents of about 3,000 tokens.
fn long_documents() -> Vec<Vec<Value>> {
    (0..10)
        .map(|i| vec![user(&format!("Say it {i}.")), assistant(&"yes and ".repeat(1500))])
        .collect()
}

#[test]
fn each_policy_counts_what_it_keeps_and_loses() {
    let (all, _) = run(&long_documents(), 1 << 20, LongSamples::Drop);
    let total: u64 = all.iter().map(|row| row.num_tokens() as u64).sum();
    assert!(total > 25_000, "{total} tokens");

    let (rows, report) = run(&long_documents(), 1024, LongSamples::Drop);
    assert!(rows.is_empty());
    let long = &report.long;
    assert_eq!((long.samples, long.samples_dropped), (10, 10));
    assert_eq!((long.tokens_kept, long.tokens_lost), (0, total));
    assert!(long.dropped_places[0].ends_with("a.jsonl:1"), "{:?}", long.dropped_places);

    let (rows, report) = run(&long_documents(), 1024, LongSamples::Cut);
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row.num_tokens() == 1024));
    let long = &report.long;
    assert_eq!((long.samples, long.samples_dropped), (10, 0));
    assert_eq!((long.tokens_kept, long.tokens_lost), (10_240, total - 10_240));

    let (rows, report) = run(&long_documents(), 1024, LongSamples::Split);
    let long = &report.long;
    assert_eq!((long.samples, long.samples_dropped), (10, 0));
    assert_eq!((long.tokens_kept, long.tokens_lost), (total, 0));
    // Every token exactly once.
    let count = |rows: &[Batch]| {
        let mut ids: Vec<i32> = rows.iter().flat_map(|row| row.input_ids.clone()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(count(&rows), count(&all));
}

#[test]
fn a_prompt_beyond_the_row_is_no_row_without_targets() {
    let late_answer = vec![vec![user(&"much text ".repeat(100)), assistant("Yes.")]];
    for policy in [LongSamples::Drop, LongSamples::Cut] {
        let (rows, report) = run(&late_answer, 64, policy);
        assert!(rows.is_empty(), "{policy:?}");
        assert_eq!(report.long.samples_dropped, 1, "{policy:?}");
    }
    let mut with_short = late_answer;
    with_short.push(vec![user("Hi"), assistant("Hello.")]);
    let (rows, _) = run(&with_short, 64, LongSamples::Cut);
    assert_eq!(rows.len(), 1);
    assert!(rows[0].num_trained() > 0);
}
