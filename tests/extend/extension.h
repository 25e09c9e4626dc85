// What this library adds to MACO.
#pragma once

#include <string>

namespace maco::extend {

/// softcap(x, cap = c): c tanh(x / c), which keeps scores within (-c, c). Returns "", or why it
/// can't be registered.
[[nodiscard]] std::string register_softcap();

/// allreduce(x, algorithm = chunk_ring): the tensor is cut into one chunk for each rank. Each chunk
/// goes round once to be summed, and once more to be distributed. Returns as above.
[[nodiscard]] std::string register_chunk_ring();

/// scale_rows(x, s): each row of x times a number, and stage "scale" of matmul, which does that
/// before a product. Returns as above.
[[nodiscard]] std::string register_row_scale();

/// Method "plain" of matmul: a thread sums an element, over K in order. Returns as above.
[[nodiscard]] std::string register_plain_matmul();

/// first_rows(x, count = n): the first n rows of x, then zeros. n is what each launch says, from 0
/// to all rows. Returns as above.
[[nodiscard]] std::string register_first_rows();

}  // namespace maco::extend
