// vectors.h: CUDA's vector types, with CUDA's sizes and alignments. Included by words.h.

#pragma once

#define MACO_VECTORS(T, name, align2, align4)                                \
  struct name##1 { T x; };                                                   \
  struct alignas(align2) name##2 { T x, y; };                                \
  struct name##3 { T x, y, z; };                                             \
  struct alignas(align4) name##4 { T x, y, z, w; };                          \
  inline name##1 make_##name##1(T x) { return name##1 {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return name##2 {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return name##3 {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return name##4 {x, y, z, w}; }

MACO_VECTORS(signed char, char, 2, 4)
MACO_VECTORS(unsigned char, uchar, 2, 4)
MACO_VECTORS(short, short, 4, 8)
MACO_VECTORS(unsigned short, ushort, 4, 8)
MACO_VECTORS(int, int, 8, 16)
MACO_VECTORS(unsigned, uint, 8, 16)
MACO_VECTORS(long, long, 2 * sizeof(long), 16)
MACO_VECTORS(unsigned long, ulong, 2 * sizeof(long), 16)
MACO_VECTORS(long long, longlong, 16, 16)
MACO_VECTORS(unsigned long long, ulonglong, 16, 16)
MACO_VECTORS(float, float, 8, 16)
MACO_VECTORS(double, double, 16, 16)

#undef MACO_VECTORS

// CUDA 13 names the alignment of vectors of four 8-byte values.
#define MACO_ALIGNED_VECTOR(T, name)                                                             \
  using name##4_16a = name##4;                                                                   \
  struct alignas(32) name##4_32a { T x, y, z, w; };                                              \
  inline name##4_16a make_##name##4_16a(T x, T y, T z, T w) { return name##4_16a {x, y, z, w}; } \
  inline name##4_32a make_##name##4_32a(T x, T y, T z, T w) { return name##4_32a {x, y, z, w}; }

MACO_ALIGNED_VECTOR(long, long)
MACO_ALIGNED_VECTOR(unsigned long, ulong)
MACO_ALIGNED_VECTOR(long long, longlong)
MACO_ALIGNED_VECTOR(unsigned long long, ulonglong)
MACO_ALIGNED_VECTOR(double, double)

#undef MACO_ALIGNED_VECTOR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
