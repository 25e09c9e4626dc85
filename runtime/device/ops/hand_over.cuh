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
  raise_handed(ctx, (u32)C::number);
}

template <class C>
MACO_OP void take_back(Context& ctx, const Args&, u32) {
  await_handed(ctx, (u32)C::number);
}

}  // namespace ops
}  // namespace maco
