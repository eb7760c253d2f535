//! Elementary functions in a form that compilers vectorise.

use super::simd::fma;

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

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
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
        assert_eq!(sigmoid::<true>(-200.0), 1.0 / (1.0 + exp::<true>(200.0)));
    }
}
