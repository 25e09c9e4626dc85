// hand_over.cuh: collectives that a library carries out beside the kernel. Each has two words in
// its rank's memory: the kernel raises `ready` when the operand is there and the result may be
// written; the library's stream lowers it, and raises `done` behind the collective; the kernel
// lowers that.
//
// C: number of the collective; the rest says what it is, for who prepares the library's calls.
// Operands: x, wires, y[, wires of the meeting]; nothing of them is touched here.

namespace maco {
namespace ops {

enum class HandedKind : u8 {
  allreduce,
  allgather,
  reduce_scatter,
  alltoall,
  broadcast,
  ring_shift
};

template <class C>
MACO_OP void hand_over(Context& ctx, const Args&, u32) {
  // Behind the barrier at the end of the task's waits: one thread releases all to the library.
  if (consumer_thread() == 0) store_release_sys(&ctx.launch.handed[C::number].ready, 1);
}

template <class C>
MACO_OP void take_back(Context& ctx, const Args&, u32) {
  if (consumer_thread() == 0) {
    u32* const word = &ctx.launch.handed[C::number].done;
    WatchState state(0);
    Watch watch(ctx, state, word, kPatienceOther, kWaitHanded, (u32)C::number);
    for (u32 seen = load_acquire_sys(word); seen == 0; seen = load_acquire_sys(word)) {
      if (watch.again()) continue;
      watch.give_up(1, 0);
      break;
    }
    store_relaxed(word, 0);
  }
}

}  // namespace ops
}  // namespace maco
