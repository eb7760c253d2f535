//! Why an implementation cannot be used.

/// The reason why an implementation refuses a case, with the numbers that disagree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// A kernel selection that cannot be satisfied.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The configuration names an op that does not exist.
    #[error("kernels.{op}: there is no such op; the ops are {known}")]
    UnknownOp {
        /// The key as given.
        op: String,
        /// All ops.
        known: String,
    },
    /// The configuration names an implementation that does not exist.
    #[error(
        "kernels.{op} = \"{name}\": there is no such implementation; choose from auto, {known}"
    )]
    UnknownImplementation {
        /// The op.
        op: &'static str,
        /// The name as given.
        name: String,
        /// The op's implementations.
        known: String,
    },
    /// The implementation that was demanded cannot take the case.
    #[error("kernels.{op} = \"{name}\" cannot run this model: {reason}; set it to \"auto\"")]
    Refused {
        /// The op.
        op: &'static str,
        /// The implementation.
        name: String,
        /// Its own reason.
        reason: Unsupported,
    },
    /// Nothing supports the case.
    #[error("no implementation of {op} can run this model: {reasons}")]
    NoneSupports {
        /// The op.
        op: &'static str,
        /// Each implementation with its reason.
        reasons: String,
    },
    /// `strict` is set and the best available implementation is the reference.
    #[error(
        "kernels.strict is set and {op} would run its reference implementation; refused: {refusals}"
    )]
    Strict {
        /// The op.
        op: &'static str,
        /// What was refused and why, or that there is nothing else.
        refusals: String,
    },
}
