//! Products of small row-major tiles that stay in cache.

#[cfg(target_arch = "x86_64")]
use super::lanes::x86;
use super::{
    lanes::{Lanes, Plain},
    simd::{Level, level},
};

/// A matrix operand by its strides: element (i, j) is at `i * row + j * column`.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// Rows of `data` at a distance of `row`.
#[inline(always)]
pub(crate) fn rows(data: &[f32], row: usize) -> Strided<'_> {
    Strided { data, row, column: 1 }
}

/// The transpose of rows of `data` at a distance of `row`.
#[inline(always)]
pub(crate) fn transposed(data: &[f32], row: usize) -> Strided<'_> {
    Strided { data, row: 1, column: row }
}

/// A row-major result or right operand: the elements and the distance of rows.
pub(crate) type Rows<'a> = (&'a [f32], usize);

/// `c (+)= a b` with `a` `[m, k]` in any strides, `b` `[k, n]` and `c` `[m, n]` in rows.
pub(crate) fn product(
    size: (usize, usize, usize),
    a: Strided<'_>,
    b: Rows<'_>,
    c: (&mut [f32], usize),
    accumulate: bool,
) {
    let (m, n, k) = size;
    if m == 0 || n == 0 {
        return;
    }
    // Checked once for all: every access below stays within these.
    assert!((m - 1) * c.1 + n <= c.0.len(), "result of {m} x {n} does not fit");
    if k == 0 {
        if !accumulate {
            (0..m).for_each(|i| c.0[i * c.1..][..n].fill(0.0));
        }
        return;
    }
    assert!((k - 1) * b.1 + n <= b.0.len(), "right operand of {k} x {n} is too short");
    assert!(
        (m - 1) * a.row + (k - 1) * a.column < a.data.len(),
        "left operand of {m} x {k} is too short"
    );
    for start in (0..k).step_by(BLOCK) {
        let size = (m, n, BLOCK.min(k - start));
        let a = Strided { data: &a.data[start * a.column..], ..a };
        let b = (&b.0[start * b.1..], b.1);
        short_product(size, a, b, (&mut *c.0, c.1), accumulate || start > 0);
    }
}

/// Terms that are added up before they join the rest of a sum, which keeps its rounding errors small.
const BLOCK: usize = 32;

fn short_product(
    size: (usize, usize, usize),
    a: Strided<'_>,
    b: Rows<'_>,
    c: (&mut [f32], usize),
    accumulate: bool,
) {
    match level() {
        // SAFETY: the features were detected; the caller has checked the bounds.
        #[cfg(target_arch = "x86_64")]
        Level::V4 => unsafe { product_v4(size, a, b, c, accumulate) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::V3 => unsafe { product_v3(size, a, b, c, accumulate) },
        // SAFETY: the caller has checked the bounds.
        Level::Base => unsafe { blocks::<Plain>(size, a, b, c, accumulate) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn product_v4(
    size: (usize, usize, usize),
    a: Strided<'_>,
    b: Rows<'_>,
    c: (&mut [f32], usize),
    accumulate: bool,
) {
    // SAFETY: the caller has checked the bounds.
    unsafe { blocks::<x86::Avx512>(size, a, b, c, accumulate) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn product_v3(
    size: (usize, usize, usize),
    a: Strided<'_>,
    b: Rows<'_>,
    c: (&mut [f32], usize),
    accumulate: bool,
) {
    // SAFETY: the caller has checked the bounds.
    unsafe { blocks::<x86::Avx2>(size, a, b, c, accumulate) }
}

#[inline(always)]
unsafe fn blocks<L: Lanes>(
    (m, n, k): (usize, usize, usize),
    a: Strided<'_>,
    b: Rows<'_>,
    c: (&mut [f32], usize),
    accumulate: bool,
) {
    let (c, ldc) = (c.0.as_mut_ptr(), c.1);
    let mut i = 0;
    while i < m {
        // SAFETY: row i is inside, and each block checks how many more are.
        unsafe {
            let a_row = a.data.as_ptr().add(i * a.row);
            let c_row = c.add(i * ldc);
            let strides = (a.row, a.column, b.1, ldc);
            let b = b.0.as_ptr();
            i += if m - i >= 8 {
                row_block::<L, 8>((n, k), a_row, b, c_row, strides, accumulate)
            } else if m - i >= 4 {
                row_block::<L, 4>((n, k), a_row, b, c_row, strides, accumulate)
            } else {
                row_block::<L, 1>((n, k), a_row, b, c_row, strides, accumulate)
            };
        }
    }
}

/// R rows of the result; returns R.
#[inline(always)]
unsafe fn row_block<L: Lanes, const R: usize>(
    (n, k): (usize, usize),
    a: *const f32,
    b: *const f32,
    c: *mut f32,
    strides: (usize, usize, usize, usize),
    accumulate: bool,
) -> usize {
    let mut j = 0;
    // SAFETY: columns j .. j + width are inside in each call.
    unsafe {
        while j + 2 * L::N <= n {
            column_block::<L, R, 2>(k, a, b.add(j), c.add(j), strides, accumulate);
            j += 2 * L::N;
        }
        while j + L::N <= n {
            column_block::<L, R, 1>(k, a, b.add(j), c.add(j), strides, accumulate);
            j += L::N;
        }
        while j < n {
            column_block::<Plain, R, 1>(k, a, b.add(j), c.add(j), strides, accumulate);
            j += 1;
        }
    }
    R
}

/// R rows by C vectors of the result, in registers over all of k.
#[inline(always)]
unsafe fn column_block<L: Lanes, const R: usize, const C: usize>(
    k: usize,
    a: *const f32,
    b: *const f32,
    c: *mut f32,
    (a_row, a_column, ldb, ldc): (usize, usize, usize, usize),
    accumulate: bool,
) {
    // SAFETY: the caller has checked that R rows and C vectors of columns are inside.
    unsafe {
        let mut sums = [[L::splat(0.0); C]; R];
        for p in 0..k {
            let mut b_row = [L::splat(0.0); C];
            for (v, value) in b_row.iter_mut().enumerate() {
                *value = L::load(b.add(p * ldb + v * L::N));
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let x = L::splat(*a.add(r * a_row + p * a_column));
                for (sum, &value) in row.iter_mut().zip(&b_row) {
                    *sum = L::fma(x, value, *sum);
                }
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (v, &sum) in row.iter().enumerate() {
                let at = c.add(r * ldc + v * L::N);
                L::store(at, if accumulate { L::add(L::load(at), sum) } else { sum });
            }
        }
    }
}

/// `out[j, i] = a[i, j]` for `a` `[m, n]` in rows at a distance of `lda`; `out` is dense.
pub(crate) fn transpose(m: usize, n: usize, a: &[f32], lda: usize, out: &mut [f32]) {
    for i in 0..m {
        let row = &a[i * lda..][..n];
        for (j, &x) in row.iter().enumerate() {
            out[j * m + i] = x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_every_edge_agree_with_the_definition() {
        for (m, n, k) in [(1, 1, 1), (8, 32, 16), (9, 33, 5), (13, 51, 7), (4, 16, 0), (32, 64, 64)]
        {
            let a: Vec<f32> = (0..m * k).map(|i| (i * 37 % 19) as f32 - 9.0).collect();
            let b: Vec<f32> = (0..k * n).map(|i| (i * 53 % 23) as f32 - 11.0).collect();
            let start: Vec<f32> = (0..m * n).map(|i| i as f32).collect();
            for (accumulate, by_columns) in [(false, false), (true, false), (true, true)] {
                let mut c = start.clone();
                let operand = if by_columns { transposed(&a, m) } else { rows(&a, k) };
                product((m, n, k), operand, (&b, n), (&mut c, n), accumulate);
                for i in 0..m {
                    for j in 0..n {
                        let at = |p: usize| if by_columns { a[p * m + i] } else { a[i * k + p] };
                        let sum: f32 = (0..k).map(|p| at(p) * b[p * n + j]).sum();
                        let expected = if accumulate { start[i * n + j] + sum } else { sum };
                        // Small integers: exact in any order.
                        assert_eq!(c[i * n + j], expected, "({m},{n},{k}) at ({i},{j})");
                    }
                }
            }
        }
    }
}
