//! One repository at one commit: its list of files, and each file, whole or not at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{ApiBuilder, ApiError, ApiRepo},
};
use serde::Deserialize;

use super::{
    HubOptions, files,
    whole::{Expected, discard},
};
use crate::error::DataError;

/// A repository as the hub describes it.
#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
}

/// A repository at a commit.
pub(super) struct Client<'a> {
    what: String,
    id: &'a str,
    options: &'a HubOptions,
    /// `None` in offline mode.
    remote: Option<ApiRepo>,
    /// The repository under the name of the revision that was asked for.
    repo: Repo,
    cache: Cache,
    commit: String,
    /// The commit's folder in the cache.
    folder: PathBuf,
    files: BTreeMap<String, Expected>,
}

/// Why an attempt failed.
enum Failure {
    /// The same again would fail again.
    Final(String),
    /// A cut connection, a busy server.
    Passing(String),
}

impl<'a> Client<'a> {
    pub(super) fn open(
        kind: RepoType,
        id: &'a str,
        revision: &'a str,
        options: &'a HubOptions,
    ) -> Result<Self, DataError> {
        let label = if matches!(kind, RepoType::Dataset) { "data set" } else { "model" };
        let repo = Repo::with_revision(id.to_string(), kind, revision.to_string());
        let cache = Cache::new(options.cache.clone());
        let mut client = Self {
            what: format!("{label} {id}@{revision}"),
            id,
            options,
            remote: None,
            commit: String::new(),
            folder: PathBuf::new(),
            files: BTreeMap::new(),
            repo,
            cache,
        };
        if options.offline {
            client.find_in_cache(revision)?;
        } else {
            client.ask_hub(kind)?;
        }
        Ok(client)
    }

    pub(super) fn error(&self, file: Option<&str>, problem: impl Into<String>) -> DataError {
        let what = match file {
            Some(file) => format!("{}, {file}", self.what),
            None => self.what.clone(),
        };
        DataError::Hub { what, problem: problem.into() }
    }

    /// Paths of all files.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.files.keys().cloned().collect()
    }

    /// Gets what `choose` names; the folder of the commit.
    pub(super) fn fetch(
        &self,
        choose: impl FnOnce(&Self) -> Result<Vec<String>, DataError>,
    ) -> Result<PathBuf, DataError> {
        for name in choose(self)? {
            self.get(&name)?;
        }
        if self.remote.is_some() {
            // Last, so that offline mode does not find a branch with half its files.
            self.cache
                .repo(self.repo.clone())
                .create_ref(&self.commit)
                .map_err(|source| DataError::Io { path: self.options.cache.clone(), source })?;
        }
        Ok(self.folder.clone())
    }

    fn find_in_cache(&mut self, revision: &str) -> Result<(), DataError> {
        let cached = self.cache.repo(self.repo.clone());
        let root = self.options.cache.join(self.repo.folder_name());
        let named = std::fs::read_to_string(root.join("refs").join(revision)).ok();
        let commit = named.map_or_else(|| revision.to_string(), |name| name.trim().to_string());
        let folder = cached.pointer_path(&commit);
        if !files::is_inside(&commit) || !folder.is_dir() {
            return Err(self.error(
                None,
                format!(
                    "is not in the cache {}, and offline mode is on; unset HF_HUB_OFFLINE once \
                     to download it, or name another cache with HF_HUB_CACHE",
                    self.options.cache.display()
                ),
            ));
        }
        self.commit = commit;
        let mut pending = vec![folder.clone()];
        while let Some(path) = pending.pop() {
            let io = |source| DataError::Io { path: path.clone(), source };
            for entry in std::fs::read_dir(&path).map_err(io)? {
                let entry = entry.map_err(io)?.path();
                if entry.is_dir() {
                    pending.push(entry);
                } else if entry.is_file()
                    && let Some(name) = entry.strip_prefix(&folder).ok().and_then(Path::to_str)
                {
                    self.files.insert(name.replace('\\', "/"), Expected::default());
                }
            }
        }
        self.folder = folder;
        Ok(())
    }

    fn ask_hub(&mut self, kind: RepoType) -> Result<(), DataError> {
        let api = ApiBuilder::from_cache(self.cache.clone())
            .with_endpoint(self.options.endpoint.clone())
            .with_token(self.options.token.clone())
            .with_progress(self.options.progress)
            .with_user_agent("burn-qwen", env!("CARGO_PKG_VERSION"))
            // Attempts are counted here: a resumed download must look at the file again.
            .with_retries(0)
            .build()
            .map_err(|error| self.error(None, error.to_string()))?;
        let named = api.repo(self.repo.clone());
        let info = self.attempt(None, || self.info(&named))?;
        if info.sha.is_empty() || !info.sha.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(self.error(None, format!("the hub named no commit: \"{}\"", info.sha)));
        }
        // From here on by commit: a branch that moves meanwhile does not mix its files.
        let pinned = Repo::with_revision(self.id.to_string(), kind, info.sha.clone());
        self.folder = self.cache.repo(pinned.clone()).pointer_path(&info.sha);
        self.remote = Some(api.repo(pinned));
        self.commit = info.sha;
        self.files = info
            .siblings
            .into_iter()
            .filter(|sibling| files::is_inside(&sibling.rfilename))
            .map(|sibling| {
                let sha256 = sibling.lfs.and_then(|lfs| lfs.sha256);
                (sibling.rfilename, Expected { size: sibling.size, sha256 })
            })
            .collect();
        Ok(())
    }

    fn info(&self, repo: &ApiRepo) -> Result<Info, Failure> {
        // Sizes and checksums of the files as well.
        let request = repo.info_request().query("blobs", "true");
        let request = request.config().http_status_as_error(false).build();
        let mut response = request.call().map_err(|error| self.failure(&error))?;
        let status = response.status().as_u16();
        if !(200..300).contains(&status) {
            let said = response.headers().get("x-error-code").and_then(|v| v.to_str().ok());
            return Err(self.refusal(status, said));
        }
        // A repository of many thousand files has a list of a few megabytes.
        let body = response.body_mut().with_config().limit(1 << 30).read_to_vec();
        let body = body.map_err(|error| self.failure(&error))?;
        serde_json::from_slice(&body)
            .map_err(|e| Failure::Final(format!("the hub's list of files cannot be read: {e}")))
    }

    /// A whole file, from the cache or from the hub.
    pub(super) fn get(&self, name: &str) -> Result<PathBuf, DataError> {
        let path = self.folder.join(name);
        let expected = self.files.get(name).cloned().unwrap_or_default();
        if path.is_file() && expected.has_size(&path) {
            return Ok(path);
        }
        let Some(remote) = &self.remote else {
            return Err(self.error(Some(name), "is not in the cache, and offline mode is on"));
        };
        self.attempt(Some(name), || self.download(remote, name, &path, &expected))?;
        Ok(path)
    }

    fn download(
        &self,
        remote: &ApiRepo,
        name: &str,
        path: &Path,
        expected: &Expected,
    ) -> Result<(), Failure> {
        discard(path);
        let root = self.options.cache.join(self.repo.folder_name());
        if expected.reuse(&root, name, path) {
            return Ok(());
        }
        remote.download(name).map_err(|error| match error {
            // What is there of the file is not its beginning, or already all of it.
            ApiError::InvalidResume => self.restart(name, "the part on disk is too long"),
            ApiError::RequestError(error) => match *error {
                ureq::Error::StatusCode(416) => self.restart(name, "nothing is left to resume"),
                error => self.failure(&error),
            },
            ApiError::IoError(error) => {
                Failure::Passing(format!("the connection was cut: {error}"))
            }
            ApiError::LockAcquisition(lock) => Failure::Passing(format!(
                "another process is downloading it; if none is, remove {}",
                lock.display()
            )),
            other => Failure::Final(format!("the hub's answer is not usable: {other}")),
        })?;
        expected.check(path).map_err(|problem| {
            discard(path);
            Failure::Passing(problem)
        })
    }

    /// Forgets the part of a file that a resumed download would have continued.
    fn restart(&self, name: &str, why: &str) -> Failure {
        let parts = self.options.cache.join(self.repo.folder_name()).join("blobs");
        let etag = self.files.get(name).and_then(|file| file.sha256.clone());
        for entry in std::fs::read_dir(parts).into_iter().flatten().flatten() {
            let path = entry.path();
            let part = path.extension().is_some_and(|extension| extension == "part");
            // Without a checksum the file is a small one; parts of large ones are named by theirs.
            let stem = path.file_stem().unwrap_or_default();
            let this = etag.as_ref().map_or(stem.len() != 64, |etag| stem == etag.as_str());
            if part && this {
                // If it stays, the next attempt fails the same way and says so.
                let _ = std::fs::remove_file(path);
            }
        }
        Failure::Passing(format!("a resumed download had to start again: {why}"))
    }

    /// Repeats what may pass.
    fn attempt<T>(
        &self,
        file: Option<&str>,
        mut work: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, DataError> {
        let attempts = self.options.attempts.max(1);
        let mut wait = self.options.retry_wait;
        for attempt in 1.. {
            match work() {
                Ok(done) => return Ok(done),
                Err(Failure::Final(problem)) => return Err(self.error(file, problem)),
                Err(Failure::Passing(problem)) if attempt >= attempts => {
                    return Err(self.error(
                        file,
                        format!(
                            "{problem} (attempt {attempt} of {attempts}, {}); run again to \
                             resume, or set HF_HUB_OFFLINE=1 to use the cache only",
                            self.options.endpoint
                        ),
                    ));
                }
                Err(Failure::Passing(_)) => std::thread::sleep(wait),
            }
            wait = (wait * 2).min(std::time::Duration::from_secs(10));
        }
        unreachable!("the loop ends by returning")
    }

    fn failure(&self, error: &ureq::Error) -> Failure {
        match error {
            ureq::Error::StatusCode(status) => self.refusal(*status, None),
            ureq::Error::BadUri(uri) => Failure::Final(format!("HF_ENDPOINT is no address: {uri}")),
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
                Failure::Passing(format!("the hub cannot be reached: {error}"))
            }
            other => Failure::Passing(format!("the connection was cut: {other}")),
        }
    }

    fn refusal(&self, status: u16, code: Option<&str>) -> Failure {
        let page = format!("{}/{}", self.options.endpoint, self.repo.url());
        let token = match self.options.token {
            Some(_) => "the token in use does not give access to it",
            None => "no token is set; put one in HF_TOKEN",
        };
        match (status, code) {
            (401 | 403, Some("GatedRepo")) => Failure::Final(format!(
                "the repository is gated ({status}): accept its terms at {page} and set HF_TOKEN \
                 to a token of that account ({token})"
            )),
            (401 | 403, _) => Failure::Final(format!(
                "access was refused ({status}): the repository does not exist, is private, or is \
                 gated; look at {page}; {token}"
            )),
            (404, Some("RevisionNotFound")) => {
                Failure::Final("the repository has no such branch, tag or commit (404)".to_string())
            }
            (404, _) => Failure::Final(format!("not found (404); look at {page}")),
            (429 | 500..=599, _) => Failure::Passing(format!("the hub answered {status}")),
            _ => Failure::Final(format!("the hub answered {status}")),
        }
    }
}
