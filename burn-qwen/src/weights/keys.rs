//! The one table of checkpoint names.

/// Prefixes under which text models are stored, the most specific first.
const TEXT_PREFIXES: &[&str] = &["model.language_model.", "language_model.model.", "model."];

/// Prefixes of tensors that are no part of the text model: vision towers, multi-token prediction.
const OTHER_PREFIXES: &[&str] = &[
    "model.visual.",
    "visual.",
    "vision_tower.",
    "model.vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "mtp.",
    "model.mtp.",
];

/// Where the head is stored.
const HEAD_KEYS: &[&str] = &["lm_head.weight", "language_model.lm_head.weight"];

/// How the names of a checkpoint map to those of the text model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTable {
    prefix: &'static str,
    head: &'static str,
}

/// What a stored name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A parameter of the text model, by its name there.
    Text(String),
    /// Something else that is only copied.
    Other,
}

impl KeyTable {
    /// The names of a new text checkpoint.
    pub fn standard() -> Self {
        Self { prefix: "model.", head: HEAD_KEYS[0] }
    }

    /// Decides by the names themselves (not by `model_type`, which does not tell); `None` if there
    /// is no embedding under any known prefix.
    pub fn detect<'a>(names: impl IntoIterator<Item = &'a str> + Clone) -> Option<Self> {
        let has = |key: &str| names.clone().into_iter().any(|name| name == key);
        let prefix =
            TEXT_PREFIXES.iter().find(|prefix| has(&format!("{prefix}embed_tokens.weight")))?;
        let head = HEAD_KEYS.iter().find(|key| has(key)).unwrap_or(&HEAD_KEYS[0]);
        Some(Self { prefix, head })
    }

    /// The stored name of a parameter of the text model.
    pub fn stored(&self, name: &str) -> String {
        if name == "lm_head.weight" {
            self.head.to_string()
        } else {
            format!("{}{name}", self.prefix)
        }
    }

    /// What a stored name stands for.
    pub fn classify(&self, stored: &str) -> Stored {
        if stored == self.head {
            return Stored::Text("lm_head.weight".to_string());
        }
        if OTHER_PREFIXES.iter().any(|prefix| stored.starts_with(prefix)) {
            return Stored::Other;
        }
        match stored.strip_prefix(self.prefix) {
            Some(name) => Stored::Text(name.to_string()),
            None => Stored::Other,
        }
    }
}
