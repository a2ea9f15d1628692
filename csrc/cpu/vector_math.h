// Elementary functions on vectors, branch-free, without fast-math: infinities, NaN and signed zeros
// come out as IEEE says. Errors were measured over the whole range against 200-bit arithmetic and
// are bounded by tests; the polynomials interpolate at Chebyshev nodes.
//
// Included like simd.h. The constants of each element type stand in one table.
#pragma once

template <class T>
struct Constants;

template <>
struct Constants<float> {
  static constexpr float kLog2E = 1.44269504088896341f;
  static constexpr float kLn2High = 0.693359375f;  // few bits, so that n * kLn2High is exact
  static constexpr float kLn2Low = -2.12194440e-4f;
  static constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer in the low bits
  static constexpr int kBias = 127;
  static constexpr int kMantissa = 23;
  static constexpr int kLift = 64;
  static constexpr float kUnlift = 0x1p-64f;
  static constexpr float kLowest = -104.0f;    // exp of less is 0
  static constexpr float kHighest = 89.0f;     // exp of more is infinity
  static constexpr float kSaturated = -20.0f;  // expm1 of less is -1
  // (expm1(r) - r) / r^2 for |r| <= ln(2) / 2
  static constexpr float kExpm1[] = {0.5f,          0.16666667f,   0.041666463f,
                                     0.0083333105f, 0.0013933731f, 0.00019891080f};
  static constexpr float kLinear = 0x1p-25f;  // expm1 of less is x
  // (tanh(x) - x) / x^3 = above / below, in powers of x^2, for |x| < kNearZero
  static constexpr float kTanhAbove[] = {-0.333333333f, -0.0017357274f, 5.96851056e-05f};
  static constexpr float kTanhBelow[] = {1.0f, 0.405207089f};
  static constexpr float kNearZero = 0.7f;
  static constexpr float kTanhOne = 10.0f;      // tanh of more is 1
  static constexpr int kHalfRoot = 0x3f3504f3;  // sqrt(1/2), as bits
  static constexpr int kMantissaBits = 0x7fffff;
  static constexpr float kSmallest = 0x1p-126f;  // normal number
  static constexpr int kRaise = 25;
  static constexpr float kRaised = 0x1p25f;
  static constexpr int kHighHalf = ~0xfff;
  static constexpr float kLogLn2High = 0x1.62e3p-1f;  // few bits, so that k * kLogLn2High is exact
  static constexpr float kLogLn2Low = 0x1.2fefa2p-17f;
  // (log(1 + f) - 2 s) / s with s = f / (2 + f), in powers of s^2, for 1 + f from sqrt(1/2) to
  // sqrt(2); FreeBSD's
  static constexpr float kLog[] = {0xaaaaaa.0p-24f, 0xccce13.0p-25f, 0x91e9ee.0p-25f,
                                   0xf89e26.0p-26f};
};

template <>
struct Constants<double> {
  static constexpr double kLog2E = 1.4426950408889634074;
  static constexpr double kLn2High = 0x1.62e42fee00000p-1;
  static constexpr double kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kRound = 0x1.8p52;
  static constexpr int kBias = 1023;
  static constexpr int kMantissa = 52;
  static constexpr int kLift = 128;
  static constexpr double kUnlift = 0x1p-128;
  static constexpr double kLowest = -746.0;
  static constexpr double kHighest = 710.0;
  static constexpr double kSaturated = -40.0;
  static constexpr double kExpm1[] = {
      0x1.0000000000000p-1,  0x1.5555555555557p-3,  0x1.5555555555556p-5,  0x1.11111111100bep-7,
      0x1.6c16c16c162c3p-10, 0x1.a01a01abf85abp-13, 0x1.a01a01a6e1e2ap-16, 0x1.71de01fdbf9cap-19,
      0x1.27e4db46cddd1p-22, 0x1.af4e554377204p-26, 0x1.1f7340dbc337ep-29};
  static constexpr double kLinear = 0x1p-54;
  static constexpr double kTanhAbove[] = {-0.33333333333333331, -0.020495228867532349,
                                          -0.00019901990913769401};
  static constexpr double kTanhBelow[] = {1.0, 0.46148568660258626, 0.023286572463946293,
                                          0.00020636437984939814};
  static constexpr double kNearZero = 0.7;
  static constexpr double kTanhOne = 20.0;
  static constexpr int64_t kHalfRoot = 0x3fe6a09e667f3bcd;
  static constexpr int64_t kMantissaBits = 0xfffffffffffff;
  static constexpr double kSmallest = 0x1p-1022;
  static constexpr int kRaise = 54;
  static constexpr double kRaised = 0x1p54;
  static constexpr int64_t kHighHalf = ~0x7ffffffLL;
  static constexpr double kLogLn2High = 6.93147180369123816490e-01;
  static constexpr double kLogLn2Low = 1.90821492927058770002e-10;
  static constexpr double kLog[] = {6.666666666666735130e-01, 3.999999999940941908e-01,
                                    2.857142874366239149e-01, 2.222219843214978396e-01,
                                    1.818357216161805012e-01, 1.531383769920937332e-01,
                                    1.479819860511658591e-01};
};

// Pairs of terms by Horner in the square, each of which waits for half as many before it, and last
// the constant term, so that nothing is rounded off more than by Horner in x.
template <class T, int N, class V>
LLTM_INLINE V polynomial(const T (&coefficients)[N], V x) {
  const V square = x * x;
  V sum = V{} + coefficients[N - 1];
  if constexpr (N % 2 == 1) sum = sum * x + coefficients[N - 2];
#pragma GCC unroll 16
  for (int i = N / 2 * 2 - 3; i > 0; i -= 2) {
    sum = sum * square + (coefficients[i + 1] * x + coefficients[i]);
  }
  return sum * x + coefficients[0];
}

// exp(x) = 2^n (1 + r + tail), with n an integer, |r| <= ln(2) / 2 and tail = expm1(r) - r.
template <class V, class I>
struct Reduced {
  I n;
  V r;
  V tail;
};

template <class T, class V>
LLTM_INLINE Reduced<V, bits_t<V>> reduce(V x) {
  using C = Constants<T>;
  const V shifted = x * C::kLog2E + C::kRound;
  const V n = shifted - C::kRound;
  const V r = x - n * C::kLn2High - n * C::kLn2Low;
  using I = bits_t<V>;
  return {bit_cast<I>(shifted) - bit_cast<I>(V{} + C::kRound), r, r * r * polynomial(C::kExpm1, r)};
}

// 2^(n + kLift), a normal number wherever 2^n is that or subnormal.
template <class T, class V, class I>
LLTM_INLINE V lifted_power_of_two(I n) {
  using C = Constants<T>;
  return bit_cast<V>((n + (C::kBias + C::kLift)) << C::kMantissa);
}

// A NaN passes through.
template <class T, class V>
LLTM_INLINE V clamp_low(V x, T low) {
  return larger(V{} + low, x);
}
template <class T, class V>
LLTM_INLINE V clamp_high(V x, T high) {
  return smaller(V{} + high, x);
}

// For x <= 0 (or NaN): exp(x) and expm1(x), subnormal results included.
template <class V>
struct ExpPair {
  V exp;
  V expm1;
};

template <class T, class V>
LLTM_INLINE ExpPair<V> exp_of_negative(V x) {
  const auto [n, r, tail] = reduce<T>(clamp_low(x, Constants<T>::kLowest));
  const V q = r + tail;
  const V lifted = lifted_power_of_two<T, V>(n);
  const V scale = lifted * Constants<T>::kUnlift;
  return {(q + T(1)) * lifted * Constants<T>::kUnlift, scale * q + (scale - T(1))};
}

LLTM_INLINE VFloat absolute(VFloat x) { return bit_cast<VFloat>(bit_cast<VInt>(x) & 0x7fffffff); }
LLTM_INLINE VDouble absolute(VDouble x) {
  return bit_cast<VDouble>(bit_cast<VLong>(x) & 0x7fffffffffffffffLL);
}

template <class V>
LLTM_INLINE Pair<V> absolute(Pair<V> x) {
  return {absolute(x.first), absolute(x.second)};
}

LLTM_INLINE VFloat negative(VFloat x) { return bit_cast<VFloat>(bit_cast<VInt>(x) | INT32_MIN); }
LLTM_INLINE VDouble negative(VDouble x) {
  return bit_cast<VDouble>(bit_cast<VLong>(x) | INT64_MIN);
}
template <class V>
LLTM_INLINE Pair<V> negative(Pair<V> x) {
  return {negative(x.first), negative(x.second)};
}

LLTM_INLINE VFloat copy_sign(VFloat magnitude, VFloat sign) {
  return bit_cast<VFloat>(bit_cast<VInt>(magnitude) | (bit_cast<VInt>(sign) & INT32_MIN));
}
LLTM_INLINE VDouble copy_sign(VDouble magnitude, VDouble sign) {
  return bit_cast<VDouble>(bit_cast<VLong>(magnitude) | (bit_cast<VLong>(sign) & INT64_MIN));
}
template <class V>
LLTM_INLINE Pair<V> copy_sign(Pair<V> magnitude, Pair<V> sign) {
  return {copy_sign(magnitude.first, sign.first), copy_sign(magnitude.second, sign.second)};
}

// x - a * b, rounded once: by name, for a compiler makes that of the formula or does not.
#if defined(__x86_64__) && LLTM_VECTOR_BYTES > 16
LLTM_INLINE VFloat minus_product(VFloat x, VFloat a, VFloat b) {
  return (VFloat)LLTM_INTRINSIC(fnmadd_ps)((Floats)a, (Floats)b, (Floats)x);
}
LLTM_INLINE VDouble minus_product(VDouble x, VDouble a, VDouble b) {
  return (VDouble)LLTM_INTRINSIC(fnmadd_pd)((Doubles)a, (Doubles)b, (Doubles)x);
}
#elif defined(__aarch64__)
LLTM_INLINE VFloat minus_product(VFloat x, VFloat a, VFloat b) {
  return (VFloat)vfmsq_f32((float32x4_t)x, (float32x4_t)a, (float32x4_t)b);
}
LLTM_INLINE VDouble minus_product(VDouble x, VDouble a, VDouble b) {
  return (VDouble)vfmsq_f64((float64x2_t)x, (float64x2_t)a, (float64x2_t)b);
}
#else
// Of two halves of the bits, whose products are exact.
template <class T, class V>
LLTM_INLINE V minus_product_of_halves(V x, V a, V b) {
  using I = typename VectorOf<T>::bits;
  const V a_high = bit_cast<V>(bit_cast<I>(a) & Constants<T>::kHighHalf), a_low = a - a_high;
  const V b_high = bit_cast<V>(bit_cast<I>(b) & Constants<T>::kHighHalf), b_low = b - b_high;
  return x - a_high * b_high - (a_high * b_low + a_low * b_high) - a_low * b_low;
}
LLTM_INLINE VFloat minus_product(VFloat x, VFloat a, VFloat b) {
  return minus_product_of_halves<float>(x, a, b);
}
LLTM_INLINE VDouble minus_product(VDouble x, VDouble a, VDouble b) {
  return minus_product_of_halves<double>(x, a, b);
}
#endif
template <class V>
LLTM_INLINE Pair<V> minus_product(Pair<V> x, Pair<V> a, Pair<V> b) {
  return {minus_product(x.first, a.first, b.first), minus_product(x.second, a.second, b.second)};
}

// A number and what was rounded off it.
template <class V>
struct Exact {
  V value;
  V low;
};

// x + y, where |x| >= |y| or x is 0.
template <class V>
LLTM_INLINE Exact<V> exact_sum(V x, V y) {
  const V sum = x + y;
  return {sum, y - (sum - x)};
}

// above / below for 1 <= below <= 2, with one Newton step for what was rounded off. The remainder
// needs no better 1 / below than the straight line that is 4 % off.
template <class T, class V>
LLTM_INLINE V quotient_of(const Exact<V>& above, const Exact<V>& below) {
  const V quotient = above.value / below.value;
  const V remainder =
      minus_product(above.value, quotient, below.value) + (above.low - quotient * below.low);
  return quotient + remainder * (T(1.457) - T(0.5) * below.value);
}

// expm1(x) / 2^n less 1 / 2^n - 1, and 2^n, for x from kLowest to 0 (or NaN).
template <class V>
struct ScaledExp {
  Exact<V> q;
  V scale;
};

template <class T, class V>
LLTM_INLINE ScaledExp<V> scaled_exp(V x) {
  const auto [n, r, tail] = reduce<T>(x);
  return {exact_sum(r, tail), lifted_power_of_two<T, V>(n) * Constants<T>::kUnlift};
}

// 1 / (1 + exp(-x)) as a quotient of 1 or e by 1 + e, where e = exp(-|x|) cannot overflow.
template <class T, class V>
LLTM_INLINE V sigmoid_of_exp(V x, const Exact<V>& e) {
  auto sum = exact_sum(V{} + T(1), e.value);
  sum.low += e.low;
  const auto below_zero = x < T(0);
  const Exact<V> above{choose(below_zero, e.value, V{} + T(1)), choose(below_zero, e.low, V{})};
  return quotient_of<T>(above, sum);
}

template <class T, class V>
LLTM_INLINE V sigmoid_of(V x) {
  const auto [q, scale] = scaled_exp<T>(clamp_low(negative(x), Constants<T>::kLowest));
  const auto significand = exact_sum(V{} + T(1), q.value);
  return sigmoid_of_exp<T>(x,
                           Exact<V>{significand.value * scale, (significand.low + q.low) * scale});
}

// x + x^3 above / below near 0, 1 - 2 / (1 + exp(2 |x|)) further off: with one division, whose
// rounding is half of the result's at most. The cell state grows with the steps, for nothing is
// forgotten: the argument of exp stops where tanh is 1.
template <class T, class V>
LLTM_INLINE V tanh_of(V x) {
  using C = Constants<T>;
  const V magnitude = absolute(x), square = x * x;
  const auto near = magnitude < C::kNearZero;
  const auto [n, r, tail] = reduce<T>(T(2) * clamp_high(magnitude, C::kTanhOne));
  const V scale = bit_cast<V>((n + C::kBias) << C::kMantissa);
  const V above = choose(near, magnitude * square * polynomial(C::kTanhAbove, square), V{} - T(2));
  const V below =
      choose(near, polynomial(C::kTanhBelow, square), scale * (r + tail) + (scale + T(1)));
  return copy_sign(above / below + choose(near, magnitude, V{} + T(1)), x);
}

template <class V>
struct Elu {
  V value;
  V derivative;
};

// torch's elu: x for x > 0, else alpha * expm1(x); its derivative at 0 is alpha.
template <class T, class V>
LLTM_INLINE Elu<V> elu_of(V x, T alpha) {
  const auto negative = exp_of_negative<T>(clamp_high(x, T(0)));
  const auto positive = x > T(0);
  return {choose(positive, x, negative.expm1 * alpha),
          choose(positive, V{} + T(1), negative.exp * alpha)};
}
