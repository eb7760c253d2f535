//! One chunk of the gated delta rule in plain Rust: the formulas of the chunk form, in order.
//!
//! Letters as in [`super`]; n rows of a chunk, `*` scales rows, `o` is elementwise.
//! ```text
//! Gam[i,j] = exp(g_{j+1} + .. + g_i)      f_i = exp(g_1 + .. + g_i)
//! c_j      = exp(g_{j+1} + .. + g_n)      e   = f_n
//! L = stril(beta * Gam o K K^T)           P = tril(Gam o Q K^T)
//! Z = V - f * (K S0)      R = beta * Z    (I + L) U = R
//! O = f * (Q S0) + P U                    S1 = e S0 + (c * K)^T U
//! ```
//! Every decay is the exponential of a sum of terms of one sign: differences of running sums would
//! lose digits where a token forgets much.

use crate::flex::{
    math::exp,
    simd::fma,
    tile::{product, rows, transpose, transposed},
};

/// Rows of a chunk: 32 needs a fifth less work than 64 and its tiles stay in L2.
pub(super) const CHUNK: usize = 32;

/// Head counts and sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) num_key_heads: usize,
    pub(super) num_value_heads: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
}

impl Sizes {
    /// Value heads that read one key head.
    pub(super) fn group(self) -> usize {
        self.num_value_heads / self.num_key_heads
    }

    /// Elements of one head's state.
    pub(super) fn state(self) -> usize {
        self.key_dim * self.value_dim
    }
}

/// What the value heads of one key head share in a chunk.
pub(super) struct KeyChunk {
    /// Rows in use.
    pub(super) n: usize,
    /// Normalised and scaled queries `[n, DK]`.
    pub(super) q: Vec<f32>,
    /// Normalised keys `[n, DK]`.
    pub(super) k: Vec<f32>,
    /// `1 / |x|` of each row, the epsilon included.
    pub(super) q_rsqrt: [f64; CHUNK],
    /// As `q_rsqrt`.
    pub(super) k_rsqrt: [f64; CHUNK],
    /// `K K^T` `[n, CHUNK]`.
    pub(super) kk: [f32; CHUNK * CHUNK],
    /// `Q K^T` `[n, CHUNK]`.
    pub(super) qk: [f32; CHUNK * CHUNK],
    k_transposed: Vec<f32>,
}

impl KeyChunk {
    pub(super) fn new(sizes: Sizes) -> Self {
        Self {
            n: 0,
            q: vec![0.0; CHUNK * sizes.key_dim],
            k: vec![0.0; CHUNK * sizes.key_dim],
            q_rsqrt: [0.0; CHUNK],
            k_rsqrt: [0.0; CHUNK],
            kk: [0.0; CHUNK * CHUNK],
            qk: [0.0; CHUNK * CHUNK],
            k_transposed: vec![0.0; CHUNK * sizes.key_dim],
        }
    }

    /// Loads rows `first .. first + n` of one key head; `with_queries` where outputs are wanted.
    #[inline(always)]
    pub(super) fn load<const FMA: bool>(
        &mut self,
        sizes: Sizes,
        query: &[f32],
        key: &[f32],
        (first, n): (usize, usize),
        key_head: usize,
        with_queries: bool,
    ) {
        let dk = sizes.key_dim;
        let stride = sizes.num_key_heads * dk;
        let start = first * stride + key_head * dk;
        self.n = n;
        normalize(&key[start..], stride, n, dk, 1.0, &mut self.k, &mut self.k_rsqrt);
        transpose(n, dk, &self.k, dk, &mut self.k_transposed);
        let size = (n, n, dk);
        product(size, rows(&self.k, dk), (&self.k_transposed, n), (&mut self.kk, CHUNK), false);
        if with_queries {
            let scale = 1.0 / (dk as f64).sqrt();
            normalize(&query[start..], stride, n, dk, scale, &mut self.q, &mut self.q_rsqrt);
            let q = rows(&self.q, dk);
            product(size, q, (&self.k_transposed, n), (&mut self.qk, CHUNK), false);
        }
    }
}

/// `out = scale * x / sqrt(sum x^2 + eps)` row by row.
#[inline(always)]
fn normalize(
    x: &[f32],
    stride: usize,
    n: usize,
    width: usize,
    scale: f64,
    out: &mut [f32],
    rsqrt: &mut [f64; CHUNK],
) {
    for i in 0..n {
        let row = &x[i * stride..][..width];
        let norm = 1.0 / (dot(row, row) + super::L2_NORM_EPS).sqrt();
        rsqrt[i] = norm;
        let factor = norm * scale;
        for (y, &x) in out[i * width..][..width].iter_mut().zip(row) {
            *y = (f64::from(x) * factor) as f32;
        }
    }
}

/// Sum of products in f64, in 8 interleaved partial sums.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (x, y) in a.iter().zip(b) {
        for l in 0..8 {
            sums[l] += f64::from(x[l]) * f64::from(y[l]);
        }
    }
    for (l, (&x, &y)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[l] += f64::from(x) * f64::from(y);
    }
    sums.iter().sum()
}

/// Decays and gated products of one value head in a chunk.
pub(super) struct HeadChunk {
    pub(super) beta: [f32; CHUNK],
    /// Decay from the chunk's start.
    pub(super) f: [f32; CHUNK],
    /// Decay to the chunk's end.
    pub(super) c: [f32; CHUNK],
    /// Decay of the whole chunk.
    pub(super) e: f32,
    /// `[n, CHUNK]`, zero above the diagonal.
    pub(super) gam: [f32; CHUNK * CHUNK],
    /// `[n, CHUNK]`, zero on and above the diagonal.
    pub(super) l: [f32; CHUNK * CHUNK],
    /// `[n, CHUNK]`, zero above the diagonal.
    pub(super) p: [f32; CHUNK * CHUNK],
    /// `[n, DV]`.
    pub(super) z: Vec<f32>,
    /// `[n, DV]`.
    pub(super) u: Vec<f32>,
    /// Keys scaled by c, `[n, DK]`.
    scaled_k: Vec<f32>,
}

impl HeadChunk {
    pub(super) fn new(sizes: Sizes) -> Self {
        Self {
            beta: [0.0; CHUNK],
            f: [0.0; CHUNK],
            c: [0.0; CHUNK],
            e: 1.0,
            gam: [0.0; CHUNK * CHUNK],
            l: [0.0; CHUNK * CHUNK],
            p: [0.0; CHUNK * CHUNK],
            z: vec![0.0; CHUNK * sizes.value_dim],
            u: vec![0.0; CHUNK * sizes.value_dim],
            scaled_k: vec![0.0; CHUNK * sizes.key_dim],
        }
    }

    /// Gam, f, c, e and L from the gates of rows `first ..` of one value head.
    #[inline(always)]
    pub(super) fn load_gates<const FMA: bool>(
        &mut self,
        sizes: Sizes,
        chunk: &KeyChunk,
        decay: &[f32],
        beta: &[f32],
        first: usize,
        value_head: usize,
    ) {
        let n = chunk.n;
        let at = |i: usize| (first + i) * sizes.num_value_heads + value_head;
        let mut g = [0.0f32; CHUNK];
        for i in 0..n {
            g[i] = decay[at(i)];
            self.beta[i] = beta[at(i)];
        }
        let mut from_start = [0.0f32; CHUNK];
        let mut to_end = [0.0f32; CHUNK];
        let mut sum = 0.0;
        for i in 0..n {
            sum += g[i];
            from_start[i] = sum;
        }
        sum = 0.0;
        for j in (0..n).rev() {
            to_end[j] = sum;
            sum += g[j];
        }
        for i in 0..CHUNK {
            self.f[i] = exp::<FMA>(from_start[i]);
            self.c[i] = exp::<FMA>(to_end[i]);
        }
        self.e = self.f[n - 1];

        // Segment sums: D[i, j] = D[i-1, j] + g_i, D[i, i] = 0.
        let mut segment = [0.0f32; CHUNK];
        for i in 0..n {
            let gam = &mut self.gam[i * CHUNK..][..CHUNK];
            for j in 0..CHUNK {
                segment[j] = if j < i { segment[j] + g[i] } else { 0.0 };
                let value = exp::<FMA>(segment[j]);
                gam[j] = if j <= i { value } else { 0.0 };
            }
            let kk = &chunk.kk[i * CHUNK..][..CHUNK];
            let l = &mut self.l[i * CHUNK..][..CHUNK];
            for j in 0..CHUNK {
                l[j] = if j < i { self.beta[i] * gam[j] * kk[j] } else { 0.0 };
            }
        }
    }

    /// P; after [`Self::load_gates`], where outputs are wanted.
    #[inline(always)]
    pub(super) fn load_p(&mut self, chunk: &KeyChunk) {
        for i in 0..chunk.n {
            for j in 0..CHUNK {
                let at = i * CHUNK + j;
                self.p[at] = if j <= i { self.gam[at] * chunk.qk[at] } else { 0.0 };
            }
        }
    }

    /// Z and U from the incoming state.
    #[inline(always)]
    pub(super) fn solve<const FMA: bool>(
        &mut self,
        sizes: Sizes,
        chunk: &KeyChunk,
        value: &[f32],
        first: usize,
        value_head: usize,
        state: &[f32],
    ) {
        let (n, dk, dv) = (chunk.n, sizes.key_dim, sizes.value_dim);
        product((n, dv, dk), rows(&chunk.k, dk), (state, dv), (&mut self.z, dv), false);
        for i in 0..n {
            let value = &value[((first + i) * sizes.num_value_heads + value_head) * dv..][..dv];
            let (f, beta) = (self.f[i], self.beta[i]);
            let z = &mut self.z[i * dv..][..dv];
            let u = &mut self.u[i * dv..][..dv];
            for d in 0..dv {
                z[d] = fma::<FMA>(-f, z[d], value[d]);
                u[d] = beta * z[d];
            }
        }
        forward_substitution::<FMA>(n, dv, &self.l, &mut self.u);
    }

    /// `f * (Q S0) + P U` into `out` `[n, DV]`.
    #[inline(always)]
    pub(super) fn output<const FMA: bool>(
        &self,
        sizes: Sizes,
        chunk: &KeyChunk,
        state: &[f32],
        out: &mut [f32],
    ) {
        let (n, dk, dv) = (chunk.n, sizes.key_dim, sizes.value_dim);
        product((n, dv, dk), rows(&chunk.q, dk), (state, dv), (out, dv), false);
        for i in 0..n {
            scale(&mut out[i * dv..][..dv], self.f[i]);
        }
        product((n, dv, n), rows(&self.p, CHUNK), (&self.u, dv), (out, dv), true);
    }

    /// `S <- e S + (c * K)^T U`.
    #[inline(always)]
    pub(super) fn update<const FMA: bool>(
        &mut self,
        sizes: Sizes,
        chunk: &KeyChunk,
        state: &mut [f32],
    ) {
        let (n, dk, dv) = (chunk.n, sizes.key_dim, sizes.value_dim);
        for i in 0..n {
            let scaled = &mut self.scaled_k[i * dk..][..dk];
            for (y, &x) in scaled.iter_mut().zip(&chunk.k[i * dk..][..dk]) {
                *y = self.c[i] * x;
            }
        }
        scale(state, self.e);
        let keys = transposed(&self.scaled_k, dk);
        product((dk, dv, n), keys, (&self.u, dv), (state, dv), true);
    }
}

/// `x <- factor x`.
#[inline(always)]
pub(super) fn scale(x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}

/// Solves `(I + L) X = R` in place, L strictly lower.
#[inline(always)]
fn forward_substitution<const FMA: bool>(n: usize, width: usize, l: &[f32], x: &mut [f32]) {
    for i in 1..n {
        let (done, rest) = x.split_at_mut(i * width);
        substitute::<FMA>(&l[i * CHUNK..][..i], done, &mut rest[..width]);
    }
}

/// Solves `(I + L)^T X = R` in place.
#[inline(always)]
pub(super) fn back_substitution<const FMA: bool>(n: usize, width: usize, l: &[f32], x: &mut [f32]) {
    for i in (0..n.saturating_sub(1)).rev() {
        let (rest, done) = x.split_at_mut((i + 1) * width);
        let count = n - 1 - i;
        let column = &l[(i + 1) * CHUNK + i..];
        let mut factors = [0.0f32; CHUNK];
        for j in 0..count {
            factors[j] = column[j * CHUNK];
        }
        substitute::<FMA>(&factors[..count], done, &mut rest[i * width..]);
    }
}

/// `target -= sum_j factors[j] * done[j]`.
#[inline(always)]
fn substitute<const FMA: bool>(factors: &[f32], done: &[f32], target: &mut [f32]) {
    let width = target.len();
    let mut at = 0;
    while at + 32 <= width {
        substitute_block::<FMA, 32>(factors, done, width, at, target);
        at += 32;
    }
    while at + 8 <= width {
        substitute_block::<FMA, 8>(factors, done, width, at, target);
        at += 8;
    }
    while at < width {
        substitute_block::<FMA, 1>(factors, done, width, at, target);
        at += 1;
    }
}

#[inline(always)]
fn substitute_block<const FMA: bool, const W: usize>(
    factors: &[f32],
    done: &[f32],
    width: usize,
    at: usize,
    target: &mut [f32],
) {
    let mut sum = [0.0f32; W];
    sum.copy_from_slice(&target[at..][..W]);
    for (j, &factor) in factors.iter().enumerate() {
        let x = -factor;
        let row = &done[j * width + at..][..W];
        for l in 0..W {
            sum[l] = fma::<FMA>(x, row[l], sum[l]);
        }
    }
    target[at..][..W].copy_from_slice(&sum);
}
