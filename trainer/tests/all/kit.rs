//! A folder with a tiny model and chats, and the program run in it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use crate::tiny;

/// The program as Cargo built it for these tests.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_burn-qwen");

/// A run that hangs fails its test.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Fields of `metrics.jsonl` that differ between two runs of the same work.
const TIMES: [&str; 5] = [
    "step_secs",
    "data_wait_secs",
    "tokens_per_second",
    "trained_tokens_per_second",
    "peak_memory_bytes",
];

/// A temporary folder: `model/`, `chats.jsonl`, `run.toml`.
#[derive(Debug)]
pub struct Bench {
    folder: TempDir,
}

impl Bench {
    /// A model of a family and 24 conversations.
    pub fn new(model_type: &str) -> Self {
        Self::with_config(&tiny::config(model_type))
    }

    pub fn with_config(config: &Value) -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        tiny::write_model(&bench.path("model"), config);
        tiny::write_chats(&bench.path("chats.jsonl"), 24);
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// The program in this folder, with arguments parted by spaces.
    pub fn command(&self, args: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.folder.path()).args(args.split_whitespace());
        // What a terminal or a debugging shell would add must not matter.
        command.env("COLUMNS", "100").env("RUST_BACKTRACE", "1").env("HF_HUB_OFFLINE", "1");
        command.timeout(TIMEOUT);
        command
    }

    /// Runs the program; returns stdout.
    #[track_caller]
    pub fn succeeds(&self, args: &str) -> String {
        self.ends(args, 0).0
    }

    /// Runs the program; returns the one message of an error that is the user's to mend.
    #[track_caller]
    pub fn refuses(&self, args: &str) -> String {
        self.fails(args, 2)
    }

    /// Runs the program; returns the one message that it ends with.
    #[track_caller]
    pub fn fails(&self, args: &str, code: i32) -> String {
        let (_, stderr) = self.ends(args, code);
        let stderr = format!("\n{stderr}");
        let messages = stderr.matches("\nerror: ").count();
        assert_eq!(messages, 1, "one message is wanted: {stderr}");
        stderr[stderr.find("\nerror: ").unwrap()..].trim().to_string()
    }

    /// Runs the program; returns stdout and stderr.
    #[track_caller]
    pub fn ends(&self, args: &str, code: i32) -> (String, String) {
        let output = self.command(args).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let ended = output.status.code();
        assert_eq!(ended, Some(code), "burn-qwen {args}\n{stdout}\n{stderr}");
        for never in ["panicked", "backtrace", "bug in burn-qwen"] {
            assert!(!stderr.contains(never), "burn-qwen {args}\n{stderr}");
        }
        (stdout, stderr)
    }

    /// Text without what differs between machines and runs: this folder and times.
    pub fn stable(&self, text: &str) -> String {
        text.replace(&self.folder.path().display().to_string(), "[FOLDER]")
    }
}

/// What `metrics.jsonl` says beside times, line by line.
pub fn metrics(run: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let fields = record.as_object_mut().unwrap();
        fields.retain(|name, _| !TIMES.contains(&name.as_str()));
        record.to_string()
    };
    text.lines().map(line).collect()
}

/// Fails unless two finished runs did the same, bit for bit.
#[track_caller]
pub fn assert_same_run(a: &Path, b: &Path) {
    for (i, (a, b)) in metrics(a).iter().zip(&metrics(b)).enumerate() {
        assert_eq!(a, b, "line {} of metrics.jsonl", i + 1);
    }
    assert_eq!(metrics(a).len(), metrics(b).len());
    let bytes = |run: &Path| std::fs::read(run.join("export/model.safetensors")).unwrap();
    assert!(bytes(a) == bytes(b), "exported weights differ");
}

/// Fails unless the text has every part.
#[track_caller]
pub fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "should say {part:?}: {text}");
    }
}

/// A copy of a folder and everything in it.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}
