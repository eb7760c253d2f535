//! Where the hub is, where its files are kept, and who asks.

use std::{path::PathBuf, time::Duration};

/// How to reach the hub.
#[derive(Clone)]
pub struct HubOptions {
    /// Address of the hub, without a slash at its end.
    pub endpoint: String,
    /// Access token, for private and gated repositories.
    pub token: Option<String>,
    /// Folder of the cache (`models--OWNER--NAME` lies in it).
    pub cache: PathBuf,
    /// Use what the cache has, and never the network.
    pub offline: bool,
    /// Show bars of the downloads on a terminal.
    pub progress: bool,
    /// How often a file is tried before giving up.
    pub attempts: u32,
    /// Pause before the second attempt; it doubles with each further one.
    pub retry_wait: Duration,
}

/// The public hub.
const ENDPOINT: &str = "https://huggingface.co";

impl HubOptions {
    /// The variables that other tools of the hub read as well: `HF_ENDPOINT`, `HF_TOKEN`,
    /// `HF_TOKEN_PATH`, `HF_HOME`, `HF_HUB_CACHE`, `HF_HUB_OFFLINE`.
    ///
    /// The token is also looked for in the file that logging in writes (`HF_HOME/token`).
    pub fn from_env() -> Self {
        let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("."));
        Self::from_vars(|name| std::env::var(name).ok(), home)
    }

    /// The same, from any source of variables.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>, user_home: PathBuf) -> Self {
        let set = |name: &str| var(name).filter(|value| !value.trim().is_empty());
        let path = |name: &str| set(name).map(PathBuf::from);
        let home = path("HF_HOME").unwrap_or_else(|| {
            let cache = path("XDG_CACHE_HOME").unwrap_or_else(|| user_home.join(".cache"));
            cache.join("huggingface")
        });
        let token_file = path("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"));
        let token = set("HF_TOKEN")
            .or_else(|| std::fs::read_to_string(token_file).ok())
            .map(|token| token.trim().to_string())
            .filter(|token| !token.is_empty());
        let offline = set("HF_HUB_OFFLINE").is_some_and(|v| {
            ["1", "true", "yes", "on"].contains(&v.trim().to_lowercase().as_str())
        });
        Self {
            endpoint: set("HF_ENDPOINT").map_or_else(
                || ENDPOINT.to_string(),
                |endpoint| endpoint.trim().trim_end_matches('/').to_string(),
            ),
            token,
            cache: path("HF_HUB_CACHE").unwrap_or_else(|| home.join("hub")),
            offline,
            progress: false,
            attempts: 5,
            retry_wait: Duration::from_millis(500),
        }
    }
}

/// Without the token: options end up in logs.
impl std::fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubOptions")
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "set"))
            .field("cache", &self.cache)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}
