// The device that the shim pretends to be; tests set it up.
#pragma once

#include <cstdint>

namespace cuda_shim {

enum class Schedule { kForward, kReverse, kShuffled };

struct Device {
  int multiprocessors = 4;
  int blocks_per_multiprocessor = 2;
  Schedule schedule = Schedule::kForward;
  unsigned seed = 0;
  // Blocks below this index are left out, so that the far end of a huge tensor can be tested.
  unsigned first_block = 0;
  // What every launch answers, when it is not cudaSuccess.
  int launch_error = 0;
  int64_t launches = 0;
  int64_t cooperative_launches = 0;
};

Device& device();
int set_shared_limit(const void* kernel, int bytes);

}  // namespace cuda_shim
