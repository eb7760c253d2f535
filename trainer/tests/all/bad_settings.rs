//! Arguments and configuration files that are wrong: one message each, with key and place.

use crate::kit::{Bench, assert_says};

#[test]
fn a_misspelt_key_names_the_nearest() {
    let bench = Bench::new("qwen2");
    bench.write("run.toml", "[model]\npath = \"model\"\n\n[train]\nwarmup_step = 3\n");
    let message = bench.refuses("train --config run.toml --data chats.jsonl");
    assert_says(&message, &["run.toml:5", "train.warmup_step", "did you mean train.warmup_steps"]);
    let message = bench.refuses("train quickstart --set trian.lr=1");
    assert_says(&message, &["--set trian.lr=1", "did you mean train.lr"]);
    let message = bench.refuses("train quickstart --set kernels.atention=reference");
    assert_says(&message, &["kernels.atention", "did you mean kernels.attention"]);
    bench.write("run.toml", "[trian]\nlr = 1e-4\n");
    let message = bench.refuses("train --config run.toml");
    assert_says(&message, &["run.toml:1", "trian"]);
    bench.write("run.toml", "lr = 1e-4\n");
    assert_says(&bench.refuses("train --config run.toml"), &["run.toml:1", "no key lr"]);
    assert!(!bench.path("runs").exists(), "nothing is left behind");
}

#[test]
fn the_line_is_that_of_the_right_section() {
    let bench = Bench::new("qwen2");
    bench.write("run.toml", "[log]\nevery_steps = 1\n\n[train]\nevery_steps = 1\n");
    assert_says(&bench.refuses("train --config run.toml"), &["run.toml:5", "train.every_steps"]);
    bench.write("run.toml", "[train]\n\"lr rate\" = 1\n");
    assert_says(&bench.refuses("train --config run.toml"), &["run.toml:2", "train.lr rate"]);
    bench.write("run.toml", "train.lrr = 1\n");
    assert_says(&bench.refuses("train --config run.toml"), &["run.toml:1", "train.lrr"]);
}

#[test]
fn wrong_types_and_values_name_key_and_line() {
    let bench = Bench::new("qwen2");
    for (text, parts) in [
        ("[train]\nlr = \"fast\"\n", vec!["run.toml:2", "lr"]),
        ("[train]\nepochs = -1\n", vec!["run.toml:2", "epochs"]),
        ("[data]\nlong_samples = \"shorten\"\n", vec!["run.toml:2", "drop", "cut", "split"]),
        ("[train\nlr = 1\n", vec!["run.toml:1"]),
        ("train = 3\n", vec!["run.toml:1", "train"]),
        ("[train]\nlr = 1e-4\nlr = 1e-5\n", vec!["run.toml:3"]),
    ] {
        bench.write("run.toml", text);
        assert_says(&bench.refuses("train --config run.toml --data chats.jsonl"), &parts);
    }
    let train = "train --model model --data chats.jsonl --output run";
    for (setting, parts) in [
        ("train.lr=fast", vec!["--set train.lr=fast"]),
        ("train.lr", vec!["--set train.lr", "key=value"]),
        ("train.lr=-1", vec!["train.lr = -1"]),
        ("train.lr=nan", vec!["train.lr", "above 0"]),
        ("train.betas=[0.9,1.0]", vec!["train.betas", "1"]),
        ("train.betas=[0.9]", vec!["train.betas"]),
        ("train.epochs=0", vec!["train.epochs", "at least 1"]),
        ("train.gradient_accumulation=0", vec!["train.gradient_accumulation", "at least 1"]),
        ("data.max_tokens=0", vec!["data.max_tokens"]),
        ("data.template=missing.jinja", vec!["missing.jinja"]),
        ("model.dtype=bf16", vec!["model.dtype", "f32"]),
        ("kernels.attention=magic", vec!["attention", "magic"]),
        ("checkpoint.resume=soon", vec!["soon", "auto"]),
        ("model.tokenizer=nosuch", vec!["model.tokenizer nosuch"]),
    ] {
        let message = bench.refuses(&format!("{train} --set {setting}"));
        assert_says(&message, &parts);
    }
    let both = format!("{train} --set train.epochs=1 --set train.steps=1");
    assert_says(&bench.refuses(&both), &["train.epochs", "train.steps"]);
    assert!(!bench.path("run").exists(), "nothing is left behind");
}

#[test]
fn what_does_not_exist_is_named() {
    let bench = Bench::new("qwen2");
    for (args, parts) in [
        ("train nosuch", vec!["nosuch", "quickstart", "full"]),
        ("recipes nosuch", vec!["nosuch", "quickstart", "full"]),
        ("train --config nosuch.toml", vec!["nosuch.toml"]),
        ("train --model nosuch --data chats.jsonl", vec!["--model nosuch"]),
        ("train --model ./no/such/folder --data chats.jsonl", vec!["./no/such/folder"]),
        ("train --model model --data nosuch.jsonl", vec!["nosuch.jsonl"]),
        ("train --model model --data no*such.jsonl", vec!["no*such.jsonl"]),
        ("train --model model", vec!["--data"]),
        ("train full --data chats.jsonl", vec!["--model"]),
        ("eval --model model --data nosuch.jsonl", vec!["nosuch.jsonl"]),
        ("generate --model nosuch --prompt hi", vec!["nosuch"]),
        ("export nosuch out", vec!["nosuch"]),
        ("export model out", vec!["model", "checkpoint"]),
        ("data stats --model nosuch --data chats.jsonl", vec!["nosuch"]),
        ("parity --golden nosuch", vec!["nosuch"]),
        ("kernels list --model nosuch", vec!["nosuch"]),
    ] {
        let message = bench.refuses(args);
        assert_says(&message, &parts);
    }
}

#[test]
fn wrong_arguments_are_named() {
    let bench = Bench::new("qwen2");
    for (args, parts) in [
        ("trian", vec!["trian", "train"]),
        ("train --modle x", vec!["--modle", "--model"]),
        ("train quickstart --config run.toml", vec!["--config"]),
        ("train --max-steps few", vec!["few", "--max-steps"]),
        ("eval --model model", vec!["--data"]),
        ("generate --model model --prompt hi --temperature=-1", vec!["--temperature"]),
        ("generate --model model --prompt hi --top-p 0", vec!["--top-p"]),
        ("export model out --dtype f64", vec!["--dtype f64", "bf16"]),
        ("train --model model --data chats.jsonl --max-steps 0", vec!["at least 1"]),
    ] {
        assert_says(&bench.refuses(args), &parts);
    }
}

/// A template of one's own: used, or refused with its name and line.
#[test]
fn a_template_that_does_not_compile_is_named() {
    let bench = Bench::new("qwen2");
    bench.write("chat.jinja", "{% for m in messages %}\n{{ m.content \n{% endfor %}");
    let stats = "data stats --model model --data chats.jsonl --set data.template=chat.jinja";
    assert_says(&bench.refuses(stats), &["chat.jinja"]);
    // One that fails on every sample: counted by `data stats`, an error of `train`.
    bench.write("chat.jinja", "{{ nosuch.field.of }}");
    assert_says(&bench.succeeds(stats), &["24 left out", "nosuch", "chats.jsonl:1"]);
    let train = stats.replace("data stats", "train --output run");
    assert_says(&bench.refuses(&train), &["nosuch", "chats.jsonl:1"]);
}
