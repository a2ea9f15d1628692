#pragma once

#include <cstdint>

namespace cuda_shim {

// from_neighbour [64]: the index of the next thread; what else it may be without the barrier
// depends on the order of the threads.
void run_exchange(int64_t* from_neighbour, bool with_barrier);
// Half of a block arrives at a barrier.
void run_divided_barrier();
// A thread waits for memory that nobody writes.
void run_endless_wait();

}  // namespace cuda_shim
