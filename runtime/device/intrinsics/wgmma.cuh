// wgmma.cuh: products on tensor cores, four warps at a time.

#ifndef MACO_CPU

namespace maco {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define MACO_HAS_WGMMA 1
#else
#define MACO_HAS_WGMMA 0
#endif

// wgmma_begin comes before multiplications: what was written to their sums is visible. Behind it
// they are in flight, and sums and pages belong to them until wgmma_wait.
MACO_FN void wgmma_begin() {
#if MACO_HAS_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
MACO_FN void wgmma_end() {
#if MACO_HAS_WGMMA
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
MACO_FN void wgmma_wait() {
#if MACO_HAS_WGMMA
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
// The descriptor of an operand: swizzled lines of 128 bytes in shared memory. Eight lines further
// are the next 8 rows (along K) or the next 8 elements of K (across). Across, kNext lines further
// are the next 64 rows. Adding 1 moves it by 16 bytes. The upper half is the same for all.
template <int kNext = 64>
MACO_FN u32 wgmma_operand(const void* lines) {
  return ((shared_address(lines) & 0x3ffff) >> 4) | (u32)(kNext * 128 / 16) << 16;
}
MACO_FN u64 wgmma_descriptor(u32 operand) {
  constexpr u32 kEight = 8 * 128 / 16, kSwizzled = 1;
  return (u64)(kEight | kSwizzled << 30) << 32 | operand;
}

// d += tall wide, 64 x 16 by 16 x kWide elements. kTallAcross, kWideAcross: whether the operand
// lies across K.
#define MACO_SUMS(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define MACO_SUMS4(j) MACO_SUMS(j), MACO_SUMS(j + 1), MACO_SUMS(j + 2), MACO_SUMS(j + 3)
#define MACO_WGMMA(shape, type, sums, operands, ...)                                               \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 1, 0;\n\twgmma.mma_async.sync.aligned." shape \
               ".f32." type "." type " {" sums "}, " operands ";\n\t}"                             \
               : __VA_ARGS__                                                                       \
               : "l"(wgmma_descriptor(tall)), "l"(wgmma_descriptor(wide)), "n"(kTallAcross),       \
                 "n"(kWideAcross))
#define MACO_EIGHT0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define MACO_EIGHT1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define MACO_EIGHT2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define MACO_EIGHT3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define MACO_EIGHT4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define MACO_EIGHT5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define MACO_EIGHT6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define MACO_EIGHT7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define MACO_EIGHT8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define MACO_EIGHT9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define MACO_EIGHT10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define MACO_EIGHT11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define MACO_EIGHT12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define MACO_EIGHT13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define MACO_EIGHT14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define MACO_EIGHT15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define MACO_REGISTERS0 MACO_EIGHT0 ", " MACO_EIGHT1
#define MACO_REGISTERS1 MACO_EIGHT2 ", " MACO_EIGHT3
#define MACO_REGISTERS2 MACO_EIGHT4 ", " MACO_EIGHT5
#define MACO_REGISTERS3 MACO_EIGHT6 ", " MACO_EIGHT7
#define MACO_REGISTERS4 MACO_EIGHT8 ", " MACO_EIGHT9
#define MACO_REGISTERS5 MACO_EIGHT10 ", " MACO_EIGHT11
#define MACO_REGISTERS6 MACO_EIGHT12 ", " MACO_EIGHT13
#define MACO_REGISTERS7 MACO_EIGHT14 ", " MACO_EIGHT15
#define MACO_HALF MACO_REGISTERS0 ", " MACO_REGISTERS1
#define MACO_WHOLE MACO_HALF ", " MACO_REGISTERS2 ", " MACO_REGISTERS3
#define MACO_MOST MACO_WHOLE ", " MACO_REGISTERS4 ", " MACO_REGISTERS5
#define MACO_TWICE MACO_MOST ", " MACO_REGISTERS6 ", " MACO_REGISTERS7
#define MACO_SUMS16(j) MACO_SUMS4(j), MACO_SUMS4(j + 4), MACO_SUMS4(j + 8), MACO_SUMS4(j + 12)
template <int kWide, bool kBf16, int kTallAcross, int kWideAcross>
MACO_FN void wgmma(float (&d)[kWide / 8][4], u32 tall, u32 wide) {
  static_assert(MACO_HAS_WGMMA || kWide == 0, "this kernel is for sm_90a");
#if MACO_HAS_WGMMA
  if constexpr (kWide == 8 && kBf16) {
    MACO_WGMMA("m64n8k16", "bf16", "%0, %1, %2, %3", "%4, %5, p, 1, 1, %6, %7", MACO_SUMS(0));
  } else if constexpr (kWide == 16 && kBf16) {
    MACO_WGMMA("m64n16k16", "bf16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, p, 1, 1, %10, %11",
               MACO_SUMS(0), MACO_SUMS(1));
  } else if constexpr (kWide == 32 && kBf16) {
    MACO_WGMMA("m64n32k16", "bf16", MACO_REGISTERS0, "%16, %17, p, 1, 1, %18, %19", MACO_SUMS4(0));
  } else if constexpr (kWide == 64 && kBf16) {
    MACO_WGMMA("m64n64k16", "bf16", MACO_HALF, "%32, %33, p, 1, 1, %34, %35", MACO_SUMS4(0),
               MACO_SUMS4(4));
  } else if constexpr (kWide == 128 && kBf16) {
    MACO_WGMMA("m64n128k16", "bf16", MACO_WHOLE, "%64, %65, p, 1, 1, %66, %67", MACO_SUMS16(0));
  } else if constexpr (kWide == 192 && kBf16) {
    MACO_WGMMA("m64n192k16", "bf16", MACO_MOST, "%96, %97, p, 1, 1, %98, %99", MACO_SUMS16(0),
               MACO_SUMS4(16), MACO_SUMS4(20));
  } else if constexpr (kWide == 192) {
    MACO_WGMMA("m64n192k16", "f16", MACO_MOST, "%96, %97, p, 1, 1, %98, %99", MACO_SUMS16(0),
               MACO_SUMS4(16), MACO_SUMS4(20));
  } else if constexpr (kWide == 256 && kBf16) {
    MACO_WGMMA("m64n256k16", "bf16", MACO_TWICE, "%128, %129, p, 1, 1, %130, %131", MACO_SUMS16(0),
               MACO_SUMS16(16));
  } else if constexpr (kWide == 256) {
    MACO_WGMMA("m64n256k16", "f16", MACO_TWICE, "%128, %129, p, 1, 1, %130, %131", MACO_SUMS16(0),
               MACO_SUMS16(16));
  } else if constexpr (kWide == 8 && !kBf16) {
    MACO_WGMMA("m64n8k16", "f16", "%0, %1, %2, %3", "%4, %5, p, 1, 1, %6, %7", MACO_SUMS(0));
  } else if constexpr (kWide == 16 && !kBf16) {
    MACO_WGMMA("m64n16k16", "f16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, p, 1, 1, %10, %11",
               MACO_SUMS(0), MACO_SUMS(1));
  } else if constexpr (kWide == 32 && !kBf16) {
    MACO_WGMMA("m64n32k16", "f16", MACO_REGISTERS0, "%16, %17, p, 1, 1, %18, %19", MACO_SUMS4(0));
  } else if constexpr (kWide == 64 && !kBf16) {
    MACO_WGMMA("m64n64k16", "f16", MACO_HALF, "%32, %33, p, 1, 1, %34, %35", MACO_SUMS4(0),
               MACO_SUMS4(4));
  } else if constexpr (kWide == 128 && !kBf16) {
    MACO_WGMMA("m64n128k16", "f16", MACO_WHOLE, "%64, %65, p, 1, 1, %66, %67", MACO_SUMS16(0));
  }
#endif
}

// d = tall wide or, with `more`, d += tall wide, 64 x 32 by 32 x kWide elements of 8 bits: e4m3 or
// e5m2. Both operands lie along K.
#define MACO_WGMMA_F8(shape, type, sums, operands, more, ...)                                \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " more                                  \
               ", 0;\n\twgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" sums \
               "}, " operands ", p, 1, 1;\n\t}"                                              \
               : __VA_ARGS__                                                                 \
               : "l"(wgmma_descriptor(tall)), "l"(wgmma_descriptor(wide)), "r"((u32)more_sums))
#define MACO_WGMMA_F8_OF(type)                                                                     \
  if constexpr (kWide == 8) {                                                                      \
    MACO_WGMMA_F8("m64n8k32", type, "%0, %1, %2, %3", "%4, %5", "%6", MACO_SUMS(0));               \
  } else if constexpr (kWide == 16) {                                                              \
    MACO_WGMMA_F8("m64n16k32", type, "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9", "%10",            \
                  MACO_SUMS(0), MACO_SUMS(1));                                                     \
  } else if constexpr (kWide == 32) {                                                              \
    MACO_WGMMA_F8("m64n32k32", type, MACO_REGISTERS0, "%16, %17", "%18", MACO_SUMS4(0));           \
  } else if constexpr (kWide == 64) {                                                              \
    MACO_WGMMA_F8("m64n64k32", type, MACO_REGISTERS0 ", " MACO_REGISTERS1, "%32, %33", "%34",      \
                  MACO_SUMS4(0), MACO_SUMS4(4));                                                   \
  } else {                                                                                         \
    MACO_WGMMA_F8("m64n128k32", type,                                                              \
                  MACO_REGISTERS0 ", " MACO_REGISTERS1 ", " MACO_REGISTERS2 ", " MACO_REGISTERS3,  \
                  "%64, %65", "%66", MACO_SUMS4(0), MACO_SUMS4(4), MACO_SUMS4(8), MACO_SUMS4(12)); \
  }
template <int kWide, bool kE4m3>
MACO_FN void wgmma_f8(float (&d)[kWide / 8][4], u32 tall, u32 wide, bool more_sums) {
  static_assert(MACO_HAS_WGMMA || kWide == 0, "this kernel is for sm_90a");
  static_assert(kWide <= 32 || kWide == 64 || kWide == 128, "no other width is asked for");
#if MACO_HAS_WGMMA
  if constexpr (kE4m3) {
    MACO_WGMMA_F8_OF("e4m3")
  } else {
    MACO_WGMMA_F8_OF("e5m2")
  }
#endif
}

// d = tall wide, whatever d was; both operands lie along K.
#define MACO_NEW_SUMS(j) "=f"(d[j][0]), "=f"(d[j][1]), "=f"(d[j][2]), "=f"(d[j][3])
#define MACO_NEW_SUMS4(j) \
  MACO_NEW_SUMS(j), MACO_NEW_SUMS(j + 1), MACO_NEW_SUMS(j + 2), MACO_NEW_SUMS(j + 3)
#define MACO_NEW_WGMMA(shape, type, sums, operands, ...)                                           \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 0, 0;\n\twgmma.mma_async.sync.aligned." shape \
               ".f32." type "." type " {" sums "}, " operands ", p, 1, 1, 0, 0;\n\t}"              \
               : __VA_ARGS__                                                                       \
               : "l"(wgmma_descriptor(tall)), "l"(wgmma_descriptor(wide)))
template <int kWide, bool kBf16>
MACO_FN void wgmma_new(float (&d)[kWide / 8][4], u32 tall, u32 wide) {
  static_assert(MACO_HAS_WGMMA || kWide == 0, "this kernel is for sm_90a");
#if MACO_HAS_WGMMA
  static_assert(kWide == 32 || kWide == 64, "no other width is asked for");
  if constexpr (kWide == 32 && kBf16) {
    MACO_NEW_WGMMA("m64n32k16", "bf16", MACO_REGISTERS0, "%16, %17", MACO_NEW_SUMS4(0));
  } else if constexpr (kWide == 32) {
    MACO_NEW_WGMMA("m64n32k16", "f16", MACO_REGISTERS0, "%16, %17", MACO_NEW_SUMS4(0));
  } else if constexpr (kBf16) {
    MACO_NEW_WGMMA("m64n64k16", "bf16", MACO_HALF, "%32, %33", MACO_NEW_SUMS4(0),
                   MACO_NEW_SUMS4(4));
  } else {
    MACO_NEW_WGMMA("m64n64k16", "f16", MACO_HALF, "%32, %33", MACO_NEW_SUMS4(0), MACO_NEW_SUMS4(4));
  }
#endif
}

// d += tall wide with the tall operand in registers: each warp has 16 of its rows, as load_matrices
// loads them. The wide operand lies across K.
#define MACO_WGMMA_ROWS(shape, type, sums, operands, ...)                                          \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 1, 0;\n\twgmma.mma_async.sync.aligned." shape \
               ".f32." type "." type " {" sums "}, " operands ", p, 1, 1, 1;\n\t}"                 \
               : __VA_ARGS__                                                                       \
               : "r"(tall[0]), "r"(tall[1]), "r"(tall[2]), "r"(tall[3]),                           \
                 "l"(wgmma_descriptor(wide)))
#define MACO_BEHIND(a, b, c, d, e) "{%" #a ", %" #b ", %" #c ", %" #d "}, %" #e
#define MACO_WGMMA_ROWS_OF(type)                                                                   \
  if constexpr (kWide == 16) {                                                                     \
    MACO_WGMMA_ROWS("m64n16k16", type, MACO_EIGHT0, MACO_BEHIND(8, 9, 10, 11, 12), MACO_SUMS(0),   \
                    MACO_SUMS(1));                                                                 \
  } else if constexpr (kWide == 32) {                                                              \
    MACO_WGMMA_ROWS("m64n32k16", type, MACO_REGISTERS0, MACO_BEHIND(16, 17, 18, 19, 20),           \
                    MACO_SUMS4(0));                                                                \
  } else if constexpr (kWide == 48) {                                                              \
    MACO_WGMMA_ROWS("m64n48k16", type, MACO_REGISTERS0 ", " MACO_EIGHT2,                           \
                    MACO_BEHIND(24, 25, 26, 27, 28), MACO_SUMS4(0), MACO_SUMS(4), MACO_SUMS(5));   \
  } else if constexpr (kWide == 64) {                                                              \
    MACO_WGMMA_ROWS("m64n64k16", type, MACO_HALF, MACO_BEHIND(32, 33, 34, 35, 36), MACO_SUMS4(0),  \
                    MACO_SUMS4(4));                                                                \
  } else if constexpr (kWide == 80) {                                                              \
    MACO_WGMMA_ROWS("m64n80k16", type, MACO_HALF ", " MACO_EIGHT4,                                 \
                    MACO_BEHIND(40, 41, 42, 43, 44), MACO_SUMS4(0), MACO_SUMS4(4), MACO_SUMS(8),   \
                    MACO_SUMS(9));                                                                 \
  } else if constexpr (kWide == 96) {                                                              \
    MACO_WGMMA_ROWS("m64n96k16", type, MACO_HALF ", " MACO_REGISTERS2,                             \
                    MACO_BEHIND(48, 49, 50, 51, 52), MACO_SUMS4(0), MACO_SUMS4(4), MACO_SUMS4(8)); \
  } else if constexpr (kWide == 112) {                                                             \
    MACO_WGMMA_ROWS("m64n112k16", type, MACO_HALF ", " MACO_REGISTERS2 ", " MACO_EIGHT6,           \
                    MACO_BEHIND(56, 57, 58, 59, 60), MACO_SUMS4(0), MACO_SUMS4(4), MACO_SUMS4(8),  \
                    MACO_SUMS(12), MACO_SUMS(13));                                                 \
  } else if constexpr (kWide == 128) {                                                             \
    MACO_WGMMA_ROWS("m64n128k16", type, MACO_WHOLE, MACO_BEHIND(64, 65, 66, 67, 68),               \
                    MACO_SUMS16(0));                                                               \
  } else if constexpr (kWide == 208) {                                                             \
    MACO_WGMMA_ROWS("m64n208k16", type, MACO_MOST ", " MACO_EIGHT12,                               \
                    MACO_BEHIND(104, 105, 106, 107, 108), MACO_SUMS16(0), MACO_SUMS4(16),          \
                    MACO_SUMS4(20), MACO_SUMS(24), MACO_SUMS(25));                                 \
  } else if constexpr (kWide == 224) {                                                             \
    MACO_WGMMA_ROWS("m64n224k16", type, MACO_MOST ", " MACO_REGISTERS6,                            \
                    MACO_BEHIND(112, 113, 114, 115, 116), MACO_SUMS16(0), MACO_SUMS4(16),          \
                    MACO_SUMS4(20), MACO_SUMS4(24));                                               \
  } else if constexpr (kWide == 240) {                                                             \
    MACO_WGMMA_ROWS("m64n240k16", type, MACO_MOST ", " MACO_REGISTERS6 ", " MACO_EIGHT14,          \
                    MACO_BEHIND(120, 121, 122, 123, 124), MACO_SUMS16(0), MACO_SUMS4(16),          \
                    MACO_SUMS4(20), MACO_SUMS4(24), MACO_SUMS(28), MACO_SUMS(29));                 \
  } else if constexpr (kWide == 256) {                                                             \
    MACO_WGMMA_ROWS("m64n256k16", type, MACO_TWICE, MACO_BEHIND(128, 129, 130, 131, 132),          \
                    MACO_SUMS16(0), MACO_SUMS16(16));                                              \
  }
template <int kWide, bool kBf16>
MACO_FN void wgmma_rows(float (&d)[kWide / 8][4], const u32 (&tall)[4], u32 wide) {
  static_assert(MACO_HAS_WGMMA || kWide == 0, "this kernel is for sm_90a");
  static_assert(kWide % 16 == 0 && (kWide <= 128 || (kWide > 192 && kWide <= 256)),
                "no other width is asked for");
#if MACO_HAS_WGMMA
  if constexpr (kBf16) {
    MACO_WGMMA_ROWS_OF("bf16")
  } else {
    MACO_WGMMA_ROWS_OF("f16")
  }
#endif
}

}  // namespace maco

#endif  // MACO_CPU
