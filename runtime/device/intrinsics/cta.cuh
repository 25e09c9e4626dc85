// cta.cuh: who runs: the CTA's consumer warps, and behind them loader warps; their barriers, votes
// and shuffles.

#ifndef MACO_CPU

namespace maco {

constexpr int kConsumers = Cta::kConsumers;
constexpr int kWarpLanes = 32;
constexpr int kWarps = kConsumers / kWarpLanes;
constexpr int kLoaders = Cta::kLoaders;
constexpr int kSignallers = Cta::kSignallers;
constexpr int kThreads = kConsumers + kLoaders + kSignallers + Cta::kSpare;

// A consumer's thread number. If tasks are short, and so prepared ahead, the compiler may assume
// the range, which saves instructions. (In long loops it then moves too much out of them, and
// spills.)
MACO_FN int consumer_thread() {
  if constexpr (Cta::kPrepared > 0) __builtin_assume(threadIdx.x < kConsumers);
  return (int)threadIdx.x;
}
MACO_FN int warp() { return consumer_thread() >> 5; }
MACO_FN int warp_lane() { return (int)(threadIdx.x & 31); }
// consumer_thread() without the compiler knowing its value. What a task computes from it stays in
// the task; else the compiler computes it once for all tasks, and it takes registers from all of
// them.
MACO_FN int task_thread() {
  int thread;
  asm volatile("mov.u32 %0, %1;" : "=r"(thread) : "r"(threadIdx.x));
  return thread;
}
MACO_FN int loader_thread() { return (int)(threadIdx.x & 31); }
MACO_FN bool is_loader() { return threadIdx.x >= kConsumers; }
// Whether the loader looks at waits itself, as on the CPU target, where there is no scout.
MACO_FN constexpr bool loader_scouts() { return false; }
MACO_FN bool is_signaller() {
  return threadIdx.x >= kConsumers + kLoaders && threadIdx.x < kConsumers + kLoaders + kSignallers;
}
MACO_FN bool is_spare() { return threadIdx.x >= kConsumers + kLoaders + kSignallers; }
// The number of a warp that completes a group: from 1, behind the signaller, which is 0.
constexpr int kSpareWarps = Cta::kSpare / kWarpLanes;
MACO_FN int spare_warp() { return ((int)threadIdx.x - kConsumers - kLoaders) / kWarpLanes; }
MACO_FN int cta_id() { return (int)blockIdx.x; }
MACO_FN int grid_thread() { return (int)(blockIdx.x * blockDim.x + threadIdx.x); }
MACO_FN int grid_threads() { return (int)(gridDim.x * blockDim.x); }

// The CTA's dynamic shared memory.
MACO_FN char* cta_memory() {
  extern __shared__ __align__(1024) char maco_shared[];
  return maco_shared;
}

// ---- barriers, votes, shuffles ----------------------------------------------

// A barrier of the consumers. Barrier 0 is __syncthreads(), which includes the loader and is used
// only at the kernel's begin.
MACO_FN void cta_sync() { asm volatile("barrier.sync 1, %0;" ::"n"(kConsumers) : "memory"); }
// A barrier of the consumers that also tells all of them whether any passed true.
MACO_FN bool cta_any(bool value) {
  u32 any;
  asm volatile(
      "{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\tbarrier.red.or.pred q, 1, %2, "
      "p;\n\tselp.u32 %0, 1, 0, q;\n\t}"
      : "=r"(any)
      : "r"((u32)value), "n"(kConsumers)
      : "memory");
  return any != 0;
}
MACO_FN void warp_sync() { __syncwarp(); }
MACO_FN bool warp_any(bool value) { return __any_sync(0xffffffffu, value) != 0; }
// A barrier of all threads of the CTA, used once, after the thread for which initializes() is true
// has prepared the shared memory.
MACO_FN bool initializes() { return threadIdx.x == 0; }
MACO_FN void start_sync() { __syncthreads(); }
// From here on the role's threads have their own number of registers, if roles divide registers.
template <int kRegisters>
MACO_FN void take_registers() {
#ifdef MACO_DIVIDES_REGISTERS
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
MACO_FN void give_registers() {
#ifdef MACO_DIVIDES_REGISTERS
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

// Waits until the launch before this one has ended and its results are visible, if this launch may
// begin earlier (launches that number themselves).
MACO_FN void follow_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets such a launch behind this one begin.
MACO_FN void lead_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A value that is the same for all lanes, which the compiler can't see.
MACO_FN int warp_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }
MACO_FN int shuffle(int value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
MACO_FN float shuffle(float value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
MACO_FN float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
MACO_FN i32 shuffle_xor(i32 value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

}  // namespace maco

#endif  // MACO_CPU
