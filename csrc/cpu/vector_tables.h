// sigmoid and tanh of float by tables of 16 entries, which an instruction of AVX-512 looks up for a
// whole vector at once: a shorter polynomial, and for tanh no division. Errors and special values
// as vector_math.h has them. Included like simd.h.
#pragma once

#if defined(__x86_64__) && LLTM_VECTOR_BYTES == 64
template <class T>
constexpr bool kHasTables = std::is_same_v<T, float>;

using Table = float[16];

// table[i % 16]
LLTM_INLINE VFloat look_up(const Table& table, VInt i) {
  return (VFloat)_mm512_permutexvar_ps((__m512i)i, _mm512_load_ps(table));
}
LLTM_INLINE Pair<VFloat> look_up(const Table& table, Pair<VInt> i) {
  return {look_up(table, i.first), look_up(table, i.second)};
}

// x 2^n for n rounded down, subnormal results included.
LLTM_INLINE VFloat scale_by_power(VFloat x, VFloat n) {
  return (VFloat)_mm512_scalef_ps((__m512)x, (__m512)n);
}
LLTM_INLINE Pair<VFloat> scale_by_power(Pair<VFloat> x, Pair<VFloat> n) {
  return {scale_by_power(x.first, n.first), scale_by_power(x.second, n.second)};
}

// tanh(x) for x > 0 is the value at a centre and a polynomial of the distance to it. The centres
// are near the middle of half an octave each, where tanh is nearly a float; the first, of all below
// kFirst, is 0, and its value is x. An entry's index is the exponent of x and its mantissa's first
// bit, modulo 16: 6 for 1/16, 4 for the last.
struct TanhTables {
  static constexpr float kSmallest = 0x1p-4f;  // that has an entry by its exponent
  static constexpr float kFirst = 0.09375f;
  static constexpr float kLast = 9.1f;  // tanh of more is 1
  alignas(kVectorBytes) static constexpr Table kCentre = {
      0x1.3ff6bcp1f,  0x1.c01338p1f,  0x1.3ffc3cp2f,  0x1.bfe89p2f,
      0x1.11b108p3f,  0x1.2p3f,       0.0f,           0x1.bff782p-4f,
      0x1.3febc8p-3f, 0x1.bffda6p-3f, 0x1.400624p-2f, 0x1.c0023cp-2f,
      0x1.400dfap-1f, 0x1.c0129cp-1f, 0x1.3fed1ep0f,  0x1.bff09ap0f};
  alignas(kVectorBytes) static constexpr Table kValue = {
      0x1.f92486p-1f, 0x1.ff1174p-1f, 0x1.fff418p-1f, 0x1.ffffc8p-1f,
      0x1.fffffep-1f, 0x1p0f,         0.0f,           0x1.be3074p-4f,
      0x1.3d580cp-3f, 0x1.b8fac6p-3f, 0x1.35ff1ep-2f, 0x1.a5747ap-2f,
      0x1.1bfe2cp-1f, 0x1.686fb4p-1f, 0x1.b247a4p-1f, 0x1.e1f878p-1f};
  // From the highest power to the first, at Chebyshev nodes.
  static constexpr int kPowers = 7;
  alignas(kVectorBytes) static constexpr Table kPolynomial[kPowers] = {
      {0x1.11a22cp-14f, 0x1.5cf454p-15f, 0x1.5263bep-19f, 0x1.8fd04ep-25f, 0x1.0d1caap-29f, 0.0f,
       -0x1.b7c166p-5f, -0x1.703d8cp-5f, -0x1.2a11c4p-5f, -0x1.6e4ae6p-6f, -0x1.62e2a4p-15f,
       0x1.71d91p-6f, 0x1.e4368ep-6f, 0x1.6b1648p-7f, -0x1.26243p-8f, -0x1.00dadap-9f},
      {-0x1.6f8d7ap-11f, -0x1.48321p-13f, -0x1.3179aep-17f, -0x1.68645ap-23f, -0x1.d88a5ap-28f,
       0.0f, 0.0f, -0x1.3f396p-5f, -0x1.acb8e2p-5f, -0x1.0b57bep-4f, -0x1.288b5ap-4f,
       -0x1.f8ebcap-5f, -0x1.8981aap-6f, 0x1.aa272ap-7f, 0x1.eebdf8p-7f, 0x1.105082p-9f},
      {0x1.76e6ccp-9f, 0x1.ee874ap-12f, 0x1.93e87ap-16f, 0x1.db5938p-22f, 0x1.550f2ap-26f, 0.0f,
       0x1.111092p-3f, 0x1.ec31d6p-4f, 0x1.b756eap-4f, 0x1.5c1bc8p-4f, 0x1.74b466p-5f,
       -0x1.91087ep-8f, -0x1.c3dc98p-5f, -0x1.e20304p-5f, -0x1.3b0022p-6f, 0x1.e4254ap-9f},
      {-0x1.07eb56p-7f, -0x1.399b16p-10f, -0x1.f72b76p-15f, -0x1.27cb8ap-20f, -0x1.aa4128p-25f,
       0.0f, 0.0f, 0x1.20b2aap-4f, 0x1.8e17acp-4f, 0x1.04dbcep-3f, 0x1.43d5dep-3f, 0x1.5c26b4p-3f,
       0x1.1a5986p-3f, 0x1.f1b0a6p-5f, -0x1.9b7658p-7f, -0x1.81768p-6f},
      {0x1.17053ap-6f, 0x1.3c0a42p-9f, 0x1.fbe5dap-14f, 0x1.2a7f56p-19f, 0x1.aa9734p-24f, 0.0f,
       -0x1.555556p-2f, -0x1.4546a6p-2f, -0x1.352432p-2f, -0x1.183b96p-2f, -0x1.c19cecp-3f,
       -0x1.16dedcp-3f, -0x1.23302p-6f, 0x1.4f395cp-4f, 0x1.bbb34ap-4f, 0x1.01d13p-4f},
      {-0x1.ae1728p-6f, -0x1.dbcb4ap-9f, -0x1.7d16c6p-13f, -0x1.bfde68p-19f, -0x1.3ff1aep-23f, 0.0f,
       0.0f, -0x1.b8e506p-4f, -0x1.35b97p-3f, -0x1.a488cp-3f, -0x1.19962ap-2f, -0x1.5e0ff4p-2f,
       -0x1.893cd8p-2f, -0x1.6b9ea8p-2f, -0x1.e75a32p-3f, -0x1.b706d8p-4f},
      {0x1.b3ee22p-6f, 0x1.dca8dcp-9f, 0x1.7cfb94p-13f, 0x1.bfb3bep-19f, 0x1.3ff0ep-23f, 0.0f, 0.0f,
       0x1.f9eca6p-1f, 0x1.f3b4e6p-1f, 0x1.e84308p-1f, 0x1.d113c4p-1f, 0x1.a944f6p-1f,
       0x1.627a08p-1f, 0x1.0242d2p-1f, 0x1.1f4904p-2f, 0x1.d2617p-4f}};
};

template <class V>
LLTM_INLINE V tanh_by_table(V x) {
  using C = TanhTables;
  const V magnitude = clamp_high(absolute(x), C::kLast);
  const auto i = bit_cast<bits_t<V>>(clamp_low(magnitude, C::kSmallest)) >> 22;
  const V distance = magnitude - look_up(C::kCentre, i);
  V sum = look_up(C::kPolynomial[0], i);
#pragma GCC unroll 8
  for (int k = 1; k < C::kPowers; ++k) sum = sum * distance + look_up(C::kPolynomial[k], i);
  const V value = choose(magnitude < C::kFirst, magnitude, look_up(C::kValue, i));
  return copy_sign(sum * distance + value, x);
}

// 2^(i / 16), and what was rounded off it.
struct PowerTables {
  static constexpr float kRound = 0x1.8p19f;      // adding it rounds to a 16th in the low bits
  static constexpr float kLn2High = 0x1.62ep-1f;  // few bits, so that n * kLn2High is exact
  static constexpr float kLn2Low = 0x1.0bfbe8p-15f;
  // (expm1(r) - r) / r^2 for |r| <= ln(2) / 32
  static constexpr float kExpm1[] = {0x1.000148p-1f, 0x1.55565cp-3f};
  alignas(kVectorBytes) static constexpr Table kValue = {
      0x1p0f,        0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fep0f,  0x1.3dea64p0f,
      0x1.4bfdaep0f, 0x1.5ab07ep0f, 0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f,
      0x1.ae89fap0f, 0x1.c199bep0f, 0x1.d5818ep0f, 0x1.ea4afap0f};
  alignas(kVectorBytes) static constexpr Table kLow = {0.0f,
                                                       0x1.9f3122p-25f,
                                                       -0x1.c15742p-27f,
                                                       0x1.ceac48p-25f,
                                                       0x1.4636e2p-25f,
                                                       0x1.824684p-25f,
                                                       -0x1.593abcp-25f,
                                                       -0x1.5bd5ecp-27f,
                                                       0x1.9fcef4p-26f,
                                                       -0x1.829fdp-25f,
                                                       0x1.15506ep-27f,
                                                       0x1.51f848p-27f,
                                                       -0x1.a94b14p-26f,
                                                       -0x1.3d56b2p-27f,
                                                       -0x1.822dbcp-27f,
                                                       0x1.52486cp-27f};
};

// As sigmoid_of, with e = 2^n (power + power * expm1(r)), where n is a multiple of a 16th.
template <class V>
LLTM_INLINE V sigmoid_by_table(V x) {
  using C = PowerTables;
  const V argument = clamp_low(negative(x), Constants<float>::kLowest);
  const V shifted = argument * Constants<float>::kLog2E + C::kRound;
  const V n = shifted - C::kRound;
  const V r = argument - n * C::kLn2High - n * C::kLn2Low;
  const auto i = bit_cast<bits_t<V>>(shifted);
  const V power = look_up(C::kValue, i);
  const V expm1 = (r * C::kExpm1[1] + C::kExpm1[0]) * (r * r) + r;
  const Exact<V> significand = exact_sum(power, power * expm1 + look_up(C::kLow, i));
  return sigmoid_of_exp<float>(
      x, Exact<V>{scale_by_power(significand.value, n), scale_by_power(significand.low, n)});
}
#else
template <class T>
constexpr bool kHasTables = false;
#endif
