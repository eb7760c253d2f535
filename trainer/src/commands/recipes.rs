//! `recipes`: the configurations that come with the program.

use burn_qwen_trainer::TrainError;
use serde_json::json;

use super::{print, print_json};

/// An embedded configuration.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) text: &'static str,
}

/// All recipes.
pub(crate) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "quickstart",
        about: "a small hybrid model from random weights on built-in data, in minutes on a laptop",
        text: include_str!("../../recipes/quickstart.toml"),
    },
    Recipe {
        name: "full",
        about: "full fine-tune of a checkpoint on chat data; every key with its meaning",
        text: include_str!("../../recipes/full.toml"),
    },
];

pub(crate) fn find(name: &str) -> Result<&'static Recipe, TrainError> {
    RECIPES.iter().find(|recipe| recipe.name == name).ok_or_else(|| {
        let names: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
        TrainError::Input(format!(
            "there is no recipe \"{name}\"; the recipes are {}; a file is given by --config",
            names.join(", ")
        ))
    })
}

pub(crate) fn run(name: Option<&str>, json: bool) -> Result<(), TrainError> {
    match name {
        Some(name) => print(find(name)?.text.trim_end()),
        None if json => {
            let list: Vec<_> =
                RECIPES.iter().map(|r| json!({"name": r.name, "about": r.about})).collect();
            print_json(&list);
        }
        None => {
            for recipe in RECIPES {
                print(&format!("{:12} {}", recipe.name, recipe.about));
            }
            print("\n`burn-qwen recipes NAME` prints one; `burn-qwen train NAME` runs it.");
        }
    }
    Ok(())
}
