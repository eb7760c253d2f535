//! `eval`: token-weighted loss and perplexity.

use burn::tensor::{DType, Device};
use burn_qwen::{Model, QwenConfig, weights::Checkpoint};
use burn_qwen_kernels::{BackendKind, Kernels};
use burn_qwen_trainer::{TrainError, config::RunConfig, eval::evaluate, inputs};

use super::{note, print, print_json, settings};
use crate::cli::InputArgs;

/// A model from a folder or hub id, for inference, with its kernels and the folder.
pub(crate) fn load_model(
    path: &str,
    config: &RunConfig,
) -> Result<(Model, Kernels, std::path::PathBuf), TrainError> {
    let folder = inputs::model_folder(path, config.model.revision.as_deref())?;
    let qwen = QwenConfig::from_folder(&folder)?;
    let checkpoint = Checkpoint::open(&folder, &qwen)?;
    checkpoint.notices().iter().for_each(|notice| note(&format!("note: {notice}")));
    let case = qwen.kernel_case(BackendKind::Flex, DType::F32, false, config.data.max_tokens);
    let (kernels, _) = Kernels::resolve(&config.kernels, &case)?;
    let model = Model::from_blocks(&qwen, &Device::flex(), |spec| checkpoint.read_block(spec))?;
    Ok((model, kernels, folder))
}

pub(crate) fn run(args: &InputArgs, json: bool) -> Result<(), TrainError> {
    let config = settings(&args.set)?;
    let (model, kernels, folder) = load_model(&args.model, &config)?;
    let loader = inputs::loader(&args.data, &folder, &config.data)?;
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
