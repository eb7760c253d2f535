//! Every implementation against the reference on random inputs of awkward shapes, and the delta rule
//! against its recurrence.

use burn::tensor::Device;
use burn_qwen_kernels::{
    BackendKind,
    registry::implementation_names,
    verify::{
        Call, Report,
        random::{self, LENGTHS, Random},
        rel_l2,
    },
};

use crate::outputs;

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

/// The delta rule token by token in f64, forward only.
fn recurrence(call: &Call) -> Vec<f64> {
    let get = |name: &str| &call.tensors[name];
    let (q, k, v, g, beta) = (get("q"), get("k"), get("v"), get("g"), get("beta"));
    let (hk, dk) = (k.shape[1], k.shape[2]);
    let (hv, dv) = (v.shape[1], v.shape[2]);
    let normal = |x: &[f32]| -> Vec<f64> {
        let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
        x.iter().map(|&x| f64::from(x) / (squares + 1e-6).sqrt()).collect()
    };
    let mut out = vec![0.0; v.values.len()];
    for (n, document) in call.cu_seqlens.windows(2).enumerate() {
        for h in 0..hv {
            let mut state = vec![0.0; dk * dv];
            if let Some(initial) = call.tensors.get("initial_state") {
                let at = (n * hv + h) * dk * dv;
                for (s, &x) in state.iter_mut().zip(&initial.values[at..]) {
                    *s = f64::from(x);
                }
            }
            for t in document[0] as usize..document[1] as usize {
                let key_head = t * hk + h / (hv / hk);
                let q = normal(&q.values[key_head * dk..][..dk]);
                let k = normal(&k.values[key_head * dk..][..dk]);
                let v = &v.values[(t * hv + h) * dv..][..dv];
                let decay = f64::from(g.values[t * hv + h]).exp();
                let beta = f64::from(beta.values[t * hv + h]);
                for s in &mut state {
                    *s *= decay;
                }
                for j in 0..dv {
                    let read: f64 = (0..dk).map(|i| k[i] * state[i * dv + j]).sum();
                    let write = beta * (f64::from(v[j]) - read);
                    for i in 0..dk {
                        state[i * dv + j] += k[i] * write;
                    }
                    let read: f64 = (0..dk).map(|i| q[i] * state[i * dv + j]).sum();
                    out[(t * hv + h) * dv + j] = read / (dk as f64).sqrt();
                }
            }
        }
    }
    out
}

#[test]
fn the_delta_rule_is_its_recurrence() {
    let mut random = Random::new(1);
    for num_tokens in [1, 4, 65, 127, 128, 200] {
        for call in random.calls(num_tokens) {
            if call.op == "gated_delta_rule" {
                let truth = recurrence(&call);
                for name in implementation_names(call.op) {
                    let error = rel_l2(&outputs(&call, name).unwrap()["o"], &truth);
                    assert!(error < 1e-6, "{name} at {num_tokens} tokens: {error:e}");
                }
            }
        }
    }
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
