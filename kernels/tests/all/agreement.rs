//! Every implementation against the reference, on random inputs of awkward shapes.
//!
//! References compute in f64 on Flex, so they are the truth here; that they mean the right thing is
//! shown by the golden files, and for the delta rule by the recurrence below.

use burn_qwen_kernels::{
    registry::implementation_names,
    verify::{
        Call,
        random::{LENGTHS, Random},
        rel_l2,
    },
};

use crate::outputs;

/// Of a tensor, in float32 with sums of up to 2,049 terms.
const BAR: f64 = 4e-6;

fn check(call: &Call) -> usize {
    let reference = outputs(call, "reference").unwrap();
    let mut checked = 0;
    for name in implementation_names(call.op) {
        let Some(ours) = outputs(call, name) else { continue };
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            reference.keys().collect::<Vec<_>>(),
            "{} {name}",
            call.op
        );
        for (tensor, values) in &ours {
            let truth: Vec<f64> = reference[tensor].iter().map(|&x| f64::from(x)).collect();
            // What is 0 but for rounding, such as the gradient of the only key of a document, is
            // measured against inputs of size 1.
            let norm = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
            let floor = 0.3 * (truth.len() as f64).sqrt();
            let error = rel_l2(values, &truth) * if norm > 0.0 { norm } else { 1.0 };
            let error = error / norm.max(floor);
            let shapes: Vec<_> = call.tensors.iter().map(|(name, t)| (name, &t.shape)).collect();
            assert!(
                error <= BAR,
                "{} {name} {tensor}: {error:e}; documents {:?}, {shapes:?}",
                call.op,
                call.cu_seqlens
            );
        }
        checked += 1;
    }
    checked
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
    assert!(checked > 500, "{checked} runs");
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
