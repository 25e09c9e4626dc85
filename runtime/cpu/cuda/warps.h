// warps.h: votes, shuffles, matches and reductions of a warp. Included by words.h.

#pragma once

#include "halves.h"

namespace maco_words {

inline int lane() { return maco_cuda::linear_thread() & 31; }

/// The value that each lane of `mask` gave, of any type of up to 8 bytes.
template <class T>
struct Exchanged {
  unsigned met;
  T own;
  unsigned long long all[32];

  Exchanged(unsigned mask, T value) : own(value) {
    static_assert(sizeof(T) <= 8, "lanes exchange 8 bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof(T));
    met = maco_cuda::warp_exchange(mask, bits, all);
  }
  bool has(int from) const { return ((met >> from) & 1u) != 0; }
  /// The value of lane `from`; the own value if that lane didn't take part.
  T of(int from) const {
    if (!has(from)) return own;
    T value;
    memcpy(static_cast<void*>(&value), &all[from], sizeof(T));
    return value;
  }
};

// As in the PTX ISA: segments of `width` lanes; the own value if the source lies outside.
template <class T>
inline T shuffle(unsigned mask, T value, int source, int width) {
  const Exchanged<T> lanes(mask, value);
  return lanes.of((lane() & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
inline T shuffle_up(unsigned mask, T value, unsigned delta, int width) {
  const Exchanged<T> lanes(mask, value);
  const int from = lane() - static_cast<int>(delta & 31u);
  return from >= (lane() & ~(width - 1)) ? lanes.of(from) : value;
}
template <class T>
inline T shuffle_down(unsigned mask, T value, unsigned delta, int width) {
  const Exchanged<T> lanes(mask, value);
  const int from = lane() + static_cast<int>(delta & 31u);
  return from <= (lane() | (width - 1)) ? lanes.of(from) : value;
}
template <class T>
inline T shuffle_xor(unsigned mask, T value, int bits, int width) {
  const Exchanged<T> lanes(mask, value);
  const int from = lane() ^ (bits & 31);
  return from <= (lane() | (width - 1)) ? lanes.of(from) : value;
}

template <class T>
inline unsigned match_any(unsigned mask, T value) {
  const Exchanged<T> lanes(mask, value);
  unsigned same = 0;
  for (int i = 0; i < 32; ++i) {
    if (lanes.has(i) && lanes.all[i] == lanes.all[lane()]) same |= 1u << i;
  }
  return same;
}
template <class T>
inline unsigned match_all(unsigned mask, T value, int* all_same) {
  const Exchanged<T> lanes(mask, value);
  *all_same = 1;
  for (int i = 0; i < 32; ++i) {
    if (lanes.has(i) && lanes.all[i] != lanes.all[lane()]) *all_same = 0;
  }
  return *all_same != 0 ? mask : 0;
}

template <class T, class Op>
inline T reduce_lanes(unsigned mask, T value, Op op) {
  const Exchanged<T> lanes(mask, value);
  const int self = lane();
  for (int i = 0; i < 32; ++i) {
    if (i != self && lanes.has(i)) value = op(value, lanes.of(i));
  }
  return value;
}

}  // namespace maco_words

inline void __syncwarp(unsigned mask = ~0u) { maco_words::Exchanged<int>(mask, 0); }

#define MACO_SHUFFLES(T)                                                              \
  inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {          \
    return maco_words::shuffle(mask, value, source, width);                           \
  }                                                                                   \
  inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {   \
    return maco_words::shuffle_up(mask, value, delta, width);                         \
  }                                                                                   \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) { \
    return maco_words::shuffle_down(mask, value, delta, width);                       \
  }                                                                                   \
  inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {        \
    return maco_words::shuffle_xor(mask, value, bits, width);                         \
  }
#define MACO_MATCHES(T)                                                     \
  inline unsigned __match_any_sync(unsigned mask, T value) {                \
    return maco_words::match_any(mask, value);                              \
  }                                                                         \
  inline unsigned __match_all_sync(unsigned mask, T value, int* all_same) { \
    return maco_words::match_all(mask, value, all_same);                    \
  }

MACO_SHUFFLES(int)
MACO_SHUFFLES(unsigned)
MACO_SHUFFLES(long)
MACO_SHUFFLES(unsigned long)
MACO_SHUFFLES(long long)
MACO_SHUFFLES(unsigned long long)
MACO_SHUFFLES(float)
MACO_SHUFFLES(double)
MACO_SHUFFLES(__half)
MACO_SHUFFLES(__half2)
MACO_SHUFFLES(__nv_bfloat16)
MACO_SHUFFLES(__nv_bfloat162)

MACO_MATCHES(int)
MACO_MATCHES(unsigned)
MACO_MATCHES(long)
MACO_MATCHES(unsigned long)
MACO_MATCHES(long long)
MACO_MATCHES(unsigned long long)
MACO_MATCHES(float)
MACO_MATCHES(double)

#undef MACO_SHUFFLES
#undef MACO_MATCHES

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const maco_words::Exchanged<int> lanes(mask, predicate != 0 ? 1 : 0);
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i) {
    if (lanes.has(i) && lanes.all[i] != 0) votes |= 1u << i;
  }
  return votes;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate == 0) == 0 ? 1 : 0;
}
inline unsigned __activemask() { return maco_cuda::active_lanes(); }

inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return maco_words::reduce_lanes(mask, value, [](unsigned a, unsigned b) { return a + b; });
}
inline int __reduce_add_sync(unsigned mask, int value) {
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value)));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  return maco_words::reduce_lanes(mask, value,
                                  [](unsigned a, unsigned b) { return a < b ? a : b; });
}
inline int __reduce_min_sync(unsigned mask, int value) {
  return maco_words::reduce_lanes(mask, value, [](int a, int b) { return a < b ? a : b; });
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return maco_words::reduce_lanes(mask, value,
                                  [](unsigned a, unsigned b) { return a > b ? a : b; });
}
inline int __reduce_max_sync(unsigned mask, int value) {
  return maco_words::reduce_lanes(mask, value, [](int a, int b) { return a > b ? a : b; });
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value) {
  return maco_words::reduce_lanes(mask, value, [](unsigned a, unsigned b) { return a & b; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return maco_words::reduce_lanes(mask, value, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value) {
  return maco_words::reduce_lanes(mask, value, [](unsigned a, unsigned b) { return a ^ b; });
}
