// The words of CUDA that name a thread, its block and its block's barriers, as defined for users'
// kernels behind this file. Each unit defines its block as maco_block_x, maco_block_y,
// maco_block_z, and its bytes of shared memory.
#ifdef MACO_CPU
// Unreached code may still have `__shared__`; the rest says where in the task's memory it lies.
#define __shared__ thread_local
#define maco_static_shared(at) (::maco::cuda::shared_memory(at))
#define maco_dynamic_shared() (::maco_cuda::dynamic_shared())
#define maco_leaves(condition) (condition)
#else
// A launch attribute of a kernel has no meaning for a function.
#undef __maxnreg__
#define __maxnreg__(...)
#define maco_slot ::maco::cuda::Slot<maco_block_x * maco_block_y * maco_block_z>
#define maco_slot_memory                                                                       \
  (maco_slot::slot_memory(::maco::cuda::kSlotHead + ::maco::cuda::slot_up(maco_static_bytes) + \
                          ::maco::cuda::slot_up(maco_dynamic_bytes)))
#define maco_static_shared(at) (maco_slot_memory + ::maco::cuda::kSlotHead + (at))
#define maco_dynamic_shared() \
  (maco_slot_memory + ::maco::cuda::kSlotHead + ::maco::cuda::slot_up(maco_static_bytes))
#define maco_uint3(index) (::make_uint3((index).x, (index).y, (index).z))
#define threadIdx maco_uint3(maco_slot::slot_thread(maco_block_x, maco_block_y))
#define blockIdx maco_uint3(((const ::maco::cuda::SlotHead*)maco_slot_memory)->block_at)
#define gridDim                                                             \
  (::dim3(((const ::maco::cuda::SlotHead*)maco_slot_memory)->grid_extent.x, \
          ((const ::maco::cuda::SlotHead*)maco_slot_memory)->grid_extent.y, \
          ((const ::maco::cuda::SlotHead*)maco_slot_memory)->grid_extent.z))
#define blockDim (::dim3(maco_block_x, maco_block_y, maco_block_z))
// Other tasks of the same launch may write the data, so it must not be read as constant.
#define __ldg(pointer) (::maco::cuda::load_plain(pointer))
// Threads that have returned take part in barriers elsewhere; these threads haven't returned.
#define __syncthreads() ((void)maco_slot::slot_count(false, maco_slot_memory))
#define __syncthreads_count(value) (maco_slot::slot_count((value) != 0, maco_slot_memory))
#define __syncthreads_and(value) (maco_slot::slot_count((value) == 0, maco_slot_memory) == 0)
#define __syncthreads_or(value) (maco_slot::slot_count((value) != 0, maco_slot_memory) != 0)
#define maco_alive (maco_slot::slot_alive<maco_leaving>(maco_slot_memory))
#define maco_leaves(condition) (maco_slot::slot_leaves((bool)(condition), maco_slot_memory))
#define __syncwarp(...) __syncwarp(::maco::cuda::warp_mask(__VA_ARGS__) & maco_alive)
#define __shfl_sync(mask, ...) __shfl_sync((mask) & maco_alive, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) __shfl_up_sync((mask) & maco_alive, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) __shfl_down_sync((mask) & maco_alive, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) __shfl_xor_sync((mask) & maco_alive, __VA_ARGS__)
#define __any_sync(mask, value) __any_sync((mask) & maco_alive, value)
#define __all_sync(mask, value) __all_sync((mask) & maco_alive, value)
#define __ballot_sync(mask, value) __ballot_sync((mask) & maco_alive, value)
#define __match_any_sync(mask, value) __match_any_sync((mask) & maco_alive, value)
#define __match_all_sync(mask, ...) __match_all_sync((mask) & maco_alive, __VA_ARGS__)
#define __reduce_add_sync(mask, value) __reduce_add_sync((mask) & maco_alive, value)
#define __reduce_min_sync(mask, value) __reduce_min_sync((mask) & maco_alive, value)
#define __reduce_max_sync(mask, value) __reduce_max_sync((mask) & maco_alive, value)
#define __reduce_and_sync(mask, value) __reduce_and_sync((mask) & maco_alive, value)
#define __reduce_or_sync(mask, value) __reduce_or_sync((mask) & maco_alive, value)
#define __reduce_xor_sync(mask, value) __reduce_xor_sync((mask) & maco_alive, value)
#endif
