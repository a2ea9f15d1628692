// Launching a kernel, and saying in one sentence why it could not be.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "kernels.h"

// The GPU programs in this library, for messages: "sm_80, sm_90, compute_120".
#if !defined(LLTM_CUDA_ARCHITECTURES)
#define LLTM_CUDA_ARCHITECTURES "unknown architectures"
#endif

namespace lltm::cuda {

inline std::string device_name() {
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return "GPU " + std::to_string(device) + " (sm_" + std::to_string(major) + std::to_string(minor) +
         ")";
}

// Throws for an error, with what was attempted and what to do.
inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report this one again
  std::string message = "lltm: could not " + std::string(what) + " on " + device_name() + ": ";
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion ||
      error == cudaErrorInvalidDeviceFunction) {
    message += "this library has kernels for " LLTM_CUDA_ARCHITECTURES
               " only; build one for this GPU with lltm.jit.load()";
  } else if (error == cudaErrorInsufficientDriver) {
    message += "the driver is older than CUDA " + std::to_string(CUDART_VERSION / 1000) +
               "; update the driver, or install lltm for an older CUDA";
  } else {
    message += std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) +
               "); an earlier kernel may be to blame, CUDA_LAUNCH_BLOCKING=1 tells which";
  }
  throw std::runtime_error(message);
}

struct Shape {
  int64_t blocks;
  int threads;
  int shared_bytes = 0;
  bool cooperative = false;  // all blocks run at once and may wait for each other
};

// Enough blocks of `threads` for `items`, one thread an item. The grid is one-dimensional because
// only its first dimension goes beyond 65535.
inline Shape cover(int64_t items, int threads) {
  return {(items + threads - 1) / threads, threads};
}

// The shared memory a launch has asked for, as an array of T.
template <class T>
__device__ __forceinline__ T* shared_memory() {
#if defined(LLTM_CUDA_SHIM)
  return static_cast<T*>(cuda_shim::shared_memory());
#else
  extern __shared__ __align__(16) unsigned char bytes[];
  return reinterpret_cast<T*>(bytes);
#endif
}

template <class... Parameters>
void launch(const char* what, void (*kernel)(Parameters...), const Shape& shape, Stream stream,
            Parameters... arguments) {
  if (shape.blocks > INT32_MAX) {
    throw std::runtime_error("lltm: could not " + std::string(what) +
                             ": the tensors are larger than a CUDA grid; split the batch");
  }
  cudaLaunchAttribute cooperative = {};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = shape.cooperative ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

}  // namespace lltm::cuda
