//! Large matrix products on all cores, with short sums.
//!
//! Operands are packed into panels of columns and strips of rows (Goto and van de Geijn, 2008); the
//! product of the two is in [`super::panel`]. Tasks own their results and the order of a sum depends
//! on its length alone, so neither threads nor the other rows and columns change a bit.

use std::{cell::Cell, ops::Range};

use rayon::prelude::*;

use super::{
    panel::{PANEL, STRIP, add_product},
    shared::SharedSlice,
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

    fn at(&self, row: usize, column: usize) -> &'a [f32] {
        &self.values[row * self.strides.0 + column * self.strides.1..]
    }
}

/// Inner size of the packed pieces: a panel of it stays in the first cache.
const DEPTH: usize = 256;

/// Strips of a task at most: its rows times [`DEPTH`] stay in the second cache.
const STRIPS_PER_TASK: usize = 8;

/// Tasks that are enough for any machine.
const MANY_TASKS: usize = 64;

/// Fewer rows than this do not repay packing.
const FEW_ROWS: usize = 4;

/// `out (+)= a b`, row-major.
pub(crate) fn matmul(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], accumulate: bool) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(k, b.rows, "inner sizes");
    assert_eq!(out.len(), m * n, "result of {m} x {n}");
    if m == 0 || n == 0 || k == 0 {
        if !accumulate {
            out.fill(0.0);
        }
        return;
    }
    if m < FEW_ROWS && b.strides.0 == 1 && a.strides.1 == 1 {
        return dot_products(a, b, out, accumulate);
    }
    let out = SharedSlice::new(out);
    let mut packed = PACKED.take();
    // Slabs of b whose panels fit the buffer.
    let depth = k.min(MAX_PACKED / PANEL);
    let width = (MAX_PACKED / (depth * PANEL)).max(1) * PANEL;
    for column in (0..n).step_by(width) {
        for start in (0..k).step_by(depth) {
            let slab = Slab {
                columns: column..n.min(column + width),
                terms: start..k.min(start + depth),
                add: accumulate || start > 0,
            };
            slab.pack(b, &mut packed);
            slab.compute(a, &packed, &out, n);
        }
    }
    PACKED.set(packed);
}

thread_local! {
    /// The buffer of packed panels, kept for the next product: fresh pages cost more than packing.
    static PACKED: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Elements of the right operand that are packed at a time.
const MAX_PACKED: usize = 2 << 20;

/// A piece of the right operand, and where its products go.
struct Slab {
    columns: Range<usize>,
    terms: Range<usize>,
    /// Whether the products are added to what is there.
    add: bool,
}

impl Slab {
    /// Panels one after the other, each `[terms, PANEL]`; missing columns of the last are 0.
    fn pack(&self, b: Matrix<'_>, packed: &mut Vec<f32>) {
        let depth = self.terms.len();
        packed.resize(self.columns.len().div_ceil(PANEL) * depth * PANEL, 0.0);
        packed.par_chunks_exact_mut(depth * PANEL).enumerate().for_each(|(panel, packed)| {
            let column = self.columns.start + panel * PANEL;
            pack_panel(b, column, PANEL.min(self.columns.end - column), self.terms.start, packed);
        });
    }

    fn compute(&self, a: Matrix<'_>, packed: &[f32], out: &SharedSlice<'_>, n: usize) {
        let panels = self.columns.len().div_ceil(PANEL);
        let strips = a.rows.div_ceil(STRIP);
        let strips_per_task = strips.div_ceil(MANY_TASKS).clamp(1, STRIPS_PER_TASK);
        let row_tasks = strips.div_ceil(strips_per_task);
        // Few rows: the panels are divided too.
        let column_tasks = (MANY_TASKS / row_tasks).clamp(1, panels);
        let panels_per_task = panels.div_ceil(column_tasks);
        let column_tasks = panels.div_ceil(panels_per_task);
        (0..row_tasks * column_tasks).into_par_iter().for_each_init(Vec::new, |strips, task| {
            let (row, column) = (task / column_tasks, task % column_tasks);
            let row = row * strips_per_task * STRIP;
            let rows = row..a.rows.min(row + strips_per_task * STRIP);
            let panel = column * panels_per_task;
            let panels = panel..panels.min(panel + panels_per_task);
            self.piece(a, packed, (rows, panels), strips, out, n);
        });
    }

    /// What a task computes: some rows of some panels.
    fn piece(
        &self,
        a: Matrix<'_>,
        packed: &[f32],
        (rows, panels): (Range<usize>, Range<usize>),
        strips: &mut Vec<f32>,
        out: &SharedSlice<'_>,
        n: usize,
    ) {
        let k = self.terms.len();
        for start in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - start);
            strips.resize(rows.len().div_ceil(STRIP) * depth * STRIP, 0.0);
            for (i, strip) in strips.chunks_exact_mut(depth * STRIP).enumerate() {
                let row = rows.start + i * STRIP;
                pack_strip(a, row, STRIP.min(rows.end - row), self.terms.start + start, strip);
            }
            let add = self.add || start > 0;
            for panel in panels.clone() {
                let column = self.columns.start + panel * PANEL;
                let width = PANEL.min(self.columns.end - column);
                let b = &packed[(panel * k + start) * PANEL..][..depth * PANEL];
                for (i, strip) in strips.chunks_exact(depth * STRIP).enumerate() {
                    let mut tile = [0.0; STRIP * PANEL];
                    add_product(strip, b, &mut tile);
                    let row = rows.start + i * STRIP;
                    for (row, sums) in (row..rows.end).zip(tile.chunks_exact(PANEL)) {
                        let at = row * n + column;
                        // SAFETY: only this task writes these rows of these columns.
                        let out = unsafe { out.row(at..at + width) };
                        write_sums(out, sums, add);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn write_sums(out: &mut [f32], sums: &[f32], add: bool) {
    if !add {
        return copy::<PANEL>(out, sums);
    }
    for (y, &sum) in out.iter_mut().zip(sums) {
        *y += sum;
    }
}

/// Copies as many elements as `to` has, mostly N: then the size is known to the compiler and the copy
/// is no call.
#[inline(always)]
fn copy<const N: usize>(to: &mut [f32], from: &[f32]) {
    match (to.as_mut_array::<N>(), from.first_chunk::<N>()) {
        (Some(to), Some(from)) => *to = *from,
        _ => to.copy_from_slice(&from[..to.len()]),
    }
}

/// `height` rows from `row` of the columns from `start`, column after column; missing rows are 0.
fn pack_strip(a: Matrix<'_>, row: usize, height: usize, start: usize, strip: &mut [f32]) {
    if height < STRIP {
        strip.fill(0.0);
    }
    if a.strides.0 == 1 {
        for (p, column) in strip.chunks_exact_mut(STRIP).enumerate() {
            copy::<STRIP>(&mut column[..height], a.at(row, start + p));
        }
        return;
    }
    for r in 0..height {
        let source = a.at(row + r, start);
        for (p, column) in strip.chunks_exact_mut(STRIP).enumerate() {
            column[r] = source[p * a.strides.1];
        }
    }
}

/// `width` columns from `column` of the rows from `start`, row after row; missing columns are 0.
fn pack_panel(b: Matrix<'_>, column: usize, width: usize, start: usize, packed: &mut [f32]) {
    if b.strides.1 == 1 {
        for (p, row) in packed.chunks_exact_mut(PANEL).enumerate() {
            copy::<PANEL>(&mut row[..width], b.at(start + p, column));
            row[width..].fill(0.0);
        }
        return;
    }
    if width < PANEL {
        packed.fill(0.0);
    }
    // In pieces that stay in the first cache on both sides.
    for (piece, packed) in packed.chunks_mut(16 * PANEL).enumerate() {
        for j in 0..width {
            let source = b.at(start + piece * 16, column + j);
            for (p, row) in packed.chunks_exact_mut(PANEL).enumerate() {
                row[j] = source[p * b.strides.0];
            }
        }
    }
}

/// A few rows times a transposed matrix: each result is a sum of products of two rows.
fn dot_products(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], accumulate: bool) {
    const OUTPUTS_PER_TASK: usize = 64;
    let (n, k) = (b.columns, a.columns);
    for (i, out) in out.chunks_exact_mut(n).enumerate() {
        let x = &a.at(i, 0)[..k];
        out.par_chunks_mut(OUTPUTS_PER_TASK).enumerate().for_each(|(task, out)| {
            for (j, y) in out.iter_mut().enumerate() {
                let column = task * OUTPUTS_PER_TASK + j;
                let sum = dot(x, &b.at(0, column)[..k]);
                *y = if accumulate { *y + sum } else { sum };
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
        for (m, n, k) in [
            (1, 1, 1),
            (3, 5, 17),
            (20, 7, 300),
            (2, 3, 1500),
            (4, 4, 0),
            (105, 70, 513),
            (9, 70, 70_000),
        ] {
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
