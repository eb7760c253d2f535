//! The learning rate as a pure function of the step.

use serde::{Deserialize, Serialize};

/// The shape after warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// Half a cosine down to the minimum (Loshchilov and Hutter, 2017).
    #[default]
    Cosine,
    /// A straight line down to the minimum.
    Linear,
    /// No decay.
    Constant,
    /// Warm-up, stable, decay: constant, then a straight line over the last `decay_steps` (Hu et
    /// al., 2024).
    Wsd,
}

/// A schedule over a known number of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The shape after warm-up.
    pub kind: ScheduleKind,
    /// Largest learning rate.
    pub lr: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: u64,
    /// Steps of the final decay of `wsd`.
    pub decay_steps: u64,
    /// Smallest learning rate after warm-up, as a share of the largest.
    pub min_lr_ratio: f64,
    /// Steps of the run.
    pub num_steps: u64,
}

impl Schedule {
    /// Learning rate of a step, counted from 1.
    pub fn lr(&self, step: u64) -> f64 {
        if step <= self.warmup_steps {
            return self.lr * step as f64 / self.warmup_steps as f64;
        }
        let decay_start = match self.kind {
            ScheduleKind::Constant => return self.lr,
            ScheduleKind::Wsd => {
                self.num_steps.saturating_sub(self.decay_steps).max(self.warmup_steps)
            }
            ScheduleKind::Cosine | ScheduleKind::Linear => self.warmup_steps,
        };
        let past = step.saturating_sub(decay_start) as f64;
        let all = self.num_steps.saturating_sub(decay_start).max(1) as f64;
        let progress = (past / all).min(1.0);
        let share = match self.kind {
            ScheduleKind::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
            ScheduleKind::Linear | ScheduleKind::Wsd | ScheduleKind::Constant => 1.0 - progress,
        };
        self.lr * (self.min_lr_ratio + (1.0 - self.min_lr_ratio) * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule(kind: ScheduleKind) -> Schedule {
        Schedule {
            kind,
            lr: 1e-3,
            warmup_steps: 10,
            decay_steps: 20,
            min_lr_ratio: 0.1,
            num_steps: 110,
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-15
    }

    #[test]
    fn hand_computed() {
        use ScheduleKind::{Constant, Cosine, Linear, Wsd};
        for kind in [Constant, Cosine, Linear, Wsd] {
            assert!(close(schedule(kind).lr(1), 1e-4));
            assert!(close(schedule(kind).lr(10), 1e-3));
        }
        assert!(close(schedule(Constant).lr(110), 1e-3));
        assert!(close(schedule(Cosine).lr(60), 1e-3 * (0.1 + 0.9 * 0.5)));
        assert!(close(schedule(Linear).lr(35), 1e-3 * (0.1 + 0.9 * 0.75)));
        assert!(close(schedule(Wsd).lr(90), 1e-3));
        assert!(close(schedule(Wsd).lr(100), 1e-3 * (0.1 + 0.9 * 0.5)));
        for kind in [Cosine, Linear, Wsd] {
            assert!(close(schedule(kind).lr(110), 1e-4));
            assert!(close(schedule(kind).lr(500), 1e-4));
        }
    }

    proptest! {
        #[test]
        fn positive_bounded_and_falling_after_warmup(
            kind in prop_oneof![
                Just(ScheduleKind::Cosine), Just(ScheduleKind::Linear),
                Just(ScheduleKind::Constant), Just(ScheduleKind::Wsd),
            ],
            warmup_steps in 0u64..50,
            decay_steps in 0u64..50,
            num_steps in 1u64..200,
            min_lr_ratio in 0.0..1.0f64,
        ) {
            let s = Schedule { kind, lr: 2e-4, warmup_steps, decay_steps, min_lr_ratio, num_steps };
            let mut last = f64::INFINITY;
            for step in 1..=num_steps {
                let lr = s.lr(step);
                prop_assert!((0.0..=2e-4 * (1.0 + 1e-12)).contains(&lr));
                if step > warmup_steps {
                    prop_assert!(lr <= last * (1.0 + 1e-12) && lr >= 2e-4 * min_lr_ratio * 0.999);
                    last = lr;
                }
            }
        }
    }
}
