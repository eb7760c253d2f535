//! Flags, and nothing else.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Fine-tune Qwen models in Rust.
#[derive(Debug, Parser)]
#[command(name = "burn-qwen", version, about, long_about = None)]
#[command(after_help = "Try it on this machine, without a model or data of your own:\n  \
                        burn-qwen train quickstart")]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fine-tune a model.
    #[command(after_help = "Examples:\n  burn-qwen train quickstart\n  burn-qwen train full \
                            --model Qwen/Qwen3-0.6B --data chat.jsonl --output runs/mine\n  \
                            burn-qwen train --config run.toml --set train.lr=2e-5 --resume auto")]
    Train(TrainArgs),
    /// List the recipes, or print one.
    #[command(after_help = "Example:\n  burn-qwen recipes full > run.toml")]
    Recipes {
        /// The recipe to print.
        name: Option<String>,
        /// Print a list for machines.
        #[arg(long)]
        json: bool,
    },
    /// Loss and perplexity of a model on data.
    #[command(after_help = "Example:\n  burn-qwen eval --model runs/mine/export --data test.jsonl")]
    Eval {
        #[command(flatten)]
        input: InputArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Answer one prompt.
    #[command(after_help = "Example:\n  burn-qwen generate --model runs/mine/export --prompt \
                            \"What is the capital of France?\" --temperature 0.7")]
    Generate {
        #[command(flatten)]
        model: GenerateArgs,
        /// The user's turn.
        #[arg(long)]
        prompt: String,
        /// Continue the prompt as plain text, without the chat template.
        #[arg(long)]
        raw: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Talk to a model, turn by turn.
    #[command(after_help = "Example:\n  burn-qwen chat --model runs/mine/export")]
    Chat {
        #[command(flatten)]
        model: GenerateArgs,
    },
    /// Look at data as a run would see it.
    #[command(subcommand)]
    Data(DataCommand),
    /// Compare with a golden case.
    #[command(after_help = "Example:\n  burn-qwen parity --model goldens/qwen3-tied/model \
                            --golden goldens/qwen3-tied")]
    Parity {
        /// Folder of the model; the case's own by default.
        #[arg(long)]
        model: Option<PathBuf>,
        /// Folder of the case, with case.json.
        #[arg(long)]
        golden: PathBuf,
        /// Implementations: one name for every op, or op=NAME; auto is what training runs.
        #[arg(long, default_value = "reference")]
        kernels: String,
        /// Print every comparison as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a checkpoint as a folder that other tools load.
    #[command(after_help = "Example:\n  burn-qwen export runs/mine/checkpoints/step-00000100 \
                            my-model")]
    Export {
        /// The checkpoint.
        checkpoint: PathBuf,
        /// The folder to write.
        folder: PathBuf,
        /// Dtype of trained tensors: f32, bf16 or f16; that of the source by default.
        #[arg(long)]
        dtype: Option<String>,
        /// Replace an existing folder.
        #[arg(long)]
        force: bool,
    },
    /// What this build and machine offer, measured.
    #[command(after_help = "Example:\n  burn-qwen devices --json")]
    Devices {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Look at the implementations of ops.
    #[command(subcommand)]
    Kernels(KernelsCommand),
}

/// Arguments of `train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// An embedded recipe; `burn-qwen recipes` lists them.
    pub(crate) recipe: Option<String>,
    /// A configuration file, instead of a recipe.
    #[arg(long, conflicts_with = "recipe")]
    pub(crate) config: Option<PathBuf>,
    /// Model: a folder in the Hugging Face layout, or a hub id.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Training data: files, folders, globs or hub ids.
    #[arg(long)]
    pub(crate) data: Vec<String>,
    /// Set a key of the configuration.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Folder of the run.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// Go on from a checkpoint: auto, never, or a step.
    #[arg(long, value_name = "auto|never|STEP")]
    pub(crate) resume: Option<String>,
    /// Stop after this many optimizer steps.
    #[arg(long)]
    pub(crate) max_steps: Option<u64>,
    /// Replace the folder of an earlier run.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A model and data.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    /// Model: a folder in the Hugging Face layout, or a hub id.
    #[arg(long)]
    pub(crate) model: String,
    /// Data: files, folders, globs or hub ids.
    #[arg(long, required = true)]
    pub(crate) data: Vec<String>,
    /// Set a key of the configuration, such as data.max_tokens=2048.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// A model and how it answers.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Model: a folder in the Hugging Face layout, or a hub id.
    #[arg(long)]
    pub(crate) model: String,
    /// A system turn.
    #[arg(long)]
    pub(crate) system: Option<String>,
    /// Tokens of an answer at most.
    #[arg(long, default_value_t = 256)]
    pub(crate) max_new_tokens: usize,
    /// 0 takes the most likely token.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// Draw from this many of the most likely tokens; 0 for all.
    #[arg(long, default_value_t = 0)]
    pub(crate) top_k: usize,
    /// Draw from the most likely tokens that together have this probability.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) top_p: f64,
    /// Seed of the draws.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Set a key of the configuration, such as data.template=chatml.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Commands on data.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Decoded samples, trained tokens marked.
    #[command(after_help = "Example:\n  burn-qwen data show --model Qwen/Qwen3-0.6B --data \
                            chat.jsonl --samples 2")]
    Show {
        #[command(flatten)]
        input: InputArgs,
        /// Samples to show.
        #[arg(long, default_value_t = 3)]
        samples: usize,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Samples and tokens kept and lost, by file and reason.
    #[command(after_help = "Example:\n  burn-qwen data stats --model m --data chat.jsonl --set \
                            data.max_tokens=4096")]
    Stats {
        #[command(flatten)]
        input: InputArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the packed rows of one pass as safetensors.
    #[command(after_help = "Example:\n  burn-qwen data pack --model m --data chat.jsonl --output \
                            rows.safetensors")]
    Pack {
        #[command(flatten)]
        input: InputArgs,
        /// The file to write.
        #[arg(long)]
        output: PathBuf,
        /// Replace an existing file.
        #[arg(long)]
        force: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Commands on kernels.
#[derive(Debug, Subcommand)]
pub(crate) enum KernelsCommand {
    /// Compare implementations with the truth, forward and every gradient.
    ///
    /// Without golden files: with the reference, on random inputs of awkward shapes.
    #[command(after_help = "Examples:\n  burn-qwen kernels verify --op attention\n  burn-qwen \
                            kernels verify --golden goldens/ops --implementation flex")]
    Verify {
        /// A golden file of an op, or a folder of them.
        #[arg(long)]
        golden: Option<PathBuf>,
        /// This op only.
        #[arg(long)]
        op: Option<String>,
        /// This implementation only.
        #[arg(long)]
        implementation: Option<String>,
        /// Seed of the random inputs.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Print every comparison as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Ops and implementations, and what would run for a model.
    #[command(after_help = "Example:\n  burn-qwen kernels list --model Qwen/Qwen3-0.6B")]
    List {
        /// Model: a folder in the Hugging Face layout, or a hub id; a typical one by default.
        #[arg(long)]
        model: Option<String>,
        /// Set a key of the configuration, such as kernels.attention=reference.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}
