// bfloat16 conversions as CUDA spells them.
#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct __nv_bfloat16 {
  unsigned short bits;
  explicit __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
  operator __nv_bfloat16_raw() const { return {bits}; }
};

inline float __bfloat162float(__nv_bfloat16 value) {
  const uint32_t wide = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &wide, sizeof(result));
  return result;
}

inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof(wide));
  if (value != value) return __nv_bfloat16(__nv_bfloat16_raw{0x7fff});
  wide += 0x7fff + ((wide >> 16) & 1);
  return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(wide >> 16)});
}
