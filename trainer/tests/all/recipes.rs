//! The recipes that come with the program.

use std::{collections::BTreeMap, path::Path};

use burn_qwen_trainer::settings;

use crate::kit::Bench;

/// Name and text of every file in `recipes/`.
fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let recipes = paths.filter(|path| path.extension().is_some_and(|e| e == "toml"));
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_string();
    recipes.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn every_recipe_parses_and_is_embedded() {
    let bench = Bench::new("qwen2");
    let list: serde_json::Value = serde_json::from_str(&bench.succeeds("recipes --json")).unwrap();
    let mut names: Vec<&str> =
        list.as_array().unwrap().iter().map(|recipe| recipe["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, files().keys().collect::<Vec<_>>());
    for (name, text) in files() {
        settings::load(&text, &name, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(bench.succeeds(&format!("recipes {name}")).trim_end(), text.trim_end());
    }
}

/// The recipe that promises every key has every key.
#[test]
fn the_full_recipe_names_every_key() {
    let text = &files()["full"];
    let missing: Vec<String> = settings::all_keys()
        .into_iter()
        .filter(|key| {
            let (section, name) = key.split_once('.').unwrap();
            // Ops are listed by `kernels list`; exams are the quickstart's.
            !matches!(section, "kernels" | "exam")
                && !text.lines().any(|line| {
                    let line = line.trim_start_matches("# ");
                    line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('='))
                })
        })
        .collect();
    // The alternative to `epochs` stands beside it.
    assert_eq!(missing, ["train.steps"]);
    assert!(text.contains("steps = N"));
}
