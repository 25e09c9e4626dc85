// numbers.cuh: the element types, their conversions, functions of elements, and loading elements
// ahead.

namespace maco {

MACO_FN constexpr i64 least(i64 a, i64 b) { return a < b ? a : b; }
MACO_FN constexpr i64 most(i64 a, i64 b) { return a > b ? a : b; }

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8e4m3 {
  u8 bits;
};
struct f8e5m2 {
  u8 bits;
};

template <class T>
struct AccOfType {
  using type = float;
};
template <>
struct AccOfType<i32> {
  using type = i32;
};
template <>
struct AccOfType<u8> {
  using type = i32;
};
// The type in which an op computes: f32 for floats, i32 for integers.
template <class T>
using AccOf = typename AccOfType<T>::type;

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

template <bool kFirst, class A, class B>
struct Either {
  using type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using type = B;
};

// ---- conversions by bits ----------------------------------------------------

// Rounds to the nearest number, ties to even, of a format with `kMantissa` bits of mantissa and
// exponents from `kMinExponent` on. Codes above kMax (without the sign) become kOverflow; NaN
// becomes kNan.
template <int kMantissa, int kMinExponent, u32 kMax, u32 kOverflow, u32 kNan>
MACO_FN u32 round_bits(u32 x, u32 sign_shift) {
  u32 sign = (x >> 31) << sign_shift;
  u32 a = x & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | kNan;
  i32 exponent = (i32)(a >> 23) - 127;
  u32 mantissa = (a & 0x7fffffu) | 0x800000u;
  i32 below = exponent < kMinExponent ? kMinExponent - exponent : 0;
  i32 shift = 23 - kMantissa + below;
  if (shift > 25) return sign;
  u32 kept = mantissa >> shift;
  u32 rest = mantissa & ((1u << shift) - 1u);
  u32 half = 1u << (shift - 1);
  if (rest > half || (rest == half && (kept & 1u))) ++kept;
  u32 code = below > 0 ? kept : ((u32)(exponent - kMinExponent) << kMantissa) + kept;
  return sign | (code > kMax ? kOverflow : code);
}

MACO_FN u32 bf16_bits(u32 x) {
  if ((x & 0x7fffffffu) > 0x7f800000u) return (x >> 16) | 0x40u;
  return (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
}

// The magnitude bits of a small float, moved to their place in f32; the multiplication corrects the
// exponent, also for subnormals.
MACO_FN float widen(u32 magnitude, float scale, bool special, u32 special_bits, u32 sign) {
  float value = fmul(float_of(magnitude), scale);
  return float_of((special ? special_bits : bits_of(value)) | (sign << 31));
}

// ---- to_acc: exact ----------------------------------------------------------

MACO_FN float to_acc(float x) { return x; }
MACO_FN i32 to_acc(i32 x) { return x; }
MACO_FN i32 to_acc(u8 x) { return x; }
MACO_FN float to_acc(bf16 x) { return float_of((u32)x.bits << 16); }
MACO_FN float to_acc(f16 x) {
  if constexpr (kHasF16) {
    return f16_to_float(x.bits);
  } else {
    u32 m = (x.bits & 0x7fffu) << 13;
    // 2^112
    return widen(m, 5.192296858534828e33f, (x.bits & 0x7c00u) == 0x7c00u, m | 0x7f800000u,
                 x.bits >> 15);
  }
}
MACO_FN float to_acc(f8e5m2 x) {
  u32 m = (x.bits & 0x7fu) << 21;
  // 2^112
  return widen(m, 5.192296858534828e33f, (x.bits & 0x7cu) == 0x7cu, m | 0x7f800000u,
               (u32)x.bits >> 7);
}
MACO_FN float to_acc(f8e4m3 x) {
  u32 m = (x.bits & 0x7fu) << 20;
  // 2^120
  return widen(m, 1.329227995784916e36f, (x.bits & 0x7fu) == 0x7fu, 0x7fc00000u, (u32)x.bits >> 7);
}

// ---- from_acc: rounds to even; float to integer truncates and saturates ------

// An integer as f32 for a second rounding: if f32 can't hold it, the last bit is set, so that
// rounding twice gives the result of rounding once.
MACO_FN float sticky_float(i32 x) {
  u32 a = x < 0 ? 0u - (u32)x : (u32)x;
  if (a >= 0x1000000u) {
    int shift = 0;
    while ((a >> shift) >= 0x1000000u) ++shift;
    u32 kept = a >> shift;
    if (a & ((1u << shift) - 1u)) kept |= 1u;
    a = kept << shift;
  }
  float f = (float)a;
  return x < 0 ? -f : f;
}

template <class T>
struct FromAcc;
template <>
struct FromAcc<float> {
  static MACO_FN float from(float x) { return x; }
  static MACO_FN float from(i32 x) { return (float)x; }
};
template <>
struct FromAcc<i32> {
  static MACO_FN i32 from(float x) {
    if (!(x == x)) return 0;
    if (x >= 2147483648.0f) return 2147483647;
    if (x < -2147483648.0f) return -2147483647 - 1;
    return (i32)x;
  }
  static MACO_FN i32 from(i32 x) { return x; }
};
template <>
struct FromAcc<u8> {
  static MACO_FN u8 from(float x) {
    if (!(x > 0.0f)) return 0;
    return x >= 255.0f ? (u8)255 : (u8)x;
  }
  static MACO_FN u8 from(i32 x) { return (u8)((u32)x & 255u); }  // integers wrap
};
template <>
struct FromAcc<f16> {
  static MACO_FN f16 from(float x) {
    if constexpr (kHasF16) {
      return f16{float_to_f16(x)};
    } else {
      return f16{(u16)round_bits<10, -14, 0x7bff, 0x7c00, 0x7e00>(bits_of(x), 15)};
    }
  }
  static MACO_FN f16 from(i32 x) { return from(sticky_float(x)); }
};
template <>
struct FromAcc<bf16> {
  static MACO_FN bf16 from(float x) {
    if constexpr (kHasBf16) {
      return bf16{float_to_bf16(x)};
    } else {
      return bf16{(u16)bf16_bits(bits_of(x))};
    }
  }
  static MACO_FN bf16 from(i32 x) { return from(sticky_float(x)); }
};
template <>
struct FromAcc<f8e4m3> {
  static MACO_FN f8e4m3 from(float x) {
    if constexpr (kHasF8) {
      return f8e4m3{float_to_e4m3(x)};
    } else {
      return f8e4m3{(u8)round_bits<3, -6, 0x7e, 0x7e, 0x7f>(bits_of(x), 7)};
    }
  }
  static MACO_FN f8e4m3 from(i32 x) { return from(sticky_float(x)); }
};
template <>
struct FromAcc<f8e5m2> {
  static MACO_FN f8e5m2 from(float x) {
    if constexpr (kHasF8) {
      return f8e5m2{float_to_e5m2(x)};
    } else {
      return f8e5m2{(u8)round_bits<2, -14, 0x7b, 0x7b, 0x7f>(bits_of(x), 7)};
    }
  }
  static MACO_FN f8e5m2 from(i32 x) { return from(sticky_float(x)); }
};

template <class T>
MACO_FN T from_acc(float x) {
  return FromAcc<T>::from(x);
}
template <class T>
MACO_FN T from_acc(i32 x) {
  return FromAcc<T>::from(x);
}
// The number rounded to T, in the type for computing.
template <class T>
MACO_FN AccOf<T> round_to(float x) {
  if constexpr (kHasBf16 && is_same<T, bf16>) {
    return rounded_to_bf16(x);
  } else {
    return to_acc(from_acc<T>(x));
  }
}
template <class T>
MACO_FN AccOf<T> round_to(i32 x) {
  return to_acc(from_acc<T>(x));
}

// Rounded to Y; with equal types the same bits, also those of a NaN.
template <class Y, class X>
MACO_FN Y convert(X x) {
  if constexpr (is_same<X, Y>) {
    return x;
  } else {
    return from_acc<Y>(to_acc(x));
  }
}

// ---- functions of elements --------------------------------------------------

namespace fn {

// i32 wraps.
MACO_FN float add(float a, float b) { return fadd(a, b); }
MACO_FN i32 add(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
MACO_FN float sub(float a, float b) { return fsub(a, b); }
MACO_FN i32 sub(i32 a, i32 b) { return (i32)((u32)a - (u32)b); }
MACO_FN float mul(float a, float b) { return fmul(a, b); }
MACO_FN i32 mul(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
// a * b + c, rounded once.
MACO_FN float mul_add(float a, float b, float c) { return ffma(a, b, c); }
MACO_FN i32 mul_add(i32 a, i32 b, i32 c) { return add(mul(a, b), c); }
// NaN if either is NaN, as in NumPy.
MACO_FN float maximum(float a, float b) { return a != a ? a : (a > b ? a : b); }
MACO_FN i32 maximum(i32 a, i32 b) { return a > b ? a : b; }
MACO_FN float minimum(float a, float b) { return a != a ? a : (a < b ? a : b); }
MACO_FN i32 minimum(i32 a, i32 b) { return a < b ? a : b; }

MACO_FN float relu(float x) { return x != x ? x : (x > 0.0f ? x : 0.0f); }
MACO_FN i32 relu(i32 x) { return x > 0 ? x : 0; }
MACO_FN float exp(float x) { return fexp(x); }
MACO_FN float tanh(float x) { return ftanh(x); }
MACO_FN float log(float x) { return flog(x); }
MACO_FN float sin(float x) { return fsin(x); }
MACO_FN float cos(float x) { return fcos(x); }
MACO_FN float erf(float x) { return ferf(x); }
MACO_FN float sqrt(float x) { return fsqrt(x); }
MACO_FN float rsqrt(float x) { return finverse(fsqrt(x)); }
MACO_FN float neg(float x) { return float_of(bits_of(x) ^ 0x80000000u); }
MACO_FN i32 neg(i32 x) { return (i32)(0u - (u32)x); }
MACO_FN float abs(float x) { return float_of(bits_of(x) & 0x7fffffffu); }
MACO_FN i32 abs(i32 x) { return x < 0 ? neg(x) : x; }

MACO_FN float div(float a, float b) { return fdiv(a, b); }
MACO_FN float pow(float a, float b) { return fpow(a, b); }
// x to the power n.
template <int n>
MACO_FN float power(float x) {
  static_assert(n == -1 || (n >= 2 && n <= 4), "others are fpow's");
  if constexpr (n == -1) {
    return finverse(x);
  } else {
    const float square = fmul(x, x);
    return n == 2 ? square : fmul(square, n == 3 ? x : square);
  }
}
template <class A>
MACO_FN A clamp(A x, A lowest, A highest) {
  return minimum(maximum(x, lowest), highest);
}

// 1 if the comparison holds, else 0. With NaN only ne holds.
template <class A>
MACO_FN i32 eq(A a, A b) {
  return a == b;
}
template <class A>
MACO_FN i32 ne(A a, A b) {
  return a != b;
}
template <class A>
MACO_FN i32 lt(A a, A b) {
  return a < b;
}
template <class A>
MACO_FN i32 le(A a, A b) {
  return a <= b;
}
template <class A>
MACO_FN i32 gt(A a, A b) {
  return a > b;
}
template <class A>
MACO_FN i32 ge(A a, A b) {
  return a >= b;
}
template <class A>
MACO_FN A where(i32 condition, A a, A b) {
  return condition != 0 ? a : b;
}

// The functions below vanish for negative x, and keep their digits there. They avoid 1 - (nearly
// 1), and exponentials that overflow or lose bits where the result has them all; exponents include
// what their rounding to f32 left over.

MACO_FN float magnitude(float x) { return x < 0.0f ? -x : x; }
MACO_FN float sigmoid(float x) {
  const float e = fexp(-magnitude(x));
  return fratio(x < 0.0f ? e : 1.0f, fadd(1.0f, e));
}
// x / (1 + e^-y), where y has the sign of x and root is e^(-|y| / 2): e^-|y| may be too small for
// f32 where x e^-|y| isn't.
MACO_FN float gated(float x, float root) {
  const float weighed = x < 0.0f ? fmul(fmul(x, root), root) : x;
  return fratio(weighed, ffma(root, root, 1.0f));
}
// e^-(value + rest), with a rest so small that its square doesn't count.
MACO_FN float exp_minus(float value, float rest) {
  const float e = fexp(-value);
  return ffma(-rest, e, e);
}

MACO_FN float silu(float x) { return gated(x, fexp(fmul(-0.5f, magnitude(x)))); }
// For floats of at most 16 bits: within 2^-17 of silu.
MACO_FN float near_silu(float x) {
  const float root = fexp2(-fmax(fmul(x, -0.72134752f), -32.0f));  // e^(x / 2), 2^32 at most
  return fmul(fmul(x, fratio(root, ffma(root, root, 1.0f))), root);
}
constexpr float kGeluEnds = 15.0f;  // below -15 both gelus are 0 in f32
// x times the normal distribution's share below x. The share below -t is e^(-t^2 / 2) p / q, with p
// / q to 7e-9 on [0, 15].
MACO_FN float gelu(float x) {
  const float t = minimum(magnitude(x), kGeluEnds);
  float p = 0.00415321037820982f;
  p = ffma(p, t, 0.04088102796445739f);
  p = ffma(p, t, 0.18396888778726656f);
  p = ffma(p, t, 0.43928316021812275f);
  p = ffma(p, t, 0.5f);
  float q = 0.01041044290174265f;
  q = ffma(q, t, 0.10247965703397129f);
  q = ffma(q, t, 0.47140802158865464f);
  q = ffma(q, t, 1.2055473490679662f);
  q = ffma(q, t, 1.6764513272800148f);
  q = ffma(q, t, 1.0f);
  const float ratio = fratio(p, q), square = fmul(t, t);
  const float e = exp_minus(fmul(0.5f, square), fmul(0.5f, ffma(t, t, -square)));
  return x < 0.0f ? fmul(fmul(x, ratio), e) : fmul(x, ffma(-ratio, e, 1.0f));
}
// For floats of at most 16 bits: within 2^-16 of gelu. The share below -t as above, with p / q to
// 4.2e-7 on [0, 15]; at `ends` the exponential's root is 0 times any number.
MACO_FN float near_gelu(float x) {
  constexpr float ends = 25.0f;
  // A zero gets the other sign, so that the sum below has the sign of x.
  const float size = x > 0.0f ? (x > ends ? ends : x) : -x, t = -fmax(-size, -ends);
  float p = 0.017287814162475747f;
  p = ffma(p, t, 0.12054152524139237f);
  p = ffma(p, t, 0.36372443311804653f);
  p = ffma(p, t, 0.4999997915568213f);
  float q = 0.04333859148895735f;
  q = ffma(q, t, 0.3019653231055068f);
  q = ffma(q, t, 0.9582680091895142f);
  q = ffma(q, t, 1.5253128786857504f);
  q = ffma(q, t, 1.0f);
  const float root = fexp2(fmul(fmul(t, -0.36067376f), t));  // e^(-t^2 / 4)
  return ffma(-fmul(fmul(size, fratio(p, q)), root), root, x < 0.0f ? -0.0f : x);
}
// x / (1 + e^-y) with y = 2 sqrt(2 / pi) (x + 0.044715 x^3), which is 0.5 x (1 + tanh(y / 2)).
MACO_FN float gelu_tanh(float x) {
  // y / 2 = t (a + b t^2), each step with what its rounding left over.
  constexpr float kA = 0.797884583f, kARest = -2.26703403e-08f, kB = 0.0356774069f,
                  kBRest = 1.19941623e-09f;
  const float t = minimum(magnitude(x), kGeluEnds);
  const float square = fmul(t, t), square_rest = ffma(t, t, -square);
  const float cubic = fmul(kB, square),
              cubic_rest =
                  ffma(kB, square_rest, fadd(ffma(kB, square, -cubic), fmul(kBRest, square)));
  const float slope = fadd(kA, cubic);
  const float high = kA > cubic ? kA : cubic, low = kA > cubic ? cubic : kA;
  const float slope_rest = fadd(fsub(low, fsub(slope, high)), fadd(cubic_rest, kARest));
  const float half = fmul(t, slope), half_rest = ffma(t, slope_rest, ffma(t, slope, -half));
  return gated(x, exp_minus(half, half_rest));
}
// For floats of at most 16 bits: within 2^-15 of gelu_tanh.
MACO_FN float near_gelu_tanh(float x) {
  const float half = fmul(x, ffma(fmul(x, x), 0.05147162f, 1.1511041f));  // half of y, to base 2
  const float root = fexp2(-fmax(-half, -32.0f));
  return fmul(fmul(x, fratio(root, ffma(root, root, 1.0f))), root);
}

}  // namespace fn

// ---- elements that are loaded ahead ------------------------------------------

// V elements as a thread holds them until it needs them: packed in 32-bit words if they fill some.
// The compiler would unpack narrower elements right behind the load, and wait for it.
template <class T, int V>
using HeldVec = typename Either<(kWarpLanes > 1 && V * sizeof(T) >= 4),
                                Vec<u32, (V * (int)sizeof(T) + 3) / 4>, Vec<T, V>>::type;
template <int V, class T>
MACO_FN HeldVec<T, V> gload_held(const T* p) {
  if constexpr (is_same<HeldVec<T, V>, Vec<T, V>>) {
    return gload_vec<V>(p);
  } else {
    return gload_vec<V*(int)sizeof(T) / 4>((const u32*)p);
  }
}

// Handles batches from `begin` on, `step` apart, up to `end`, at most kMost of them: calls
// load(batch, at), and use(batch, at) while the next batch is being loaded. There are two copies of
// `use`: moving a batch to other registers would wait for it.
template <class Batch, i64 kMost, class I, class L, class U>
MACO_FN void each_ahead(I begin, I end, I step, L load, U use) {
  if (begin >= end) return;
  Batch even;
  load(even, begin);
  if constexpr (kMost <= 1) {
    use(even, begin);
  } else {
    Batch odd;
    for (I at = begin;;) {
      if (at + step < end) load(odd, at + step);
      use(even, at);
      if ((at += step) >= end) return;
      if (at + step < end) load(even, at + step);
      use(odd, at);
      if ((at += step) >= end) return;
    }
  }
}

}  // namespace maco
