// random_settings.cpp: what doesn't change the values of a random graph (roles, order, overlap),
// and the values of its launches.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "compiler/ops/op.h"
#include "tests/fuzz/random_maker.h"

namespace maco::fuzz {

std::string Maker::ranges(int64_t compute, int64_t comm) {
  std::vector<std::string> list;
  int64_t at = 0;
  const auto range = [&](int64_t n, const std::string& rest) {
    list.push_back(fmt::format("{{sms: [{}, {}], role: {}}}", at, at + n, rest));
    at += n;
  };
  const bool comm_first = r_.chance(30);
  if (comm_first) range(comm, "comm");
  std::vector<std::string> kinds;
  for (const OpText& op : g_.ops)
    if (!ops::find_op(op.kind)->collective && !contains(kinds, op.kind)) kinds.push_back(op.kind);
  if (compute >= 2 && kinds.size() >= 2 && r_.chance(70)) {
    r_.shuffle(kinds);
    const auto half = static_cast<std::ptrdiff_t>(kinds.size() / 2);
    const std::vector<std::string> first(kinds.begin(), kinds.begin() + half),
        second(kinds.begin() + half, kinds.end());
    range(compute / 2, fmt::format("compute, tasks: [{}]", fmt::join(first, ", ")));
    // With one rank collectives are copies, so some range must take anything.
    range(compute - compute / 2, world_ > 1 && r_.chance(50)
                                     ? fmt::format("compute, tasks: [{}]", fmt::join(second, ", "))
                                     : "compute");
  } else {
    range(compute, "compute");
  }
  if (!comm_first) range(comm, "comm");
  return fmt::format("set sm_roles = [{}]", fmt::join(list, ", "));
}

void Maker::settings() {
  auto& ops = g_.ops;
  const int64_t compute = r_.range(1, 6), comm = r_.range(1, 8 - compute);
  g_.roles_statements[static_cast<size_t>(RolesKind::Counts)] =
      fmt::format("set sm_roles = {{compute: {}, comm: {}}}", compute, comm);
  g_.roles_statements[static_cast<size_t>(RolesKind::Ranges)] = ranges(compute, comm);
  // Blocks of rows that dims decide are not converted on their way to a library.
  const auto refused = [&](const OpText& op) {
    const bool blocks =
        op.kind == "reduce_scatter" || op.kind == "alltoall" || op.kind == "allgather";
    const bool converts = std::any_of(op.attrs.begin(), op.attrs.end(), [](const std::string& a) {
      return a.rfind("dtype", 0) == 0;
    });
    return op.feature == "send" || op.feature == "recv" || (blocks && converts);
  };
  if (g_.seed % 8 == 5 && std::none_of(ops.begin(), ops.end(), refused))
    g_.set_statements.push_back("set backend = nccl");
  if (r_.chance(45))
    g_.set_statements.push_back("set overlap = " +
                                r_.word({"none", "conservative", "aggressive", "aggressive"}));

  for (OpText& op : ops) {
    if (r_.chance(10)) op.attrs.push_back("priority = " + r_.word({"high", "low"}));
    if (r_.chance(8))
      op.attrs.push_back("overlap = " + r_.word({"none", "conservative", "aggressive"}));
  }
  if (r_.chance(20))
    for (OpText& op : ops)
      if (r_.chance(50))
        op.attrs.push_back(fmt::format("overlap_group = \"{}\"", r_.word({"a", "b"})));
  for (size_t i = 1; i < ops.size(); ++i)
    if (r_.chance(10))
      ops[i].after.push_back(
          name_of(ops[static_cast<size_t>(r_.range(0, static_cast<int64_t>(i) - 1))]));
  if (ops.size() > 2 && r_.chance(25)) {
    const auto border = static_cast<size_t>(r_.range(1, static_cast<int64_t>(ops.size()) - 1));
    for (size_t i = 0; i < ops.size(); ++i)
      if (r_.chance(60))
        ops[i].attrs.push_back(fmt::format("phase = \"{}\"", i < border ? "first" : "then"));
    g_.set_statements.push_back("phase first");
    g_.set_statements.push_back("phase then depends_on first");
  }
  if (ops.size() > 2 && r_.chance(20)) {
    std::vector<std::string> members;
    for (const OpText& op : ops)
      if (r_.chance(30)) members.push_back(name_of(op));
    if (!members.empty()) g_.regions.emplace_back("together", members);
  }
}

void Maker::launches() {
  const int64_t n = scalar_ || !dims_.empty() ? 3 : 2;
  for (int64_t i = 0; i < n; ++i) {
    runtime::LaunchValues v;
    for (const auto& d : dims_)
      v[d.name] = i == 0 ? d.max : r_.chance(30) ? d.min : r_.range(d.min, d.max);
    if (scalar_) v["pos"] = r_.range(0, 23);
    g_.launches.push_back(std::move(v));
  }
}

}  // namespace maco::fuzz
