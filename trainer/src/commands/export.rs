//! `export`: a checkpoint to a Hugging Face folder.

use std::path::Path;

use burn_qwen::{
    QwenConfig, block_specs,
    weights::{Checkpoint, ExportOptions, ExportSource, export},
};
use burn_qwen_trainer::{TrainError, checkpoint, config::InitSetting};
use safetensors::Dtype;

use super::print;

pub(crate) fn run(
    folder: &Path,
    target: &Path,
    dtype: Option<&str>,
    force: bool,
) -> Result<(), TrainError> {
    let dtype = match dtype {
        None => None,
        Some("f32") => Some(Dtype::F32),
        Some("bf16") => Some(Dtype::BF16),
        Some("f16") => Some(Dtype::F16),
        Some(other) => {
            return Err(TrainError::Input(format!("--dtype {other}: expected f32, bf16 or f16")));
        }
    };
    let manifest = checkpoint::load(folder)?;
    let config = QwenConfig::from_folder(&manifest.model_folder)?;
    let source = match manifest.config.model.init {
        InitSetting::Pretrained => Some(Checkpoint::open(&manifest.model_folder, &config)?),
        InitSetting::Random => None,
    };
    let specs = block_specs(&config);
    let mut blocks = Vec::with_capacity(specs.len());
    for (block, spec) in specs.iter().enumerate() {
        blocks.push(checkpoint::read_params(folder, block, spec)?);
    }
    let values = |block: usize, param: usize| {
        let (offset, spec) = specs[block].offsets().nth(param).expect("a parameter of the block");
        blocks[block][offset..offset + spec.num_elements()].to_vec()
    };
    let source = source.as_ref().map_or(ExportSource::Fresh, ExportSource::Checkpoint);
    let options =
        ExportOptions { dtype, companions: Some(manifest.tokenizer_folder.clone()), force };
    export(source, &config, &values, target, &options)?;
    print(&format!("step {} -> {} (reloaded and compared)", manifest.step, target.display()));
    Ok(())
}
