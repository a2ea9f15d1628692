// What needs the CUDA runtime but no kernel.
#include "kernels.h"
#include "launch.h"

namespace lltm::cuda {

void set_device(int device) { check(cudaSetDevice(device), "use the tensors' device"); }

void copy(void* to, const void* from, int64_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
        "copy a tensor");
}

void clear(void* data, int64_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream), "clear a tensor");
}

}  // namespace lltm::cuda
