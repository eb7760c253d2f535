//! Large matrix products on all cores, with short sums.

use gemm::{Parallelism, gemm};

/// A row-major matrix, or the transpose of one.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    /// Distance of rows and of columns.
    strides: (usize, usize),
}

impl<'a> Matrix<'a> {
    /// A dense row-major matrix.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "{rows} x {columns} matrix");
        Self { values, rows, columns, strides: (columns, 1) }
    }

    /// The transpose, as a view.
    pub(crate) fn transposed(self) -> Self {
        let (row, column) = self.strides;
        Self { rows: self.columns, columns: self.rows, strides: (column, row), ..self }
    }
}

/// Terms of a sum that are added up before they join the rest.
///
/// Rounding errors of a sum of k terms grow with k when they are added one after the other; in
/// blocks of b they grow with b + k / b. Blocks near sqrt(k) are best; longer ones read and write
/// the result less often.
fn block_size(k: usize) -> usize {
    match k {
        0..=256 => 16,
        257..=1024 => 64,
        _ => 256,
    }
}

/// `out (+)= a b`, row-major.
pub(crate) fn matmul(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], accumulate: bool) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(k, b.rows, "inner sizes");
    assert_eq!(out.len(), m * n, "result of {m} x {n}");
    if k == 0 {
        if !accumulate {
            out.fill(0.0);
        }
        return;
    }
    let block = block_size(k);
    let mut start = 0;
    while start < k {
        let len = block.min(k - start);
        let read = accumulate || start > 0;
        // SAFETY: `a` and `b` hold their rows times columns elements at these strides, of which
        // columns (rows of b) start .. start + len are read; `out` is m x n and borrowed mutably.
        unsafe {
            gemm(
                m,
                n,
                len,
                out.as_mut_ptr(),
                1,
                n as isize,
                read,
                a.values.as_ptr().add(start * a.strides.1),
                a.strides.1 as isize,
                a.strides.0 as isize,
                b.values.as_ptr().add(start * b.strides.0),
                b.strides.1 as isize,
                b.strides.0 as isize,
                1.0,
                1.0,
                false,
                false,
                false,
                Parallelism::Rayon(0),
            );
        }
        start += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_definition_in_every_layout() {
        for (m, n, k) in [(1, 1, 1), (3, 5, 17), (20, 7, 300), (2, 3, 1500), (4, 4, 0)] {
            let a: Vec<f32> = (0..m * k).map(|i| (i * 37 % 19) as f32 - 9.0).collect();
            let b: Vec<f32> = (0..k * n).map(|i| (i * 53 % 23) as f32 - 11.0).collect();
            for (a_transposed, b_transposed, accumulate) in [
                (false, false, false),
                (true, false, true),
                (false, true, false),
                (true, true, true),
            ] {
                let matrix = |values, rows, columns, transposed: bool| {
                    if transposed {
                        Matrix::new(values, columns, rows).transposed()
                    } else {
                        Matrix::new(values, rows, columns)
                    }
                };
                let mut out = vec![1.0; m * n];
                let left = matrix(&a, m, k, a_transposed);
                matmul(left, matrix(&b, k, n, b_transposed), &mut out, accumulate);
                for (i, row) in out.chunks(n).enumerate() {
                    for (j, &value) in row.iter().enumerate() {
                        let at = |p: usize| {
                            let x = if a_transposed { a[p * m + i] } else { a[i * k + p] };
                            x * if b_transposed { b[j * k + p] } else { b[p * n + j] }
                        };
                        let sum: f32 = (0..k).map(at).sum();
                        assert_eq!(value, sum + if accumulate { 1.0 } else { 0.0 });
                    }
                }
            }
        }
    }
}
