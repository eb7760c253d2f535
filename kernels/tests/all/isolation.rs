//! Documents of a pack never see each other.

use std::ops::Range;

use burn_qwen_kernels::{
    registry::implementation_names,
    verify::{Call, Outputs, random::Random},
};

use crate::outputs;

const OPS: [&str; 3] = ["attention", "causal_conv1d", "gated_delta_rule"];

/// Tensors with a row per token.
fn is_per_token(call: &Call, name: &str) -> bool {
    let name = name.strip_prefix("grad_").unwrap_or(name);
    let is_output = matches!(name, "o" | "y");
    let per_token = ["x", "q", "k", "v", "g", "beta", "gate", "up_o", "up_y"];
    is_output || (per_token.contains(&name) && call.has(name))
}

fn rows<'a>(values: &'a [f32], tokens: &Range<usize>, num_tokens: usize) -> &'a [f32] {
    let width = values.len() / num_tokens;
    &values[tokens.start * width..tokens.end * width]
}

/// A call with the documents of `tokens` alone.
fn alone(call: &Call, tokens: &Range<usize>, num_tokens: usize) -> Call {
    let mut alone = call.clone();
    alone.cu_seqlens = vec![0, tokens.len() as i32];
    for (name, array) in &call.tensors {
        if is_per_token(call, name) {
            let mut shape = array.shape.clone();
            shape[0] = tokens.len();
            alone.insert(name, &shape, rows(&array.values, tokens, num_tokens).to_vec());
        }
    }
    alone
}

fn calls(num_tokens: usize, seed: u64) -> Vec<Call> {
    let mut calls = Random::new(seed).calls(num_tokens);
    calls.retain(|call| OPS.contains(&call.op));
    for call in &mut calls {
        // States have a row per document; documents are cut differently below.
        call.tensors.retain(|name, _| !name.ends_with("state"));
    }
    assert_eq!(calls.len(), OPS.len());
    calls
}

fn assert_rows_equal(call: &Call, name: &str, a: &Outputs, b: &Outputs, tokens: &Range<usize>) {
    let num_tokens = *call.cu_seqlens.last().unwrap() as usize;
    for (tensor, values) in a {
        if is_per_token(call, tensor) {
            let same = rows(values, tokens, num_tokens)
                .iter()
                .zip(rows(&b[tensor], tokens, num_tokens))
                .all(|(x, y)| x.to_bits() == y.to_bits());
            assert!(same, "{} {name}: {tensor} of {tokens:?} changed", call.op);
        }
    }
}

#[test]
fn a_changed_document_changes_no_bit_of_another() {
    for (seed, boundaries) in [(3, vec![0, 5, 69, 70, 135]), (4, vec![0, 1, 3, 64, 135])] {
        for mut call in calls(135, seed) {
            call.cu_seqlens.clone_from(&boundaries);
            // Everything of the third document becomes something else.
            let changed = boundaries[2] as usize..boundaries[3] as usize;
            let mut other = call.clone();
            for (name, array) in &mut other.tensors {
                if is_per_token(&call, name) {
                    let width = array.values.len() / 135;
                    for x in &mut array.values[changed.start * width..changed.end * width] {
                        *x = if name == "g" { *x * 0.5 - 0.1 } else { 1.5 - *x };
                    }
                }
            }
            for name in implementation_names(call.op) {
                let (a, b) = (outputs(&call, name).unwrap(), outputs(&other, name).unwrap());
                assert_ne!(a, b, "the changed document itself");
                for other in [0..changed.start, changed.end..135] {
                    assert_rows_equal(&call, name, &a, &b, &other);
                }
            }
        }
    }
}

#[test]
fn a_document_is_the_same_alone_and_packed() {
    // 37 and 51 tokens, and decay so slow that a leak would show.
    for mut call in calls(88, 5) {
        call.cu_seqlens = vec![0, 37, 88];
        if let Some(g) = call.tensors.get_mut("g") {
            g.values.iter_mut().for_each(|g| *g = -0.05);
        }
        for name in implementation_names(call.op) {
            let packed = outputs(&call, name).unwrap();
            for tokens in [0..37, 37..88] {
                let alone = outputs(&alone(&call, &tokens, 88), name).unwrap();
                for (tensor, values) in &alone {
                    if !is_per_token(&call, tensor) {
                        continue;
                    }
                    for (x, y) in values.iter().zip(rows(&packed[tensor], &tokens, 88)) {
                        let difference = (x - y).abs();
                        let bar = if name == "reference" { 0.0 } else { 1e-5 };
                        assert!(difference <= bar, "{} {name} {tensor}: {x} and {y}", call.op);
                    }
                }
            }
        }
    }
}
