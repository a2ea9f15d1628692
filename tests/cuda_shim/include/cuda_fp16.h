// float16 conversions as CUDA spells them.
#pragma once

#include <cstring>

struct __half_raw {
  unsigned short x;
};

struct __half {
  unsigned short bits;
  explicit __half(__half_raw raw) : bits(raw.x) {}
  operator __half_raw() const { return {bits}; }
};

inline float __half2float(__half value) {
  _Float16 stored;
  std::memcpy(&stored, &value, sizeof(stored));
  return static_cast<float>(stored);
}

inline __half __float2half_rn(float value) {
  const _Float16 rounded = static_cast<_Float16>(value);
  __half_raw raw;
  std::memcpy(&raw, &rounded, sizeof(raw));
  return __half(raw);
}
