//! Every implementation against the reference on random inputs of awkward shapes.

use burn::tensor::Device;
use burn_qwen_kernels::{
    BackendKind,
    verify::{
        Call, Report,
        random::{self, LENGTHS, Random},
    },
};

/// Checks a call with every implementation; returns how many tensors were compared.
fn check(call: &Call) -> usize {
    let mut report = Report::default();
    random::check(call, None, &Device::flex(), BackendKind::Flex, &mut report).unwrap();
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    let beyond: Vec<_> = report.comparisons.iter().filter(|c| !c.passes()).collect();
    assert!(beyond.is_empty(), "{beyond:#?}; documents {:?}", call.cu_seqlens);
    report.comparisons.len()
}

#[test]
fn all_agree_on_awkward_shapes() {
    let mut random = Random::new(0);
    let mut checked = 0;
    for num_tokens in LENGTHS {
        let repeats = if num_tokens > 300 { 1 } else { 3 };
        for _ in 0..repeats {
            for call in random.calls(num_tokens) {
                checked += check(&call);
            }
        }
    }
    assert!(checked > 2000, "{checked} tensors");
}

#[test]
fn an_empty_row_is_no_error() {
    let mut random = Random::new(2);
    for call in random.calls(1) {
        let mut call = call;
        if !call.cu_seqlens.is_empty() {
            // A document without a token before and behind.
            call.cu_seqlens = vec![0, 0, 1, 1];
            for name in ["initial_state", "up_final_state"] {
                call.tensors.remove(name);
            }
        }
        assert!(check(&call) > 0);
    }
}
