// Ops that all ranks execute together. Sums go in rank order and are rounded once; every rank gets
// the same bits. The algorithm that a graph names makes no difference to the meaning, except that
// `ring` rounds sums of 16-bit floats at each rank.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/reference/numbers.h"
#include "runtime/reference/ops.h"

namespace maco::reference {

namespace {

double combine(const std::string& how, double a, double b) {
  if (how != "max" && how != "min") return a + b;
  if (std::isnan(a) || std::isnan(b)) return a + b;
  return how == "max" ? std::max(a, b) : std::min(a, b);
}
int32_t combine(const std::string& how, int32_t a, int32_t b) {
  if (how == "max") return std::max(a, b);
  if (how == "min") return std::min(a, b);
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

// Reduces elements [begin, end) of all ranks' inputs into `out`, which has as many elements.
void reduce_range(std::vector<Call>& calls, int64_t begin, int64_t end, Tensor& out) {
  const std::string how = calls[0].word("reduce", "sum");
  const bool rounds = calls[0].word("algorithm", "") == "ring" &&
                      ir::ring_rounds(calls[0].in[0]->dtype, out.dtype, how);
  auto run = [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> sum;
    for (size_t r = 0; r < calls.size(); ++r) {
      const Tensor& x = *calls[r].in[0];
      Tensor part(x.dtype, {end - begin});
      std::memcpy(part.bytes.data(), x.element(begin), part.bytes.size());
      std::vector<T> v;
      if constexpr (std::is_same_v<T, double>)
        v = part.doubles();
      else
        v = part.integers();
      if (r == 0)
        sum = std::move(v);
      else
        for (size_t i = 0; i < sum.size(); ++i) sum[i] = combine(how, sum[i], v[i]);
      if (rounds && r + 1 < calls.size())
        for (T& s : sum) s = static_cast<T>(round_to(out.dtype, static_cast<double>(s)));
    }
    if (how == "avg")
      for (T& s : sum) s /= static_cast<T>(calls.size());
    out.store(sum);
  };
  if (ir::is_float(calls[0].in[0]->dtype))
    run(double{});
  else
    run(int32_t{});
}

void allreduce(std::vector<Call>& calls) {
  reduce_range(calls, 0, calls[0].in[0]->elements(), calls[0].out[0]);
  for (size_t r = 1; r < calls.size(); ++r) calls[r].out[0] = calls[0].out[0];
}

void reduce_scatter(std::vector<Call>& calls) {
  const int64_t n = calls[0].in[0]->elements() / static_cast<int64_t>(calls.size());
  for (size_t r = 0; r < calls.size(); ++r) {
    const auto block = static_cast<int64_t>(r);
    reduce_range(calls, block * n, (block + 1) * n, calls[r].out[0]);
  }
}

// Stores x's elements [begin, begin + count) at `at` of out, converted if the types differ.
void place(const Tensor& x, int64_t begin, int64_t count, Tensor& out, int64_t at) {
  Tensor part(x.dtype, {count}), converted(out.dtype, {count});
  std::memcpy(part.bytes.data(), x.element(begin), part.bytes.size());
  if (x.dtype == out.dtype)
    converted.bytes = part.bytes;
  else if (ir::is_float(x.dtype))
    converted.store(part.doubles());
  else
    converted.store(part.integers());
  std::memcpy(out.element(at), converted.bytes.data(), converted.bytes.size());
}

void allgather(std::vector<Call>& calls) {
  const int64_t n = calls[0].in[0]->elements();
  for (Call& to : calls)
    for (size_t r = 0; r < calls.size(); ++r)
      place(*calls[r].in[0], 0, n, to.out[0], static_cast<int64_t>(r) * n);
}

void alltoall(std::vector<Call>& calls) {
  const int64_t n = calls[0].in[0]->elements() / static_cast<int64_t>(calls.size());
  for (size_t to = 0; to < calls.size(); ++to)
    for (size_t from = 0; from < calls.size(); ++from)
      place(*calls[from].in[0], static_cast<int64_t>(to) * n, n, calls[to].out[0],
            static_cast<int64_t>(from) * n);
}

void broadcast(std::vector<Call>& calls) {
  for (Call& to : calls) {
    const int64_t root = to.integer("root", 0);
    if (root < 0 || root >= to.world()) return to.fail("'root' is no rank");
    const Tensor& x = *calls[static_cast<size_t>(root)].in[0];
    place(x, 0, x.elements(), to.out[0], 0);
  }
}

void ring_shift(std::vector<Call>& calls) {
  const auto world = static_cast<int64_t>(calls.size());
  for (Call& to : calls) {
    const int64_t from = (((to.rank() - to.integer("by", 1)) % world) + world) % world;
    const Tensor& x = *calls[static_cast<size_t>(from)].in[0];
    place(x, 0, x.elements(), to.out[0], 0);
  }
}

}  // namespace

std::vector<OpEntry> collective_entries() {
  constexpr Moves kAll = Moves::AllInputs;
  return {{"allreduce", nullptr, allreduce},
          {"reduce_scatter", nullptr, reduce_scatter},
          {"allgather", nullptr, allgather, false, kAll},
          {"alltoall", nullptr, alltoall, false, kAll},
          {"broadcast", nullptr, broadcast, false, kAll},
          {"ring_shift", nullptr, ring_shift, false, kAll}};
}

}  // namespace maco::reference
