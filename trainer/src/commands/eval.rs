//! `eval`: token-weighted loss and perplexity.

use std::path::PathBuf;

use burn::tensor::{DType, Device};
use burn_qwen::{Model, QwenConfig, weights::Checkpoint};
use burn_qwen_kernels::{BackendKind, Kernels};
use burn_qwen_trainer::{TrainError, config::RunConfig, eval::evaluate, inputs};

use super::{note, print, print_json, settings};
use crate::cli::InputArgs;

/// A model for inference, its kernels, and the folder of its tokenizer.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    pub(crate) kernels: Kernels,
    pub(crate) tokenizer_folder: PathBuf,
    pub(crate) qwen: QwenConfig,
}

/// A model from a folder or hub id.
pub(crate) fn load_model(path: &str, config: &RunConfig) -> Result<Loaded, TrainError> {
    let folder = inputs::model_folder(path, config.model.revision.as_deref())?;
    let qwen = QwenConfig::from_folder(&folder)?;
    let checkpoint = Checkpoint::open(&folder, &qwen)?;
    checkpoint.notices().iter().for_each(|notice| note(&format!("note: {notice}")));
    let case = qwen.kernel_case(BackendKind::Flex, DType::F32, false, config.data.max_tokens);
    let (kernels, _) = Kernels::resolve(&config.kernels, &case)?;
    let model = Model::from_blocks(&qwen, &Device::flex(), |spec| checkpoint.read_block(spec))?;
    let tokenizer_folder = inputs::tokenizer_folder(&config.model, &folder)?;
    Ok(Loaded { model, kernels, tokenizer_folder, qwen })
}

pub(crate) fn run(args: &InputArgs, json: bool) -> Result<(), TrainError> {
    let config = settings(&args.set)?;
    let Loaded { model, kernels, tokenizer_folder, qwen } = load_model(&args.model, &config)?;
    let loader = inputs::loader(&args.data, &tokenizer_folder, &config.data)?;
    inputs::check_vocabulary(&qwen, loader.renderer())?;
    let (rows, report) = loader.eval_rows()?;
    let result = evaluate(&model, &kernels, &rows, || {});
    if result.targets == 0 {
        return Err(TrainError::Input(format!(
            "{}: none of {} rows has a trained token; see `burn-qwen data stats`",
            args.data.join(", "),
            report.source.num_rows
        )));
    }
    if json {
        print_json(&result);
    } else {
        print(&format!(
            "loss {:.6}  perplexity {:.4}  over {} trained tokens ({} read, {} documents)",
            result.loss, result.perplexity, result.targets, result.tokens, report.num_documents
        ));
    }
    Ok(())
}
