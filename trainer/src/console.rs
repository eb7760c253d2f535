//! What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere.

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::metrics::{EvalRecord, StepRecord};

/// Progress on stderr.
#[derive(Debug)]
pub struct Console {
    bar: Option<ProgressBar>,
    every_steps: u64,
    started: Instant,
    first_step: u64,
}

impl Console {
    /// A console that prints a line every so many steps where there is no terminal.
    pub fn new(every_steps: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg}");
            bar.set_style(style.expect("the template is valid"));
            bar
        });
        Self { bar, every_steps: every_steps.max(1), started: Instant::now(), first_step: 0 }
    }

    /// Steps begin.
    pub fn start(&mut self, step: u64, num_steps: u64) {
        self.started = Instant::now();
        self.first_step = step;
        if let Some(bar) = &self.bar {
            bar.set_length(num_steps);
            bar.set_position(step);
        }
    }

    /// A step is done.
    pub fn step(&mut self, record: &StepRecord, num_steps: u64) {
        let done = (record.step - self.first_step).max(1) as u32;
        let left = (num_steps - record.step) as f64;
        let eta = self.started.elapsed().as_secs_f64() / f64::from(done) * left;
        let loss = record.loss.map_or("-".to_string(), |loss| format!("{loss:.4}"));
        let text = format!(
            "loss {loss}  lr {:.2e}  {:.0} tokens/s  ETA {}",
            record.lr,
            record.tokens_per_second,
            duration(eta)
        );
        if let Some(bar) = &self.bar {
            bar.set_position(record.step);
            bar.set_message(text);
            return;
        }
        let shown = record.step == 1
            || record.step == num_steps
            || record.step.is_multiple_of(self.every_steps);
        if shown {
            line(&format!("step {}/{num_steps}  {text}", record.step));
        }
    }

    /// An evaluation is done.
    pub fn evaluation(&self, record: &EvalRecord) {
        self.notice(&format!(
            "evaluation after step {}: loss {:.4} over {} tokens",
            record.step, record.eval_loss, record.eval_tokens
        ));
    }

    /// Something that takes a while begins.
    pub fn phase(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_string());
        }
    }

    /// A line that stays.
    pub fn notice(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => line(text),
        }
    }

    /// Steps are over.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(text: &str) {
    // A closed stderr must not end a run.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn duration(secs: f64) -> String {
    let secs = Duration::from_secs_f64(secs.clamp(0.0, 1e9)).as_secs();
    match (secs / 3600, secs / 60 % 60, secs % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}
