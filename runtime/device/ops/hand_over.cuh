// hand_over.cuh: collectives that a library carries out beside the kernel. Each has two words in
// its rank's memory. The kernel raises `ready` when the operand is there and the result may be
// written. The library's stream lowers it, and raises `done` after the collective. The kernel
// lowers that.
//
// C: the collective's number. The rest describes the collective for the code that prepares the
// library's calls. Operands: x, wires, y[, wires of the meeting]; none of them is touched here.

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
