// Kernels that are wrong on purpose, so that the tests can see the shim notice it.
#include "selftest.h"

#include "csrc/cuda/launch.h"

namespace cuda_shim {
namespace {

constexpr int kThreads = 64;

// Every thread writes its index for its neighbour, through shared memory.
__global__ void exchange(int64_t* from_neighbour, bool with_barrier) {
  auto* shared = lltm::cuda::shared_memory<int64_t>();
  shared[threadIdx.x] = threadIdx.x;
  if (with_barrier) __syncthreads();
  from_neighbour[threadIdx.x] = shared[(threadIdx.x + 1) % kThreads];
}

__global__ void divide_at_a_barrier() {
  if (threadIdx.x < kThreads / 2) __syncthreads();
}

__global__ void wait_for_a_block_that_is_not_there(unsigned* arrived) {
  while (*static_cast<volatile unsigned*>(arrived) < 2) __nanosleep(1);
}

}  // namespace

void run_exchange(int64_t* from_neighbour, bool with_barrier) {
  lltm::cuda::launch("exchange", exchange,
                     {1, kThreads, kThreads * static_cast<int>(sizeof(int64_t))}, nullptr,
                     from_neighbour, with_barrier);
}

void run_divided_barrier() {
  lltm::cuda::launch("divide", divide_at_a_barrier, {1, kThreads}, nullptr);
}

void run_endless_wait() {
  unsigned arrived = 1;
  lltm::cuda::launch("wait", wait_for_a_block_that_is_not_there, {1, 1}, nullptr, &arrived);
}

}  // namespace cuda_shim
