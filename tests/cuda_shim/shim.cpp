// Runs the blocks and threads of a launch; see include/cuda_runtime.h.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "include/cuda_runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_shim {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr size_t kSharedBytes = 48 * 1024;      // without cudaFuncSetAttribute
constexpr size_t kMostSharedBytes = 64 * 1024;  // with it, on sm_75
constexpr size_t kStackBytes = 64 * 1024;       // the address sanitizer clears it at each change
constexpr int64_t kMostYields = 200'000;  // in a row, with nothing else happening: a deadlock

Device device_;
std::mutex mutex_;
std::map<const void*, size_t> shared_limits_;  // of the kernels that have asked for more

// A context that the CPU thread can be switched to.
struct Context {
  ucontext_t registers;
  jmp_buf jump;
  bool has_begun = false;
  const void* stack = nullptr;
  size_t stack_bytes = 0;
};

#if defined(__SANITIZE_ADDRESS__)

// With the address sanitizer in the know.
void arrive_at(void* fake_stack, Context* left) {
  __sanitizer_finish_switch_fiber(fake_stack, left ? &left->stack : nullptr,
                                  left ? &left->stack_bytes : nullptr);
}

void change(Context& from, Context& to) {
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, to.stack, to.stack_bytes);
  swapcontext(&from.registers, &to.registers);
  arrive_at(fake_stack, nullptr);
}

[[noreturn]] void leave_for(Context& to) {
  __sanitizer_start_switch_fiber(nullptr, to.stack, to.stack_bytes);
  setcontext(&to.registers);
  std::abort();
}

#else

void arrive_at(void*, Context*) {}

// By jumps once a context has begun: swapcontext() asks the kernel for the signal mask each time.
[[noreturn]] void leave_for(Context& to) {
  if (to.has_begun) _longjmp(to.jump, 1);
  to.has_begun = true;
  setcontext(&to.registers);
  std::abort();
}

void change(Context& from, Context& to) {
  if (_setjmp(from.jump) == 0) leave_for(to);
}

#endif

// Threads that wait for each other: those of a block, or of a warp.
struct Barrier {
  unsigned members = 0;
  unsigned arrived = 0;
  uint64_t generation = 0;
};

struct Warp {
  Barrier barrier;
  uint64_t slots[2][kWarp];
};

struct Block {
  unsigned index;
  Barrier barrier;
  std::vector<Warp> warps;
  std::unique_ptr<unsigned char[]> shared;
};

struct Fiber {
  Context context;
  std::unique_ptr<unsigned char[]> stack;
};

struct Thread {
  Block* block = nullptr;
  unsigned index = 0;
  Fiber* fiber = nullptr;
  Barrier* waits_for = nullptr;
  uint64_t generation = 0;  // of the barrier, when it began to wait

  bool can_run() const { return !waits_for || waits_for->generation != generation; }
};

// Runs the threads of some blocks to their ends. Threads start in the order they were added.
class Scheduler {
 public:
  explicit Scheduler(const Launch& launch) : launch_(launch) {}

  void add(unsigned block_index) {
    auto block = std::make_unique<Block>();
    const unsigned threads = launch_.block.x;
    block->index = block_index;
    block->barrier.members = threads;
    block->warps.resize((threads + kWarp - 1) / kWarp);
    for (size_t warp = 0; warp < block->warps.size(); ++warp) {
      block->warps[warp].barrier.members =
          std::min<unsigned>(kWarp, threads - static_cast<unsigned>(warp) * kWarp);
    }
    block->shared.reset(new unsigned char[std::max<size_t>(1, launch_.shared_bytes)]);
    std::memset(block->shared.get(), 0xff, launch_.shared_bytes);
    for (unsigned index = 0; index < threads; ++index) {
      Thread thread;
      thread.block = block.get();
      thread.index = index;
      threads_.push_back(thread);
    }
    blocks_.push_back(std::move(block));
  }

  void run() {
    active_ = this;
    main_.has_begun = true;
    order();
    while (next_ < threads_.size()) start();
    while (!waiting_.empty()) {
      bool ran = false;
      for (Thread* thread : std::exchange(waiting_, {})) {
        if (thread->can_run()) {
          thread->waits_for = nullptr;
          resume(*thread);
          ran = true;
        } else {
          waiting_.push_back(thread);
        }
      }
      if (!ran) {
        throw std::runtime_error("cuda_shim: " + std::to_string(waiting_.size()) +
                                 " threads wait at a barrier that the others never reach");
      }
      if (yields_ > kMostYields) {
        throw std::runtime_error("cuda_shim: threads wait for memory that nobody writes");
      }
    }
    active_ = nullptr;
  }

  static Scheduler& active() { return *active_; }

  Thread& running() { return *running_; }

  void wait(Barrier& barrier) {
    Thread& thread = *running_;
    thread.generation = barrier.generation;
    if (++barrier.arrived == barrier.members) {
      barrier.arrived = 0;
      ++barrier.generation;
      yields_ = 0;
    }
    thread.waits_for = &barrier;
    suspend();
  }

  void yield() {
    ++yields_;
    suspend();
  }

 private:
  void order() {
    const auto blocks = [this](size_t i) { return threads_[i].block->index; };
    std::vector<size_t> indices(threads_.size());
    std::iota(indices.begin(), indices.end(), size_t{0});
    if (device_.schedule == Schedule::kReverse) std::reverse(indices.begin(), indices.end());
    if (device_.schedule == Schedule::kShuffled) {
      std::mt19937 generator(device_.seed + blocks(0));
      std::shuffle(indices.begin(), indices.end(), generator);
    }
    std::vector<Thread> ordered;
    for (const size_t index : indices) ordered.push_back(threads_[index]);
    threads_ = std::move(ordered);
  }

  void start() {
    Fiber* fiber = free_.empty() ? make_fiber() : free_.back();
    if (!free_.empty()) free_.pop_back();
    Thread& thread = threads_[next_++];
    thread.fiber = fiber;
    fiber->context.has_begun = false;
    getcontext(&fiber->context.registers);
    fiber->context.registers.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.registers.uc_stack.ss_size = kStackBytes;
    fiber->context.registers.uc_link = nullptr;
    makecontext(&fiber->context.registers, &Scheduler::fiber_main, 0);
    resume(thread);
  }

  Fiber* make_fiber() {
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber* fiber = fibers_.back().get();
    fiber->stack.reset(new unsigned char[kStackBytes]);
    fiber->context.stack = fiber->stack.get();
    fiber->context.stack_bytes = kStackBytes;
    return fiber;
  }

  void enter(Thread& thread) {
    running_ = &thread;
    threadIdx = {thread.index, 0, 0};
    blockIdx = {thread.block->index, 0, 0};
  }

  void resume(Thread& thread) {
    enter(thread);
    change(main_, thread.fiber->context);
  }

  // Back to run(), which decides who is next.
  void suspend() {
    Thread& thread = *running_;
    waiting_.push_back(&thread);
    change(thread.fiber->context, main_);
  }

  static void fiber_main() {
    Scheduler& scheduler = *active_;
    arrive_at(nullptr, &scheduler.main_);
    while (true) {
      Thread& thread = *scheduler.running_;
      scheduler.launch_.body();
      scheduler.yields_ = 0;
      if (scheduler.next_ == scheduler.threads_.size()) {
        scheduler.free_.push_back(thread.fiber);
        leave_for(scheduler.main_);
      }
      Thread& next = scheduler.threads_[scheduler.next_++];
      next.fiber = thread.fiber;
      scheduler.enter(next);
    }
  }

  const Launch& launch_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Thread> threads_;
  std::vector<Thread*> waiting_;
  // Kept from launch to launch, because a new stack costs page faults.
  static inline std::vector<std::unique_ptr<Fiber>> fibers_;
  static inline std::vector<Fiber*> free_;
  Context main_;
  Thread* running_ = nullptr;
  size_t next_ = 0;
  int64_t yields_ = 0;
  static inline Scheduler* active_ = nullptr;
};

std::vector<unsigned> block_order(unsigned begin, unsigned end) {
  std::vector<unsigned> blocks(end - begin);
  std::iota(blocks.begin(), blocks.end(), begin);
  if (device_.schedule == Schedule::kReverse) std::reverse(blocks.begin(), blocks.end());
  if (device_.schedule == Schedule::kShuffled) {
    std::mt19937 generator(device_.seed);
    std::shuffle(blocks.begin(), blocks.end(), generator);
  }
  return blocks;
}

int co_resident_blocks() { return device_.multiprocessors * device_.blocks_per_multiprocessor; }

}  // namespace

Device& device() { return device_; }

int set_shared_limit(const void* kernel, int bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (static_cast<size_t>(bytes) > kMostSharedBytes) return cudaErrorInvalidValue;
  shared_limits_[kernel] = std::max(kSharedBytes, static_cast<size_t>(bytes));
  return cudaSuccess;
}

void wait_for_block() {
  Scheduler& scheduler = Scheduler::active();
  scheduler.wait(scheduler.running().block->barrier);
}

void wait_for_warp() {
  Scheduler& scheduler = Scheduler::active();
  const Thread& thread = scheduler.running();
  scheduler.wait(thread.block->warps[thread.index / kWarp].barrier);
}

void yield() { Scheduler::active().yield(); }

void* shared_memory() { return Scheduler::active().running().block->shared.get(); }

uint64_t* warp_slots() {
  const Thread& thread = Scheduler::active().running();
  Warp& warp = thread.block->warps[thread.index / kWarp];
  return warp.slots[warp.barrier.generation % 2];
}

unsigned lane() { return threadIdx.x % kWarp; }

int run(const Launch& launch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (device_.launch_error != cudaSuccess) return device_.launch_error;
  if (launch.block.x == 0 || launch.block.x > kMostThreads || launch.grid.x == 0) {
    return cudaErrorInvalidConfiguration;
  }
  const auto limit = shared_limits_.find(launch.kernel);
  if (launch.shared_bytes > (limit == shared_limits_.end() ? kSharedBytes : limit->second)) {
    return cudaErrorInvalidValue;
  }
  if (launch.cooperative && launch.grid.x > static_cast<unsigned>(co_resident_blocks())) {
    return cudaErrorCooperativeLaunchTooLarge;
  }
  ++device_.launches;
  device_.cooperative_launches += launch.cooperative;
  gridDim = launch.grid;
  blockDim = launch.block;
  const unsigned begin = std::min(device_.first_block, launch.grid.x);
  const auto blocks = block_order(begin, launch.grid.x);
  if (launch.cooperative) {
    Scheduler scheduler(launch);
    for (const unsigned block : blocks) scheduler.add(block);
    scheduler.run();
    return cudaSuccess;
  }
  for (const unsigned block : blocks) {
    Scheduler scheduler(launch);
    scheduler.add(block);
    scheduler.run();
  }
  return cudaSuccess;
}

}  // namespace cuda_shim

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    default:
      return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaGetDevice(int* device) {
  // Another number of multiprocessors is another device, whose properties nobody remembers.
  const int multiprocessors = cuda_shim::device().multiprocessors;
  *device = multiprocessors == cuda_shim::Device().multiprocessors ? 0 : 1000 + multiprocessors;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const cuda_shim::Device& device = cuda_shim::device();
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = device.multiprocessors;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 7;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrCooperativeLaunch:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(cuda_shim::kMostSharedBytes);
      return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}

cudaError_t cudaSetSharedLimit(const void* kernel, int bytes) {
  return static_cast<cudaError_t>(cuda_shim::set_shared_limit(kernel, bytes));
}

cudaError_t cudaOccupancyBlocks(int* blocks, int, size_t) {
  *blocks = cuda_shim::device().blocks_per_multiprocessor;
  return cudaSuccess;
}
