//! Attention whose documents have more keys than queries, as with a cache.

use burn::tensor::{Device, Tensor};
use burn_qwen_kernels::{
    Packing,
    ops::attention::{Attention, AttentionInput, implementations},
    verify::random::Random,
};

/// Output, and the gradients of query, key and value.
fn attend(
    op: &dyn Attention,
    [query, key, value, up]: [Tensor<3>; 4],
    queries: &Packing,
    keys: &Packing,
) -> [Vec<f32>; 4] {
    let [query, key, value] = [query, key, value].map(Tensor::require_grad);
    let output = op.forward(AttentionInput {
        query: query.clone(),
        key: key.clone(),
        value: value.clone(),
        gate: None,
        scale: 0.125,
        queries,
        keys,
    });
    let mut grads = (output.clone() * up).sum().backward();
    let [q, k, v] = [query, key, value].map(|x| x.grad_remove(&mut grads).unwrap());
    [output.inner(), q, k, v].map(|x| x.into_data().try_into_vec().unwrap())
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The last queries of a document give what they give among all its queries, where the rest has no
/// upstream gradient: the whole document is the truth here.
#[test]
fn the_last_queries_see_all_earlier_keys() {
    let device = Device::flex().autodiff();
    let keys = Packing::new([0, 70, 71, 150]);
    // The last 5 of 70 tokens, the only one of 1, the last 66 of 79.
    let (rows, queries) = ([65..70, 70..71, 84..150], Packing::new([0, 5, 6, 72]));
    let mut call = Random::new(9).calls(150);
    let call = call.iter_mut().find(|call| call.op == "attention").unwrap();
    let tensor = |name: &str| {
        let array = &call.tensors[name];
        let data = burn::tensor::TensorData::new(array.values.clone(), array.shape.clone());
        Tensor::<3>::from_data(data, &device)
    };
    let [q, k, v, up] = ["q", "k", "v", "up_o"].map(tensor);
    let last = |x: &Tensor<3>| {
        Tensor::cat(rows.iter().map(|r| x.clone().narrow(0, r.start, r.len())).collect(), 0)
    };
    let mut silent = Tensor::zeros(up.dims(), &device);
    for row in &rows {
        let part = up.clone().narrow(0, row.start, row.len());
        silent = silent.slice_assign([row.clone()], part);
    }
    for op in implementations() {
        let whole = attend(&*op, [q.clone(), k.clone(), v.clone(), silent.clone()], &keys, &keys);
        let cached = attend(&*op, [last(&q), k.clone(), v.clone(), last(&up)], &queries, &keys);
        let width = whole[0].len() / 150;
        let chosen = |values: &[f32]| -> Vec<f32> {
            rows.iter().flat_map(|r| &values[r.start * width..r.end * width]).copied().collect()
        };
        for i in 0..4 {
            let whole = if i < 2 { chosen(&whole[i]) } else { whole[i].clone() };
            let error = distance(&whole, &cached[i]);
            assert!(error < 1e-5, "{} result {i} is off by {error:e}", op.name());
        }
    }
}
