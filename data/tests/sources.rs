//! Files to samples: every layout, every codec, and what is said of files that are not well.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod parquet_file;

use std::{
    fs,
    path::{Path, PathBuf},
};

use burn_qwen_data::{Content, Conversation, DataError, DataFormat, Sample, Source, source};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn open(&self, name: &str, text: impl AsRef<[u8]>) -> Result<Source, DataError> {
        Source::open(&[self.file(name, text)], DataFormat::Auto)
    }

    fn error(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        self.open(name, text).unwrap_err().to_string()
    }
}

fn samples(source: &Source) -> Vec<Sample> {
    (0..source.num_blocks()).flat_map(|block| source.read_block(block).unwrap()).collect()
}

fn chats(source: &Source) -> Vec<Conversation> {
    let samples = samples(source).into_iter();
    samples
        .map(|sample| match sample.content {
            Content::Chat(chat) => chat,
            Content::Text(text) => panic!("a text: {text}"),
        })
        .collect()
}

fn turns(chat: &Conversation) -> Vec<(String, Value)> {
    let text = |value: &Value| value.as_str().unwrap().to_string();
    chat.messages.iter().map(|m| (text(&m["role"]), m["content"].clone())).collect()
}

fn turn(role: &str, content: &str) -> (String, Value) {
    (role.to_string(), json!(content))
}

fn rejected(source: &Source) -> Vec<(&str, u64, &str)> {
    let rejected = source.summary().rejected.iter();
    rejected.map(|(reason, r)| (reason.as_str(), r.count, r.places[0].as_str())).collect()
}

/// Reason and count, without places.
fn reasons(source: &Source) -> Vec<(&str, u64)> {
    rejected(source).into_iter().map(|(reason, count, _)| (reason, count)).collect()
}

const CHAT: &str =
    r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}"#;

#[test]
fn lines_an_array_and_lines_called_json_are_the_same() {
    let folder = Folder::new();
    let lines = format!("\u{feff}{CHAT}\r\n\r\n  {CHAT}\n\n{CHAT}");
    let from_lines = folder.open("a.jsonl", &lines).unwrap();
    let from_json = folder.open("b.json", &lines).unwrap();
    let array = format!("\u{feff} [\n{CHAT},\n\n{CHAT},{CHAT}\r\n]\n");
    let from_array = folder.open("c.json", array).unwrap();
    assert_eq!(chats(&from_lines).len(), 3);
    assert_eq!(chats(&from_lines), chats(&from_json));
    assert_eq!(chats(&from_lines), chats(&from_array));
    let at = |source: &Source| -> Vec<_> {
        samples(source).iter().map(|s| (s.origin.row, s.origin.line.unwrap())).collect()
    };
    assert_eq!(at(&from_lines), [(0, 1), (1, 3), (2, 5)]);
    assert_eq!(at(&from_array), [(0, 2), (1, 4), (2, 4)]);
}

#[test]
fn blocks_are_read_in_any_order_and_keep_their_lines() {
    let folder = Folder::new();
    let lines: Vec<_> =
        (0..2500).map(|i| json!({"text": format!("text {i}")}).to_string()).collect();
    let source = folder.open("a.jsonl", lines.join("\n")).unwrap();
    assert_eq!((source.num_blocks(), source.summary().num_samples), (3, 2500));
    let last = source.read_block(2).unwrap();
    assert_eq!(last.len(), 2500 - 2048);
    assert_eq!(last[0].content, Content::Text("text 2048".to_string()));
    assert_eq!((last[0].origin.row, last[0].origin.line), (2048, Some(2049)));
    assert_eq!(source.read_block(0).unwrap()[5].content, Content::Text("text 5".to_string()));
}

#[test]
fn a_type_change_in_an_unused_key_is_no_error() {
    let folder = Folder::new();
    let row = |id: Value| format!("{}\n", json!({"id": id, "text": "t"}));
    let lines: String = (0..10).map(|i| row(if i == 6 { json!(5) } else { json!("x") })).collect();
    assert_eq!(folder.open("a.jsonl", lines).unwrap().summary().num_samples, 10);
}

#[test]
fn text_files_are_documents() {
    let folder = Folder::new();
    let first = folder.file("a.txt", "\u{feff}one\r\ntwo\n");
    let second = folder.file("b.txt", "three");
    let source = Source::open(&[first, second], DataFormat::Auto).unwrap();
    let texts: Vec<_> = samples(&source).into_iter().map(|sample| sample.content).collect();
    let text = |text: &str| Content::Text(text.to_string());
    assert_eq!(texts, [text("one\r\ntwo\n"), text("three")]);
}

#[test]
fn broken_rows_are_named_by_line() {
    let folder = Folder::new();
    for (name, second, said) in [
        ("half", "{\"text\": \"abc".as_bytes(), "a.jsonl:3: is no valid JSON"),
        ("utf8", b"{\"text\": \"\xff\xfe\"}", "a.jsonl:3: is no valid UTF-8"),
        ("type", b"{\"text\": 5}", "a.jsonl:3: text must be a string, found a number"),
        ("key", b"{\"txt\": \"\"}", "a.jsonl:3: the key text is missing"),
        ("row", b"[1]", "a.jsonl:3: expected an object, found a list"),
    ] {
        let mut lines = b"{\"text\": \"ok\"}\n\n".to_vec();
        lines.extend_from_slice(second);
        let error = folder.error("a.jsonl", lines);
        assert!(error.contains(said), "{name}: {error}");
    }
    let error = folder.error("a.json", "[\n{\"text\": \"a\"},\n{\"text\": \"b\"");
    assert!(error.contains("a.json:3"), "{error}");
    let error = folder.error("a.json", "[{\"text\": \"a\"},\n{\"text\": {}}]");
    assert!(error.contains("a.json:2: text must be a string, found an object"), "{error}");
    let error = folder.error("a.json", b"[\n{\"text\": \"a\"},\n{\"text\": \"\xff\"}]");
    assert!(error.contains("a.json:3: is no valid UTF-8"), "{error}");
    let error = folder.error("a.txt", b"one\ntwo\xff");
    assert!(error.contains("a.txt:2"), "{error}");
}

#[test]
fn the_first_error_in_the_file_is_reported() {
    let folder = Folder::new();
    let row = |i| if i >= 1500 { "{".to_string() } else { r#"{"text": "t"}"#.to_string() };
    let lines: Vec<_> = (0..6000).map(row).collect();
    let error = folder.error("a.jsonl", lines.join("\n"));
    assert!(error.contains("a.jsonl:1501:"), "{error}");
}

#[test]
fn unusable_files_are_named() {
    let folder = Folder::new();
    for (name, text, said) in [
        ("a.jsonl", "", "has no rows"),
        ("a.jsonl", "\n \r\n", "has no rows"),
        ("a.json", "[]", "has no rows"),
        ("a.csv", "a,b", "\"csv\" are not read"),
        ("a.parquet", "PAR1", "cannot be read as Parquet"),
        ("a.jsonl", "{\"question\": 1, \"answer\": 2}", "keys question, answer"),
    ] {
        let error = folder.error(name, text);
        assert!(error.contains(name) && error.contains(said), "{error}");
    }
    let gone = Source::open(&[PathBuf::from("gone.jsonl")], DataFormat::Auto).unwrap_err();
    assert!(gone.to_string().contains("gone.jsonl"), "{gone}");
}

#[test]
fn files_are_resolved_in_a_stable_order() {
    let folder = Folder::new();
    for name in ["b.jsonl", "a.parquet", "c.txt", "notes.md", "d[1].json"] {
        folder.file(name, "");
    }
    let root = folder.0.path();
    let at = |name: &str| root.join(name).display().to_string();
    let names = |entries: &[String]| -> Vec<String> {
        let files = source::resolve(entries).unwrap();
        files.iter().map(|f| f.file_name().unwrap().to_str().unwrap().to_string()).collect()
    };
    let all = ["a.parquet", "b.jsonl", "c.txt", "d[1].json"];
    assert_eq!(names(&[root.display().to_string()]), all);
    assert_eq!(
        names(&[at("c.txt"), at("*.jsonl"), at("")]),
        ["c.txt", "b.jsonl", "a.parquet", "d[1].json"]
    );
    assert_eq!(names(&[at("d[1].json")]), ["d[1].json"]);
    for (entry, said) in [(at("*.csv"), "no file matches"), (at("gone.jsonl"), "no such file")] {
        let error = source::resolve(std::slice::from_ref(&entry)).unwrap_err().to_string();
        assert!(error.contains(&entry) && error.contains(said), "{error}");
    }
    assert!(source::resolve(&[]).is_err());
}

#[test]
fn parts_of_text_are_text_and_empty_tools_are_none() {
    let folder = Folder::new();
    let answer = json!({"role": "assistant", "content": "a"});
    let row = |content: Value, tools: Value| {
        let system = json!({"role": "system", "content": content});
        format!("{}\n", json!({"messages": [system, answer], "tools": tools}))
    };
    let part = json!([{"type": "text", "text": "Be brief."}]);
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let lines = [
        row(part, json!([])),
        row(json!("Be brief."), json!(null)),
        row(json!("Be brief."), json!("")),
        row(json!("Be brief."), json!([tool])),
        row(json!("Be brief."), json!(json!([tool]).to_string())),
        row(json!([{"type": "image", "image": "x"}]), json!(null)),
    ];
    let source = folder.open("a.jsonl", lines.concat()).unwrap();
    let chats = chats(&source);
    assert_eq!(chats[0], chats[1]);
    assert_eq!(chats[0], chats[2]);
    assert!(chats[0].tools.is_none());
    assert_eq!(chats[3].tools.as_deref(), Some(&[tool][..]));
    assert_eq!(chats[3], chats[4]);
    assert_eq!(reasons(&source), [("\"image\" content (text only)", 1)]);
}

#[test]
fn messages_keep_what_a_template_may_read() {
    let folder = Folder::new();
    let call = json!([{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]);
    let row = json!({"messages": [
        {"role": "user", "content": "q", "name": null},
        {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": call},
        {"role": "tool", "content": "1", "tool_calls": null},
        {"role": "assistant", "content": "a", "tool_calls": []},
    ]});
    let source = folder.open("a.jsonl", row.to_string()).unwrap();
    let messages = &chats(&source)[0].messages;
    assert_eq!(Value::from(messages[0].clone()), json!({"role": "user", "content": "q"}));
    assert_eq!(messages[1]["tool_calls"], call);
    assert_eq!(messages[1]["reasoning_content"], "r");
    assert_eq!(messages[1]["content"], "");
    assert!(!messages[2].contains_key("tool_calls") && !messages[3].contains_key("tool_calls"));
}

#[test]
fn odd_conversations_are_kept_or_counted() {
    let folder = Folder::new();
    let row = |turns: &[(&str, Option<&str>)]| {
        let turns: Vec<_> =
            turns.iter().map(|(role, text)| json!({"role": role, "content": text})).collect();
        format!("{}\n", json!({"messages": turns}))
    };
    let (q, a) = (("user", Some("q")), ("assistant", Some("a")));
    let lines = [
        row(&[q, a, q]),
        row(&[q, q, a]),
        row(&[a, q, a]),
        row(&[q, ("assistant", None)]),
        row(&[q]),
        row(&[]),
        row(&[("narrator", Some("n")), a]),
        "{\"messages\": null}\n".to_string(),
        "null\n".to_string(),
    ];
    let source = folder.open("a.jsonl", lines.concat()).unwrap();
    assert_eq!(source.summary().num_samples, 3);
    assert_eq!(source.summary().num_rows, 9);
    let file = folder.0.path().join("a.jsonl").display().to_string();
    let expected = [
        ("no assistant turn", 5),
        ("no turns", 6),
        ("null messages", 8),
        ("null row", 9),
        ("null turn", 4),
        ("unknown role \"narrator\"", 7),
    ];
    let places: Vec<_> = expected.iter().map(|(_, line)| format!("{file}:{line}")).collect();
    let expected: Vec<_> =
        expected.iter().zip(&places).map(|((reason, _), place)| (*reason, 1, &**place)).collect();
    assert_eq!(rejected(&source), expected);
}

#[test]
fn sharegpt_turns_have_their_roles() {
    let folder = Folder::new();
    let call = json!({"name": "f", "arguments": {"b": 1, "a": [2]}}).to_string();
    let row = json!({
        "conversations": [
            {"from": "human", "value": "q"},
            {"from": "function_call", "value": call},
            {"from": "observation", "value": "1"},
            {"from": "gpt", "value": "a"},
        ],
        "system": "s",
        "tools": json!([{"name": "f"}]).to_string(),
    });
    let silent = json!({"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": null}]});
    let source = folder.open("a.json", json!([row, silent]).to_string()).unwrap();
    assert_eq!(source.summary().files[0].format, DataFormat::ShareGpt);
    let chat = &chats(&source)[0];
    let expected = [
        turn("system", "s"),
        turn("user", "q"),
        turn("assistant", ""),
        turn("tool", "1"),
        turn("assistant", "a"),
    ];
    assert_eq!(turns(chat), expected);
    let calls = &chat.messages[2]["tool_calls"];
    let arguments = r#"[{"type":"function","function":{"name":"f","arguments":{"b":1,"a":[2]}}}]"#;
    assert_eq!(calls.to_string(), arguments);
    assert_eq!(chat.tools.as_deref(), Some(&[json!({"name": "f"})][..]));
    assert_eq!(reasons(&source), [("null turn", 1)]);

    let bad = json!({"conversations": [{"from": "function_call", "value": "f(x)"}]});
    let error = folder.error("b.jsonl", bad.to_string());
    assert!(error.contains("b.jsonl:1: conversations[0].value"), "{error}");
}

#[test]
fn alpaca_rows_are_one_question_and_one_answer() {
    let folder = Folder::new();
    let lines = [
        r#"{"instruction": "i", "input": "x", "output": "o", "system": "s"}"#,
        r#"{"instruction": "i", "output": "o", "history": [["q", "a"]]}"#,
        r#"{"instruction": "i", "input": "", "output": ""}"#,
        r#"{"instruction": "i", "input": null, "output": null}"#,
    ];
    let source = folder.open("a.jsonl", lines.join("\n")).unwrap();
    let chats = chats(&source);
    let first = [turn("system", "s"), turn("user", "i\nx"), turn("assistant", "o")];
    assert_eq!(turns(&chats[0]), first);
    let second =
        [turn("user", "q"), turn("assistant", "a"), turn("user", "i"), turn("assistant", "o")];
    assert_eq!(turns(&chats[1]), second);
    assert_eq!(reasons(&source), [("empty output", 2)]);

    let error = folder.error("b.jsonl", format!("{}\n{{\"output\": \"o\"}}", lines[0]));
    assert!(error.contains("b.jsonl:2: the key instruction is missing"), "{error}");
}

#[test]
fn formats_have_names() {
    for name in ["auto", "messages", "sharegpt", "alpaca", "text"] {
        let format: DataFormat = name.parse().unwrap();
        assert_eq!(format.to_string(), name);
        assert_eq!(serde_json::to_value(format).unwrap(), json!(name));
    }
    assert!("ShareGPT".parse::<DataFormat>().unwrap_err().to_string().contains("sharegpt"));
}

/// Rows of a table, and the same table as lines.
fn table() -> (Vec<Option<Vec<parquet_file::Turn<'static>>>>, String) {
    let (q, a) = (("user", Some("q")), ("assistant", Some("ä\n\"1\"")));
    let rows = vec![
        Some(vec![("system", Some("Be brief.")), q, a]),
        None,
        Some(vec![]),
        Some(vec![q, ("assistant", None)]),
        Some(vec![q, a, q, a]),
        Some(vec![q]),
        Some(vec![("user", Some("")), a]),
    ];
    let lines = rows.iter().map(|row| {
        let turns = row.as_ref().map(|turns| -> Vec<Value> {
            turns.iter().map(|(role, text)| json!({"role": role, "content": text})).collect()
        });
        format!("{}\n", json!({"prompt": turns.as_ref().map(|_| "p"), "messages": turns}))
    });
    let lines = lines.collect();
    (rows, lines)
}

#[test]
fn parquet_gives_the_samples_of_its_export() {
    let folder = Folder::new();
    let (rows, lines) = table();
    let expected = folder.open("a.jsonl", lines).unwrap();
    assert_eq!(expected.summary().num_samples, 3);
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4_RAW,
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        let path = folder.0.path().join("a.parquet");
        parquet_file::write(&path, compression, &[&rows[..3], &rows[3..4], &rows[4..]]);
        let source = Source::open(&[path], DataFormat::Auto).unwrap();
        assert_eq!(source.num_blocks(), 3);
        assert_eq!(chats(&source), chats(&expected), "{compression}");
        assert_eq!(reasons(&source), reasons(&expected), "{compression}");
        assert_eq!(source.summary().num_rows, expected.summary().num_rows);
        let rows: Vec<_> = samples(&source).iter().map(|s| s.origin.row).collect();
        assert_eq!(rows, [0, 4, 6]);
    }
}

#[test]
fn large_row_groups_are_read_in_parts() {
    let folder = Folder::new();
    let path = folder.0.path().join("a.parquet");
    let texts: Vec<_> = (0..3000).map(|i| format!("text {i}")).collect();
    let bytes: Vec<_> = texts.iter().map(String::as_bytes).collect();
    // Not marked as strings: some writers do not.
    parquet_file::write_texts(&path, false, Compression::SNAPPY, &bytes);
    let source = Source::open(&[path], DataFormat::Auto).unwrap();
    assert_eq!(source.num_blocks(), 3);
    let third = source.read_block(2).unwrap();
    assert_eq!(third.len(), 3000 - 2048);
    assert_eq!(third[0].content, Content::Text("text 2048".to_string()));
    assert_eq!(third[0].origin.to_string(), format!("{} row 2048", third[0].origin.file.display()));
    assert_eq!(samples(&source).len(), 3000);
}

#[test]
fn parquet_that_cannot_be_read_is_named() {
    let folder = Folder::new();
    let path = folder.0.path().join("a.parquet");
    let open = |path: &Path| Source::open(&[path.to_path_buf()], DataFormat::Auto);
    parquet_file::write_texts(&path, true, Compression::UNCOMPRESSED, &[b"one", b"two"]);
    let whole = fs::read(&path).unwrap();

    // The codec of the column's metadata, after its path: from none to LZO.
    let column = b"\x18\x04text\x15\x00";
    let at = whole.windows(column.len()).position(|window| window == column).unwrap();
    let mut lzo = whole.clone();
    lzo[at + column.len() - 1] = 6;
    fs::write(&path, lzo).unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("LZO") && error.contains("snappy or zstd"), "{error}");

    fs::write(&path, &whole[..whole.len() - 20]).unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("cannot be read as Parquet"), "{error}");

    parquet_file::write_texts(&path, false, Compression::SNAPPY, &[b"one", b"\xff"]);
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("no UTF-8"), "{error}");
}

#[test]
fn a_change_of_the_data_shows_in_the_fingerprint() {
    let folder = Folder::new();
    let of = |text: &str| folder.open("a.jsonl", text).unwrap().fingerprint().to_string();
    let first = of("{\"text\": \"a\"}\n");
    assert_eq!(first, of("{\"text\": \"a\"}\n"));
    assert_ne!(first, of("{\"text\": \"b\"}\n"));
    // In the middle of a long file, and of the same size.
    let long = |word: &str| {
        let line = "{\"text\": \"much the same\"}\n".repeat(10_000);
        format!("{line}{{\"text\": \"{word}\"}}\n{line}")
    };
    assert_ne!(of(&long("one")), of(&long("two")));
    assert_ne!(first, of("{\"text\": \"a\"}\n{\"text\": \"a\"}\n"));
}

#[test]
fn a_file_that_changes_during_a_run_is_noticed() {
    let folder = Folder::new();
    let source = folder.open("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n").unwrap();
    folder.file("a.jsonl", "{\"text\": \"a\"}\n");
    let error = source.read_block(0).unwrap_err().to_string();
    assert!(error.contains("has changed"), "{error}");
}

/// A file of the shared data, where there is such a folder.
fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    if !path.is_file() {
        eprintln!("skipped: {name} is not there");
    }
    path.is_file().then_some(path)
}

#[test]
fn shared_parquet_and_lines_give_the_same_samples() {
    let (Some(table), Some(lines)) =
        (shared("chat.train_sft.parquet"), shared("chat.train_sft.jsonl"))
    else {
        return;
    };
    let table = Source::open(&[table], DataFormat::Auto).unwrap();
    let lines = Source::open(&[lines], DataFormat::Auto).unwrap();
    assert!(table.summary().num_samples > 0);
    assert_eq!(chats(&table), chats(&lines));
    assert_eq!(reasons(&table), reasons(&lines));
}

#[test]
fn shared_tool_calls_and_alpaca_rows_are_read() {
    if let Some(path) = shared("glaive_toolcall_en.sharegpt.json") {
        let source = Source::open(&[path], DataFormat::Auto).unwrap();
        assert_eq!(source.summary().files[0].format, DataFormat::ShareGpt);
        assert_eq!(source.summary().num_samples, source.summary().num_rows);
        let has_call =
            |chat: &Conversation| chat.messages.iter().any(|m| m.contains_key("tool_calls"));
        assert!(chats(&source).iter().any(has_call));
    }
    if let Some(path) = shared("identity.alpaca.json") {
        let source = Source::open(&[path], DataFormat::Auto).unwrap();
        assert_eq!(source.summary().files[0].format, DataFormat::Alpaca);
        assert_eq!(source.summary().num_samples, source.summary().num_rows);
    }
}

/// Opens bytes under a name and reads all there is; only a panic fails.
fn survive(name: &str, bytes: &[u8]) {
    let folder = Folder::new();
    if let Ok(source) = folder.open(name, bytes) {
        for block in 0..source.num_blocks() {
            source.read_block(block).unwrap();
        }
    }
}

/// JSON that is often almost a row.
fn almost_row() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        "[a-z\\u{0}-\\u{ff}]{0,4}".prop_map(Value::from),
        prop_oneof![
            Just("user"),
            Just("assistant"),
            Just("gpt"),
            Just("function_call"),
            Just("{}")
        ]
        .prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "messages",
        "role",
        "content",
        "conversations",
        "from",
        "value",
        "tools",
        "tool_calls",
        "instruction",
        "input",
        "output",
        "history",
        "system",
        "text",
        "type",
    ]);
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|pairs| {
                Value::Object(pairs.into_iter().map(|(k, v)| (k.to_string(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_make_text_readers_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for name in ["a.jsonl", "a.json", "a.txt", "a.parquet"] {
            survive(name, &bytes);
        }
    }

    #[test]
    fn no_json_makes_a_format_panic(rows in prop::collection::vec(almost_row(), 1..4)) {
        survive("a.json", Value::from(rows.clone()).to_string().as_bytes());
        let lines: Vec<_> = rows.iter().map(Value::to_string).collect();
        survive("a.jsonl", lines.join("\n").as_bytes());
    }

    #[test]
    fn no_damage_makes_parquet_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let folder = Folder::new();
        let path = folder.0.path().join("a.parquet");
        let (rows, _) = table();
        parquet_file::write(&path, Compression::SNAPPY, &[&rows[..]]);
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        survive("b.parquet", &bytes);
    }
}
