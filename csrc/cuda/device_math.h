// The functions a gate functor calls, for one element on the device.
#pragma once

#include <cmath>

#include "../cell.h"

namespace lltm::cuda {

template <class V>
struct Elu {
  V value;
  V derivative;
};

// In the type that a step is computed in.
template <class V>
struct StepScalars {
  V values[kRoom<Cell::kScalars>];

  LLTM_HOST_DEVICE explicit StepScalars(const Scalars& scalars) {
#pragma unroll
    for (int i = 0; i < Cell::kScalars; ++i) values[i] = static_cast<V>(scalars.values[i]);
  }
};

// Overloads, because the historic kernels sent float64 through float functions.
struct DeviceMath {
  // Through exp(-|x|), which cannot overflow.
  static LLTM_HOST_DEVICE float sigmoid(float x) {
    const float e = expf(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
  }
  static LLTM_HOST_DEVICE double sigmoid(double x) {
    const double e = ::exp(-::fabs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
  }

  static LLTM_HOST_DEVICE float tanh(float x) { return tanhf(x); }
  static LLTM_HOST_DEVICE double tanh(double x) { return ::tanh(x); }

  static LLTM_HOST_DEVICE float elu(float x, float alpha) {
    return x > 0.0f ? x : alpha * expm1f(x);
  }
  static LLTM_HOST_DEVICE double elu(double x, double alpha) {
    return x > 0.0 ? x : alpha * ::expm1(x);
  }

  // torch's: the derivative at 0 is alpha. The exponential is taken of negative numbers only.
  static LLTM_HOST_DEVICE Elu<float> elu_with_derivative(float x, float alpha) {
    if (x > 0.0f) return {x, 1.0f};
    return {alpha * expm1f(x), alpha * expf(x)};
  }
  static LLTM_HOST_DEVICE Elu<double> elu_with_derivative(double x, double alpha) {
    if (x > 0.0) return {x, 1.0};
    return {alpha * ::expm1(x), alpha * ::exp(x)};
  }

  static LLTM_HOST_DEVICE float exp(float x) { return expf(x); }
  static LLTM_HOST_DEVICE double exp(double x) { return ::exp(x); }
  static LLTM_HOST_DEVICE float expm1(float x) { return expm1f(x); }
  static LLTM_HOST_DEVICE double expm1(double x) { return ::expm1(x); }
  static LLTM_HOST_DEVICE float log(float x) { return logf(x); }
  static LLTM_HOST_DEVICE double log(double x) { return ::log(x); }
  static LLTM_HOST_DEVICE float log1p(float x) { return log1pf(x); }
  static LLTM_HOST_DEVICE double log1p(double x) { return ::log1p(x); }
  static LLTM_HOST_DEVICE float sqrt(float x) { return sqrtf(x); }
  static LLTM_HOST_DEVICE double sqrt(double x) { return ::sqrt(x); }
  static LLTM_HOST_DEVICE float abs(float x) { return fabsf(x); }
  static LLTM_HOST_DEVICE double abs(double x) { return ::fabs(x); }

  // NaN where either is, as torch has it.
  template <class V>
  static LLTM_HOST_DEVICE V maximum(V x, V y) {
    return x > y || x != x ? x : y;
  }
  template <class V>
  static LLTM_HOST_DEVICE V minimum(V x, V y) {
    return x < y || x != x ? x : y;
  }

  template <class V>
  static LLTM_HOST_DEVICE V select(bool mask, V x, V y) {
    return mask ? x : y;
  }

  // log(1 + exp(x)) without overflow.
  template <class V>
  static LLTM_HOST_DEVICE V softplus(V x) {
    return maximum(x, V(0)) + log1p(exp(-abs(x)));
  }
  template <class V>
  static LLTM_HOST_DEVICE V log_sigmoid(V x) {
    return minimum(x, V(0)) - log1p(exp(-abs(x)));
  }
};

}  // namespace lltm::cuda
