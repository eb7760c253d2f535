//! From a name per op to the implementation that runs.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use crate::{
    case::KernelCase,
    error::{KernelError, Unsupported},
    ops,
    report::{Choice, Refusal, SelectionReport},
};

/// What every implementation of any op can say about itself.
pub trait Implementation: Send + Sync {
    /// Its name in the configuration and in reports.
    fn name(&self) -> &'static str;

    /// Whether it can run a case, forward and (where the case trains) backward.
    ///
    /// # Errors
    /// The reason, with the numbers that disagree.
    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported>;
}

/// The `[kernels]` table: an implementation's name or `auto` per op.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelConfig {
    /// Refuse to run any op on its reference implementation.
    #[serde(default)]
    pub strict: bool,
    /// Op to implementation; ops that are absent are `auto`.
    #[serde(flatten)]
    pub ops: BTreeMap<String, String>,
}

impl KernelConfig {
    /// Every op on one implementation.
    pub fn all(name: &str) -> Self {
        let ops = OPS.iter().map(|op| ((*op).to_string(), name.to_string())).collect();
        Self { strict: false, ops }
    }

    /// What a command line says: `flex` for every op, `attention=flex` for one, or several of these
    /// in order, `reference,attention=flex`. Names are checked by [`Kernels::resolve`].
    pub fn parse(text: &str) -> Self {
        let mut config = Self::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                Some((op, name)) => {
                    config.ops.insert(op.trim().to_string(), name.trim().to_string());
                }
                None => config.ops = Self::all(item).ops,
            }
        }
        config
    }

    fn requested(&self, op: &str) -> &str {
        self.ops.get(op).map_or("auto", String::as_str)
    }
}

/// The implementation chosen for one op, and how often it was called.
struct Slot<T: ?Sized> {
    op: Arc<T>,
    calls: Arc<AtomicU64>,
}

impl<T: ?Sized> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self { op: self.op.clone(), calls: self.calls.clone() }
    }
}

impl<T: Implementation + ?Sized> Slot<T> {
    fn resolve(
        op: &'static str,
        implementations: Vec<Arc<T>>,
        config: &KernelConfig,
        case: &KernelCase,
        report: &mut SelectionReport,
    ) -> Result<Self, KernelError> {
        let requested = config.requested(op);
        let (chosen, refusals) = if requested == "auto" {
            first_supported(op, implementations, case)?
        } else {
            (named(op, requested, implementations, case)?, Vec::new())
        };
        if config.strict && chosen.name() == "reference" {
            return Err(KernelError::Strict { op, refusals: join(&refusals) });
        }
        report.choices.push(Choice {
            op,
            implementation: chosen.name(),
            requested: requested.to_string(),
            refusals,
        });
        Ok(Self { op: chosen, calls: Arc::default() })
    }

    fn call(&self) -> &T {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.op
    }
}

fn first_supported<T: Implementation + ?Sized>(
    op: &'static str,
    implementations: Vec<Arc<T>>,
    case: &KernelCase,
) -> Result<(Arc<T>, Vec<Refusal>), KernelError> {
    let mut refusals = Vec::new();
    for implementation in implementations {
        match implementation.supports(case) {
            Ok(()) => return Ok((implementation, refusals)),
            Err(Unsupported(reason)) => {
                refusals.push(Refusal { implementation: implementation.name(), reason });
            }
        }
    }
    Err(KernelError::NoneSupports { op, reasons: join(&refusals) })
}

fn named<T: Implementation + ?Sized>(
    op: &'static str,
    name: &str,
    implementations: Vec<Arc<T>>,
    case: &KernelCase,
) -> Result<Arc<T>, KernelError> {
    let known: Vec<_> = implementations.iter().map(|i| i.name()).collect();
    let known = known.join(", ");
    let implementation = implementations
        .into_iter()
        .find(|i| i.name() == name)
        .ok_or_else(|| KernelError::UnknownImplementation { op, name: name.to_string(), known })?;
    implementation.supports(case).map_err(|reason| KernelError::Refused {
        op,
        name: name.to_string(),
        reason,
    })?;
    Ok(implementation)
}

fn join(refusals: &[Refusal]) -> String {
    if refusals.is_empty() {
        return "nothing (there is no other implementation)".to_string();
    }
    let reasons: Vec<_> =
        refusals.iter().map(|r| format!("{} ({})", r.implementation, r.reason)).collect();
    reasons.join("; ")
}

/// An implementation of an op, as `kernels list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The op.
    pub op: &'static str,
    /// The implementation.
    pub implementation: &'static str,
    /// Why it cannot run the case; `None` if it can.
    pub refusal: Option<String>,
}

macro_rules! kernels {
    ($($op:ident: $trait:path;)*) => {
        /// The names of all ops, in the order of reports.
        pub const OPS: &[&str] = &[$(stringify!($op)),*];

        /// The implementation of every op, as resolved for a run; cheap to clone.
        #[derive(Clone)]
        pub struct Kernels {
            $($op: Slot<dyn $trait>,)*
        }

        impl Kernels {
            /// Chooses an implementation of every op for a case.
            ///
            /// # Errors
            /// Names that do not exist, demands that cannot be met, and, if `strict`, any op left
            /// on its reference.
            pub fn resolve(
                config: &KernelConfig,
                case: &KernelCase,
            ) -> Result<(Self, SelectionReport), KernelError> {
                if let Some(op) = config.ops.keys().find(|op| !OPS.contains(&op.as_str())) {
                    return Err(KernelError::UnknownOp {
                        op: op.clone(),
                        known: OPS.join(", "),
                    });
                }
                let mut report = SelectionReport::default();
                let kernels = Self {
                    $($op: Slot::resolve(
                        stringify!($op),
                        ops::$op::implementations(),
                        config,
                        case,
                        &mut report,
                    )?,)*
                };
                Ok((kernels, report))
            }

            $(
                #[doc = concat!("The chosen `", stringify!($op), "`; counts a call.")]
                pub fn $op(&self) -> &dyn $trait {
                    self.$op.call()
                }
            )*

            /// Calls of every op since the kernels were resolved.
            pub fn calls(&self) -> BTreeMap<&'static str, u64> {
                BTreeMap::from([
                    $((stringify!($op), self.$op.calls.load(Ordering::Relaxed)),)*
                ])
            }
        }

        /// The names of an op's implementations, best first; none for what is no op.
        pub fn implementation_names(op: &str) -> Vec<&'static str> {
            match op {
                $(stringify!($op) => {
                    ops::$op::implementations().iter().map(|i| i.name()).collect()
                })*
                _ => Vec::new(),
            }
        }

        /// Every implementation of every op, with what it says of a case.
        pub fn list(case: &KernelCase) -> Vec<Listing> {
            let mut listings = Vec::new();
            $(
                for implementation in ops::$op::implementations() {
                    listings.push(Listing {
                        op: stringify!($op),
                        implementation: implementation.name(),
                        refusal: implementation.supports(case).err().map(|reason| reason.0),
                    });
                }
            )*
            listings
        }
    };
}

kernels! {
    embedding: ops::embedding::Embedding;
    rms_norm: ops::rms_norm::RmsNorm;
    rope: ops::rope::Rope;
    linear: ops::linear::Linear;
    swiglu: ops::swiglu::Swiglu;
    attention: ops::attention::Attention;
    causal_conv1d: ops::causal_conv1d::CausalConv1d;
    decay_gate: ops::decay_gate::DecayGate;
    gated_delta_rule: ops::gated_delta_rule::GatedDeltaRule;
    linear_cross_entropy: ops::linear_cross_entropy::LinearCrossEntropy;
    adamw: ops::adamw::AdamW;
    grad_norm: ops::grad_norm::GradNorm;
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernels").field("calls", &self.calls()).finish()
    }
}
