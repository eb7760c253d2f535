//! Signals at moments that nobody chose.

use std::{
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::ChaCha8Rng};

use crate::kit::{Bench, PROGRAM, assert_same_run, metrics};

/// Some two hundred short steps, a checkpoint every few.
const RUN: &str = "train --model model --data chats.jsonl --set train.epochs=40 \
    --set train.lr=1e-3 --set data.max_tokens=256 --set train.gradient_accumulation=2 \
    --set checkpoint.every_steps=3 --set checkpoint.resume=auto";

fn start(bench: &Bench, output: &str) -> Child {
    Command::new(PROGRAM)
        .current_dir(bench.path(""))
        .args(RUN.split_whitespace())
        .args(["--output", output])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn send(signal: &str, child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
}

/// Waits until a run has made so many steps more, or has ended.
fn wait_for_steps(run: &Path, more: usize, child: &mut Child) -> Option<ExitStatus> {
    let lines = || {
        let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
        text.lines().count()
    };
    let (before, started) = (lines(), Instant::now());
    while lines() < before + more {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        assert!(started.elapsed() < Duration::from_mins(1), "the run makes no steps");
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

#[test]
fn killed_again_and_again_equals_never_stopped() {
    let bench = Bench::new("qwen3_5_text");
    assert!(start(&bench, "whole").wait().unwrap().success());
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut kills = 0;
    let status = loop {
        let mut child = start(&bench, "killed");
        if kills == 6 {
            break child.wait().unwrap();
        }
        let more = 1 + (rng.next_u32() % 20) as usize;
        if let Some(status) = wait_for_steps(&bench.path("killed"), more, &mut child) {
            break status;
        }
        // Anywhere between two steps or in the middle of a save.
        std::thread::sleep(Duration::from_micros(u64::from(rng.next_u32() % 20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    };
    assert!(status.success());
    assert!(kills >= 3, "the run was over after {kills} kills: it is too short for this test");
    assert_same_run(&bench.path("whole"), &bench.path("killed"));
}

#[test]
fn signals_save_and_tell_which_they_were() {
    let bench = Bench::new("qwen3");
    assert!(start(&bench, "whole").wait().unwrap().success());
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut child = start(&bench, "stopped");
        assert_eq!(wait_for_steps(&bench.path("stopped"), 10, &mut child), None);
        send(signal, &child);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        // The last line is the checkpoint's step: no work is lost.
        let last = metrics(&bench.path("stopped")).pop().unwrap();
        let last: serde_json::Value = serde_json::from_str(&last).unwrap();
        let step = last["step"].as_u64().unwrap();
        let complete = format!("stopped/checkpoints/step-{step:08}/COMPLETE");
        assert!(bench.path(&complete).exists(), "{complete}");
    }
    assert!(start(&bench, "stopped").wait().unwrap().success());
    assert_same_run(&bench.path("whole"), &bench.path("stopped"));
}
