//! Vectors of f32, by instruction set: what kernels that hold results in registers are written in.

/// A vector of f32 lanes.
pub(crate) trait Lanes {
    type V: Copy;
    const N: usize;
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(from: *const f32) -> Self::V;
    unsafe fn store(to: *mut f32, v: Self::V);
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
}

/// One lane, without fused multiply-add.
pub(crate) struct Plain;

impl Lanes for Plain {
    type V = f32;
    const N: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> f32 {
        // SAFETY: the caller's pointer is valid.
        unsafe { *from }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: f32) {
        // SAFETY: the caller's pointer is valid.
        unsafe { *to = v }
    }

    #[inline(always)]
    unsafe fn fma(a: f32, b: f32, c: f32) -> f32 {
        if cfg!(target_arch = "aarch64") { a.mul_add(b, c) } else { a * b + c }
    }

    #[inline(always)]
    unsafe fn add(a: f32, b: f32) -> f32 {
        a + b
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    use std::arch::x86_64 as arch;

    use super::Lanes;

    pub(crate) struct Avx512;
    pub(crate) struct Avx2;

    macro_rules! lanes {
        ($name:ident, $v:ident, $n:literal, $splat:ident, $load:ident, $store:ident, $fma:ident, $add:ident) => {
            impl Lanes for $name {
                type V = arch::$v;
                const N: usize = $n;

                #[inline(always)]
                unsafe fn splat(x: f32) -> Self::V {
                    // SAFETY: only reached below a function that enables the feature.
                    unsafe { arch::$splat(x) }
                }

                #[inline(always)]
                unsafe fn load(from: *const f32) -> Self::V {
                    // SAFETY: as above, and the caller's pointer is valid for all lanes.
                    unsafe { arch::$load(from) }
                }

                #[inline(always)]
                unsafe fn store(to: *mut f32, v: Self::V) {
                    // SAFETY: as above, and the caller's pointer is valid for all lanes.
                    unsafe { arch::$store(to, v) }
                }

                #[inline(always)]
                unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
                    // SAFETY: as above.
                    unsafe { arch::$fma(a, b, c) }
                }

                #[inline(always)]
                unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
                    // SAFETY: as above.
                    unsafe { arch::$add(a, b) }
                }
            }
        };
    }
    lanes!(
        Avx512,
        __m512,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps
    );
    lanes!(
        Avx2,
        __m256,
        8,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps
    );
}
