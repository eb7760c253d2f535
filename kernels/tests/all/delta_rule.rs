//! The delta rule and all its gradients against the recurrence, differentiated by hand in f64.

use std::collections::BTreeMap;

use burn_qwen_kernels::{
    registry::implementation_names,
    verify::{Call, random::Random},
};

use crate::outputs;

/// What an implementation may be off; float32 makes up to 4e-7 here.
const BAR: f64 = 1e-6;
/// Results smaller than this for inputs of size 1 are measured against this size.
const SMALL: f64 = 0.3;

type Truth = BTreeMap<&'static str, Vec<f64>>;

/// An unpacked input in f64; zeros where it is absent.
fn wide(call: &Call, name: &str, len: usize) -> Vec<f64> {
    let array = call.tensors.get(name);
    array.map_or(vec![0.0; len], |a| a.values.iter().map(|&x| f64::from(x)).collect())
}

/// `x / sqrt(sum x^2 + 1e-6)`, and the root.
fn normalize(x: &[f64]) -> (Vec<f64>, f64) {
    let norm = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
    (x.iter().map(|x| x / norm).collect(), norm)
}

/// Adds the gradient through [`normalize`] to `out`.
fn normalize_backward(unit: &[f64], norm: f64, grad: &[f64], out: &mut [f64]) {
    let along: f64 = unit.iter().zip(grad).map(|(u, g)| u * g).sum();
    for ((out, u), g) in out.iter_mut().zip(unit).zip(grad) {
        *out += (g - u * along) / norm;
    }
}

/// Outputs and gradients of one call: every document and value head token by token, and back.
fn recurrence(call: &Call) -> Truth {
    let (k_shape, v_shape) = (&call.tensors["k"].shape, &call.tensors["v"].shape);
    let (tokens, hk, dk) = (k_shape[0], k_shape[1], k_shape[2]);
    let (hv, dv) = (v_shape[1], v_shape[2]);
    let (keys, values, scalars) = (tokens * hk * dk, tokens * hv * dv, tokens * hv);
    let states = (call.cu_seqlens.len() - 1) * hv * dk * dv;
    let (q_all, k_all) = (wide(call, "q", keys), wide(call, "k", keys));
    let (v_all, up_o) = (wide(call, "v", values), wide(call, "up_o", values));
    let (g_all, beta_all) = (wide(call, "g", scalars), wide(call, "beta", scalars));
    let (initial, up_final) =
        (wide(call, "initial_state", states), wide(call, "up_final_state", states));
    let scale = (dk as f64).sqrt().recip();
    let (mut o, mut grad_v) = (vec![0.0; values], vec![0.0; values]);
    let (mut grad_q, mut grad_k) = (vec![0.0; keys], vec![0.0; keys]);
    let (mut grad_g, mut grad_beta) = (vec![0.0; scalars], vec![0.0; scalars]);
    let (mut final_state, mut grad_initial) = (vec![0.0; states], vec![0.0; states]);

    for (n, document) in call.cu_seqlens.windows(2).enumerate() {
        let document = document[0] as usize..document[1] as usize;
        for h in 0..hv {
            let state_at = (n * hv + h) * dk * dv..(n * hv + h + 1) * dk * dv;
            let key_at =
                |t: usize| (t * hk + h / (hv / hk)) * dk..(t * hk + h / (hv / hk) + 1) * dk;
            let value_at = |t: usize| (t * hv + h) * dv..(t * hv + h + 1) * dv;
            // The state before every token, and after the last.
            let mut history = vec![initial[state_at.clone()].to_vec()];
            // Value less what the decayed state says of the key, per token.
            let mut news: Vec<Vec<f64>> = Vec::new();
            for t in document.clone() {
                let (q, _) = normalize(&q_all[key_at(t)]);
                let (k, _) = normalize(&k_all[key_at(t)]);
                let v = &v_all[value_at(t)];
                let (decay, beta) = (g_all[t * hv + h].exp(), beta_all[t * hv + h]);
                let mut state: Vec<f64> =
                    history[history.len() - 1].iter().map(|s| s * decay).collect();
                let mut new = v.to_vec();
                for (row, k) in state.chunks_exact(dv).zip(&k) {
                    for (new, s) in new.iter_mut().zip(row) {
                        *new -= k * s;
                    }
                }
                for ((row, k), q) in state.chunks_exact_mut(dv).zip(&k).zip(&q) {
                    for ((s, new), o) in row.iter_mut().zip(&new).zip(&mut o[value_at(t)]) {
                        *s += k * beta * new;
                        *o += scale * q * *s;
                    }
                }
                history.push(state);
                news.push(new);
            }
            final_state[state_at.clone()].copy_from_slice(&history[history.len() - 1]);

            let mut grad_state = up_final[state_at.clone()].to_vec();
            for (i, t) in document.clone().enumerate().rev() {
                let (q, q_norm) = normalize(&q_all[key_at(t)]);
                let (k, k_norm) = normalize(&k_all[key_at(t)]);
                let (decay, beta) = (g_all[t * hv + h].exp(), beta_all[t * hv + h]);
                let (before, after, new) = (&history[i], &history[i + 1], &news[i]);
                let up = &up_o[value_at(t)];
                let (mut grad_unit_q, mut grad_unit_k) = (vec![0.0; dk], vec![0.0; dk]);
                let mut grad_write = vec![0.0; dv];
                for a in 0..dk {
                    for b in 0..dv {
                        grad_unit_q[a] += scale * after[a * dv + b] * up[b];
                        grad_state[a * dv + b] += scale * q[a] * up[b];
                        grad_write[b] += grad_state[a * dv + b] * k[a];
                        grad_unit_k[a] += grad_state[a * dv + b] * beta * new[b];
                    }
                }
                for b in 0..dv {
                    grad_beta[t * hv + h] += grad_write[b] * new[b];
                    grad_v[value_at(t)][b] = beta * grad_write[b];
                }
                for a in 0..dk {
                    for b in 0..dv {
                        // The decayed state is read by the key, and carried on.
                        grad_unit_k[a] -= decay * before[a * dv + b] * beta * grad_write[b];
                        let grad = grad_state[a * dv + b] - k[a] * beta * grad_write[b];
                        grad_g[t * hv + h] += grad * decay * before[a * dv + b];
                        grad_state[a * dv + b] = grad * decay;
                    }
                }
                normalize_backward(&q, q_norm, &grad_unit_q, &mut grad_q[key_at(t)]);
                normalize_backward(&k, k_norm, &grad_unit_k, &mut grad_k[key_at(t)]);
            }
            grad_initial[state_at].copy_from_slice(&grad_state);
        }
    }
    let mut truth = Truth::from([
        ("o", o),
        ("final_state", final_state),
        ("grad_q", grad_q),
        ("grad_k", grad_k),
        ("grad_v", grad_v),
        ("grad_g", grad_g),
        ("grad_beta", grad_beta),
    ]);
    if call.has("initial_state") {
        truth.insert("grad_initial_state", grad_initial);
    }
    truth
}

/// Compares every implementation with the recurrence.
fn check(call: &Call) {
    let truth = recurrence(call);
    for name in implementation_names(call.op) {
        let ours = outputs(call, name).unwrap();
        assert!(ours.keys().eq(truth.keys()), "{name} gives {:?}", ours.keys());
        for (tensor, truth) in &truth {
            assert_eq!(ours[*tensor].len(), truth.len(), "{name} {tensor}");
            let pairs = ours[*tensor].iter().zip(truth);
            let distance = pairs.map(|(&a, b)| (f64::from(a) - b).powi(2)).sum::<f64>().sqrt();
            let norm = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
            let error = distance / norm.max(SMALL * (truth.len() as f64).sqrt());
            println!("{call}: {name} {tensor} {error:.1e}");
            assert!(error <= BAR, "{call}: {name} {tensor} is off by {error:e}");
        }
    }
}

fn calls(random: &mut Random, num_tokens: usize) -> impl Iterator<Item = Call> {
    random.calls(num_tokens).into_iter().filter(|call| call.op == "gated_delta_rule")
}

/// Gives every document a state to start from, and its last state an upstream gradient.
fn with_states(mut call: Call) -> Call {
    let (heads, width) = (call.tensors["v"].shape[1], call.tensors["v"].shape[2]);
    let shape = [call.cu_seqlens.len() - 1, heads, call.tensors["k"].shape[2], width];
    let len = shape.iter().product::<usize>();
    for (name, factor) in [("initial_state", 7919), ("up_final_state", 6101)] {
        let values = (0..len).map(|i| (i * factor % 1009) as f32 / 1009.0 - 0.5).collect();
        call.insert(name, &shape, values);
    }
    call
}

#[test]
fn it_is_its_recurrence_at_random_boundaries() {
    let mut random = Random::new(1);
    for num_tokens in [1, 2, 3, 4, 5, 63, 64, 65, 200] {
        for call in calls(&mut random, num_tokens) {
            check(&call);
        }
    }
}

#[test]
fn it_is_its_recurrence_around_the_chunk() {
    let mut random = Random::new(8);
    for length in [64, 65, 127, 128] {
        for mut call in calls(&mut random, 3 * length) {
            call.cu_seqlens = (0..=3).map(|n| (n * length) as i32).collect();
            call.tensors.retain(|name, _| !name.ends_with("state"));
            check(&call);
            check(&with_states(call));
        }
    }
}
