//! The training step: what it adds up, what it leaves alone, what it can learn.

use burn_qwen_data::IGNORE_INDEX;
use burn_qwen_trainer::engine::Recompute;
use serde_json::json;

use crate::{
    rows::{Doc, engine, row, state, step},
    tiny::{FAMILIES, config},
};

/// Eight documents with answers of 1 to 200 tokens.
fn eight() -> Vec<Doc> {
    let answers = [1, 200, 3, 57, 120, 2, 31, 88];
    answers.iter().zip(0..).map(|(&answer, id)| Doc { id, prompt: 9, answer }).collect()
}

/// Every target counts the same, however documents are spread over rows.
#[test]
fn accumulation_is_one_large_batch() {
    for family in FAMILIES {
        let docs = eight();
        let mut results = Vec::new();
        for per_row in [8, 4, 2, 1] {
            let rows: Vec<_> = docs.chunks(per_row).map(row).collect();
            let mut engine = engine(&config(family), Recompute::Full);
            let done = step(&mut engine, &rows, 1e-3).unwrap();
            let targets: usize = docs.iter().map(|doc| doc.answer).sum();
            assert_eq!(done.num_trained, targets as u64);
            results.push((done.loss.unwrap(), done.grad_norm.unwrap()));
        }
        let (loss, norm) = results[0];
        for (l, n) in &results {
            assert!((l - loss).abs() <= 1e-5 * loss, "{family}: losses {results:?}");
            assert!((n - norm).abs() <= 1e-5 * norm, "{family}: norms {results:?}");
        }
    }
}

#[test]
fn a_step_without_a_target_changes_nothing() {
    let docs = eight();
    let mut silent = row(&docs[..2]);
    silent.labels.fill(IGNORE_INDEX);
    for family in FAMILIES {
        let mut engine = engine(&config(family), Recompute::Full);
        // Moments that are not zero would decay.
        step(&mut engine, &[row(&docs)], 1e-2).unwrap();
        let before = state(&engine);
        let done = step(&mut engine, &[silent.clone(), silent.clone()], 1e-2).unwrap();
        assert_eq!((done.loss, done.grad_norm, done.num_trained), (None, None, 0));
        assert!(before == state(&engine), "{family}");
        assert_eq!(engine.num_updates, 1);
    }
}

#[test]
fn a_row_without_a_target_adds_nothing_to_its_step() {
    let docs = eight();
    let mut silent = row(&docs[..2]);
    silent.labels.fill(IGNORE_INDEX);
    let mut with = engine(&config("qwen3_5_text"), Recompute::Full);
    let mut without = engine(&config("qwen3_5_text"), Recompute::Full);
    let a = step(&mut with, &[silent, row(&docs[2..])], 1e-2).unwrap();
    let b = step(&mut without, &[row(&docs[2..])], 1e-2).unwrap();
    assert_eq!((a.loss, a.grad_norm), (b.loss, b.grad_norm));
    assert!(state(&with) == state(&without));
}

#[test]
fn every_parameter_has_a_gradient_and_moves() {
    for (family, tied) in [("qwen2", true), ("qwen3", false), ("qwen3_5_text", true)] {
        let mut config = config(family);
        config["tie_word_embeddings"] = json!(tied);
        let mut engine = engine(&config, Recompute::None);
        let batch = row(&eight());
        engine.forward_backward(&batch).unwrap();
        for (block, spec) in engine.store.specs().iter().enumerate() {
            let grad = engine.store.grad(block).unwrap();
            for (offset, param) in spec.offsets() {
                let grad = &grad[offset..offset + param.num_elements()];
                assert!(grad.iter().all(|x| x.is_finite()), "{family}: {}", param.name);
                assert!(grad.iter().any(|&x| x != 0.0), "{family}: {} has none", param.name);
            }
        }
        let before = engine.store.all_values();
        engine.store.clear_grads();
        step(&mut engine, &[batch], 1e-3).unwrap();
        let after = engine.store.all_values();
        for (block, spec) in engine.store.specs().iter().enumerate() {
            for (i, param) in spec.params.iter().enumerate() {
                assert!(before[block][i] != after[block][i], "{family}: {} stays", param.name);
            }
        }
    }
}

#[test]
fn recomputing_changes_no_bit() {
    for family in FAMILIES {
        let rows: Vec<_> = eight().chunks(4).map(row).collect();
        let train = |recompute| {
            let mut engine = engine(&config(family), recompute);
            let done: Vec<_> = (0..3)
                .map(|_| step(&mut engine, &rows, 1e-2).unwrap())
                .map(|done| (done.loss, done.grad_norm))
                .collect();
            (done, state(&engine))
        };
        assert!(train(Recompute::Full) == train(Recompute::None), "{family}");
    }
}

/// The first proof that learning works at all.
#[test]
fn one_batch_is_learnt_by_heart() {
    let docs = [Doc { id: 1, prompt: 5, answer: 20 }, Doc { id: 2, prompt: 5, answer: 12 }];
    for family in FAMILIES {
        for tied in [false, true] {
            let mut config = config(family);
            config["tie_word_embeddings"] = json!(tied);
            let mut engine = engine(&config, Recompute::None);
            let rows = [row(&docs)];
            let first = step(&mut engine, &rows, 1e-2).unwrap().loss.unwrap();
            for _ in 0..80 {
                step(&mut engine, &rows, 1e-2).unwrap();
            }
            let last = step(&mut engine, &rows, 1e-2).unwrap().loss.unwrap();
            // Random weights know nothing: every token is about as likely.
            assert!((4.5..7.0).contains(&first), "{family}, tied {tied}: starts at {first}");
            assert!(last < 0.05, "{family}, tied {tied}: {first} -> {last}");
        }
    }
}
