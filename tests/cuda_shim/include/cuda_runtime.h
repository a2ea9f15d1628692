// The CUDA that the kernels use, on a CPU: g++ compiles the same .cu files against this header.
//
// A CUDA thread is a fiber. All of them run on one CPU thread, each until it finishes or waits; at
// a barrier the next one goes on. The order (`Schedule`) is the test's choice: a kernel that lacks
// a barrier gives another result in another order. Shared memory is a fresh allocation a block,
// filled with NaN, so that reading what no thread wrote shows and the address sanitizer sees its
// bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define LLTM_CUDA_SHIM 1
#define CUDART_VERSION 13000

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
using uint3 = dim3;

// Of the CUDA thread that is running.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// Execution --------------------------------------------------------------------------------------

namespace cuda_shim {

void wait_for_block();
void wait_for_warp();
void yield();
void* shared_memory();
// The slots through which the lanes of the running thread's warp exchange values of up to 8 bytes.
// Other ones after each wait, so that a fast lane overwrites nothing that a slow one still reads.
uint64_t* warp_slots();
unsigned lane();

struct Launch {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  bool cooperative;
  const void* kernel;
  std::function<void()> body;
};
int run(const Launch& launch);

}  // namespace cuda_shim

inline void __syncthreads() { cuda_shim::wait_for_block(); }
inline void __syncwarp(unsigned = 0xffffffffu) { cuda_shim::wait_for_warp(); }
inline void __threadfence() {}
inline void __nanosleep(unsigned) { cuda_shim::yield(); }

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t* slots = cuda_shim::warp_slots();
  std::memcpy(&slots[cuda_shim::lane()], &value, sizeof(T));
  cuda_shim::wait_for_warp();
  T other;
  std::memcpy(&other, &slots[cuda_shim::lane() ^ static_cast<unsigned>(mask)], sizeof(T));
  return other;
}

template <class T>
T atomicAdd(T* address, T value) {
  const T old = *address;
  *address = old + value;
  return old;
}

template <class T>
T __ldcg(const T* address) {
  return *address;
}

template <class T>
void __stwb(T* address, T value) {
  *address = value;
}

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

// Runtime ----------------------------------------------------------------------------------------

struct CUstream_st;
using cudaStream_t = CUstream_st*;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
};
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaSetSharedLimit(const void* kernel, int bytes);
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel kernel, cudaFuncAttribute, int value) {
  return cudaSetSharedLimit(reinterpret_cast<const void*>(kernel), value);
}
cudaError_t cudaOccupancyBlocks(int* blocks, int threads, size_t shared_bytes);
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads,
                                                          size_t shared_bytes) {
  return cudaOccupancyBlocks(blocks, threads, shared_bytes);
}

enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3 };
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}

enum cudaLaunchAttributeID { cudaLaunchAttributeCooperative = 2 };
union cudaLaunchAttributeValue {
  int cooperative;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  std::tuple<Parameters...> bound(std::forward<Arguments>(arguments)...);
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    cooperative |= config->attrs[i].id == cudaLaunchAttributeCooperative &&
                   config->attrs[i].val.cooperative != 0;
  }
  return static_cast<cudaError_t>(
      cuda_shim::run({config->gridDim, config->blockDim, config->dynamicSmemBytes, cooperative,
                      reinterpret_cast<const void*>(kernel), [&] { std::apply(kernel, bound); }}));
}
