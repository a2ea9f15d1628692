// Two vectors in the place of one, for work whose instructions wait for one another: those of the
// second go between. A processor finds such work by itself only as far as its queue reaches, which
// is less than one function of vector_math.h.
//
// Included like simd.h. What simd.h, vector_math.h and vector_functions.h write out for a vector
// stands there for a pair as well.
#pragma once

template <class V>
struct Pair {
  V first;
  V second;
};

// The other operand may be a number or a vector, of both.
#define LLTM_PAIR_OPERATOR(op)                                                           \
  template <class V, class W>                                                            \
  LLTM_INLINE auto operator op(Pair<V> x, Pair<W> y) {                                   \
    return Pair<decltype(x.first op y.first)>{x.first op y.first, x.second op y.second}; \
  }                                                                                      \
  template <class V, class S>                                                            \
  LLTM_INLINE auto operator op(Pair<V> x, S y) {                                         \
    return Pair<decltype(x.first op y)>{x.first op y, x.second op y};                    \
  }                                                                                      \
  template <class V, class S>                                                            \
  LLTM_INLINE auto operator op(S x, Pair<V> y) {                                         \
    return Pair<decltype(x op y.first)>{x op y.first, x op y.second};                    \
  }
LLTM_PAIR_OPERATOR(+)
LLTM_PAIR_OPERATOR(-)
LLTM_PAIR_OPERATOR(*)
LLTM_PAIR_OPERATOR(/)
LLTM_PAIR_OPERATOR(==)
LLTM_PAIR_OPERATOR(!=)
LLTM_PAIR_OPERATOR(<)
LLTM_PAIR_OPERATOR(<=)
LLTM_PAIR_OPERATOR(>)
LLTM_PAIR_OPERATOR(>=)
LLTM_PAIR_OPERATOR(&)
LLTM_PAIR_OPERATOR(|)
LLTM_PAIR_OPERATOR(<<)
LLTM_PAIR_OPERATOR(>>)
#undef LLTM_PAIR_OPERATOR

template <class V>
LLTM_INLINE auto operator-(Pair<V> x) {
  return Pair<V>{-x.first, -x.second};
}
template <class V>
LLTM_INLINE auto operator!(Pair<V> x) {
  return Pair<decltype(!x.first)>{!x.first, !x.second};
}
template <class V>
LLTM_INLINE Pair<V>& operator+=(Pair<V>& x, Pair<V> y) {
  return x = x + y;
}

template <class V>
struct ElementOf<Pair<V>> {
  using type = element_t<V>;
  using bits = Pair<bits_t<V>>;
};

template <class To, class From>
LLTM_INLINE To bit_cast(Pair<From> x) {
  using Half = decltype(To::first);
  return {bit_cast<Half>(x.first), bit_cast<Half>(x.second)};
}
template <class Mask, class V>
LLTM_INLINE Pair<V> choose(Pair<Mask> mask, Pair<V> x, Pair<V> y) {
  return {choose(mask.first, x.first, y.first), choose(mask.second, x.second, y.second)};
}
template <class V>
LLTM_INLINE Pair<V> larger(Pair<V> x, Pair<V> y) {
  return {larger(x.first, y.first), larger(x.second, y.second)};
}
template <class V>
LLTM_INLINE Pair<V> smaller(Pair<V> x, Pair<V> y) {
  return {smaller(x.first, y.first), smaller(x.second, y.second)};
}
