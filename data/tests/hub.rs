//! The hub, against a small server on localhost that answers as the real one does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake_hub;

use std::{fs, path::Path, time::Duration};

use burn_qwen_data::{DataError, DataFormat, Source, hub, hub::HubOptions};
use fake_hub::{FakeHub, Repo};

const MODEL: &str = "Tiny/Qwen3-0B";
const DATASET: &str = "Chat/ultra_200";
const COMMIT: &str = "1111111111111111111111111111111111111111";

fn shard(seed: u8) -> Vec<u8> {
    (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect()
}

fn model_repo() -> Repo {
    let index = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors",
        "b": "model-00002-of-00002.safetensors"}}"#;
    Repo::new(COMMIT)
        .file("README.md", b"# Tiny")
        .file("config.json", br#"{"model_type": "qwen3"}"#)
        .file("tokenizer.json", b"{}")
        .file("chat_template.jinja", b"{{ messages }}")
        .file("model.safetensors.index.json", index.as_bytes())
        .lfs("model-00001-of-00002.safetensors", &shard(1))
        .lfs("model-00002-of-00002.safetensors", &shard(2))
        .file("original/consolidated.pth", b"not wanted")
}

fn row(text: &str) -> String {
    format!(
        r#"{{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "{text}"}}]}}"#
    )
}

fn dataset_repo() -> Repo {
    Repo::new(COMMIT)
        .file("README.md", b"# Chat")
        .file("data/test_sft-00000-of-00001-ab.jsonl", row("test").as_bytes())
        .lfs("data/train_sft-00000-of-00002-cd.jsonl", row("one").as_bytes())
        .lfs("data/train_sft-00001-of-00002-ef.jsonl", row("two").as_bytes())
}

fn options(hub: &FakeHub, cache: &Path) -> HubOptions {
    let mut options = HubOptions::from_vars(|_| None, cache.to_path_buf());
    options.endpoint = hub.address();
    options.cache = cache.to_path_buf();
    options.attempts = 3;
    options.retry_wait = Duration::from_millis(1);
    options
}

fn offline(options: &HubOptions) -> HubOptions {
    HubOptions { offline: true, endpoint: "http://127.0.0.1:9".to_string(), ..options.clone() }
}

fn problem<T: std::fmt::Debug>(result: Result<T, DataError>) -> String {
    match result.unwrap_err() {
        error @ DataError::Hub { .. } => error.to_string(),
        other => panic!("not an error of the hub: {other}"),
    }
}

#[test]
fn a_model_arrives_whole_and_is_not_asked_for_twice() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    let folder = hub::resolve_model(MODEL, None, &options).unwrap();
    assert!(folder.ends_with(format!("models--Tiny--Qwen3-0B/snapshots/{COMMIT}")));
    assert_eq!(fs::read(folder.join("model-00001-of-00002.safetensors")).unwrap(), shard(1));
    assert_eq!(fs::read(folder.join("model-00002-of-00002.safetensors")).unwrap(), shard(2));
    assert_eq!(fs::read(folder.join("chat_template.jinja")).unwrap(), b"{{ messages }}");
    assert!(!folder.join("original").exists());
    assert!(!folder.join("README.md").exists());

    let before = hub.log().len();
    assert_eq!(hub::resolve_model(MODEL, Some("main"), &options).unwrap(), folder);
    let after = hub.log();
    assert_eq!(after.len(), before + 1, "only the list of files: {:?}", &after[before..]);
    assert_eq!(hub::resolve_model(MODEL, Some(COMMIT), &options).unwrap(), folder);
}

#[test]
fn a_tokenizer_comes_without_weights() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    let folder = hub::resolve_tokenizer(MODEL, None, &options).unwrap();
    assert!(folder.join("tokenizer.json").is_file());
    assert!(!folder.join("model-00001-of-00002.safetensors").exists());
    // The weights are missing: offline mode must not take the folder for a model.
    let said = problem(hub::resolve_model(MODEL, None, &offline(&options)));
    assert!(said.contains("model.safetensors"), "{said}");
}

#[test]
fn a_split_of_a_data_set_is_read() {
    let hub = FakeHub::start().with(&format!("datasets/{DATASET}"), dataset_repo());
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    let files = hub::resolve_dataset(DATASET, None, None, &options).unwrap();
    assert_eq!(files.len(), 2);
    let source = Source::open(&files, DataFormat::Auto).unwrap();
    assert_eq!(source.summary().num_samples, 2);

    let files = hub::resolve_dataset(DATASET, None, Some("test_sft"), &options).unwrap();
    assert_eq!(fs::read_to_string(&files[0]).unwrap(), row("test"));
    let said = problem(hub::resolve_dataset(DATASET, None, Some("dev"), &options));
    assert!(said.contains("\"dev\"") && said.contains("test_sft, train_sft"), "{said}");

    let again = hub::resolve_dataset(DATASET, None, None, &offline(&options)).unwrap();
    assert_eq!(again.len(), 2);
}

#[test]
fn a_cut_connection_is_resumed_where_it_was_cut() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    hub.cut("model-00002-of-00002.safetensors", &[100_000, 50_000]);
    let cache = tempfile::tempdir().unwrap();
    let folder = hub::resolve_model(MODEL, None, &options(&hub, cache.path())).unwrap();
    assert_eq!(fs::read(folder.join("model-00002-of-00002.safetensors")).unwrap(), shard(2));
    let log = hub.log();
    let resumed = |start: u32| log.iter().any(|line| line.contains(&format!("bytes={start}-")));
    assert!(resumed(100_000) && resumed(150_000), "{log:#?}");
}

#[test]
fn a_connection_that_stays_cut_is_an_error_and_the_next_run_goes_on() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    hub.cut("model-00001-of-00002.safetensors", &[1000, 1000, 1000]);
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    let said = problem(hub::resolve_model(MODEL, None, &options));
    for part in ["model-00001-of-00002.safetensors", "attempt 3 of 3", "run again to resume"] {
        assert!(said.contains(part), "{said}");
    }
    let snapshot = cache.path().join("models--Tiny--Qwen3-0B/snapshots").join(COMMIT);
    assert!(!snapshot.join("model-00001-of-00002.safetensors").exists(), "half a file is offered");
    let said = problem(hub::resolve_model(MODEL, None, &offline(&options)));
    assert!(said.contains("not in the cache"), "{said}");

    let folder = hub::resolve_model(MODEL, None, &options).unwrap();
    assert_eq!(fs::read(folder.join("model-00001-of-00002.safetensors")).unwrap(), shard(1));
    assert!(hub.log().iter().any(|line| line.contains("bytes=3000-")));
}

#[test]
fn damage_on_the_way_is_noticed() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    hub.damage("model-00001-of-00002.safetensors");
    let cache = tempfile::tempdir().unwrap();
    let said = problem(hub::resolve_model(MODEL, None, &options(&hub, cache.path())));
    assert!(said.contains("SHA-256"), "{said}");
}

#[test]
fn a_file_of_the_cache_that_was_cut_off_is_fetched_again() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    let folder = hub::resolve_model(MODEL, None, &options).unwrap();
    let file = folder.join("model-00001-of-00002.safetensors");
    fs::write(file.canonicalize().unwrap(), &shard(1)[..10]).unwrap();
    hub::resolve_model(MODEL, None, &options).unwrap();
    assert_eq!(fs::read(file).unwrap(), shard(1));
}

#[test]
fn a_part_that_is_already_whole_does_not_block_the_download() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    let blobs = cache.path().join("models--Tiny--Qwen3-0B/blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(format!("{}.part", fake_hub::sha256(&shard(1)))), shard(1)).unwrap();
    let folder = hub::resolve_model(MODEL, None, &options).unwrap();
    assert_eq!(fs::read(folder.join("model-00001-of-00002.safetensors")).unwrap(), shard(1));
}

#[test]
fn a_new_commit_brings_only_what_has_changed() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    hub::resolve_model(MODEL, None, &options).unwrap();
    let commit = "2222222222222222222222222222222222222222";
    let mut repo = model_repo().file("tokenizer.json", b"{ }");
    repo.commit = commit.to_string();
    let hub = hub.with(MODEL, repo);
    let before = hub.log().len();
    let folder = hub::resolve_model(MODEL, None, &options).unwrap();
    assert!(folder.ends_with(commit));
    assert_eq!(fs::read(folder.join("model-00001-of-00002.safetensors")).unwrap(), shard(1));
    assert_eq!(fs::read(folder.join("tokenizer.json")).unwrap(), b"{ }");
    let log = hub.log();
    assert!(!log[before..].iter().any(|line| line.contains("00001-of-00002")), "{log:#?}");
    assert_eq!(hub::resolve_model(MODEL, None, &offline(&options)).unwrap(), folder);
}

#[test]
fn what_is_missing_is_named() {
    let lost = model_repo().without("model-00002-of-00002.safetensors");
    let hub = FakeHub::start()
        .with("Tiny/lost", lost)
        .with("Tiny/gguf", Repo::new(COMMIT).file("model.gguf", b"GGUF"))
        .with("Tiny/bin", Repo::new(COMMIT).file("config.json", b"{}").file("a.bin", b"x"));
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    let ask =
        |id: &str, revision: Option<&str>| problem(hub::resolve_model(id, revision, &options));

    let said = ask("Tiny/lost", None);
    assert!(said.contains("model-00002-of-00002.safetensors"), "{said}");
    let said = ask("Tiny/gguf", None);
    assert!(said.contains("config.json"), "{said}");
    let said = ask("Tiny/bin", None);
    assert!(said.contains("a.bin") && said.contains("model.safetensors"), "{said}");
    let said = ask("Tiny/lost", Some("v9"));
    assert!(said.contains("Tiny/lost@v9") && said.contains("no such branch"), "{said}");
    let said = ask("Tiny/none", None);
    assert!(said.contains("404") && said.contains("Tiny/none"), "{said}");
}

#[test]
fn a_file_that_is_listed_but_gone_is_named() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    hub.lose("tokenizer.json");
    let cache = tempfile::tempdir().unwrap();
    let said = problem(hub::resolve_model(MODEL, None, &options(&hub, cache.path())));
    assert!(said.contains("tokenizer.json") && said.contains("404"), "{said}");
}

#[test]
fn a_private_repository_asks_for_a_token() {
    let hub = FakeHub::start()
        .with(MODEL, model_repo().private("hf_secret"))
        .with("Tiny/gated", model_repo().gated());
    let cache = tempfile::tempdir().unwrap();
    let mut options = options(&hub, cache.path());
    let said = problem(hub::resolve_model(MODEL, None, &options));
    assert!(said.contains("401") && said.contains("HF_TOKEN"), "{said}");
    options.token = Some("hf_wrong".to_string());
    let said = problem(hub::resolve_model(MODEL, None, &options));
    assert!(said.contains("401") && !said.contains("hf_wrong"), "{said}");
    assert!(!format!("{options:?}").contains("hf_wrong"));
    options.token = Some("hf_secret".to_string());
    hub::resolve_model(MODEL, None, &options).unwrap();

    let said = problem(hub::resolve_model("Tiny/gated", None, &options));
    assert!(said.contains("gated (403)") && said.contains("accept its terms"), "{said}");
}

#[test]
fn offline_mode_uses_the_cache_only() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    let said = problem(hub::resolve_model(MODEL, None, &offline(&options)));
    assert!(said.contains("not in the cache") && said.contains("HF_HUB_OFFLINE"), "{said}");
    let folder = hub::resolve_model(MODEL, None, &options).unwrap();
    let requests = hub.log().len();
    assert_eq!(hub::resolve_model(MODEL, None, &offline(&options)).unwrap(), folder);
    assert_eq!(hub::resolve_model(MODEL, Some(COMMIT), &offline(&options)).unwrap(), folder);
    assert_eq!(hub.log().len(), requests);
    fs::remove_file(folder.join("model-00002-of-00002.safetensors")).unwrap();
    let said = problem(hub::resolve_model(MODEL, None, &offline(&options)));
    assert!(said.contains("model-00002-of-00002.safetensors"), "{said}");
}

#[test]
fn a_hub_that_is_down_is_named() {
    let cache = tempfile::tempdir().unwrap();
    let mut options = options(&FakeHub::start(), cache.path());
    options.endpoint = "http://127.0.0.1:9".to_string();
    let said = problem(hub::resolve_model(MODEL, None, &options));
    assert!(said.contains("127.0.0.1:9") && said.contains("HF_HUB_OFFLINE=1"), "{said}");
}

#[test]
fn a_busy_hub_is_asked_again() {
    let hub = FakeHub::start().with(MODEL, model_repo());
    hub.busy(2);
    let cache = tempfile::tempdir().unwrap();
    hub::resolve_model(MODEL, None, &options(&hub, cache.path())).unwrap();
}

#[test]
fn a_list_that_points_outside_is_not_followed() {
    let repo = Repo::new(COMMIT).file("../../../train.jsonl", b"{}").file("/train.jsonl", b"{}");
    let hub = FakeHub::start().with(&format!("datasets/{DATASET}"), repo);
    let cache = tempfile::tempdir().unwrap();
    let said = problem(hub::resolve_dataset(DATASET, None, None, &options(&hub, cache.path())));
    assert!(said.contains("has no .parquet"), "{said}");
}

#[test]
fn ids_are_told_from_paths() {
    for id in ["Qwen/Qwen3-0.6B", "HuggingFaceH4/ultrachat_200k", "a/b@v1.0", "a/b@refs/pr/1"] {
        assert!(hub::looks_like_id(id), "{id}");
    }
    for path in [
        "",
        "/",
        "a",
        "a/",
        "/a",
        "./a",
        "../a",
        "a/b/c",
        "data/train.jsonl",
        "data/*.parquet",
        "~/a",
        "a b/c",
        "a/b@",
        "a--b/c",
        "a/b:train",
    ] {
        assert!(!hub::looks_like_id(path), "{path}");
    }
}

#[test]
fn the_usual_variables_are_read() {
    let home = tempfile::tempdir().unwrap();
    let hf_home = home.path().join("hf");
    fs::create_dir_all(&hf_home).unwrap();
    fs::write(hf_home.join("token"), "hf_file\n").unwrap();
    let with = |vars: &[(&str, &str)]| {
        let vars: Vec<_> = vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let find = move |name: &str| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
        HubOptions::from_vars(find, home.path().to_path_buf())
    };
    let plain = with(&[]);
    assert_eq!(plain.endpoint, "https://huggingface.co");
    assert_eq!(plain.cache, home.path().join(".cache/huggingface/hub"));
    assert!(plain.token.is_none() && !plain.offline);

    let hf_home = hf_home.to_str().unwrap();
    let moved = with(&[("HF_HOME", hf_home), ("HF_ENDPOINT", "http://mirror/"), ("HF_TOKEN", "")]);
    assert_eq!(moved.endpoint, "http://mirror");
    assert_eq!(moved.cache, Path::new(hf_home).join("hub"));
    assert_eq!(moved.token.as_deref(), Some("hf_file"));

    let all = with(&[
        ("HF_HOME", hf_home),
        ("HF_HUB_CACHE", "/c"),
        ("HF_TOKEN", "hf_env"),
        ("HF_HUB_OFFLINE", "1"),
    ]);
    assert_eq!(all.cache, Path::new("/c"));
    assert_eq!(all.token.as_deref(), Some("hf_env"));
    assert!(all.offline);
}
