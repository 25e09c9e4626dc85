// Methods of matmul: how a task's main loop multiplies its tile. A method is a row of a table. The
// row says what it asks of operands, tiles and pages, and what its device code is. It doesn't say
// where sums lie in the meantime: registers, shared memory or tensor memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/functions/function.h"
#include "compiler/functions/matmul.h"

namespace maco::functions {

struct MatmulMethod {
  /// Its name, which the attribute `method` of matmuls and the parameter of calls have, and its
  /// device code: a struct like those of runtime/device/ops/matmul_ways.cuh. `function` is
  /// "matmul".
  Method code;
  /// Whether it is for few rows only (matmul_few_rows); and whether launches with few rows take
  /// `dot` in place of it, if it isn't.
  bool few = false, dot = false;
  /// Whether tensor cores do the multiplications.
  bool tensor_cores = false;
  /// Whether operands come in boxes, so that memory has to have all rows (MatmulShape::all_there)
  /// and the loader waits for operands one by one (Function::loads_apart).
  bool boxes = false;
  /// Whether both operands may come in boxes without tensor cores (matmul_takes_blocks).
  bool blocks = false;
  /// Whether tiles may cover a part of K each; and whether tasks that cover halves may be mates.
  bool parts = false, mates = false;
  /// Tiles among which the choice looks for the fastest. Those that `refuse` refuses are left out.
  std::vector<MatmulTiles> (*tiles)(const MatmulShape&, const MatmulMethod&,
                                    const cost::Machine&) = nullptr;
  /// Why the method can't multiply this in such tiles on this machine, or "".
  std::string (*refuse)(const MatmulShape&, const MatmulMethod&, const MatmulTiles&,
                        const cost::Machine&) = nullptr;
  /// How operand a (0), b (1) or a pair's other b (2) comes through pages. Null: none does.
  std::optional<LoadRule> (*load)(const MatmulLoads&, size_t operand) = nullptr;
  /// The work of a tile. Null: that of `matmul_work`, which asks what is said above.
  cost::Work (*work)(const MatmulTile&, const cost::Machine&) = nullptr;
  /// As Function::many_registers and Function::shared_over. Null: no; none.
  bool (*many_registers)(const CallView&) = nullptr;
  std::vector<std::string> (*shared_over)(const CallView&) = nullptr;

  const std::string& name() const { return code.name; }
  bool takes_dot() const { return few || dot; }
  /// Whether tensor cores do the multiplications in every launch.
  bool only_tensor_cores() const { return tensor_cores && !takes_dot(); }
};

/// The methods: MACO's own, then those that the process registers. They live as long as the
/// process.
std::vector<const MatmulMethod*> matmul_method_rows();
/// The method of that name, or nullptr.
const MatmulMethod* find_matmul_method(std::string_view name);
/// The method of that name, which there is.
const MatmulMethod& matmul_method(std::string_view name);
/// Adds a method to the table, without a word of the op's attribute: ops::register_matmul_method
/// does both. Returns "", or why it can't be added.
[[nodiscard]] std::string add_matmul_method(MatmulMethod method);

/// Why the method can't multiply this in such tiles, or "": what all methods ask, and what it asks.
std::string refuse_matmul(const MatmulShape& shape, const MatmulMethod& method, MatmulTiles tiles,
                          const cost::Machine& machine);
/// The method's tiles that aren't refused.
std::vector<MatmulTiles> matmul_candidates(const MatmulShape& shape, const MatmulMethod& method,
                                           const cost::Machine& machine);
/// The best of MACO's own methods for a matmul of this shape.
const MatmulMethod& choose_matmul_method(const MatmulShape& shape, const cost::Machine& machine);
/// The method for tiles of few rows that are sent to peers as tiles, not as packets.
const MatmulMethod& method_of_sent_tiles();

}  // namespace maco::functions
