//! A checkpoint against the model it is to fill.

use std::collections::BTreeMap;

use super::{dtype, index::INDEX_FILE, keys::Stored, load::Checkpoint};
use crate::{
    config::QwenConfig,
    error::QwenError,
    params::{ParamRole, ParamSpec, block_specs},
};

impl Checkpoint {
    /// Every parameter once, with its shape and a dtype that can be read; nothing besides.
    pub(super) fn check_tensors(&mut self, config: &QwenConfig) -> Result<(), QwenError> {
        let specs = block_specs(config);
        let params = specs.iter().flat_map(|block| &block.params);
        let expected: BTreeMap<String, &ParamSpec> =
            params.map(|param| (self.keys.stored(&param.name), param)).collect();
        self.check_missing(&expected)?;
        for (name, param) in &expected {
            self.check_entry(name, param)?;
        }
        self.check_surplus(&expected, config)
    }

    fn check_missing(&self, expected: &BTreeMap<String, &ParamSpec>) -> Result<(), QwenError> {
        let missing: Vec<_> =
            expected.keys().filter(|name| !self.locations.contains_key(*name)).cloned().collect();
        let Some(first) = missing.first() else { return Ok(()) };
        let unlisted = self.files.iter().find(|file| file.tensors.contains_key(first));
        let hint = if let Some(file) = unlisted {
            format!("; {} holds {first}, but {INDEX_FILE} does not list it", file.path.display())
        } else if missing.iter().any(|name| name.ends_with("lm_head.weight")) {
            "; the configuration says tie_word_embeddings: false, so the head needs its own weights"
                .to_string()
        } else {
            "; download the checkpoint again, or use the config.json that belongs to it".to_string()
        };
        Err(QwenError::weights(
            &self.folder,
            format!(
                "{} of the model {} missing: {}{hint}",
                count(missing.len(), "tensor"),
                if missing.len() == 1 { "is" } else { "are" },
                first_few(&missing)
            ),
        ))
    }

    fn check_entry(&self, name: &str, param: &ParamSpec) -> Result<(), QwenError> {
        let file = self.file_of(name)?;
        let entry = &file.tensors[name];
        if !dtype::is_supported(entry.dtype) {
            let stored = format!("{:?}", entry.dtype);
            let kind = if stored.starts_with("F8") { "FP8 without scales" } else { "quantised" };
            return Err(QwenError::weights(
                &file.path,
                format!(
                    "{name} is stored as {stored} ({kind}), which is not supported; BF16, F16 and \
                     F32 are read: use the bf16 checkpoint of the same model"
                ),
            ));
        }
        if entry.shape != param.shape {
            return Err(QwenError::weights(
                &file.path,
                format!(
                    "{name} has shape {:?}, the configuration asks for {:?}; does config.json \
                     belong to these weights?",
                    entry.shape, param.shape
                ),
            ));
        }
        Ok(())
    }

    fn check_surplus(
        &mut self,
        expected: &BTreeMap<String, &ParamSpec>,
        config: &QwenConfig,
    ) -> Result<(), QwenError> {
        let mut surplus = Vec::new();
        let mut notices = Vec::new();
        for name in self.locations.keys().filter(|name| !expected.contains_key(*name)) {
            let Stored::Text(text) = self.keys.classify(name) else { continue };
            if text == "lm_head.weight" && config.tie_word_embeddings {
                self.check_tied_head(name)?;
                notices.push(format!(
                    "{name} is stored although the head is tied to the embedding: equal, not used"
                ));
            } else if text.ends_with("rotary_emb.inv_freq") {
                notices.push(format!("{name} is computed, not read"));
            } else {
                surplus.push(name.clone());
            }
        }
        self.notices.append(&mut notices);
        if surplus.is_empty() {
            return Ok(());
        }
        Err(QwenError::weights(
            &self.folder,
            format!(
                "{} that the model does not have: {}; does config.json belong to these weights?",
                count(surplus.len(), "tensor"),
                first_few(&surplus)
            ),
        ))
    }

    /// A head of its own in a checkpoint whose configuration ties it: one of the two is wrong.
    fn check_tied_head(&self, head: &str) -> Result<(), QwenError> {
        let embedding = self.keys.stored("embed_tokens.weight");
        let mut values = [Vec::new(), Vec::new()];
        for (name, values) in [head, &embedding].into_iter().zip(&mut values) {
            let file = self.file_of(name)?;
            if !dtype::is_supported(file.tensors[name].dtype) {
                return Ok(());
            }
            file.read_values(name, values)?;
        }
        if values[0] == values[1] {
            return Ok(());
        }
        Err(QwenError::weights(
            &self.file_of(head)?.path,
            format!(
                "{head} differs from {embedding}, although config.json says \
                 tie_word_embeddings: true; if the head is meant, set that to false"
            ),
        ))
    }

    /// Norms that multiply by `1 + w` are stored around 0, the others around 1. A checkpoint with
    /// the two confused loads and computes nonsense.
    pub(super) fn check_norms(&mut self, config: &QwenConfig) -> Result<(), QwenError> {
        let zero_centered = self.mean_of(config, ParamRole::ZeroCenteredNorm)?;
        let plain = self.mean_of(config, ParamRole::Norm)?;
        match (zero_centered, plain) {
            (Some(zero_centered), Some(plain)) if zero_centered > 0.6 && plain < 0.4 => {
                Err(QwenError::weights(
                    &self.folder,
                    format!(
                        "the two forms of norm weights are swapped: {ZERO_CENTERED}, \
                         linear_attn.norm multiplies by w and is stored around 1; found means of \
                         {zero_centered:.2} and {plain:.2}"
                    ),
                ))
            }
            (Some(zero_centered), _) if zero_centered > 0.75 => {
                self.notices.push(format!(
                    "norm weights have a mean of {zero_centered:.2}: {ZERO_CENTERED}; if these \
                     include the 1 already, subtract it"
                ));
                Ok(())
            }
            (_, Some(plain)) if plain.abs() < 0.25 => {
                self.notices.push(format!(
                    "norm weights that multiply by w have a mean of {plain:.2}, 1 is usual: if \
                     they were stored as w - 1, add the 1"
                ));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn mean_of(&self, config: &QwenConfig, role: ParamRole) -> Result<Option<f64>, QwenError> {
        let mut values = Vec::new();
        for block in block_specs(config) {
            for param in block.params.iter().filter(|param| param.role == role) {
                self.read_param(param, &mut values)?;
            }
        }
        let sum: f64 = values.iter().map(|&x| f64::from(x)).sum();
        Ok((!values.is_empty()).then(|| sum / values.len() as f64))
    }
}

const ZERO_CENTERED: &str = "the layer, query and key norms of this family multiply by 1 + w and \
                             are stored around 0";

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn first_few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}
