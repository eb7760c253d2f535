//! Which files a data setting means, and of what kind they are.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::error::DataError;

/// How the rows of a file are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lines,
    Array,
    Parquet,
    Text,
}

/// A byte-order mark, which some editors put before UTF-8.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

const EXTENSIONS: &str = ".jsonl, .json, .parquet or .txt";

/// Local files of a list of files, folders and globs, each in name order, no file twice.
///
/// # Errors
/// An entry that matches nothing, or a glob that is malformed.
pub fn resolve(entries: &[String]) -> Result<Vec<PathBuf>, DataError> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let found = resolve_one(entry)?;
        files.extend(found.into_iter().filter(|file| !files.contains(file)).collect::<Vec<_>>());
    }
    if files.is_empty() {
        return Err(DataError::Source {
            what: "data".to_string(),
            problem: "no file is named; give a file, a folder, a glob or a hub id".to_string(),
        });
    }
    Ok(files)
}

fn resolve_one(entry: &str) -> Result<Vec<PathBuf>, DataError> {
    let error = |problem: String| DataError::Source { what: entry.to_string(), problem };
    let path = Path::new(entry);
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    let pattern = if path.is_dir() {
        format!("{}/*", glob::Pattern::escape(entry.trim_end_matches('/')))
    } else {
        entry.to_string()
    };
    let paths = glob::glob(&pattern).map_err(|e| error(format!("is no valid glob: {e}")))?;
    let mut found = Vec::new();
    for path in paths {
        let path = path.map_err(|e| error(format!("cannot be read: {e}")))?;
        if path.is_file() && (!Path::new(entry).is_dir() || has_known_extension(&path)) {
            found.push(path);
        }
    }
    if found.is_empty() {
        let what = if path.is_dir() {
            format!("the folder holds no {EXTENSIONS} file")
        } else {
            "no such file, and no file matches it as a glob".to_string()
        };
        return Err(error(what));
    }
    Ok(found)
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_lowercase()
}

fn has_known_extension(path: &Path) -> bool {
    matches!(extension(path).as_str(), "jsonl" | "ndjson" | "json" | "parquet" | "txt")
}

pub(super) fn kind(path: &Path) -> Result<Kind, DataError> {
    match extension(path).as_str() {
        "jsonl" | "ndjson" => Ok(Kind::Lines),
        "parquet" => Ok(Kind::Parquet),
        "txt" => Ok(Kind::Text),
        // One array, or lines under the shorter name.
        "json" => match first_byte(path)? {
            Some(b'[') => Ok(Kind::Array),
            _ => Ok(Kind::Lines),
        },
        other => Err(DataError::Source {
            what: path.display().to_string(),
            problem: format!("files ending in \"{other}\" are not read; expected {EXTENSIONS}"),
        }),
    }
}

/// The first byte that is neither white space nor part of a byte-order mark.
fn first_byte(path: &Path) -> Result<Option<u8>, DataError> {
    let io = |source| DataError::Io { path: path.to_path_buf(), source };
    let mut head = Vec::new();
    File::open(path).map_err(io)?.take(4096).read_to_end(&mut head).map_err(io)?;
    let head = head.strip_prefix(BOM).unwrap_or(&head);
    Ok(head.iter().copied().find(|byte| !byte.is_ascii_whitespace()))
}

/// A text file as one document.
pub(super) fn read_text(path: &Path) -> Result<String, DataError> {
    let bytes =
        std::fs::read(path).map_err(|source| DataError::Io { path: path.to_path_buf(), source })?;
    let bytes = bytes.strip_prefix(BOM).unwrap_or(&bytes);
    utf8(bytes, path).map(str::to_string)
}

/// The text of a file's bytes; an error names the line of the first byte that is none.
pub(super) fn utf8<'a>(bytes: &'a [u8], path: &Path) -> Result<&'a str, DataError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let line = bytes[..at].split(|&byte| byte == b'\n').count();
        DataError::Row {
            place: format!("{}:{line}", path.display()),
            problem: format!("is no valid UTF-8 (byte {} of the file); convert it", at + 1),
        }
    })
}

/// Hash of all bytes of a file: a change in its middle that keeps its size is a change too.
pub(super) fn digest(path: &Path) -> Result<[u8; 32], DataError> {
    let io = |source| DataError::Io { path: path.to_path_buf(), source };
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
    let mut hash = Sha256::new();
    loop {
        let part = reader.fill_buf().map_err(io)?;
        if part.is_empty() {
            return Ok(hash.finalize().into());
        }
        hash.update(part);
        let read = part.len();
        reader.consume(read);
    }
}
