//! Generation with caches equals recomputing the whole sequence, in every family.

use burn_qwen::{
    Model, Row,
    generate::{Sampling, generate},
};
use burn_qwen_kernels::{Kernels, Packing};

use crate::golden::{GoldenRow, Loaded, cases, kernels, name, rel_l2, values};

fn last_logits(model: &Model, input_ids: &[i32], kernels: &Kernels) -> Vec<f64> {
    let position_ids: Vec<i32> = (0..input_ids.len() as i32).collect();
    let packing = Packing::single(input_ids.len());
    let row = Row { input_ids, position_ids: &position_ids, packing: &packing };
    let logits = values(model.logits(row, kernels));
    logits[logits.len() - model.config().vocab_size..].to_vec()
}

#[test]
fn caches_equal_recomputation() {
    for case in cases() {
        let loaded = Loaded::open(&case);
        let model = loaded.model();
        let ids = &GoldenRow::open(&case, "single").input_ids;
        for implementation in ["auto", "reference"] {
            let kernels = kernels(&loaded.config, implementation, false);
            let mut caches = model.new_caches();
            let mut past = 0;
            // A prompt shorter than the convolution, more of it, then one by one.
            for length in [2, 7, 1, 1, 5, 1, 1, 1] {
                let new = &ids[past..past + length];
                let logits = values(model.next_token_logits(new, past, &mut caches, &kernels));
                past += length;
                let error = rel_l2(&logits, &last_logits(&model, &ids[..past], &kernels));
                let case = name(&case);
                assert!(error < 1e-5, "{case} {implementation} after {past} tokens: {error:e}");
            }
        }
    }
}

#[test]
fn greedy_takes_the_likeliest_token_of_the_full_sequence() {
    for case in cases() {
        let loaded = Loaded::open(&case);
        let model = loaded.model();
        let kernels = kernels(&loaded.config, "auto", false);
        let prompt: Vec<u32> =
            GoldenRow::open(&case, "single").input_ids[..9].iter().map(|&id| id as u32).collect();
        let new = generate(&model, &kernels, &prompt, &Sampling::greedy(), &[], 8, |_| true);
        assert_eq!(new.len(), 8);
        let mut ids: Vec<i32> = prompt.iter().map(|&id| id as i32).collect();
        for token in new {
            let logits = last_logits(&model, &ids, &kernels);
            let best = logits.iter().copied().fold(f64::MIN, f64::max);
            assert!(best - logits[token as usize] < 1e-4, "{}: not the best token", name(&case));
            ids.push(token as i32);
        }
    }
}

#[test]
fn a_seed_repeats_itself_and_stops_end_it() {
    let loaded = Loaded::open(&crate::golden::folder().join("qwen3_5-hybrid-tied"));
    let model = loaded.model();
    let kernels = kernels(&loaded.config, "auto", false);
    let draw = |seed, stop: &[u32], longest, mut left: usize| {
        let sampling = Sampling { temperature: 1.5, top_k: 0, top_p: 1.0, seed };
        let mut heard = Vec::new();
        let new = generate(&model, &kernels, &[3, 4], &sampling, stop, longest, |token| {
            heard.push(token);
            left -= 1;
            left > 0
        });
        assert_eq!(new, heard, "every new token is announced, and no other");
        new
    };
    let all = draw(1, &[], 12, 99);
    assert_eq!(all.len(), 12);
    assert_eq!(draw(1, &[], 12, 99), all);
    assert_ne!(draw(2, &[], 12, 99), all);
    let first = all.iter().position(|&token| token == all[6]).unwrap();
    assert_eq!(draw(1, &[all[6]], 12, 99), all[..first], "the stop token is not part of it");
    assert_eq!(draw(1, &[], 12, 4), all[..4], "the callback can end it");
}
