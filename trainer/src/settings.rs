//! From a TOML text and `--set` overrides to a [`RunConfig`], with errors that name the key.

use std::path::Path;

use toml::{
    Table, Value,
    de::{DeTable, DeValue},
};

use crate::{config::RunConfig, error::TrainError};

/// Reads a configuration; `origin` names it in errors, `overrides` are `key=value` pairs.
///
/// # Errors
/// Unknown keys (with the nearest known one), wrong types, malformed overrides.
pub fn load(text: &str, origin: &str, overrides: &[String]) -> Result<RunConfig, TrainError> {
    let malformed = |error: toml::de::Error| TrainError::Input(locate(origin, text, &error));
    let spanned = DeTable::parse(text).map_err(malformed)?;
    check_keys(spanned.get_ref(), &known(), "", &|at| place(origin, text, at))?;
    let mut table: Table = text.parse().map_err(malformed)?;
    // Typed once with positions, before overrides blur them.
    let typed: Result<RunConfig, _> = toml::from_str(text);
    if let Err(error) = typed {
        return Err(TrainError::Input(locate(origin, text, &error)));
    }
    for setting in overrides {
        apply(&mut table, setting)?;
    }
    RunConfig::deserialize_table(table)
}

impl RunConfig {
    fn deserialize_table(table: Table) -> Result<Self, TrainError> {
        Value::Table(table).try_into().map_err(|error: toml::de::Error| {
            TrainError::Input(format!("--set: {}", error.message()))
        })
    }
}

/// Every key with its default; a table of tables.
fn known() -> Table {
    let mut config = RunConfig::default();
    // Optional keys are absent from the defaults: give each a value.
    config.train.epochs = Some(0);
    config.train.steps = Some(0);
    config.model.revision = Some(String::new());
    config.model.tokenizer = Some(String::new());
    config.data.enable_thinking = Some(false);
    config.exam.data = Some(std::path::PathBuf::new());
    let mut table = Table::try_from(&config).expect("defaults are plain values");
    if let Some(Value::Table(kernels)) = table.get_mut("kernels") {
        for op in burn_qwen_kernels::registry::OPS {
            kernels.insert((*op).to_string(), Value::String("auto".to_string()));
        }
    }
    table
}

fn check_keys(
    table: &DeTable<'_>,
    known: &Table,
    prefix: &str,
    place: &dyn Fn(usize) -> String,
) -> Result<(), TrainError> {
    for (key, value) in table {
        let at = key.span().start;
        let key: &str = key.get_ref();
        let path = if prefix.is_empty() { key.to_string() } else { format!("{prefix}.{key}") };
        match (known.get(key), value.get_ref()) {
            (Some(Value::Table(inner)), DeValue::Table(value)) => {
                check_keys(value, inner, &path, place)?;
            }
            (Some(Value::Table(_)), value) => {
                return Err(TrainError::Input(format!(
                    "{}: {path} must be a table, found a value of type {}",
                    place(at),
                    value.type_str()
                )));
            }
            (Some(_), _) => {}
            (None, _) => return Err(unknown_key(&path, &place(at))),
        }
    }
    Ok(())
}

fn unknown_key(path: &str, place: &str) -> TrainError {
    let all = all_keys();
    let nearest = all
        .iter()
        .map(|known| (strsim::jaro_winkler(known, path), known))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(score, _)| *score > 0.7);
    let advice = match nearest {
        Some((_, known)) => format!("; did you mean {known}?"),
        None => "; `burn-qwen recipes full` shows every key".to_string(),
    };
    TrainError::Input(format!("{place}: there is no key {path}{advice}"))
}

/// Every key in dotted form.
pub fn all_keys() -> Vec<String> {
    fn collect(table: &Table, prefix: &str, keys: &mut Vec<String>) {
        for (key, value) in table {
            let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            match value {
                Value::Table(inner) => collect(inner, &path, keys),
                _ => keys.push(path),
            }
        }
    }
    let mut keys = Vec::new();
    collect(&known(), "", &mut keys);
    keys
}

fn apply(table: &mut Table, setting: &str) -> Result<(), TrainError> {
    let (key, text) = setting.split_once('=').ok_or_else(|| {
        TrainError::Input(format!("--set {setting}: expected key=value, such as train.lr=2e-5"))
    })?;
    let key = key.trim();
    if !all_keys().iter().any(|known| known == key) {
        return Err(unknown_key(key, &format!("--set {setting}")));
    }
    let value = parse_value(text.trim());
    let (section, name) = key.split_once('.').expect("every known key is in a table");
    let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(name.to_string(), value);
    }
    let check: Result<RunConfig, toml::de::Error> = Value::Table(table.clone()).try_into();
    check
        .map(|_| ())
        .map_err(|error| TrainError::Input(format!("--set {setting}: {}", error.message().trim())))
}

/// A TOML value, or a bare string.
fn parse_value(text: &str) -> Value {
    let parsed: Result<Table, _> = format!("value = {text}").parse();
    match parsed {
        Ok(mut table) if table.len() == 1 => {
            table.remove("value").unwrap_or_else(|| Value::String(text.to_string()))
        }
        _ => Value::String(text.to_string()),
    }
}

/// File and line of a byte of the text.
fn place(origin: &str, text: &str, at: usize) -> String {
    format!("{origin}:{}", line(text, at) + 1)
}

/// Lines before a byte of the text.
fn line(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(i, _)| *i < at).filter(|(_, c)| *c == '\n').count()
}

fn locate(origin: &str, text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim();
    match error.span() {
        Some(span) => {
            let source = text.lines().nth(line(text, span.start)).unwrap_or_default().trim();
            format!("{}: {message}, in `{source}`", place(origin, text, span.start))
        }
        None => format!("{origin}: {message}"),
    }
}

/// Reads a configuration file.
///
/// # Errors
/// A file that cannot be read, and whatever [`load`] refuses.
pub fn load_file(path: &Path, overrides: &[String]) -> Result<RunConfig, TrainError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| TrainError::Input(format!("--config {}: {error}", path.display())))?;
    load(&text, &path.display().to_string(), overrides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str, overrides: &[&str]) -> String {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        load(text, "run.toml", &overrides).unwrap_err().to_string()
    }

    #[test]
    fn unknown_keys_name_the_nearest() {
        assert_eq!(
            message("[train]\nlr = 1e-4\nwarmup_step = 3\n", &[]),
            "run.toml:3: there is no key train.warmup_step; did you mean train.warmup_steps?"
        );
        assert_eq!(
            message("", &["trian.lr=1"]),
            "--set trian.lr=1: there is no key trian.lr; did you mean train.lr?"
        );
        assert!(message("[zzz]\nq = 1\n", &[]).contains("there is no key zzz"));
    }

    #[test]
    fn wrong_types_name_line_and_key() {
        let text = message("[train]\nlr = \"fast\"\n", &[]);
        assert!(text.starts_with("run.toml:2: ") && text.contains("lr = \"fast\""), "{text}");
        let text = message("", &["train.steps=many"]);
        assert!(text.starts_with("--set train.steps=many: "), "{text}");
        let text = message("[data]\nlong_samples = \"shorten\"\n", &[]);
        assert!(text.contains("drop") && text.contains("split"), "{text}");
    }

    #[test]
    fn overrides_win_and_bare_strings_work() {
        let overrides = ["train.lr=2e-5", "data.long_samples=cut", "kernels.attention=reference"];
        let config =
            load("[train]\nlr = 1e-3\n", "t", &overrides.map(ToString::to_string)).unwrap();
        assert_eq!(config.train.lr, 2e-5);
        assert_eq!(config.data.long_samples, burn_qwen_data::config::LongSamples::Cut);
        assert_eq!(config.kernels.ops["attention"], "reference");
    }

    #[test]
    fn a_resolved_configuration_reads_back() {
        let config = load("[train]\nsteps = 3\n", "t", &[]).unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(load(&text, "t", &[]).unwrap(), config);
    }
}
