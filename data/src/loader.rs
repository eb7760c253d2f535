//! Packed rows in a seeded order, with an exact position to save and restore.
//!
//! An epoch is a sequence of windows of a few thousand samples: blocks of the source in a seeded
//! order, their samples shuffled, tokenised on all cores, packed, the rows shuffled. A window is a
//! function of source, settings, seed, epoch and number alone; so memory is bounded, the number of
//! threads changes nothing, and a position is three numbers.

use std::{
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use rand::{SeedableRng, rngs::ChaCha8Rng, seq::SliceRandom};
use serde::{Deserialize, Serialize};

use crate::{
    batch::Batch,
    chat::Renderer,
    config::DataConfig,
    documents::{Numbered, documents},
    error::DataError,
    packing::{join, pack_lengths},
    report::DataReport,
    source::Source,
};

/// Samples of a window, unless blocks are larger.
const SAMPLES_PER_WINDOW: usize = 16 * 1024;

/// An exact position in the sequence of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    /// Passes over the data that are complete.
    pub epoch: u64,
    /// Window of the epoch.
    pub window: usize,
    /// Rows of the window that were handed out.
    pub row: usize,
    /// Hash of the files.
    pub source_fingerprint: String,
    /// Hash of tokenizer, template and settings.
    pub pipeline_fingerprint: String,
}

/// What every window is made from.
#[derive(Debug)]
struct Pipeline {
    source: Source,
    renderer: Renderer,
    config: DataConfig,
    /// First sample number of each block.
    first_rows: Vec<u64>,
    pool: rayon::ThreadPool,
}

/// Streams packed rows, epoch after epoch, without end.
#[derive(Debug)]
pub struct Loader {
    pipeline: Arc<Pipeline>,
    epoch: u64,
    window: usize,
    row: usize,
    rows: Vec<Batch>,
    next: Option<Prefetch>,
}

#[derive(Debug)]
struct Prefetch {
    epoch: u64,
    window: usize,
    result: mpsc::Receiver<Result<Vec<Batch>, DataError>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// A loader at the beginning of the first epoch.
    ///
    /// # Errors
    /// Settings that make no sense; a first window that cannot be made or is empty.
    pub fn new(source: Source, renderer: Renderer, config: DataConfig) -> Result<Self, DataError> {
        config.validate()?;
        let mut first_rows = Vec::with_capacity(source.num_blocks());
        let mut next = 0;
        for block in 0..source.num_blocks() {
            first_rows.push(next);
            next += source.block_rows(block) as u64;
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(config.workers).build();
        let pool = pool.map_err(|error| DataError::Config {
            key: "workers",
            value: config.workers.to_string(),
            problem: format!("threads cannot be started: {error}"),
        })?;
        let pipeline = Arc::new(Pipeline { source, renderer, config, first_rows, pool });
        Ok(Self { pipeline, epoch: 0, window: 0, row: 0, rows: Vec::new(), next: None })
    }

    /// The next row and the epoch it belongs to (from 0).
    ///
    /// # Errors
    /// Files that changed or cannot be read any more; a data set without a single row.
    pub fn next_row(&mut self) -> Result<(u64, Batch), DataError> {
        let num_windows = self.pipeline.num_windows();
        let mut empty_windows = 0;
        loop {
            if self.rows.is_empty() {
                self.rows = self.load(self.epoch, self.window)?;
            }
            if self.row < self.rows.len() {
                let batch = self.rows[self.row].clone();
                let epoch = self.epoch;
                self.row += 1;
                return Ok((epoch, batch));
            }
            empty_windows = if self.rows.is_empty() { empty_windows + 1 } else { 0 };
            if empty_windows == num_windows {
                return Err(DataError::Source {
                    what: "data.train".to_string(),
                    problem:
                        "no sample gives a row: see the report of `data stats` for the reasons"
                            .to_string(),
                });
            }
            self.rows.clear();
            self.row = 0;
            self.window += 1;
            if self.window == num_windows {
                self.window = 0;
                self.epoch += 1;
            }
        }
    }

    /// The position after the last row that was handed out.
    pub fn state(&self) -> LoaderState {
        LoaderState {
            epoch: self.epoch,
            window: self.window,
            row: self.row,
            source_fingerprint: self.pipeline.source.fingerprint().to_string(),
            pipeline_fingerprint: self.pipeline.fingerprint(),
        }
    }

    /// Goes to a saved position.
    ///
    /// # Errors
    /// Other files or other settings than when it was saved.
    pub fn restore(&mut self, state: &LoaderState) -> Result<(), DataError> {
        let changed = |what: &str, advice: &str| DataError::Source {
            what: "the saved position in the data".to_string(),
            problem: format!("belongs to {what}; {advice}"),
        };
        if state.source_fingerprint != self.pipeline.source.fingerprint() {
            return Err(changed("other data files", "restore the files, or start a new run"));
        }
        if state.pipeline_fingerprint != self.pipeline.fingerprint() {
            let what = "another tokenizer, template or [data] settings";
            return Err(changed(what, "restore these, or start a new run"));
        }
        if state.window >= self.pipeline.num_windows() {
            return Err(changed("another division of the data", "start a new run"));
        }
        self.next = None;
        self.rows.clear();
        (self.epoch, self.window, self.row) = (state.epoch, state.window, state.row);
        Ok(())
    }

    /// The rows of a window, from the prefetch thread if it made them; starts the next.
    fn load(&mut self, epoch: u64, window: usize) -> Result<Vec<Batch>, DataError> {
        let rows = match self.next.take() {
            Some(mut next) if (next.epoch, next.window) == (epoch, window) => {
                let rows = next.result.recv();
                if let Some(thread) = next.thread.take() {
                    // Its result, or its end without one, has arrived already.
                    let _ = thread.join();
                }
                match rows {
                    Ok(rows) => rows?,
                    // The thread ended without a result: make the window here, with its message.
                    Err(mpsc::RecvError) => self.pipeline.window(epoch, window)?.0,
                }
            }
            _ => self.pipeline.window(epoch, window)?.0,
        };
        self.prefetch(epoch, window);
        Ok(rows)
    }

    fn prefetch(&mut self, epoch: u64, window: usize) {
        let last = window + 1 == self.pipeline.num_windows();
        let (epoch, window) = if last { (epoch + 1, 0) } else { (epoch, window + 1) };
        let (sender, result) = mpsc::sync_channel(1);
        let pipeline = self.pipeline.clone();
        let thread = std::thread::spawn(move || {
            let rows = pipeline.window(epoch, window).map(|(rows, _)| rows);
            // Nobody listens any more if the loader was dropped or moved elsewhere.
            let _ = sender.send(rows);
        });
        self.next = Some(Prefetch { epoch, window, result, thread: Some(thread) });
    }

    /// Rows of each of the first epochs, and the report of one pass: everything is tokenised once
    /// and only lengths are kept.
    ///
    /// # Errors
    /// As [`Self::next_row`].
    pub fn measure(&self, num_epochs: u64) -> Result<(Vec<u64>, DataReport), DataError> {
        let pipeline = &self.pipeline;
        let mut report =
            DataReport { source: pipeline.source.summary().clone(), ..DataReport::default() };
        // Lengths by block and sample, in the order of the source.
        let mut lengths = Vec::with_capacity(pipeline.source.num_blocks());
        for block in 0..pipeline.source.num_blocks() {
            let found = pipeline.block_documents(&[block], None, &mut report)?;
            lengths.push(found.into_iter().map(|(id, d)| (id, d.input_ids.len() as u32)).collect());
        }
        let mut rows_per_epoch = Vec::new();
        for epoch in 0..num_epochs.max(1) {
            let windows = 0..pipeline.num_windows();
            let rows = windows.map(|w| pipeline.count_rows(epoch, w, &lengths)).sum::<u64>();
            rows_per_epoch.push(rows);
        }
        report.num_rows = rows_per_epoch[0];
        let room = report.num_rows as f64 * pipeline.config.max_tokens as f64;
        report.fill_rate = if room > 0.0 { report.num_tokens as f64 / room } else { 0.0 };
        Ok((rows_per_epoch, report))
    }

    /// All rows of one pass in the order of the files, for evaluation.
    ///
    /// # Errors
    /// As [`Self::next_row`].
    pub fn eval_rows(&self) -> Result<(Vec<Batch>, DataReport), DataError> {
        let pipeline = &self.pipeline;
        let mut report =
            DataReport { source: pipeline.source.summary().clone(), ..DataReport::default() };
        let mut rows = Vec::new();
        for block in 0..pipeline.source.num_blocks() {
            let found = pipeline.block_documents(&[block], None, &mut report)?;
            rows.extend(pipeline.pack(&found, None));
        }
        report.num_rows = rows.len() as u64;
        let room = report.num_rows as f64 * pipeline.config.max_tokens as f64;
        report.fill_rate = if room > 0.0 { report.num_tokens as f64 / room } else { 0.0 };
        Ok((rows, report))
    }

    /// Files, rows and rejections of the source.
    pub fn source(&self) -> &Source {
        &self.pipeline.source
    }

    /// What renders the samples.
    pub fn renderer(&self) -> &Renderer {
        &self.pipeline.renderer
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Its window is of no more use, but it must not outlive the loader.
            let _ = thread.join();
        }
    }
}

impl Pipeline {
    fn blocks_per_window(&self) -> usize {
        let blocks = self.source.num_blocks();
        let rows: usize = (0..blocks).map(|block| self.source.block_rows(block)).sum();
        let per_block = (rows / blocks.max(1)).max(1);
        (SAMPLES_PER_WINDOW / per_block).max(1)
    }

    fn num_windows(&self) -> usize {
        self.source.num_blocks().div_ceil(self.blocks_per_window()).max(1)
    }

    fn fingerprint(&self) -> String {
        let c = &self.config;
        let order = (c.max_tokens, c.packing, c.long_samples, c.shuffle, c.seed);
        format!("{}-{order:?}", self.renderer.fingerprint())
    }

    fn rng(&self, epoch: u64, stream: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.config.seed);
        // Streams of one seed are independent: one per epoch and purpose.
        rng.set_stream(epoch.wrapping_mul(1 << 32).wrapping_add(stream));
        rng
    }

    /// Blocks of a window, in the order of the epoch.
    fn window_blocks(&self, epoch: u64, window: usize) -> Vec<usize> {
        let mut blocks: Vec<usize> = (0..self.source.num_blocks()).collect();
        if self.config.shuffle {
            blocks.shuffle(&mut self.rng(epoch, 0));
        }
        let size = self.blocks_per_window();
        blocks.chunks(size).nth(window).unwrap_or_default().to_vec()
    }

    fn window(&self, epoch: u64, window: usize) -> Result<(Vec<Batch>, DataReport), DataError> {
        let mut report = DataReport::default();
        let blocks = self.window_blocks(epoch, window);
        let mut rng = self.rng(epoch, 2 * window as u64 + 1);
        let order = self.config.shuffle.then_some(&mut rng);
        let found = self.block_documents(&blocks, order, &mut report)?;
        let mut rng = self.rng(epoch, 2 * window as u64 + 2);
        let rows = self.pack(&found, self.config.shuffle.then_some(&mut rng));
        Ok((rows, report))
    }

    /// Documents of blocks, their samples shuffled by `order` if there is one.
    fn block_documents(
        &self,
        blocks: &[usize],
        order: Option<&mut ChaCha8Rng>,
        report: &mut DataReport,
    ) -> Result<Vec<Numbered>, DataError> {
        let mut samples = Vec::new();
        for &block in blocks {
            let first = self.first_rows[block];
            let found = self.source.read_block(block)?;
            let offset = self.source.block_first_row(block);
            samples.extend(found.into_iter().map(|s| (first + s.origin.row - offset, s)));
        }
        if let Some(rng) = order {
            samples.shuffle(rng);
        }
        let (max_tokens, policy) = (self.config.max_tokens, self.config.long_samples);
        self.pool.install(|| documents(&samples, &self.renderer, max_tokens, policy, report))
    }

    fn pack(&self, found: &[Numbered], order: Option<&mut ChaCha8Rng>) -> Vec<Batch> {
        let lengths: Vec<u32> = found.iter().map(|(_, d)| d.input_ids.len() as u32).collect();
        let mut rows = self.plan_rows(&lengths);
        if let Some(rng) = order {
            rows.shuffle(rng);
        }
        rows.iter().map(|row| join(row.iter().map(|&i| (found[i].0, &found[i].1)))).collect()
    }

    fn plan_rows(&self, lengths: &[u32]) -> Vec<Vec<usize>> {
        if self.config.packing {
            pack_lengths(lengths, self.config.max_tokens)
        } else {
            (0..lengths.len()).map(|i| vec![i]).collect()
        }
    }

    /// Rows of a window, from the lengths of the documents of every block.
    fn count_rows(&self, epoch: u64, window: usize, lengths: &[Vec<(u64, u32)>]) -> u64 {
        let blocks = self.window_blocks(epoch, window);
        // The order of samples decides how they pack: shuffle what `block_documents` shuffles.
        let mut samples: Vec<u64> = Vec::new();
        for &block in &blocks {
            let first = self.first_rows[block];
            let accepted = self.source.accepted_rows(block);
            samples.extend(accepted.iter().map(|row| first + row));
        }
        if self.config.shuffle {
            samples.shuffle(&mut self.rng(epoch, 2 * window as u64 + 1));
        }
        let mut by_sample: std::collections::HashMap<u64, Vec<u32>> =
            std::collections::HashMap::new();
        for &block in &blocks {
            for &(id, length) in &lengths[block] {
                by_sample.entry(id).or_default().push(length);
            }
        }
        let ordered: Vec<u32> =
            samples.iter().filter_map(|id| by_sample.get(id)).flatten().copied().collect();
        self.plan_rows(&ordered).len() as u64
    }
}
