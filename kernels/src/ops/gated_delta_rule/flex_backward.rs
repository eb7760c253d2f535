//! The backward pass of one chunk, in the order of its derivation.
//!
//! Given dO and dS1, with S0 and what the forward pass of the chunk makes again:
//! ```text
//! dU  = P^T dO + c * (K dS1)             (I + L)^T dR = dU
//! dV  = beta * dR                        dbeta = rowsum(dR o Z)
//! dL  = -stril(dR U^T)                   dbeta += rowsum(dL o Gam o K K^T)
//! dP  = tril(dO U^T)                     dX = dP o Gam           dKK = dL o (beta * Gam)
//! dQs = f * (dO S0^T)    dKr = -(beta f) * (dR S0^T)    dKs = c * (U dS1^T)
//! dQ  = dQs + dX K       dK = dKr + dKs + dX^T Q + (dKK + dKK^T) K
//! dS0 = e dS1 + (f * Q)^T dO - ((beta f) * K)^T dR
//! Y   = dL o L + dP o P  row_i = q_i . dQs_i + k_i . dKr_i    col_j = k_j . dKs_j
//! dg_t = sum_{i>=t} row_i + sum_{i>=t>j} Y[i,j] + sum_{j<t} col_j + e <dS1, S0>
//! ```

use super::flex_chunk::{CHUNK, HeadChunk, KeyChunk, Sizes, back_substitution, dot, scale};
use crate::flex::tile::{product, rows, transpose, transposed};

/// Gradients that the value heads of one key head add up, and scratch.
pub(super) struct ChunkGrads {
    /// `[n, DK]`, with respect to the normalised and scaled query.
    pub(super) dq: Vec<f32>,
    /// `[n, DK]`, with respect to the normalised key.
    pub(super) dk: Vec<f32>,
    /// `[n, DV]` of the head in hand.
    pub(super) dv: Vec<f32>,
    pub(super) dbeta: [f64; CHUNK],
    pub(super) dg: [f64; CHUNK],
    dx: [f32; CHUNK * CHUNK],
    dkk: [f32; CHUNK * CHUNK],
    /// `dR U^T`, then dL.
    dl: [f32; CHUNK * CHUNK],
    /// `dO U^T`, then dP.
    dp: [f32; CHUNK * CHUNK],
    /// dO of the head in hand `[n, DV]`.
    dout: Vec<f32>,
    /// dU, then dR `[n, DV]`.
    dr: Vec<f32>,
    u_transposed: Vec<f32>,
    state_transposed: Vec<f32>,
    rows: Vec<f32>,
}

impl ChunkGrads {
    pub(super) fn new(sizes: Sizes) -> Self {
        let (dk, dv) = (sizes.key_dim, sizes.value_dim);
        Self {
            dq: vec![0.0; CHUNK * dk],
            dk: vec![0.0; CHUNK * dk],
            dv: vec![0.0; CHUNK * dv],
            dbeta: [0.0; CHUNK],
            dg: [0.0; CHUNK],
            dx: [0.0; CHUNK * CHUNK],
            dkk: [0.0; CHUNK * CHUNK],
            dl: [0.0; CHUNK * CHUNK],
            dp: [0.0; CHUNK * CHUNK],
            dout: vec![0.0; CHUNK * dv],
            dr: vec![0.0; CHUNK * dv],
            u_transposed: vec![0.0; CHUNK * dv],
            state_transposed: vec![0.0; dk * dv],
            rows: vec![0.0; CHUNK * dk.max(dv)],
        }
    }

    /// Forgets the sums of the previous chunk.
    pub(super) fn clear(&mut self) {
        self.dq.fill(0.0);
        self.dk.fill(0.0);
        self.dx.fill(0.0);
        self.dkk.fill(0.0);
    }

    /// Adds one value head; `grad` is dO of the whole row `[T, HV, DV]`; `dstate` is dS1 on entry
    /// and dS0 on return. `dv`, `dbeta`, `dg` hold this head's gradients afterwards.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn add_head<const FMA: bool>(
        &mut self,
        sizes: Sizes,
        chunk: &KeyChunk,
        head: &HeadChunk,
        grad: &[f32],
        (first, value_head): (usize, usize),
        state: &[f32],
        dstate: &mut [f32],
    ) {
        let (n, dk, dv) = (chunk.n, sizes.key_dim, sizes.value_dim);
        for i in 0..n {
            let at = ((first + i) * sizes.num_value_heads + value_head) * dv;
            self.dout[i * dv..][..dv].copy_from_slice(&grad[at..][..dv]);
        }

        // dU, then dR in place.
        product((n, dv, dk), rows(&chunk.k, dk), (dstate, dv), (&mut self.dr, dv), false);
        for i in 0..n {
            scale(&mut self.dr[i * dv..][..dv], head.c[i]);
        }
        let p = transposed(&head.p, CHUNK);
        product((n, dv, n), p, (&self.dout, dv), (&mut self.dr, dv), true);
        back_substitution::<FMA>(n, dv, &head.l, &mut self.dr);

        for i in 0..n {
            let dr = &self.dr[i * dv..][..dv];
            self.dbeta[i] = dot(dr, &head.z[i * dv..][..dv]);
            for (y, &x) in self.dv[i * dv..][..dv].iter_mut().zip(dr) {
                *y = head.beta[i] * x;
            }
        }

        transpose(n, dv, &head.u, dv, &mut self.u_transposed);
        let u = &self.u_transposed;
        product((n, n, dv), rows(&self.dr, dv), (u, n), (&mut self.dl, CHUNK), false);
        product((n, n, dv), rows(&self.dout, dv), (u, n), (&mut self.dp, CHUNK), false);
        let cross = self.through_products(chunk, head);

        let row_and_column = self.through_state::<FMA>(sizes, chunk, head, state, dstate);
        let last = f64::from(head.e) * dot(dstate, state);
        self.decay_gradient(n, &cross, &row_and_column, last);

        // dS0.
        scale(dstate, head.e);
        for i in 0..n {
            let q = &chunk.q[i * dk..][..dk];
            for (y, &x) in self.rows[i * dk..][..dk].iter_mut().zip(q) {
                *y = head.f[i] * x;
            }
        }
        let queries = transposed(&self.rows, dk);
        product((dk, dv, n), queries, (&self.dout, dv), (dstate, dv), true);
        for i in 0..n {
            let factor = -head.beta[i] * head.f[i];
            let k = &chunk.k[i * dk..][..dk];
            for (y, &x) in self.rows[i * dk..][..dk].iter_mut().zip(k) {
                *y = factor * x;
            }
        }
        let keys = transposed(&self.rows, dk);
        product((dk, dv, n), keys, (&self.dr, dv), (dstate, dv), true);
    }

    /// dL, dP and what follows from them elementwise; returns `sum_{i>=t} sum_{j<t} Y[i,j]`.
    #[inline(always)]
    fn through_products(&mut self, chunk: &KeyChunk, head: &HeadChunk) -> [f64; CHUNK] {
        let mut cross = [0.0f64; CHUNK];
        for i in 0..chunk.n {
            let mut dbeta = 0.0f64;
            let mut before = 0.0f64;
            for j in 0..=i {
                let at = i * CHUNK + j;
                cross[j] += before;
                let dl = if j < i { -self.dl[at] } else { 0.0 };
                let dp = self.dp[at];
                dbeta += f64::from(dl) * f64::from(head.gam[at] * chunk.kk[at]);
                self.dkk[at] += dl * head.beta[i] * head.gam[at];
                self.dx[at] += dp * head.gam[at];
                before +=
                    f64::from(dl) * f64::from(head.l[at]) + f64::from(dp) * f64::from(head.p[at]);
            }
            self.dbeta[i] += dbeta;
        }
        cross
    }

    /// dQs, dKr, dKs, added to dq and dk; returns row and col.
    #[inline(always)]
    fn through_state<const FMA: bool>(
        &mut self,
        sizes: Sizes,
        chunk: &KeyChunk,
        head: &HeadChunk,
        state: &[f32],
        dstate: &[f32],
    ) -> [[f64; CHUNK]; 2] {
        let (n, dk, dv) = (chunk.n, sizes.key_dim, sizes.value_dim);
        let size = (n, dk, dv);
        let mut row = [0.0f64; CHUNK];
        let mut col = [0.0f64; CHUNK];
        transpose(dk, dv, state, dv, &mut self.state_transposed);
        let s = &self.state_transposed;
        product(size, rows(&self.dout, dv), (s, dk), (&mut self.rows, dk), false);
        for i in 0..n {
            let term = &mut self.rows[i * dk..][..dk];
            scale(term, head.f[i]);
            row[i] = dot(term, &chunk.q[i * dk..][..dk]);
            add(&mut self.dq[i * dk..][..dk], term);
        }
        product(size, rows(&self.dr, dv), (s, dk), (&mut self.rows, dk), false);
        for i in 0..n {
            let term = &mut self.rows[i * dk..][..dk];
            scale(term, -head.beta[i] * head.f[i]);
            row[i] += dot(term, &chunk.k[i * dk..][..dk]);
            add(&mut self.dk[i * dk..][..dk], term);
        }
        transpose(dk, dv, dstate, dv, &mut self.state_transposed);
        let s = &self.state_transposed;
        product(size, rows(&head.u, dv), (s, dk), (&mut self.rows, dk), false);
        for i in 0..n {
            let term = &mut self.rows[i * dk..][..dk];
            scale(term, head.c[i]);
            col[i] = dot(term, &chunk.k[i * dk..][..dk]);
            add(&mut self.dk[i * dk..][..dk], term);
        }
        [row, col]
    }

    #[inline(always)]
    fn decay_gradient(
        &mut self,
        n: usize,
        cross: &[f64; CHUNK],
        [row, col]: &[[f64; CHUNK]; 2],
        last: f64,
    ) {
        let mut rows_from_here = 0.0;
        for t in (0..n).rev() {
            rows_from_here += row[t];
            self.dg[t] = rows_from_here + cross[t];
        }
        let mut columns_before = last;
        for t in 0..n {
            self.dg[t] += columns_before;
            columns_before += col[t];
        }
    }

    /// The products with K and Q that all value heads share; after the last head.
    #[inline(always)]
    pub(super) fn finish<const FMA: bool>(&mut self, sizes: Sizes, chunk: &KeyChunk) {
        let (n, dk) = (chunk.n, sizes.key_dim);
        let size = (n, dk, n);
        let dx = &self.dx;
        product(size, rows(dx, CHUNK), (&chunk.k, dk), (&mut self.dq, dk), true);
        product(size, transposed(dx, CHUNK), (&chunk.q, dk), (&mut self.dk, dk), true);
        for i in 0..n {
            for j in 0..i {
                self.dkk[j * CHUNK + i] = self.dkk[i * CHUNK + j];
            }
        }
        product(size, rows(&self.dkk, CHUNK), (&chunk.k, dk), (&mut self.dk, dk), true);
    }
}

#[inline(always)]
fn add(sum: &mut [f32], term: &[f32]) {
    for (y, &x) in sum.iter_mut().zip(term) {
        *y += x;
    }
}

/// Through `y = scale x / |x|`: given `y`, `dy` and `r = 1 / |x|`, writes
/// `dx = scale r (dy - m (m . dy))` with `m = y / scale`.
#[inline(always)]
pub(super) fn normalize_backward(y: &[f32], dy: &[f32], r: f64, scale: f64, dx: &mut [f32]) {
    // m (m . dy) = y (y . dy) / scale^2
    let along = dot(y, dy) / (scale * scale);
    for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
        *dx = (scale * r * (f64::from(dy) - along * f64::from(y))) as f32;
    }
}
