// The functions that a cell's functor calls, for both vector types and pairs of them; errors as in
// vector_math.h. Included like simd.h.
#pragma once

// exp(x) = 2^n (1 + q); of any x, subnormal and infinite results included.
template <class V>
LLTM_INLINE V exp_of(V x) {
  using T = element_t<V>;
  using C = Constants<T>;
  const auto [n, r, tail] = reduce<T>(clamp_high(clamp_low(x, C::kLowest), C::kHighest));
  // 2^n in two factors, for it may be out of range where the result is not.
  const auto half = n >> 1;
  const V first = bit_cast<V>((half + C::kBias) << C::kMantissa);
  const V second = bit_cast<V>((n - half + C::kBias) << C::kMantissa);
  return (T(1) + (r + tail)) * first * second;
}

// 2 (2^(n - 1) q + (2^(n - 1) - 1/2)), which is in range wherever the result is.
template <class V>
LLTM_INLINE V expm1_of(V x) {
  using T = element_t<V>;
  using C = Constants<T>;
  const auto [n, r, tail] = reduce<T>(clamp_high(clamp_low(x, C::kSaturated), C::kHighest));
  const V scale = bit_cast<V>((n + (C::kBias - 1)) << C::kMantissa);
  const auto q = exact_sum(r, tail);
  const auto sum = exact_sum(scale - T(0.5), scale * q.value);
  const V result = T(2) * (sum.value + (sum.low + scale * q.low));
  return choose(absolute(x) < C::kLinear, x, result);
}

// x = 2^k (1 + f) with 1 + f from sqrt(1/2) to sqrt(2).
template <class V>
struct Significand {
  V k;
  V f;
};

template <class V>
LLTM_INLINE Significand<V> significand_of(V x) {
  using T = element_t<V>;
  using C = Constants<T>;
  using I = bits_t<V>;
  const I one = bit_cast<I>(V{} + T(1));
  const I bits = bit_cast<I>(x) + (one - C::kHalfRoot);
  const I k = (bits >> C::kMantissa) - C::kBias;
  const V m = bit_cast<V>((bits & C::kMantissaBits) + C::kHalfRoot);
  const I round = bit_cast<I>(V{} + C::kRound);
  return {bit_cast<V>(k + round) - C::kRound, m - T(1)};
}

// log(1 + f) + k log(2) + low, as FreeBSD's libm adds them.
template <class V>
LLTM_INLINE V log_of(const Significand<V>& of, V low) {
  using T = element_t<V>;
  using C = Constants<T>;
  const V s = of.f / (T(2) + of.f), z = s * s;
  const V half_square = T(0.5) * of.f * of.f;
  const V rest = s * (half_square + z * polynomial(C::kLog, z)) + (of.k * C::kLogLn2Low + low);
  return of.k * C::kLogLn2High - ((half_square - rest) - of.f);
}

template <class V>
LLTM_INLINE V log_of(V x) {
  using T = element_t<V>;
  using C = Constants<T>;
  const auto tiny = x < C::kSmallest;
  auto of = significand_of(choose(tiny, x * C::kRaised, x));
  of.k = choose(tiny, of.k - T(C::kRaise), of.k);
  V result = log_of(of, V{});
  result = choose(x < T(__builtin_inf()), result, x);
  result = choose(x == T(0), V{} - T(__builtin_inf()), result);
  return choose(x < T(0), V{} + T(__builtin_nan("")), result);
}

// log of 1 + x with what is rounded off that sum.
template <class V>
LLTM_INLINE V log1p_of(V x) {
  using T = element_t<V>;
  const V sum = x + T(1);
  const auto direct = (x > T(-0.2928)) & (x < T(0.4142));
  const V lost = choose(x > T(1), T(1) - (sum - x), x - (sum - T(1)));
  auto of = significand_of(sum);
  of.k = choose(direct, V{}, of.k);
  of.f = choose(direct, x, of.f);
  V result = log_of(of, choose(direct, V{}, lost / sum));
  result = choose(x < T(__builtin_inf()), result, x);
  result = choose(x == T(-1), V{} - T(__builtin_inf()), result);
  result = choose(x < T(-1), V{} + T(__builtin_nan("")), result);
  return choose(x == T(0), x, result);
}

// NaN where either is, as torch has it.
template <class V>
LLTM_INLINE V maximum_of(V x, V y) {
  return choose((x > y) | (x != x), x, y);
}
template <class V>
LLTM_INLINE V minimum_of(V x, V y) {
  return choose((x < y) | (x != x), x, y);
}

// log(1 + e) for e from 0 to 1 (or NaN), as log1p_of: what is rounded off e - 1, which it may be
// below 1/2 alone, is divided by 1 + e from sqrt(2) to 3/2.
template <class V>
LLTM_INLINE V log1p_of_unit(V e) {
  using T = element_t<V>;
  const auto halved = e > T(0.4142);
  const V less = e - T(1), lost = e - (less + T(1));
  const V k = choose(halved, V{} + T(1), V{});
  return log_of(Significand<V>{k, choose(halved, T(0.5) * less, e)}, lost * T(0.686) * k);
}

// log(1 + exp(x)) without overflow.
template <class V>
LLTM_INLINE V softplus_of(V x) {
  using T = element_t<V>;
  return maximum_of(x, V{}) + log1p_of_unit(exp_of_negative<T>(negative(x)).exp);
}
template <class V>
LLTM_INLINE V log_sigmoid_of(V x) {
  using T = element_t<V>;
  return minimum_of(x, V{}) - log1p_of_unit(exp_of_negative<T>(negative(x)).exp);
}

#if defined(__x86_64__)
LLTM_INLINE VFloat square_root(VFloat x) { return (VFloat)LLTM_INTRINSIC(sqrt_ps)((Floats)x); }
LLTM_INLINE VDouble square_root(VDouble x) { return (VDouble)LLTM_INTRINSIC(sqrt_pd)((Doubles)x); }
#else
template <class V>
LLTM_INLINE V square_root(V x) {
  for (int i = 0; i < VectorOf<element_t<V>>::width; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
}
#endif
template <class V>
LLTM_INLINE Pair<V> square_root(Pair<V> x) {
  return {square_root(x.first), square_root(x.second)};
}

struct VectorMath {
  template <class V>
  static LLTM_INLINE V sigmoid(V x) {
    if constexpr (kHasTables<element_t<V>>) {
      return sigmoid_by_table(x);
    } else {
      return sigmoid_of<element_t<V>>(x);
    }
  }
  template <class V>
  static LLTM_INLINE V tanh(V x) {
    if constexpr (kHasTables<element_t<V>>) {
      return tanh_by_table(x);
    } else {
      return tanh_of<element_t<V>>(x);
    }
  }
  template <class V, class Scalar>
  static LLTM_INLINE V elu(V x, Scalar alpha) {
    return elu_of(x, alpha).value;
  }
  template <class V, class Scalar>
  static LLTM_INLINE Elu<V> elu_with_derivative(V x, Scalar alpha) {
    return elu_of(x, alpha);
  }
  template <class V>
  static LLTM_INLINE V exp(V x) {
    return exp_of(x);
  }
  template <class V>
  static LLTM_INLINE V expm1(V x) {
    return expm1_of(x);
  }
  template <class V>
  static LLTM_INLINE V log(V x) {
    return log_of(x);
  }
  template <class V>
  static LLTM_INLINE V log1p(V x) {
    return log1p_of(x);
  }
  template <class V>
  static LLTM_INLINE V softplus(V x) {
    return softplus_of(x);
  }
  template <class V>
  static LLTM_INLINE V log_sigmoid(V x) {
    return log_sigmoid_of(x);
  }
  template <class V>
  static LLTM_INLINE V sqrt(V x) {
    return square_root(x);
  }
  template <class V>
  static LLTM_INLINE V abs(V x) {
    return absolute(x);
  }
  template <class V>
  static LLTM_INLINE V maximum(V x, V y) {
    return maximum_of(x, y);
  }
  template <class V>
  static LLTM_INLINE V minimum(V x, V y) {
    return minimum_of(x, y);
  }
  template <class Mask, class V>
  static LLTM_INLINE V select(Mask mask, V x, V y) {
    return choose(mask, x, y);
  }
};
