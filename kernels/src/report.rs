//! Which implementation of every op runs, and why not another.

use std::fmt;

use serde::Serialize;

/// An implementation that was asked and said no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Its name.
    pub implementation: &'static str,
    /// Its reason.
    pub reason: String,
}

/// The outcome for one op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The op.
    pub op: &'static str,
    /// The implementation that runs.
    pub implementation: &'static str,
    /// What the configuration said: `auto` or a name.
    pub requested: String,
    /// Better ones that cannot take the case.
    pub refusals: Vec<Refusal>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.requested == "auto" { "auto" } else { "as configured" };
        write!(f, "{} = {} ({how})", self.op, self.implementation)?;
        for refusal in &self.refusals {
            write!(f, "; {} refused: {}", refusal.implementation, refusal.reason)?;
        }
        Ok(())
    }
}

/// The outcome for all ops: printed at the start of a run and saved with each checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SelectionReport {
    /// One entry per op, in the order of [`crate::registry::OPS`].
    pub choices: Vec<Choice>,
}

impl SelectionReport {
    /// The choice made for an op.
    pub fn choice(&self, op: &str) -> Option<&Choice> {
        self.choices.iter().find(|c| c.op == op)
    }

    /// Ops that run their reference implementation.
    pub fn references(&self) -> impl Iterator<Item = &Choice> {
        self.choices.iter().filter(|c| c.implementation == "reference")
    }
}

impl fmt::Display for SelectionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.choices.iter().try_for_each(|choice| writeln!(f, "{choice}"))
    }
}
