//! Products of small row-major tiles that stay in cache.

use super::simd::fma;

/// A matrix operand by its strides: element (i, j) is at `i * row + j * column`.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a> {
    /// The elements.
    pub(crate) data: &'a [f32],
    /// Distance of rows.
    pub(crate) row: usize,
    /// Distance of columns.
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

/// `c (+)= a b` with `a` `[m, k]` in any strides, `b` `[k, n]` and `c` `[m, n]` in rows.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) fn product<const FMA: bool>(
    (m, n, k): (usize, usize, usize),
    a: Strided<'_>,
    b: &[f32],
    ldb: usize,
    c: &mut [f32],
    ldc: usize,
    accumulate: bool,
) {
    let mut i = 0;
    while i + 8 <= m {
        row_block::<FMA, 8>(n, k, a, i, b, ldb, c, ldc, accumulate);
        i += 8;
    }
    while i + 4 <= m {
        row_block::<FMA, 4>(n, k, a, i, b, ldb, c, ldc, accumulate);
        i += 4;
    }
    while i < m {
        row_block::<FMA, 1>(n, k, a, i, b, ldb, c, ldc, accumulate);
        i += 1;
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn row_block<const FMA: bool, const R: usize>(
    n: usize,
    k: usize,
    a: Strided<'_>,
    i: usize,
    b: &[f32],
    ldb: usize,
    c: &mut [f32],
    ldc: usize,
    accumulate: bool,
) {
    let mut j = 0;
    while j + 32 <= n {
        column_block::<FMA, R, 32>(k, a, i, b, ldb, j, c, ldc, accumulate);
        j += 32;
    }
    while j + 16 <= n {
        column_block::<FMA, R, 16>(k, a, i, b, ldb, j, c, ldc, accumulate);
        j += 16;
    }
    while j < n {
        column_block::<FMA, R, 1>(k, a, i, b, ldb, j, c, ldc, accumulate);
        j += 1;
    }
}

/// R rows by N columns of the result, held in registers over all of k.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn column_block<const FMA: bool, const R: usize, const N: usize>(
    k: usize,
    a: Strided<'_>,
    i: usize,
    b: &[f32],
    ldb: usize,
    j: usize,
    c: &mut [f32],
    ldc: usize,
    accumulate: bool,
) {
    if k == 0 {
        if !accumulate {
            for r in 0..R {
                c[(i + r) * ldc + j..][..N].fill(0.0);
            }
        }
        return;
    }
    // One check for the whole loop instead of one per element.
    assert!((k - 1) * ldb + j + N <= b.len());
    assert!((i + R - 1) * a.row + (k - 1) * a.column < a.data.len());
    let mut sums = [[0.0f32; N]; R];
    for p in 0..k {
        // SAFETY: the largest index, (k - 1) * ldb + j + N - 1, was checked above.
        let b_row = unsafe { &*b.as_ptr().add(p * ldb + j).cast::<[f32; N]>() };
        for r in 0..R {
            // SAFETY: the largest index was checked above.
            let x = unsafe { *a.data.get_unchecked((i + r) * a.row + p * a.column) };
            for l in 0..N {
                sums[r][l] = fma::<FMA>(x, b_row[l], sums[r][l]);
            }
        }
    }
    for (r, sum) in sums.iter().enumerate() {
        let c_row = &mut c[(i + r) * ldc + j..][..N];
        for l in 0..N {
            c_row[l] = if accumulate { c_row[l] + sum[l] } else { sum[l] };
        }
    }
}

/// `out[j, i] = a[i, j]` for `a` `[m, n]` in rows at a distance of `lda`; `out` is dense.
#[inline(always)]
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
                product::<true>((m, n, k), operand, &b, n, &mut c, n, accumulate);
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
