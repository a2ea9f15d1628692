// The tutorial's CUDA kernels, in packed accessors, as a worked variant of csrc/cuda/gates.cu.
//
// An accessor carries a pointer, sizes and strides into the kernel, and checks the number of
// indices when it is compiled: z[row][gate][column] reads like the mathematics and takes any
// layout. The price, against raw pointers: three multiplications an access, one element a thread,
// and torch's headers in the kernel. What the tutorial's had wrong is right here: rows on the first
// grid dimension, functions of the element's own type, torch's derivative of elu at zero.
#pragma once

#include <cstdint>

#include "csrc/cell.h"
#include "csrc/cuda/device_math.h"
#include "csrc/cuda/launch.h"
#include "csrc/cuda/storage.h"

namespace packed_accessor {

// at::PackedTensorAccessor64 in as much as the kernels use it; here for raw memory, so that they
// also run where there is no at::Tensor.
template <class T, int N>
struct Accessor {
  T* data;
  const int64_t* sizes;
  const int64_t* strides;

  __device__ Accessor<T, N - 1> operator[](int64_t i) const {
    return {data + i * strides[0], sizes + 1, strides + 1};
  }
};
template <class T>
struct Accessor<T, 1> {
  T* data;
  const int64_t* sizes;
  const int64_t* strides;

  __device__ T& operator[](int64_t i) const { return data[i * strides[0]]; }
};

template <class T, int N>
struct PackedAccessor {
  T* data;
  int64_t sizes[N];
  int64_t strides[N];

  __device__ auto operator[](int64_t i) const { return Accessor<T, N>{data, sizes, strides}[i]; }
  __device__ int64_t size(int dim) const { return sizes[dim]; }
};

using Gates = lltm::described::LltmCell<lltm::cuda::DeviceMath>;

// gates [rows, 3, S]: pre-activations in, what backward reads out; the rest [rows, S].
template <class T>
__global__ void forward(PackedAccessor<T, 3> gates, PackedAccessor<T, 2> old_cell,
                        PackedAccessor<T, 2> new_h, PackedAccessor<T, 2> new_cell, T alpha) {
  const int64_t state = old_cell.size(1);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t row = item / state, column = item - row * state;
  if (row >= old_cell.size(0)) return;
  const T z[3] = {gates[row][0][column], gates[row][1][column], gates[row][2][column]};
  const T old_state[] = {T(0), old_cell[row][column]};  // h is read by the product alone
  const auto out = Gates::forward(z, old_state, &alpha);
  new_h[row][column] = out.state[0];
  new_cell[row][column] = out.state[1];
  for (int gate = 0; gate < 3; ++gate) gates[row][gate][column] = out.saved[gate];
}

// gates [rows, 3, S] as forward left them, d_gates [rows, 3, S]; the rest [rows, S].
template <class T>
__global__ void backward(PackedAccessor<T, 2> grad_h, PackedAccessor<T, 2> grad_cell,
                         PackedAccessor<T, 3> gates, PackedAccessor<T, 2> new_cell,
                         PackedAccessor<T, 3> d_gates, PackedAccessor<T, 2> d_old_cell, T alpha) {
  const int64_t state = new_cell.size(1);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t row = item / state, column = item - row * state;
  if (row >= new_cell.size(0)) return;
  const T saved[3] = {gates[row][0][column], gates[row][1][column], gates[row][2][column]};
  const T old_state[] = {T(0), T(0)}, new_state[] = {T(0), new_cell[row][column]};
  const T grad[] = {grad_h[row][column], grad_cell[row][column]};
  const auto out = Gates::backward(saved, old_state, new_state, grad, &alpha);
  for (int gate = 0; gate < 3; ++gate) d_gates[row][gate][column] = out.d_z[gate];
  d_old_cell[row][column] = out.d_state[1];
}

}  // namespace packed_accessor
