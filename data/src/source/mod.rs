//! Data files in a stable order, indexed once, read block by block.
//!
//! Opening a source reads every row once, in parallel, and checks syntax and schema: a broken line
//! is found before the first step of a run and not in the middle of it. What stays in memory is
//! where each block of rows lies.

mod files;
mod json;
mod parquet;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use files::resolve;

use crate::{
    error::DataError,
    formats::{DataFormat, convert},
    hex::hex,
    sample::{Origin, Sample},
};

/// Rows that are read together.
const ROWS_PER_BLOCK: usize = 1024;
/// Places that are named for each reason of a rejection.
const PLACES_PER_REASON: usize = 3;

/// Rows of one file that are read together.
#[derive(Clone, Debug)]
struct Block {
    file: usize,
    first_row: u64,
    num_rows: usize,
    /// Rows that are samples, counted from the block's first.
    accepted: Vec<u32>,
    place: Place,
}

/// Where a block's rows lie.
#[derive(Clone, Debug)]
enum Place {
    /// Lines of a JSONL file: bytes, and the number of the first line.
    Lines { offset: u64, num_bytes: u64, first_line: u64 },
    /// Elements of a JSON array: first byte and length of each, with their lines.
    Elements(Vec<(u64, u32, u64)>),
    /// Rows of a Parquet row group, from a row of it.
    RowGroup { row_group: usize, skip: usize },
    /// A text file as a whole.
    WholeFile,
}

impl Block {
    fn same_row_group(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Place::RowGroup { row_group: a, .. }, Place::RowGroup { row_group: b, .. }) => {
                self.file == other.file && a == b
            }
            _ => false,
        }
    }
}

/// Rows with their places.
type Rows = Vec<(Value, Origin)>;

/// What the rows of a block are.
#[derive(Default)]
struct Checked {
    accepted: Vec<u32>,
    /// Reason and place.
    rejected: Vec<(String, String)>,
}

/// Files of one data set.
#[derive(Debug)]
pub struct Source {
    files: Vec<Arc<PathBuf>>,
    formats: Vec<DataFormat>,
    blocks: Vec<Block>,
    summary: SourceSummary,
    fingerprint: String,
}

/// What a source holds, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSummary {
    /// Each file with its format and rows.
    pub files: Vec<FileSummary>,
    /// Rows read.
    pub num_rows: u64,
    /// Samples accepted.
    pub num_samples: u64,
    /// Rows without anything to train, by reason.
    pub rejected: BTreeMap<String, Rejected>,
}

/// One file of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSummary {
    /// The file.
    pub path: PathBuf,
    /// Its format, as configured or detected.
    pub format: DataFormat,
    /// Its rows.
    pub num_rows: u64,
}

/// Rows rejected for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// How many.
    pub count: u64,
    /// The first few.
    pub places: Vec<String>,
}

impl Rejected {
    /// Counts one more.
    pub fn add(&mut self, place: &str) {
        self.count += 1;
        if self.places.len() < PLACES_PER_REASON {
            self.places.push(place.to_string());
        }
    }
}

impl Source {
    /// Indexes and checks files.
    ///
    /// # Errors
    /// The first row, in file order, that breaks its format; files that are empty or unreadable.
    pub fn open(files: &[PathBuf], format: DataFormat) -> Result<Self, DataError> {
        let files: Vec<Arc<PathBuf>> = files.iter().cloned().map(Arc::new).collect();
        let mut blocks = Vec::new();
        for (i, file) in files.iter().enumerate() {
            let found = match files::kind(file)? {
                files::Kind::Lines => json::index_lines(file)?,
                files::Kind::Array => json::index_array(file)?,
                files::Kind::Parquet => parquet::index(file)?,
                files::Kind::Text => vec![(0, 1, Place::WholeFile)],
            };
            if found.iter().all(|(_, num_rows, _)| *num_rows == 0) {
                return Err(DataError::Source {
                    what: file.display().to_string(),
                    problem: "has no rows; remove it from the data or fill it".to_string(),
                });
            }
            blocks.extend(found.into_iter().map(|(first_row, num_rows, place)| Block {
                file: i,
                first_row,
                num_rows,
                accepted: Vec::new(),
                place,
            }));
        }
        let mut source = Self {
            formats: vec![format; files.len()],
            files,
            blocks,
            summary: SourceSummary::default(),
            fingerprint: String::new(),
        };
        source.detect_formats()?;
        source.check()?;
        source.fingerprint = source.compute_fingerprint()?;
        Ok(source)
    }

    fn detect_formats(&mut self) -> Result<(), DataError> {
        for file in 0..self.files.len() {
            if self.formats[file] != DataFormat::Auto {
                continue;
            }
            let block = self.blocks.iter().find(|block| block.file == file);
            let block = block.expect("every file has a block");
            if matches!(block.place, Place::WholeFile) {
                self.formats[file] = DataFormat::Text;
                continue;
            }
            let first = self.rows(block)?.into_iter().find(|(row, _)| row.is_object());
            if let Some((Value::Object(row), origin)) = first {
                self.formats[file] = DataFormat::detect(&row, &origin.to_string())?;
            }
        }
        Ok(())
    }

    /// Reads everything once.
    fn check(&mut self) -> Result<(), DataError> {
        // Blocks of one row group together: it is decoded from its start.
        let runs: Vec<&[Block]> = self.blocks.chunk_by(Block::same_row_group).collect();
        let checked: Vec<_> = runs
            .par_iter()
            .map(|run| {
                let mut checked = Vec::with_capacity(run.len());
                self.read_run(run, |block, rows| {
                    checked.push(self.check_rows(block, rows)?);
                    Ok(())
                })?;
                Ok(checked)
            })
            .collect::<Vec<Result<Vec<Checked>, DataError>>>();
        let mut summary = SourceSummary::default();
        for (path, &format) in self.files.iter().zip(&self.formats) {
            summary.files.push(FileSummary { path: path.to_path_buf(), format, num_rows: 0 });
        }
        // The first error in file order, whichever thread was first.
        let checked = checked.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (block, checked) in self.blocks.iter_mut().zip(checked.into_iter().flatten()) {
            summary.files[block.file].num_rows += block.num_rows as u64;
            summary.num_rows += block.num_rows as u64;
            summary.num_samples += checked.accepted.len() as u64;
            block.accepted = checked.accepted;
            for (reason, place) in checked.rejected {
                summary.rejected.entry(reason).or_default().add(&place);
            }
        }
        self.summary = summary;
        Ok(())
    }

    fn check_rows(&self, block: &Block, rows: Rows) -> Result<Checked, DataError> {
        let mut checked = Checked::default();
        for (i, (row, origin)) in rows.into_iter().enumerate() {
            let place = origin.to_string();
            match convert(self.formats[block.file], row, origin)? {
                Ok(_) => checked.accepted.push(i as u32),
                Err(reason) => checked.rejected.push((reason, place)),
            }
        }
        Ok(checked)
    }

    /// What was read, accepted, rejected.
    pub fn summary(&self) -> &SourceSummary {
        &self.summary
    }

    /// Blocks of rows.
    pub fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Rows of a block, rejected ones included.
    pub fn block_rows(&self, block: usize) -> usize {
        self.blocks[block].num_rows
    }

    /// First row of a block in its file.
    pub(crate) fn block_first_row(&self, block: usize) -> u64 {
        self.blocks[block].first_row
    }

    /// Rows of a block that are samples, counted from its first.
    pub(crate) fn accepted_rows(&self, block: usize) -> Vec<u64> {
        self.blocks[block].accepted.iter().map(|&row| u64::from(row)).collect()
    }

    /// The accepted samples of a block, in order.
    ///
    /// # Errors
    /// A file that has changed or can no longer be read.
    pub fn read_block(&self, block: usize) -> Result<Vec<Sample>, DataError> {
        let block = &self.blocks[block];
        let mut samples = Vec::with_capacity(block.num_rows);
        for (row, origin) in self.rows(block)? {
            if let Ok(sample) = convert(self.formats[block.file], row, origin)? {
                samples.push(sample);
            }
        }
        if samples.len() != block.accepted.len() {
            return Err(DataError::Source {
                what: self.files[block.file].display().to_string(),
                problem: "has changed since the run began; start the run again".to_string(),
            });
        }
        Ok(samples)
    }

    /// A hash of names and contents: a run resumes on the same data or says so.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn compute_fingerprint(&self) -> Result<String, DataError> {
        let digests: Vec<_> = self.files.par_iter().map(|file| files::digest(file)).collect();
        let mut hash = Sha256::new();
        for ((file, format), digest) in self.files.iter().zip(&self.formats).zip(digests) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            hash.update(name.as_bytes());
            hash.update(format!("{format:?}"));
            hash.update(digest?);
        }
        Ok(hex(&hash.finalize()))
    }

    fn rows(&self, block: &Block) -> Result<Rows, DataError> {
        let mut found = Rows::new();
        self.read_run(std::slice::from_ref(block), |_, rows| {
            found = rows;
            Ok(())
        })?;
        Ok(found)
    }

    /// Reads a block, or the blocks of one row group in order.
    fn read_run(
        &self,
        run: &[Block],
        mut each: impl FnMut(&Block, Rows) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let Some(block) = run.first() else { return Ok(()) };
        let file = &self.files[block.file];
        let origin = |row: u64, line: Option<u64>| Origin { file: file.clone(), row, line };
        let rows = match &block.place {
            Place::Lines { offset, num_bytes, first_line } => {
                json::read_lines(file, *offset, *num_bytes, *first_line, block.first_row, origin)?
            }
            Place::Elements(elements) => {
                json::read_elements(file, elements, block.first_row, origin)?
            }
            Place::RowGroup { row_group, skip } => {
                let lengths: Vec<_> = run.iter().map(|block| block.num_rows).collect();
                return parquet::read(file, *row_group, *skip, &lengths, |i, rows| {
                    let first = run[i].first_row;
                    let rows = rows.into_iter().zip(first..);
                    each(&run[i], rows.map(|(row, at)| (row, origin(at, None))).collect())
                });
            }
            Place::WholeFile => {
                vec![(serde_json::json!({ "text": files::read_text(file)? }), origin(0, Some(1)))]
            }
        };
        each(block, rows)
    }
}
