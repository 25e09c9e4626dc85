// embedding: rows of a table by ids.
#include <cstring>

#include "runtime/reference/ops.h"

namespace maco::reference {

namespace {

void embedding(Call& call) {
  const Tensor &table = *call.in[0], &ids = *call.in[1];
  const std::vector<int32_t> rows = ids.integers();
  Tensor& out = call.out[0];
  Tensor picked(table.dtype, out.shape);
  const size_t row_bytes = static_cast<size_t>(table.cols() * ir::size_of(table.dtype));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= table.rows())
      return call.bad_index(rows[i], table.rows(), static_cast<int64_t>(i));
    std::memcpy(picked.bytes.data() + i * row_bytes, table.element(rows[i] * table.cols()),
                row_bytes);
  }
  if (out.dtype == table.dtype)
    out = std::move(picked);
  else
    out.store(picked.doubles());
}

}  // namespace

std::vector<OpEntry> embedding_entries() {
  return {{"embedding", embedding, nullptr, false, Moves::FirstInput}};
}

}  // namespace maco::reference
