//! A hub in a thread: lists of files, ranges, redirects to a file store, and the ways it fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use sha2::{Digest, Sha256};

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[derive(Clone)]
struct File {
    bytes: Vec<u8>,
    lfs: bool,
}

/// A repository with one branch, `main`.
#[derive(Clone)]
pub(crate) struct Repo {
    pub(crate) commit: String,
    files: BTreeMap<String, File>,
    token: Option<String>,
    gated: bool,
}

impl Repo {
    pub(crate) fn new(commit: &str) -> Self {
        Self { commit: commit.to_string(), files: BTreeMap::new(), token: None, gated: false }
    }

    pub(crate) fn file(mut self, name: &str, bytes: &[u8]) -> Self {
        self.files.insert(name.to_string(), File { bytes: bytes.to_vec(), lfs: false });
        self
    }

    /// A large file: served by another path, named by its SHA-256.
    pub(crate) fn lfs(mut self, name: &str, bytes: &[u8]) -> Self {
        self.files.insert(name.to_string(), File { bytes: bytes.to_vec(), lfs: true });
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.files.remove(name).unwrap();
        self
    }

    pub(crate) fn private(mut self, token: &str) -> Self {
        self.token = Some(token.to_string());
        self
    }

    pub(crate) fn gated(mut self) -> Self {
        self.gated = true;
        self
    }

    fn info(&self) -> String {
        let siblings: Vec<_> = self
            .files
            .iter()
            .map(|(name, file)| {
                let mut sibling = serde_json::json!({"rfilename": name, "size": file.bytes.len()});
                if file.lfs {
                    sibling["lfs"] = serde_json::json!({"sha256": sha256(&file.bytes)});
                }
                sibling
            })
            .collect();
        serde_json::json!({"sha": self.commit, "siblings": siblings}).to_string()
    }
}

#[derive(Default)]
struct State {
    repos: BTreeMap<String, Repo>,
    /// Bytes after which the next transfers of a file are cut.
    cuts: BTreeMap<String, Vec<usize>>,
    damaged: BTreeSet<String>,
    lost: BTreeSet<String>,
    busy: usize,
    log: Vec<String>,
}

/// The server; its thread ends with the process.
pub(crate) struct FakeHub {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl FakeHub {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || answer(stream, port, &shared));
            }
        });
        Self { port, state }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Adds or replaces a repository; data sets as `datasets/OWNER/NAME`.
    pub(crate) fn with(self, id: &str, repo: Repo) -> Self {
        self.state.lock().unwrap().repos.insert(id.to_string(), repo);
        self
    }

    /// Cuts the next transfers of a file after so many bytes each.
    pub(crate) fn cut(&self, file: &str, after: &[usize]) {
        let after = after.iter().rev().copied().collect();
        self.state.lock().unwrap().cuts.insert(file.to_string(), after);
    }

    /// Flips a bit of a file on its way.
    pub(crate) fn damage(&self, file: &str) {
        self.state.lock().unwrap().damaged.insert(file.to_string());
    }

    /// Lists a file, but does not have it.
    pub(crate) fn lose(&self, file: &str) {
        self.state.lock().unwrap().lost.insert(file.to_string());
    }

    /// Answers the next requests with 503.
    pub(crate) fn busy(&self, requests: usize) {
        self.state.lock().unwrap().busy = requests;
    }

    /// Path and range of every request so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.state.lock().unwrap().log.clone()
    }
}

struct Answer {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Bytes that are sent of the body before the connection is cut.
    sent: usize,
}

impl Answer {
    fn new(status: &'static str, body: Vec<u8>) -> Self {
        Self { status, headers: Vec::new(), sent: body.len(), body }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// One request a connection.
fn answer(mut stream: TcpStream, port: u16, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut request = String::new();
    if reader.read_line(&mut request).unwrap_or(0) == 0 {
        return;
    }
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.to_lowercase(), value.trim().to_string());
        }
    }
    let target = request.split(' ').nth(1).unwrap_or("/").to_string();
    let answer = {
        let mut state = state.lock().unwrap();
        let range = headers.get("range").map_or("", String::as_str);
        state.log.push(format!("{target} {range}"));
        route(&target, &headers, port, &mut state)
    };
    let mut head = format!("HTTP/1.1 {}\r\nConnection: close\r\n", answer.status);
    let _ = write!(head, "Content-Length: {}\r\n", answer.body.len());
    for (name, value) in &answer.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    // A client that has gone away is no failure of the hub.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&answer.body[..answer.sent]);
    let _ = stream.flush();
}

fn route(target: &str, headers: &BTreeMap<String, String>, port: u16, state: &mut State) -> Answer {
    if state.busy > 0 {
        state.busy -= 1;
        return Answer::new("503 Service Unavailable", Vec::new());
    }
    let path = target.split('?').next().unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or(path);
    if let Some((id, rest)) = path.strip_prefix("store/").and_then(|p| p.split_once("/-/")) {
        let file = state.repos[id].files[rest].clone();
        return send(rest, &file, headers, state);
    }
    let (id, revision, file) = if let Some(rest) = path.strip_prefix("api/") {
        let Some((id, revision)) = rest.split_once("/revision/") else {
            return Answer::new("404 Not Found", Vec::new());
        };
        (id.strip_prefix("models/").unwrap_or(id), revision, None)
    } else {
        let Some((id, rest)) = path.split_once("/resolve/") else {
            return Answer::new("404 Not Found", Vec::new());
        };
        let (revision, file) = rest.split_once('/').unwrap_or((rest, ""));
        (id, revision, Some(file))
    };
    let Some(repo) = state.repos.get(id).cloned() else {
        return Answer::new("404 Not Found", Vec::new()).with("X-Error-Code", "RepoNotFound");
    };
    let token = headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
    if repo.gated {
        return Answer::new("403 Forbidden", Vec::new()).with("X-Error-Code", "GatedRepo");
    }
    if repo.token.is_some() && token != repo.token.as_deref() {
        return Answer::new("401 Unauthorized", Vec::new()).with("X-Error-Code", "RepoNotFound");
    }
    if revision != "main" && revision != repo.commit {
        return Answer::new("404 Not Found", Vec::new()).with("X-Error-Code", "RevisionNotFound");
    }
    let Some(name) = file else { return Answer::new("200 OK", repo.info().into_bytes()) };
    match repo.files.get(name).filter(|_| !state.lost.contains(name)) {
        None => Answer::new("404 Not Found", Vec::new()).with("X-Error-Code", "EntryNotFound"),
        Some(file) if file.lfs => Answer::new("302 Found", Vec::new())
            .with("Location", format!("http://127.0.0.1:{port}/store/{id}/-/{name}"))
            .with("X-Repo-Commit", repo.commit.clone())
            .with("X-Linked-Etag", format!("\"{}\"", sha256(&file.bytes))),
        Some(file) => {
            let etag = format!("\"{}\"", &sha256(&file.bytes)[..40]);
            send(name, file, headers, state)
                .with("X-Repo-Commit", repo.commit.clone())
                .with("ETag", etag)
        }
    }
}

fn send(name: &str, file: &File, headers: &BTreeMap<String, String>, state: &mut State) -> Answer {
    let mut bytes = file.bytes.clone();
    if state.damaged.contains(name) {
        bytes[0] ^= 1;
    }
    let total = bytes.len();
    let Some(range) = headers.get("range").and_then(|range| range.strip_prefix("bytes=")) else {
        return Answer::new("200 OK", bytes);
    };
    let (start, end) = range.split_once('-').unwrap();
    let start: usize = start.parse().unwrap();
    let end = end.parse().map_or(total, |end: usize| (end + 1).min(total));
    if start >= total {
        return Answer::new("416 Range Not Satisfiable", Vec::new());
    }
    let mut answer = Answer::new("206 Partial Content", bytes[start..end].to_vec())
        .with("Content-Range", format!("bytes {start}-{}/{total}", end - 1));
    // The question for the size is answered; the transfer is cut.
    if end - start > 1
        && let Some(after) = state.cuts.get_mut(name).and_then(Vec::pop)
    {
        answer.sent = after.min(answer.body.len());
    }
    answer
}
