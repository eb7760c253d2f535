//! Large matrix products on all cores, with short sums.
//!
//! The right operand is packed into panels of 32 columns; a task computes a panel of the result,
//! block of the inner size after block. A sum of k terms in blocks of b has rounding errors that grow
//! with b + k / b instead of k. Tasks own their results and blocks are fixed, so threads change
//! nothing.

use rayon::prelude::*;

use super::{
    shared::SharedSlice,
    tile::{PANEL, Strided, add_panel},
};

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

    fn from_element(&self, row: usize, column: usize) -> &'a [f32] {
        &self.values[row * self.strides.0 + column * self.strides.1..]
    }
}

/// Terms that are added up before they join the rest of a sum.
const BLOCK: usize = 32;

/// Rows of the result that a task computes, so that few columns still give work to all cores.
const ROWS_PER_TASK: usize = 512;

/// Fewer rows than this do not repay packing.
const FEW_ROWS: usize = 4;

/// `out (+)= a b`, row-major.
pub(crate) fn matmul(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], accumulate: bool) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(k, b.rows, "inner sizes");
    assert_eq!(out.len(), m * n, "result of {m} x {n}");
    if !accumulate {
        out.fill(0.0);
    }
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    if m < FEW_ROWS && b.strides.0 == 1 && a.strides.1 == 1 {
        return dot_products(a, b, out);
    }
    let panels = n.div_ceil(PANEL);
    let row_tasks = m.div_ceil(ROWS_PER_TASK);
    let out = SharedSlice::new(out);
    (0..panels * row_tasks).into_par_iter().for_each_init(Vec::new, |packed, task| {
        let (panel, row_task) = (task / row_tasks, task % row_tasks);
        let rows = row_task * ROWS_PER_TASK..m.min((row_task + 1) * ROWS_PER_TASK);
        panel_task(a, b, &out, packed, (panel * PANEL, rows.start, rows.len()));
    });
}

/// The columns from `column` of the rows from `row`.
fn panel_task(
    a: Matrix<'_>,
    b: Matrix<'_>,
    out: &SharedSlice<'_>,
    packed: &mut Vec<f32>,
    (column, row, num_rows): (usize, usize, usize),
) {
    let (n, k) = (b.columns, a.columns);
    let width = PANEL.min(n - column);
    packed.resize(k * PANEL, 0.0);
    pack(b, column, width, packed);
    let mut sums = vec![0.0; num_rows * PANEL];
    for start in (0..k).step_by(BLOCK) {
        let len = BLOCK.min(k - start);
        let a = Strided { data: a.from_element(row, start), row: a.strides.0, column: a.strides.1 };
        add_panel(num_rows, len, a, &packed[start * PANEL..], (&mut sums, PANEL));
    }
    for (i, sums) in sums.chunks_exact(PANEL).enumerate() {
        let at = (row + i) * n + column;
        // SAFETY: only this task writes these rows of these columns.
        let out = unsafe { out.row(at..at + width) };
        for (y, &sum) in out.iter_mut().zip(sums) {
            *y += sum;
        }
    }
}

/// Columns `column .. column + width` of b, row after row; the rest of a panel is 0.
fn pack(b: Matrix<'_>, column: usize, width: usize, packed: &mut [f32]) {
    if b.strides.1 == 1 {
        for (p, row) in packed.chunks_exact_mut(PANEL).enumerate() {
            row[..width].copy_from_slice(&b.from_element(p, column)[..width]);
            row[width..].fill(0.0);
        }
        return;
    }
    if width < PANEL {
        packed.fill(0.0);
    }
    for j in 0..width {
        let source = b.from_element(0, column + j);
        for (p, row) in packed.chunks_exact_mut(PANEL).enumerate() {
            row[j] = source[p * b.strides.0];
        }
    }
}

/// A few rows times a transposed matrix: each result is a sum of products of two rows.
fn dot_products(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32]) {
    const OUTPUTS_PER_TASK: usize = 64;
    let (n, k) = (b.columns, a.columns);
    for (i, out) in out.chunks_exact_mut(n).enumerate() {
        let x = &a.from_element(i, 0)[..k];
        out.par_chunks_mut(OUTPUTS_PER_TASK).enumerate().for_each(|(task, out)| {
            for (j, y) in out.iter_mut().enumerate() {
                let column = task * OUTPUTS_PER_TASK + j;
                *y += dot(x, &b.from_element(0, column)[..k]);
            }
        });
    }
}

/// Sum of products in 32 interleaved partial sums, joined pairwise.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 32];
    let (a, a_rest) = a.as_chunks::<32>();
    let (b, b_rest) = b.as_chunks::<32>();
    for (x, y) in a.iter().zip(b) {
        for l in 0..32 {
            sums[l] += x[l] * y[l];
        }
    }
    for (l, (&x, &y)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[l] += x * y;
    }
    let mut width = 16;
    while width > 0 {
        for l in 0..width {
            sums[l] += sums[l + width];
        }
        width /= 2;
    }
    sums[0]
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
