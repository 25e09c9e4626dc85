// mma.cuh: products on tensor cores, a warp at a time.

#ifndef MACO_CPU

namespace maco {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
[[maybe_unused]] constexpr bool kHasMma = true;
#else
[[maybe_unused]] constexpr bool kHasMma = false;  // of bf16; sm_75 has f16
#endif
// Four matrices of 8 x 8 elements; lane l gives the address of line l % 8 of matrix l / 8.
template <bool kTranspose>
MACO_FN void load_matrices(u32 (&to)[4], const void* line) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(line)));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(line)));
  }
#endif
}

// Transposes a matrix of 8 x 8 elements of 2 bytes: lane l has elements 2 (l % 4) and the next of
// row l / 4, and gets those elements of column l / 4 (from sm_75 on; before, nothing changes).
MACO_FN u32 transpose_matrix(u32 matrix) {
  u32 to = matrix;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(matrix));
#endif
  return to;
}

// d += a b, 16 x 16 by 16 x 8 elements: bf16 (from sm_80 on) or f16 (from sm_75 on).
template <bool kBf16>
MACO_FN void multiply_matrices(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (kBf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#elif __CUDA_ARCH__ >= 750
  if constexpr (!kBf16) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
        "%1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
        "%1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
  }
#endif
}

// Likewise 16 x 32 by 32 x 8 elements of 8 bits (from sm_89 on): e4m3 or e5m2.
template <bool kE4m3>
MACO_FN void multiply_matrices_f8(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  if constexpr (kE4m3) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#endif
}

}  // namespace maco

#endif  // MACO_CPU
