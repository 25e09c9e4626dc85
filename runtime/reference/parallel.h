// A loop over independent items on all cores.
#pragma once

#include <cstdint>
#include <functional>

namespace maco::reference {

/// Calls body(begin, end) on disjoint ranges that cover [0, n), on several threads if that is worth
/// it. `cost`: roughly the nanoseconds of one item. The split doesn't change results if items are
/// independent.
void parallel_for(int64_t n, double cost, const std::function<void(int64_t, int64_t)>& body);

}  // namespace maco::reference
