//! Numbers that leave the finite range stop a run and say where.

use burn::tensor::Device;
use burn_qwen_trainer::engine::{Engine, Recompute};

use crate::{
    kit::{Bench, assert_says},
    rows::{Doc, engine, row, step},
    tiny,
};

/// Sets one value of a block's parameters.
fn spoil(engine: &mut Engine, block: usize, at: usize, value: f32) {
    let mut tensors = engine.store.export_shard(block);
    tensors[0][at] = value;
    engine.store.import_shard(block, tensors, &Device::flex());
}

#[test]
fn an_infinite_weight_is_named_with_step_samples_and_block() {
    let docs = [Doc { id: 41, prompt: 3, answer: 9 }, Doc { id: 7, prompt: 3, answer: 9 }];
    for family in tiny::FAMILIES {
        let last = engine(&tiny::config(family), Recompute::Full).store.num_blocks() - 1;
        for block in 0..=last {
            let mut engine = engine(&tiny::config(family), Recompute::Full);
            step(&mut engine, &[row(&docs)], 1e-4).unwrap();
            // The embedding of a token that the row has; the head's norm or the head.
            let at = if block == 0 { 32 * row(&docs).input_ids[0] as usize } else { 40 };
            spoil(&mut engine, block, at, f32::INFINITY);
            let message = step(&mut engine, &[row(&docs)], 1e-4).unwrap_err().to_string();
            let name = engine.store.specs()[block].name.clone();
            assert_says(&message, &["step 2", "[41, 7]", "parameter", "inf", &name]);
        }
    }
}

#[test]
fn an_overflow_of_finite_weights_names_the_first_block() {
    let mut engine = engine(&tiny::config("qwen3"), Recompute::None);
    let mut tensors = engine.store.export_shard(2);
    tensors[0].iter_mut().for_each(|x| *x *= 1e30);
    engine.store.import_shard(2, tensors, &Device::flex());
    let message = step(&mut engine, &[row(&[Doc { id: 3, prompt: 2, answer: 5 }])], 1e-4)
        .unwrap_err()
        .to_string();
    let name = engine.store.specs()[2].name.clone();
    assert_says(&message, &["step 1", "[3]", &name, "overflow", "train.lr"]);
}

/// Through the program: the checkpoint is at fault, so the exit code is 2.
#[test]
fn an_infinite_weight_in_a_checkpoint_stops_the_run() {
    let bench = Bench::new("qwen3");
    let path = bench.path("model/model.safetensors");
    let mut tensors = tiny::read_tensors(&path);
    tensors.get_mut("model.layers.1.mlp.down_proj.weight").unwrap().1[5] = f32::INFINITY;
    tiny::write_tensors(&path, &tensors);
    let message = bench.refuses("train --model model --data chats.jsonl --output run");
    assert_says(&message, &["step 1", "layers.1.mlp.down_proj.weight", "inf", "samples"]);
}
