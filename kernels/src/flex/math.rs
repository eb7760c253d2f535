//! Elementary functions in a form that compilers vectorise.

use super::simd::fma;

/// Rows that a task of a row-wise kernel takes: sums over rows are joined task by task, in order.
pub(crate) const ROWS_PER_TASK: usize = 64;

/// Elements that a task of an elementwise kernel takes.
pub(crate) const ELEMENTS_PER_TASK: usize = 32 << 10;

/// `exp(x)` to about 1 ulp, 0 below -87.3 (no subnormals), saturated above 88.3.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`; `exp(r)` by its Taylor polynomial of degree 7 (remainder
/// below 6e-9 of the value), `2^n` by the exponent bits.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts: the first has few bits, so n * LN2_HIGH is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
    const ROUND: f32 = 12_582_912.0;

    let clamped = x.clamp(-87.3, 88.3);
    let shifted = fma::<FMA>(clamped, LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma::<FMA>(n, -LN2_LOW, fma::<FMA>(n, -LN2_HIGH, clamped));
    let mut p = 1.0 / 5040.0;
    p = fma::<FMA>(p, r, 1.0 / 720.0);
    p = fma::<FMA>(p, r, 1.0 / 120.0);
    p = fma::<FMA>(p, r, 1.0 / 24.0);
    p = fma::<FMA>(p, r, 1.0 / 6.0);
    p = fma::<FMA>(p, r, 0.5);
    p = fma::<FMA>(p, r, 1.0);
    p = fma::<FMA>(p, r, 1.0);
    // The low bits of `shifted` hold n.
    let exponent = (shifted.to_bits().wrapping_add(127)) << 23;
    let value = p * f32::from_bits(exponent);
    if x < -87.3 { 0.0 } else { value }
}

/// `exp(x)` in f64 to a few ulps, 0 below -708, saturated above 708; by the method of [`exp`].
#[inline(always)]
pub(crate) fn exp64(x: f64) -> f64 {
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // Adding and subtracting 1.5 * 2^52 rounds to the nearest integer.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // 1 / k!, the highest power first.
    const TERMS: [f64; 13] = [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];

    let clamped = x.clamp(-708.0, 708.0);
    let shifted = clamped * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * LN2_HIGH - n * LN2_LOW;
    let mut p = 0.0;
    for term in TERMS {
        p = p * r + term;
    }
    let exponent = shifted.to_bits().wrapping_add(1023) << 52;
    let value = p * f64::from_bits(exponent);
    if x < -708.0 { 0.0 } else { value }
}

/// `1 / (1 + exp(-x))` in f64.
#[inline(always)]
pub(crate) fn sigmoid64(x: f64) -> f64 {
    1.0 / (1.0 + exp64(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_to_two_ulps() {
        let mut worst = 0.0f64;
        for i in -870_000..880_000 {
            let x = i as f32 * 1e-4;
            let truth = f64::from(x).exp();
            let error = (f64::from(exp::<true>(x)) - truth).abs() / truth;
            worst = worst.max(error);
        }
        assert!(worst < 2.4e-7, "worst relative error {worst:e}");
    }

    #[test]
    fn exp_ends_well() {
        assert_eq!(exp::<true>(-200.0), 0.0);
        assert_eq!(exp::<true>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp::<true>(0.0), 1.0);
        assert!(exp::<true>(200.0) > 1e38);
        assert!(exp::<true>(f32::NAN).is_nan());
    }

    #[test]
    fn exp64_is_accurate_to_a_few_ulps() {
        for i in -70_000..70_000 {
            let x = f64::from(i) * 1e-2;
            let truth = x.exp();
            assert!((exp64(x) - truth).abs() <= 4e-16 * truth + f64::MIN_POSITIVE, "{x}");
        }
        assert_eq!(exp64(-1e4), 0.0);
        assert_eq!(sigmoid64(-1e4), 1.0 / (1.0 + exp64(1e4)));
        assert!(exp64(f64::NAN).is_nan());
    }
}
