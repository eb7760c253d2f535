//! The same input gives the same bits, whatever the number of threads.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    process::Command,
};

use burn_qwen_kernels::{registry::implementation_names, verify::random::Random};

use crate::outputs;

/// Set in the child processes of the test below.
const CHILD: &str = "BURN_QWEN_PRINT_HASHES";

/// A line per op and implementation with a hash over all bits of outputs and gradients.
fn hashes() -> String {
    // Without this the test could compare runs of the same number of threads.
    let mut lines = vec![format!("threads {}", rayon::current_num_threads())];
    for num_tokens in [65, 1200] {
        for call in Random::new(6).calls(num_tokens) {
            for name in implementation_names(call.op) {
                // Long recurrences take long; the delta rule's reference is tried at 65 tokens.
                if num_tokens > 100 && name == "reference" && call.op == "gated_delta_rule" {
                    continue;
                }
                let mut hash = DefaultHasher::new();
                for (tensor, values) in outputs(&call, name).unwrap() {
                    tensor.hash(&mut hash);
                    for x in values {
                        x.to_bits().hash(&mut hash);
                    }
                }
                lines.push(format!("hash {num_tokens} {} {name} {:x}", call.op, hash.finish()));
            }
        }
    }
    lines.join("\n")
}

#[test]
fn print_hashes() {
    if std::env::var_os(CHILD).is_some() {
        println!("{}", hashes());
    }
}

#[test]
fn threads_change_no_bit() {
    let run = |threads: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "determinism::print_hashes", "--nocapture"])
            .env(CHILD, "1")
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&format!("threads {threads}\n")), "{text}");
        // The harness writes its own text before the first line.
        text.lines()
            .filter_map(|line| line.find("hash ").map(|at| line[at..].to_string()))
            .collect::<Vec<_>>()
    };
    let one = run("1");
    assert!(one.len() > 40, "{one:#?}");
    for threads in ["1", "2", "4", "7"] {
        assert_eq!(one, run(threads), "{threads} threads");
    }
}
