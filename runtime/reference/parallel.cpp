#include "runtime/reference/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace maco::reference {

void parallel_for(int64_t n, double cost, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  constexpr double kWorthAThread = 200e3;  // nanoseconds
  const double total = static_cast<double>(n) * cost;
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const int64_t threads = std::min({cores, n, 1 + static_cast<int64_t>(total / kWorthAThread)});
  if (threads == 1) return body(0, n);
  // More ranges than threads, so that a busy core delays little.
  const int64_t ranges = std::min(n, threads * 4);
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t r = next++; r < ranges; r = next++) body(n * r / ranges, n * (r + 1) / ranges);
  };
  std::vector<std::thread> pool;
  try {
    for (int64_t t = 1; t < threads; ++t) pool.emplace_back(work);
  } catch (const std::exception&) {
    // The system gives no more threads: the existing ones do all ranges.
  }
  work();
  for (std::thread& t : pool) t.join();
}

}  // namespace maco::reference
