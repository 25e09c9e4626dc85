// Who runs: each context is a role of one thread, so that barriers and votes do nothing.

namespace maco {

constexpr int kConsumers = 1;
constexpr int kWarpLanes = 1;
constexpr int kWarps = 1;
constexpr int kLoaders = 1;

MACO_FN int consumer_thread() { return 0; }
MACO_FN int warp() { return 0; }
MACO_FN int warp_lane() { return 0; }
MACO_FN int task_thread() { return 0; }
MACO_FN int loader_thread() { return 0; }
MACO_FN bool is_loader() { return maco_cpu::current->role != 0; }
MACO_FN bool loader_scouts() { return maco_cpu::current->scouts; }
MACO_FN bool is_signaller() { return maco_cpu::current->role == 2; }
MACO_FN bool is_spare() { return false; }
constexpr int kSpareWarps = 0;
MACO_FN int spare_warp() { return 0; }
MACO_FN int cta_id() { return maco_cpu::current->cta; }
MACO_FN int grid_thread() { return 0; }
MACO_FN int grid_threads() { return 1; }
MACO_FN char* cta_memory() { return maco_cpu::current->memory; }

MACO_FN void cta_sync() {}
MACO_FN bool cta_any(bool value) { return value; }
MACO_FN void warp_sync() {}
MACO_FN bool warp_any(bool value) { return value; }
MACO_FN bool initializes() { return false; }  // shared memory comes as zeros
MACO_FN void start_sync() {}
MACO_FN void follow_launch() {}
MACO_FN void lead_launch() {}
template <int kRegisters>
MACO_FN void take_registers() {}
template <int kRegisters>
MACO_FN void give_registers() {}
MACO_FN int warp_uniform(int value) { return value; }
MACO_FN int shuffle(int value, int) { return value; }
MACO_FN float shuffle(float value, int) { return value; }
MACO_FN float shuffle_xor(float value, int) { return value; }
MACO_FN i32 shuffle_xor(i32 value, int) { return value; }

}  // namespace maco
