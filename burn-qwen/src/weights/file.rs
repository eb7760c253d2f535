//! The header of a safetensors file, checked against its length; tensors are read one by one.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::Metadata};

use super::dtype;
use crate::error::QwenError;

/// Values are decoded in pieces of this size, a multiple of every element's.
const CHUNK_BYTES: usize = 1 << 24;

/// Longer headers are taken for corruption, as the format's own library does.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Where a tensor lies in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Dtype as stored.
    pub dtype: Dtype,
    /// Shape as stored.
    pub shape: Vec<usize>,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub num_bytes: usize,
}

/// One safetensors file.
#[derive(Clone, Debug)]
pub struct TensorFile {
    /// The file.
    pub path: PathBuf,
    /// Its tensors by name.
    pub tensors: BTreeMap<String, TensorEntry>,
    /// Free text of the header.
    pub metadata: BTreeMap<String, String>,
}

impl TensorFile {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// A file that is no safetensors file, is truncated, or whose header contradicts itself.
    pub fn open(path: &Path) -> Result<Self, QwenError> {
        let io = |source| QwenError::io(path, source);
        let corrupt = |problem: String| {
            QwenError::weights(path, format!("{problem}; download or copy the file again"))
        };
        let mut file = File::open(path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|_| {
            corrupt(format!("is no safetensors file: it has {file_bytes} bytes, 8 begin a header"))
        })?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > MAX_HEADER_BYTES || header_bytes > file_bytes.saturating_sub(8) {
            return Err(corrupt(format!(
                "is truncated or no safetensors file: it announces a header of {header_bytes} \
                 bytes and has {file_bytes}"
            )));
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact(&mut header).map_err(io)?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| corrupt(format!("has a header that cannot be read: {error}")))?;

        let data_start = 8 + header_bytes;
        let mut tensors = BTreeMap::new();
        let mut end = 0;
        for name in metadata.offset_keys() {
            let Some(info) = metadata.info(&name) else { continue };
            let (from, to) = info.data_offsets;
            let elements = info.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            let expected =
                elements.and_then(|n| n.checked_mul(info.dtype.bitsize())).map(|b| b / 8);
            if from != end || to < from || expected != Some(to - from) {
                return Err(corrupt(format!(
                    "{name}: bytes {from} to {to} do not fit its shape {:?} of {:?}, or what \
                     stands before",
                    info.shape, info.dtype
                )));
            }
            end = to;
            let entry = TensorEntry {
                dtype: info.dtype,
                shape: info.shape.clone(),
                offset: data_start + from as u64,
                num_bytes: to - from,
            };
            tensors.insert(name, entry);
        }
        if data_start + end as u64 != file_bytes {
            return Err(corrupt(format!(
                "should have {} bytes by its header and has {file_bytes}: it is truncated or damaged",
                data_start + end as u64
            )));
        }
        let metadata = metadata.metadata().clone().unwrap_or_default().into_iter().collect();
        Ok(Self { path: path.to_path_buf(), tensors, metadata })
    }

    /// The raw bytes of a tensor.
    ///
    /// # Errors
    /// A tensor that is not there, or a file that cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, QwenError> {
        let (mut reader, entry) = self.reader(name)?;
        let mut bytes = vec![0; entry.num_bytes];
        reader.read_exact(&mut bytes).map_err(|source| QwenError::io(&self.path, source))?;
        Ok(bytes)
    }

    /// Appends the values of a tensor, read in chunks.
    ///
    /// # Errors
    /// As [`Self::read`].
    ///
    /// # Panics
    /// If the dtype is not [`dtype::is_supported`]: whoever opened the checkpoint looked at it.
    pub fn read_values(&self, name: &str, values: &mut Vec<f32>) -> Result<(), QwenError> {
        let (mut reader, entry) = self.reader(name)?;
        let mut chunk = vec![0; entry.num_bytes.min(CHUNK_BYTES)];
        let mut left = entry.num_bytes;
        while left > 0 {
            let bytes = &mut chunk[..left.min(CHUNK_BYTES)];
            reader.read_exact(bytes).map_err(|source| QwenError::io(&self.path, source))?;
            dtype::decode(entry.dtype, bytes, values);
            left -= bytes.len();
        }
        Ok(())
    }

    /// The file at the first byte of a tensor.
    fn reader(&self, name: &str) -> Result<(File, &TensorEntry), QwenError> {
        let entry = self
            .tensors
            .get(name)
            .ok_or_else(|| QwenError::weights(&self.path, format!("has no tensor {name}")))?;
        let io = |source| QwenError::io(&self.path, source);
        let mut file = File::open(&self.path).map_err(io)?;
        file.seek(SeekFrom::Start(entry.offset)).map_err(io)?;
        Ok((file, entry))
    }
}
