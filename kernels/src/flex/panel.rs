//! The innermost product: a strip of rows times a panel of columns, both packed.

#[cfg(target_arch = "x86_64")]
use super::lanes::x86;
use super::{
    lanes::{Lanes, Plain},
    simd::{Level, level},
};

/// Columns of a packed panel of the right operand.
pub(crate) const PANEL: usize = 32;

/// Rows of a packed strip of the left operand.
pub(crate) const STRIP: usize = 12;

/// Terms that are added up before they join the rest of a sum.
const BLOCK: usize = 32;

/// A piece of the result in row order.
pub(crate) type Tile = [f32; STRIP * PANEL];

/// `tile += a b`; `a` `[k, STRIP]` is the transposed strip, `b` `[k, PANEL]`.
///
/// Sums are taken in blocks of terms: their rounding errors grow with block + k / block instead of k.
pub(crate) fn add_product(a: &[f32], b: &[f32], tile: &mut Tile) {
    let k = a.len() / STRIP;
    // Checked once for all: every access below stays within these.
    assert!(a.len() == k * STRIP && b.len() == k * PANEL, "a strip and a panel of equal depth");
    match level() {
        // SAFETY: the features were detected; bounds were checked above.
        #[cfg(target_arch = "x86_64")]
        Level::V4 => unsafe { add_product_v4(a, b, tile) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::V3 => unsafe { add_product_v3(a, b, tile) },
        // SAFETY: bounds were checked above.
        Level::Base => unsafe { blocks::<Plain, 1, 32>(a, b, tile) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn add_product_v4(a: &[f32], b: &[f32], tile: &mut Tile) {
    // SAFETY: the caller has checked the bounds.
    unsafe { blocks::<x86::Avx512, 12, 2>(a, b, tile) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_product_v3(a: &[f32], b: &[f32], tile: &mut Tile) {
    // SAFETY: the caller has checked the bounds.
    unsafe { blocks::<x86::Avx2, 2, 4>(a, b, tile) }
}

/// R rows at a time in registers; C vectors make a panel.
#[inline(always)]
unsafe fn blocks<L: Lanes, const R: usize, const C: usize>(a: &[f32], b: &[f32], tile: &mut Tile) {
    for (a, b) in a.chunks(BLOCK * STRIP).zip(b.chunks(BLOCK * PANEL)) {
        for first in (0..STRIP).step_by(R) {
            // SAFETY: R divides STRIP, C vectors make a panel, and both operands have equal depth.
            unsafe {
                let tile = tile.as_mut_ptr().add(first * PANEL);
                block::<L, R, C>(a.len() / STRIP, a.as_ptr().add(first), b.as_ptr(), tile);
            }
        }
    }
}

#[inline(always)]
unsafe fn block<L: Lanes, const R: usize, const C: usize>(
    k: usize,
    a: *const f32,
    b: *const f32,
    tile: *mut f32,
) {
    // SAFETY: the caller's pointers have k rows of a strip and a panel, and R rows of a tile.
    unsafe {
        let mut sums = [[L::splat(0.0); C]; R];
        for p in 0..k {
            let mut b_row = [L::splat(0.0); C];
            for (v, value) in b_row.iter_mut().enumerate() {
                *value = L::load(b.add(p * PANEL + v * L::N));
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let x = L::splat(*a.add(p * STRIP + r));
                for (sum, &value) in row.iter_mut().zip(&b_row) {
                    *sum = L::fma(x, value, *sum);
                }
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (v, &sum) in row.iter().enumerate() {
                let at = tile.add(r * PANEL + v * L::N);
                L::store(at, L::add(L::load(at), sum));
            }
        }
    }
}
