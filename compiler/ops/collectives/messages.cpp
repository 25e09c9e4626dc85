#include "compiler/ops/collectives/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "compiler/ops/attrs.h"
#include "compiler/ops/op.h"

namespace maco::ops {

namespace {

using ir::OpId;

std::string times(size_t n) {
  return n == 0 ? "nothing" : n == 1 ? "once" : fmt::format("{} times", n);
}

struct End {
  OpId op{};
  int64_t rank = 0;
};
struct Ends {
  std::vector<End> sends, receives;
};
using Channel = std::tuple<int64_t, int64_t, int64_t>;  // source, destination, tag

class Matcher {
 public:
  Matcher(const ir::Graph& graph, ir::Diagnostics& diagnostics)
      : g_(graph), diagnostics_(diagnostics) {}

  std::vector<Message> run() {
    for (size_t i = 0; i < g_.ops.size(); ++i) {
      const OpDef* def = find_op(g_.ops[i].kind);
      if (!def || def->message == MessageEnd::None) continue;
      const bool send = def->message == MessageEnd::Send;
      for (int64_t rank = 0; rank < g_.world; ++rank) add(ir::id_of<OpId>(i), send, rank);
    }
    for (const auto& [channel, ends] : channels_) meet(channel, ends);
    for (const auto& [op, fault] : faults_) {
      diagnostics_.error(fault.loc, fault.what);
      if (fault.note_loc.known()) diagnostics_.note(fault.note_loc, fault.note);
    }
    std::vector<Message> all;
    for (auto& [key, message] : messages_) all.push_back(message);
    return all;
  }

 private:
  // The attribute's value on a rank. It depends on no dims (shapes.cpp), and it has a value where
  // `if` says that the rank takes part (the checks of graphs).
  int64_t value(const ir::Op& op, const char* attr, int64_t rank, int64_t otherwise) const {
    const std::optional<ir::Expr> e = attr_expr(g_, op, attr);
    if (!e) return otherwise;
    const ir::EvalResult r = ir::evaluate(*e, [&](std::string_view name) -> std::optional<int64_t> {
      if (name == "rank") return rank;
      return std::nullopt;
    });
    return r.value.value_or(otherwise);
  }

  void add(OpId id, bool send, int64_t rank) {
    const ir::Op& op = g_[id];
    if (value(op, "if", rank, 1) == 0) return;
    const char* attr = send ? "dst" : "src";
    const int64_t peer = value(op, attr, rank, -1);
    if (peer < 0 || peer >= g_.world) {
      const ir::Loc loc = op.attrs.at(attr).loc;
      faults_.try_emplace(
          id, Fault{loc.known() ? loc : op.loc,
                    fmt::format("'{}' of '{}' is {} on rank {}, but ranks are 0 to {}; 'if' says "
                                "which take part",
                                attr, op.name, peer, rank, g_.world - 1)});
      return;
    }
    const int64_t tag = value(op, "tag", rank, 0);
    Ends& ends = channels_[send ? Channel{rank, peer, tag} : Channel{peer, rank, tag}];
    (send ? ends.sends : ends.receives).push_back({id, rank});
  }

  void meet(const Channel& channel, const Ends& ends) {
    const auto [source, destination, tag] = channel;
    const size_t pairs = std::min(ends.sends.size(), ends.receives.size());
    for (size_t n = 0; n < pairs; ++n) {
      const OpId send = ends.sends[n].op, recv = ends.receives[n].op;
      if (!same_type(send, recv, source, destination)) continue;
      const int64_t shift = (destination - source + g_.world) % g_.world;
      Message& m = messages_[{recv, send, shift}];
      m = {send, recv, shift, m.senders | uint64_t{1} << source,
           m.receivers | uint64_t{1} << destination};
    }
    const bool sent = ends.sends.size() > pairs;
    const std::vector<End>& more = sent ? ends.sends : ends.receives;
    if (more.size() == pairs) return;
    const OpId id = more[pairs].op;
    const ir::Op& op = g_[id];
    Fault fault{op.loc,
                fmt::format("{} '{}' of rank {} meets no {}: rank {} sends {} to rank {} with tag "
                            "{}, and rank {} receives {}",
                            op.kind, op.name, sent ? source : destination, sent ? "recv" : "send",
                            source, times(ends.sends.size()), destination, tag, destination,
                            times(ends.receives.size()))};
    if (pairs > 0) {
      const OpId other = (sent ? ends.receives : ends.sends)[pairs - 1].op;
      fault.note_loc = g_[other].loc;
      fault.note = fmt::format("the last {} is here", g_[other].kind);
    }
    faults_.try_emplace(id, std::move(fault));
  }

  bool same_type(OpId send, OpId recv, int64_t source, int64_t destination) {
    const ir::Tensor &x = g_[g_[send].in[0]], &y = g_[g_[recv].out[0]];
    if (x.dtype == y.dtype && x.shape == y.shape) return true;
    faults_.try_emplace(
        recv,
        Fault{g_[recv].loc,
              fmt::format("recv '{}' of rank {} takes {}{}, but send '{}' of rank {} sends {}{}",
                          g_[recv].name, destination, ir::name(y.dtype), to_string(y.shape),
                          g_[send].name, source, ir::name(x.dtype), to_string(x.shape)),
              g_[send].loc, "it is sent here"});
    return false;
  }

  const ir::Graph& g_;
  ir::Diagnostics& diagnostics_;
  struct Fault {
    ir::Loc loc;
    std::string what;
    ir::Loc note_loc{};
    std::string note{};
  };
  std::map<OpId, Fault> faults_;  // the first fault of each op
  std::map<Channel, Ends> channels_;
  std::map<std::tuple<OpId, OpId, int64_t>, Message> messages_;  // by recv, send, shift
};

}  // namespace

Messages Messages::match(const ir::Graph& graph, ir::Diagnostics& diagnostics) {
  Messages messages;
  messages.all_ = Matcher(graph, diagnostics).run();
  messages.ends_.resize(graph.ops.size());
  for (uint32_t i = 0; i < messages.all_.size(); ++i)
    for (const ir::OpId op : {messages.all_[i].send, messages.all_[i].recv})
      messages.ends_[index(op)].messages.push_back(i);
  return messages;
}

std::vector<const Message*> Messages::of_op(ir::OpId op) const {
  std::vector<const Message*> list;
  for (const uint32_t i : ends_[index(op)].messages) list.push_back(&all_[i]);
  return list;
}

void Messages::begin_program() {
  for (Ends& e : ends_) e.channel.reset(), e.kept.reset();
}

}  // namespace maco::ops
