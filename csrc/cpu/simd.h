// Vectors of the compiler: arithmetic, comparison and ?: come with the language extension that GCC
// and Clang share; what is missing (loads, stores, bits, 16-bit types) is here.
//
// Included only below an instruction set's `target` pragma, inside an anonymous namespace: no
// function of one instruction set may be merged with another's by the linker.
#pragma once

#define LLTM_INLINE inline __attribute__((always_inline))

template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
  using type = int32_t;
};
template <>
struct BitsOf<double> {
  using type = int64_t;
};

// Every vector of one instruction set has kVectorBytes bytes, so the element type names it.
template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef typename BitsOf<T>::type bits __attribute__((vector_size(kVectorBytes)));
  static constexpr int width = kVectorBytes / sizeof(T);
};
using VFloat = VectorOf<float>::type;
using VDouble = VectorOf<double>::type;
using VInt = VectorOf<float>::bits;
using VLong = VectorOf<double>::bits;

typedef uint16_t VShort __attribute__((vector_size(kVectorBytes / 2)));
typedef uint32_t VUnsigned __attribute__((vector_size(kVectorBytes)));

template <class V>
struct ElementOf;
template <>
struct ElementOf<VFloat> {
  using type = float;
  using bits = VInt;
};
template <>
struct ElementOf<VDouble> {
  using type = double;
  using bits = VLong;
};
template <class V>
using element_t = typename ElementOf<V>::type;
template <class V>
using bits_t = typename ElementOf<V>::bits;

// Minus zero changes no value, not even -0, so that no instruction remains but the broadcast.
LLTM_INLINE VFloat broadcast(float x) { return x - VFloat{}; }
LLTM_INLINE VDouble broadcast(double x) { return x - VDouble{}; }

template <class To, class From>
LLTM_INLINE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  return (To)from;
}

template <class Mask, class V>
LLTM_INLINE V choose(Mask mask, V x, V y) {
  return mask ? x : y;
}

// One instruction of x86-64 by its name in Intel's guide, for vectors of this width.
#if defined(__x86_64__)
#if LLTM_VECTOR_BYTES == 64
#define LLTM_INTRINSIC(name) _mm512_##name
using Floats = __m512;
using Doubles = __m512d;
using Halves = __m256i;
#elif LLTM_VECTOR_BYTES == 32
#define LLTM_INTRINSIC(name) _mm256_##name
using Floats = __m256;
using Doubles = __m256d;
using Halves = __m128i;
#else
#define LLTM_INTRINSIC(name) _mm_##name
using Floats = __m128;
using Doubles = __m128d;
#endif
#endif

// The larger and the smaller of two: the second, where they are equal or one is a NaN. One
// instruction on x86-64, which compilers do not find for a comparison and a choice of vectors.
#if defined(__x86_64__)
LLTM_INLINE VFloat larger(VFloat x, VFloat y) {
  return (VFloat)LLTM_INTRINSIC(max_ps)((Floats)x, (Floats)y);
}
LLTM_INLINE VFloat smaller(VFloat x, VFloat y) {
  return (VFloat)LLTM_INTRINSIC(min_ps)((Floats)x, (Floats)y);
}
LLTM_INLINE VDouble larger(VDouble x, VDouble y) {
  return (VDouble)LLTM_INTRINSIC(max_pd)((Doubles)x, (Doubles)y);
}
LLTM_INLINE VDouble smaller(VDouble x, VDouble y) {
  return (VDouble)LLTM_INTRINSIC(min_pd)((Doubles)x, (Doubles)y);
}
#else
template <class V>
LLTM_INLINE V larger(V x, V y) {
  return x > y ? x : y;
}
template <class V>
LLTM_INLINE V smaller(V x, V y) {
  return x < y ? x : y;
}
#endif

// 16-bit types ------------------------------------------------------------------------------------

LLTM_INLINE VFloat widen(VShort bits, BFloat16) {
  return bit_cast<VFloat>(__builtin_convertvector(bits, VUnsigned) << 16);
}

// Round to nearest even; a NaN stays one.
LLTM_INLINE VShort narrow(VFloat x, BFloat16) {
  const VUnsigned bits = bit_cast<VUnsigned>(x);
  const VUnsigned rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const VUnsigned quiet = bits | 0x400000u;
  return __builtin_convertvector((x == x ? rounded : quiet) >> 16, VShort);
}

#if defined(__x86_64__) && LLTM_VECTOR_BYTES > 16
LLTM_INLINE VFloat widen(VShort half, Half) {
  return (VFloat)LLTM_INTRINSIC(cvtph_ps)((Halves)half);
}
LLTM_INLINE VShort narrow(VFloat x, Half) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return (VShort)LLTM_INTRINSIC(cvtps_ph)((Floats)x, nearest);
}
#else
LLTM_INLINE VFloat widen(VShort half, Half) {
  const VUnsigned bits = __builtin_convertvector(half, VUnsigned);
  const VUnsigned magnitude = (bits & 0x7fffu) << 13;
  // Scaling by 2^112 moves the exponent's bias, subnormal numbers included.
  const VFloat scaled = bit_cast<VFloat>(magnitude) * 0x1p112f;
  const VUnsigned special = magnitude | 0x7f800000u;
  const VUnsigned value = magnitude >= 0x0f800000u ? special : bit_cast<VUnsigned>(scaled);
  return bit_cast<VFloat>(value | ((bits & 0x8000u) << 16));
}

// Round to nearest even; beyond 65504 infinity; a NaN stays one.
LLTM_INLINE VShort narrow(VFloat x, Half) {
  const VUnsigned bits = bit_cast<VUnsigned>(x);
  const VUnsigned sign = (bits >> 16) & 0x8000u;
  const VUnsigned magnitude = bits & 0x7fffffffu;
  // Normal halves: move the bias, round on bit 13.
  const VUnsigned normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal halves: adding 0.5 aligns the mantissa and rounds.
  const VUnsigned small = bit_cast<VUnsigned>(bit_cast<VFloat>(magnitude) + 0.5f) - 0x3f000000u;
  const VUnsigned nan = (VUnsigned{} + 0x7e00u);
  const VUnsigned infinity = (VUnsigned{} + 0x7c00u);
  VUnsigned result = magnitude < 0x38800000u ? small : normal;
  result = magnitude >= 0x477ff000u ? infinity : result;
  result = magnitude > 0x7f800000u ? nan : result;
  return __builtin_convertvector(result | sign, VShort);
}
#endif

// Loads and stores --------------------------------------------------------------------------------

template <class Vector, class T>
LLTM_INLINE Vector load_bytes(const T* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

LLTM_INLINE VFloat load(const float* from) { return load_bytes<VFloat>(from); }
LLTM_INLINE VDouble load(const double* from) { return load_bytes<VDouble>(from); }
LLTM_INLINE VFloat load(const BFloat16* from) {
  return widen(load_bytes<VShort>(from), BFloat16{});
}
LLTM_INLINE VFloat load(const Half* from) { return widen(load_bytes<VShort>(from), Half{}); }

LLTM_INLINE void store(float* to, VFloat x) { __builtin_memcpy(to, &x, sizeof x); }
LLTM_INLINE void store(double* to, VDouble x) { __builtin_memcpy(to, &x, sizeof x); }
template <class T>
LLTM_INLINE void store(T* to, VFloat x) {
  const VShort bits = narrow(x, T{});
  __builtin_memcpy(to, &bits, sizeof bits);
}

// Around the caches, to whole lines; seen by other threads after end_stream().
#if defined(__x86_64__) && LLTM_VECTOR_BYTES == 64
constexpr bool kStreams = true;
LLTM_INLINE void stream(float* to, VFloat x) { _mm512_stream_ps(to, (__m512)x); }
LLTM_INLINE void stream(double* to, VDouble x) { _mm512_stream_pd(to, (__m512d)x); }
LLTM_INLINE void end_stream() { _mm_sfence(); }
#else
constexpr bool kStreams = false;
LLTM_INLINE void end_stream() {}
#endif

LLTM_INLINE float scalar(float x) { return x; }
LLTM_INLINE double scalar(double x) { return x; }
// Through a vector, so that there is one conversion.
template <class T>
LLTM_INLINE float scalar(T x) {
  const VShort bits = VShort{} + x.bits;
  return widen(bits, T{})[0];
}

template <class T>
using vector_t = typename VectorOf<compute_t<T>>::type;
template <class T>
constexpr int kWidth = VectorOf<compute_t<T>>::width;

// A full vector, or the first `count` elements of one; `count` is a template's choice so that the
// hot loop carries no test. Of one row: TwoRows of rows.h needs to know where the next is.
struct Full {
  template <class T>
  LLTM_INLINE vector_t<T> load_from(const T* from, int64_t /*row_stride*/ = 0) const {
    return load(from);
  }
  template <class T>
  LLTM_INLINE void store_to(T* to, vector_t<T> x, int64_t /*row_stride*/ = 0) const {
    store(to, x);
  }
};

struct Tail {
  int64_t count;

  template <class T>
  LLTM_INLINE vector_t<T> load_from(const T* from, int64_t /*row_stride*/ = 0) const {
    T padded[kWidth<T>] = {};
    __builtin_memcpy(padded, from, count * sizeof(T));
    return load(padded);
  }
  template <class T>
  LLTM_INLINE void store_to(T* to, vector_t<T> x, int64_t /*row_stride*/ = 0) const {
    T padded[kWidth<T>];
    store(padded, x);
    __builtin_memcpy(to, padded, count * sizeof(T));
  }
};
