//! One body, compiled for several instruction sets, chosen at run time.
//!
//! Bodies are generic over `FMA`: where the instruction set lacks fused multiply-add,
//! `f32::mul_add` would be a library call, so [`fma`] multiplies and adds instead. A machine always
//! takes the same path, so its results repeat to the bit.

use std::sync::OnceLock;

/// The instruction sets that bodies are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// What every machine of the target has.
    Base,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    V3,
    /// AVX-512 F, VL, BW, DQ.
    #[cfg(target_arch = "x86_64")]
    V4,
}

/// The best level of this machine.
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let v3 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let v4 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    match (v3, v4) {
        (true, true) => Level::V4,
        (true, false) => Level::V3,
        _ => Level::Base,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Base
}

/// `a * b + c`, fused where the instruction set can.
#[inline(always)]
pub(crate) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Defines a function that runs `$body::<FMA>` compiled for the best level of the machine.
///
/// The body must be `#[inline(always)]`, or it keeps the base instruction set.
macro_rules! simd_dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) => $body:ident) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn v4($($arg: $ty),*) {
                    $body::<true>($($arg),*);
                }
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn v3($($arg: $ty),*) {
                    $body::<true>($($arg),*);
                }
                match $crate::flex::simd::level() {
                    // SAFETY: `level` has detected the features that `v4` enables.
                    $crate::flex::simd::Level::V4 => return unsafe { v4($($arg),*) },
                    // SAFETY: `level` has detected the features that `v3` enables.
                    $crate::flex::simd::Level::V3 => return unsafe { v3($($arg),*) },
                    $crate::flex::simd::Level::Base => {}
                }
            }
            $body::<{ cfg!(target_arch = "aarch64") }>($($arg),*);
        }
    };
}
pub(crate) use simd_dispatch;
