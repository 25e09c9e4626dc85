// cuda_kernel: runs blocks of a user's kernel as a task.
//
// C: unit (cuda_units::<name>::maco_unit: the kernel, behind the headers), grid_x, grid_y, grid_z
// (of this launch), planned_x, planned_y (the most of any launch, by which blocks are numbered),
// blocks (the most), each (blocks of a task), slots (that run side by side), slot_bytes, arg0,
// arg1, ... (the kernel's integers). Operands: the kernel's tensors, in its order.

namespace maco {
namespace ops {

template <class C>
MACO_OP void cuda_kernel(Context& ctx, const Args& args, u32 tile) {
  using Unit = typename C::unit;
  using Slots = cuda::Slots<C>;
  static_assert(
      cuda::kSlotHead + cuda::slot_up(Unit::kStaticBytes) + cuda::slot_up(Unit::kDynamicBytes) ==
          C::slot_bytes,
      "a slot is as large as the compiler says");
  const cuda::Index3 grid{(u32)C::grid_x::get(ctx), (u32)C::grid_y::get(ctx),
                          (u32)C::grid_z::get(ctx)};
  if (Slots::index() >= Slots::count) return;
  for (i64 i = Slots::index(); i < C::each; i += Slots::count) {
    const i64 number = (i64)tile * C::each + i;
    if (number >= C::blocks) break;
    const cuda::Index3 at{(u32)(number % C::planned_x), (u32)(number / C::planned_x % C::planned_y),
                          (u32)(number / C::planned_x / C::planned_y)};
    if (at.x < grid.x && at.y < grid.y && at.z < grid.z) Slots::run(ctx, args, at, grid, number);
  }
}

}  // namespace ops
}  // namespace maco
