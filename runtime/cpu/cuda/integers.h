// integers.h: CUDA's integer intrinsics. Included by words.h.

#pragma once

#include "cuda_math.h"

// ---- bits -------------------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
  x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
  x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}

/// Each nibble of `selector` picks a byte of y:x; with its upper bit set, eight times that byte's
/// sign.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 0xfu;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7u))) & 0xffu;
    if ((choice & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0u;
    result |= byte << (8 * i);
  }
  return result;
}

// Shifts of the 64 bits high:low: the upper word of a left shift, the lower one of a right shift.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long bits = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(bits << (shift & 31u) >> 32);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long bits = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(bits << (shift < 32u ? shift : 32u) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long bits = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(bits >> (shift & 31u));
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long bits = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(bits >> (shift < 32u ? shift : 32u));
}

/// The position of the `offset`-th set bit upwards (downwards if negative) from `base`; ~0 if there
/// is none.
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
  const int step = offset < 0 ? -1 : 1;
  int left = offset < 0 ? -offset : offset;
  if (left == 0) return base < 32 && (mask >> base & 1u) != 0 ? base : ~0u;
  for (int i = static_cast<int>(base); i >= 0 && i < 32; i += step) {
    if ((mask >> i & 1u) != 0 && --left == 0) return static_cast<unsigned>(i);
  }
  return ~0u;
}

// ---- arithmetic -------------------------------------------------------------

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  __extension__ using Wide = __int128;
  return static_cast<long long>(static_cast<Wide>(a) * b >> 64);
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline int __mul24(int a, int b) {
  const long long x = static_cast<int>(static_cast<unsigned>(a) << 8) >> 8;
  const long long y = static_cast<int>(static_cast<unsigned>(b) << 8) >> 8;
  return static_cast<int>(static_cast<unsigned>(static_cast<unsigned long long>(x * y)));
}

inline unsigned __sad(int a, int b, unsigned c) {
  return (a > b ? static_cast<unsigned>(a) - static_cast<unsigned>(b)
                : static_cast<unsigned>(b) - static_cast<unsigned>(a)) +
         c;
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }

// Averages, rounded down or (r) up.
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
inline int __rhadd(int a, int b) {
  return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1);
}
inline unsigned __uhadd(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) + b) >> 1);
}
inline unsigned __urhadd(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) + b + 1) >> 1);
}

// ---- dot products: of four bytes, or of two shorts and two of four bytes ----

namespace maco_words {

/// Lane i of `kBits` bits, as a number of the type Lane.
template <class Lane>
inline long long lane_of(unsigned x, int i) {
  return static_cast<Lane>(x >> (8 * sizeof(Lane) * static_cast<unsigned>(i)));
}
template <class A, class B>
inline unsigned dot(unsigned a, unsigned b, int first, unsigned c) {
  constexpr int lanes = 4 / sizeof(A);
  long long sum = c;
  for (int i = 0; i < lanes; ++i) sum += lane_of<A>(a, i) * lane_of<B>(b, first + i);
  return static_cast<unsigned>(sum);
}

}  // namespace maco_words

#define MACO_DOT(NAME, A, B, FIRST, UA, UB, A_VECTOR, UA_VECTOR, B_VECTOR, UB_VECTOR)          \
  inline int NAME(int a, int b, int c) {                                                       \
    return static_cast<int>(maco_words::dot<A, B>(                                             \
        static_cast<unsigned>(a), static_cast<unsigned>(b), FIRST, static_cast<unsigned>(c))); \
  }                                                                                            \
  inline unsigned NAME(unsigned a, unsigned b, unsigned c) {                                   \
    return maco_words::dot<UA, UB>(a, b, FIRST, c);                                            \
  }                                                                                            \
  inline int NAME(A_VECTOR a, B_VECTOR b, int c) {                                             \
    return NAME(maco_words::bits_as<int>(a), maco_words::bits_as<int>(b), c);                  \
  }                                                                                            \
  inline unsigned NAME(UA_VECTOR a, UB_VECTOR b, unsigned c) {                                 \
    return NAME(maco_words::bits_as<unsigned>(a), maco_words::bits_as<unsigned>(b), c);        \
  }
MACO_DOT(__dp4a, signed char, signed char, 0, unsigned char, unsigned char, char4, uchar4, char4,
         uchar4)
MACO_DOT(__dp2a_lo, short, signed char, 0, unsigned short, unsigned char, short2, ushort2, char4,
         uchar4)
MACO_DOT(__dp2a_hi, short, signed char, 2, unsigned short, unsigned char, short2, ushort2, char4,
         uchar4)
#undef MACO_DOT

// ---- several lanes in a word ------------------------------------------------

namespace maco_words {

template <class Lane, class F>
inline unsigned each_lane(unsigned a, unsigned b, F f) {
  constexpr int lanes = 4 / sizeof(Lane);
  unsigned result = 0;
  for (int i = 0; i < lanes; ++i) {
    const long long value = f(lane_of<Lane>(a, i), lane_of<Lane>(b, i));
    result |= (static_cast<unsigned>(value) & (~0u >> (32 - 8 * sizeof(Lane))))
              << (8 * sizeof(Lane) * static_cast<unsigned>(i));
  }
  return result;
}
template <class Lane>
inline long long saturate(long long x) {
  using Limits = std::numeric_limits<Lane>;
  return x < Limits::min() ? Limits::min() : x > Limits::max() ? Limits::max() : x;
}
template <class Lane>
inline unsigned sum_of_differences(unsigned a, unsigned b) {
  unsigned sum = 0;
  for (int i = 0; i < static_cast<int>(4 / sizeof(Lane)); ++i) {
    const long long x = lane_of<Lane>(a, i), y = lane_of<Lane>(b, i);
    sum += static_cast<unsigned>(x > y ? x - y : y - x);
  }
  return sum;
}

}  // namespace maco_words

#define MACO_LANES(NAME, LANE, EXPRESSION)                                       \
  inline unsigned NAME(unsigned a, unsigned b) {                                 \
    return maco_words::each_lane<LANE>(                                          \
        a, b, [](long long x, long long y) -> long long { return EXPRESSION; }); \
  }
#define MACO_LANES_1(NAME, LANE, EXPRESSION)                                   \
  inline unsigned NAME(unsigned a) {                                           \
    return maco_words::each_lane<LANE>(                                        \
        a, 0, [](long long x, long long) -> long long { return EXPRESSION; }); \
  }
// A mask (cmp) or 1 (set) where the comparison holds.
#define MACO_LANES_COMPARE(N, NAME, LANE, OP)        \
  MACO_LANES(__vcmp##NAME##N, LANE, x OP y ? -1 : 0) \
  MACO_LANES(__vset##NAME##N, LANE, x OP y ? 1 : 0)
#define MACO_ALL_LANES(N, S, U)                                           \
  MACO_LANES(__vadd##N, U, x + y)                                         \
  MACO_LANES(__vsub##N, U, x - y)                                         \
  MACO_LANES(__vaddss##N, S, maco_words::saturate<S>(x + y))              \
  MACO_LANES(__vaddus##N, U, maco_words::saturate<U>(x + y))              \
  MACO_LANES(__vsubss##N, S, maco_words::saturate<S>(x - y))              \
  MACO_LANES(__vsubus##N, U, maco_words::saturate<U>(x - y))              \
  MACO_LANES(__vmaxs##N, S, x > y ? x : y)                                \
  MACO_LANES(__vmaxu##N, U, x > y ? x : y)                                \
  MACO_LANES(__vmins##N, S, x < y ? x : y)                                \
  MACO_LANES(__vminu##N, U, x < y ? x : y)                                \
  MACO_LANES(__vabsdiffs##N, S, x > y ? x - y : y - x)                    \
  MACO_LANES(__vabsdiffu##N, U, x > y ? x - y : y - x)                    \
  MACO_LANES(__vavgs##N, S, x + y >= 0 ? (x + y + 1) >> 1 : (x + y) >> 1) \
  MACO_LANES(__vavgu##N, U, (x + y + 1) >> 1)                             \
  MACO_LANES(__vhaddu##N, U, (x + y) >> 1)                                \
  MACO_LANES_1(__vabs##N, S, x < 0 ? -x : x)                              \
  MACO_LANES_1(__vabsss##N, S, maco_words::saturate<S>(x < 0 ? -x : x))   \
  MACO_LANES_1(__vneg##N, S, -x)                                          \
  MACO_LANES_1(__vnegss##N, S, maco_words::saturate<S>(-x))               \
  MACO_LANES_COMPARE(N, eq, U, ==)                                        \
  MACO_LANES_COMPARE(N, ne, U, !=)                                        \
  MACO_LANES_COMPARE(N, ges, S, >=)                                       \
  MACO_LANES_COMPARE(N, geu, U, >=)                                       \
  MACO_LANES_COMPARE(N, gts, S, >)                                        \
  MACO_LANES_COMPARE(N, gtu, U, >)                                        \
  MACO_LANES_COMPARE(N, les, S, <=)                                       \
  MACO_LANES_COMPARE(N, leu, U, <=)                                       \
  MACO_LANES_COMPARE(N, lts, S, <)                                        \
  MACO_LANES_COMPARE(N, ltu, U, <)                                        \
  inline unsigned __vsads##N(unsigned a, unsigned b) {                    \
    return maco_words::sum_of_differences<S>(a, b);                       \
  }                                                                       \
  inline unsigned __vsadu##N(unsigned a, unsigned b) {                    \
    return maco_words::sum_of_differences<U>(a, b);                       \
  }

MACO_ALL_LANES(2, short, unsigned short)
MACO_ALL_LANES(4, signed char, unsigned char)

#undef MACO_ALL_LANES
#undef MACO_LANES_COMPARE
#undef MACO_LANES_1
#undef MACO_LANES

// ---- DPX: sums, and the larger or smaller of two or three; _relu: at least 0 ----

namespace maco_words {

template <class Lane, class F>
inline unsigned each_lane_of_three(unsigned a, unsigned b, unsigned c, F f) {
  constexpr int bits = 8 * sizeof(Lane);
  unsigned result = 0;
  for (int i = 0; i < 32 / bits; ++i) {
    const long long value = f(lane_of<Lane>(a, i), lane_of<Lane>(b, i), lane_of<Lane>(c, i));
    result |= (static_cast<unsigned>(value) & (~0u >> (32 - bits))) << (bits * i);
  }
  return result;
}
/// The larger or smaller value of each lane, and in `first` whether it is the first operand's.
template <class Lane, class F>
inline unsigned chosen(unsigned a, unsigned b, bool* first, F is_first) {
  constexpr int bits = 8 * sizeof(Lane);
  for (int i = 0; i < 32 / bits; ++i) first[i] = is_first(lane_of<Lane>(a, i), lane_of<Lane>(b, i));
  return each_lane_of_three<Lane>(
      a, b, 0, [&](long long x, long long y, long long) { return is_first(x, y) ? x : y; });
}

}  // namespace maco_words

#define MACO_DPX_3(NAME, WORD, LANE, EXPRESSION)                                         \
  inline WORD NAME(WORD a, WORD b, WORD c) {                                             \
    return static_cast<WORD>(maco_words::each_lane_of_three<LANE>(                       \
        static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c),    \
        [](long long x, long long y, long long z) -> long long { return EXPRESSION; })); \
  }
#define MACO_DPX_2(NAME, WORD, LANE, EXPRESSION)                                       \
  inline WORD NAME(WORD a, WORD b) {                                                   \
    return static_cast<WORD>(maco_words::each_lane_of_three<LANE>(                     \
        static_cast<unsigned>(a), static_cast<unsigned>(b), 0u,                        \
        [](long long x, long long y, long long) -> long long { return EXPRESSION; })); \
  }
#define MACO_DPX_CHOICES(SUFFIX, WORD, LANE, PICK)              \
  MACO_DPX_3(__viadd##PICK##_##SUFFIX, WORD, LANE,              \
             std::PICK<long long>(static_cast<LANE>(x + y), z)) \
  MACO_DPX_3(__vi##PICK##3_##SUFFIX, WORD, LANE, std::PICK(std::PICK(x, y), z))
#define MACO_DPX_RELU(SUFFIX, WORD, LANE, PICK)                                \
  MACO_DPX_3(__viadd##PICK##_##SUFFIX##_relu, WORD, LANE,                      \
             std::max(std::PICK<long long>(static_cast<LANE>(x + y), z), 0ll)) \
  MACO_DPX_3(__vi##PICK##3_##SUFFIX##_relu, WORD, LANE,                        \
             std::max(std::PICK(std::PICK(x, y), z), 0ll))                     \
  MACO_DPX_2(__vi##PICK##_##SUFFIX##_relu, WORD, LANE, std::max(std::PICK(x, y), 0ll))
#define MACO_DPX_FIRST(SUFFIX, WORD, LANE, PICK, OP)                                        \
  inline WORD __vib##PICK##_##SUFFIX(WORD a, WORD b, bool* first) {                         \
    return static_cast<WORD>(                                                               \
        maco_words::chosen<LANE>(static_cast<unsigned>(a), static_cast<unsigned>(b), first, \
                                 [](long long x, long long y) { return x OP y; }));         \
  }
#define MACO_DPX_FIRST_2(SUFFIX, LANE, PICK, OP)                                                \
  inline unsigned __vib##PICK##_##SUFFIX(unsigned a, unsigned b, bool* high, bool* low) {       \
    bool first[2];                                                                              \
    const unsigned result =                                                                     \
        maco_words::chosen<LANE>(a, b, first, [](long long x, long long y) { return x OP y; }); \
    *low = first[0];                                                                            \
    *high = first[1];                                                                           \
    return result;                                                                              \
  }
#define MACO_DPX(PICK, OP)                                \
  MACO_DPX_CHOICES(s32, int, int, PICK)                   \
  MACO_DPX_CHOICES(u32, unsigned, unsigned, PICK)         \
  MACO_DPX_CHOICES(s16x2, unsigned, short, PICK)          \
  MACO_DPX_CHOICES(u16x2, unsigned, unsigned short, PICK) \
  MACO_DPX_RELU(s32, int, int, PICK)                      \
  MACO_DPX_RELU(s16x2, unsigned, short, PICK)             \
  MACO_DPX_FIRST(s32, int, int, PICK, OP)                 \
  MACO_DPX_FIRST(u32, unsigned, unsigned, PICK, OP)       \
  MACO_DPX_FIRST_2(s16x2, short, PICK, OP)                \
  MACO_DPX_FIRST_2(u16x2, unsigned short, PICK, OP)

MACO_DPX(max, >=)
MACO_DPX(min, <=)

#undef MACO_DPX
#undef MACO_DPX_FIRST_2
#undef MACO_DPX_FIRST
#undef MACO_DPX_RELU
#undef MACO_DPX_CHOICES
#undef MACO_DPX_2
#undef MACO_DPX_3
