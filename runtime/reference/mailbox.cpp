#include "runtime/reference/mailbox.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

namespace maco::reference {

Status Mailbox::plan(const ir::Graph& graph, const Values& values) {
  using Channel = std::tuple<int64_t, int64_t, int64_t>;  // source, destination, tag
  struct Ends {
    std::vector<std::pair<size_t, int>> sends, receives;
  };
  std::map<Channel, Ends> channels;
  letters_.clear();
  letter_of_.assign(graph.ops.size(), std::vector<int64_t>(static_cast<size_t>(graph.world), -1));
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const ir::Op& op = graph.ops[i];
    const bool send = op.kind == "send";
    if (!send && op.kind != "recv") continue;
    for (int rank = 0; rank < graph.world; ++rank) {
      Call call(graph, op, values, rank);
      if (call.integer("if", 1) == 0 && call.status()) continue;
      const int64_t peer = call.status() ? call.integer(send ? "dst" : "src", 0) : 0;
      const int64_t tag = call.integer("tag", 0);
      if (call.status() && (peer < 0 || peer >= graph.world))
        call.fail(fmt::format("there is no rank {}", peer));
      if (!call.status()) return call.status();
      Ends& ends = channels[send ? Channel{rank, peer, tag} : Channel{peer, rank, tag}];
      (send ? ends.sends : ends.receives).emplace_back(i, rank);
    }
  }
  for (const auto& [channel, ends] : channels) {
    if (ends.sends.size() != ends.receives.size())
      return Status::failure(fmt::format(
          "{} sends from rank {} to rank {} with tag {} meet {} receives", ends.sends.size(),
          std::get<0>(channel), std::get<1>(channel), std::get<2>(channel), ends.receives.size()));
    for (size_t n = 0; n < ends.sends.size(); ++n) {
      for (const auto& [op, rank] : {ends.sends[n], ends.receives[n]})
        letter_of_[op][static_cast<size_t>(rank)] = static_cast<int64_t>(letters_.size());
      letters_.emplace_back();
    }
  }
  return {};
}

}  // namespace maco::reference
