//! The same seed gives the same bits, for any number of threads.

use crate::{
    kit::{Bench, assert_same_run, metrics},
    tiny,
};

#[test]
fn threads_change_no_bit() {
    for family in tiny::FAMILIES {
        let bench = Bench::new(family);
        for (threads, workers) in [(1, 1), (2, 2), (3, 0)] {
            let args = format!(
                "train --model model --data chats.jsonl --output run-{threads} \
                 --set train.epochs=1 --set train.lr=1e-3 --set data.max_tokens=384 \
                 --set data.workers={workers}"
            );
            let mut command = bench.command(&args);
            command.env("RAYON_NUM_THREADS", threads.to_string()).assert().success();
        }
        for threads in [2, 3] {
            assert_same_run(&bench.path("run-1"), &bench.path(&format!("run-{threads}")));
        }
    }
}

#[test]
fn another_seed_is_another_run() {
    let bench = Bench::new("qwen3");
    for seed in [0, 1] {
        bench.succeeds(&format!(
            "train --model model --data chats.jsonl --output run-{seed} --max-steps 3 \
             --set data.max_tokens=128 --set data.seed={seed}"
        ));
    }
    assert_ne!(metrics(&bench.path("run-0")), metrics(&bench.path("run-1")));
}

/// Larger products take other paths through the kernels than tiny ones.
#[test]
fn threads_change_no_bit_of_wider_models() {
    let mut config = tiny::config("qwen3_5_text");
    for (key, value) in [("hidden_size", 160), ("intermediate_size", 320), ("head_dim", 40)] {
        config[key] = value.into();
    }
    let bench = Bench::with_config(&config);
    for threads in [1, 2] {
        let args = format!(
            "train --model model --data chats.jsonl --output run-{threads} --max-steps 2 \
             --set data.max_tokens=1500 --set train.lr=1e-3"
        );
        let mut command = bench.command(&args);
        command.env("RAYON_NUM_THREADS", threads.to_string()).assert().success();
    }
    assert_same_run(&bench.path("run-1"), &bench.path("run-2"));
}
