// Post-conditions of collectives: the transfers that tasks declare are followed, region by region,
// from the collective's operand on all ranks through whatever buffers they pass to its result.
//
// Who takes part is read off the transfers: those that read the operand or a buffer that the data
// has come to, and all tasks that write such a buffer; but not those of the collective whose result
// the operand is, which may send it on, too. Accesses are ordered and race-free by now,
// so that any topological order shows what every execution does. Where dims cut rows, every region
// of a transfer is cut alike (checked), so that what holds for whole tiles holds for every value of
// the dims. That a device function moves what its task declares is not the Program's to prove:
// codegen holds calls to it, and the access checks of the CPU target.
#include "compiler/verify/contributions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compiler/verify/pieces.h"
#include "ir/ranks.h"

namespace maco::verify {
namespace {

using ir::BufferId;
using ir::Call;
using ir::Collective;
using ir::CollectiveKind;
using ir::id_of;
using ir::Region;
using ir::TaskId;
using ir::Transfer;

constexpr int64_t kNoBlock = -1;

bool is_collective(std::string_view op_kind) {
  for (int k = 0; k <= static_cast<int>(CollectiveKind::Barrier); ++k)
    if (op_kind == name(static_cast<CollectiveKind>(k))) return true;
  return false;
}

bool in_blocks(CollectiveKind kind) {
  return kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::AllToAll;
}
bool out_blocks(CollectiveKind kind) {
  return kind == CollectiveKind::AllGather || kind == CollectiveKind::AllToAll;
}

/// For each buffer the calls that do something with it.
using CallsByBuffer = std::vector<std::vector<uint32_t>>;
void add(CallsByBuffer& list, BufferId buffer, uint32_t call) {
  auto& calls = list[index(buffer)];
  if (calls.empty() || calls.back() != call) calls.push_back(call);
}

class Contributions {
 public:
  Contributions(const Model& model, const std::vector<Node>& order, Reporter& reporter)
      : m_(model), p_(model.program), order_(order), report_(reporter) {
    world_mask_ = ir::all_ranks(m_.world);
  }

  void run() {
    // By op: the ranks of which it is said what they get.
    std::unordered_map<std::string_view, uint64_t> by_op;
    std::unordered_set<std::string_view> senders;
    for (const Collective& c : p_.collectives) {
      const uint64_t ranks = c.of_some() ? c.ranks & world_mask_ : world_mask_;
      uint64_t& promised = by_op[c.op];
      if (promised & ranks)
        report_.error(fmt::format("contributions: '{}' is promised twice", c.op));
      promised |= ranks;
      if (!c.sender.empty()) senders.insert(c.sender);
    }
    for (const Collective& c : p_.collectives)
      if (const uint64_t rest = world_mask_ & ~std::exchange(by_op[c.op], world_mask_))
        report_.error(fmt::format("contributions: nothing says what '{}' has to deliver to {}",
                                  c.op, ranks_text(rest)),
                      loc_of(c));
    find_calls();
    // What moves data between ranks needs a declared post-condition.
    for (size_t c = 0; c < p_.calls.size(); ++c) {
      const Call& call = p_.calls[c];
      if ((is_collective(call.op_kind) || moves_between_ranks(c)) && !by_op.count(call.op) &&
          !senders.count(call.op) &&
          report_.error(fmt::format("contributions: nothing says what {} '{}' has to deliver",
                                    call.op_kind, call.op),
                        call.loc))
        break;
    }
    for (const Collective& c : p_.collectives) fits(c);
    if (report_.failed() || p_.collectives.empty()) return report_.summarise("wrong contributions");

    std::vector<Members> members(p_.collectives.size());
    std::vector<std::vector<uint32_t>> followed(p_.calls.size());  // by call: collectives
    for (uint32_t i = 0; i < p_.collectives.size(); ++i) {
      if (p_.collectives[i].kind == CollectiveKind::Barrier) continue;
      members[i] = members_of(p_.collectives[i]);
      for (uint32_t c : members[i].calls) followed[c].push_back(i);
    }
    std::vector<std::vector<Node>> nodes(p_.collectives.size());
    for (const Node n : order_)
      for (uint32_t i : followed[index(p_.tasks[n.task].call)]) nodes[i].push_back(n);
    for (size_t i = 0; i < nodes.size() && !report_.failed(); ++i)
      if (p_.collectives[i].kind != CollectiveKind::Barrier)
        follow(p_.collectives[i], members[i], nodes[i]);
    report_.summarise("wrong contributions");
  }

 private:
  // --- who takes part ---

  // By the first task of each call: all tasks of a call touch the same buffers.
  void find_calls() {
    from_.resize(p_.buffers.size());
    writes_.resize(p_.buffers.size());
    is_result_.assign(p_.buffers.size(), false);
    first_task_.assign(p_.calls.size(), ~0u);
    for (const Collective& c : p_.collectives)
      if (c.kind != CollectiveKind::Barrier) {
        is_result_[index(c.out)] = true;
        results_[c.op].push_back(c.out);
      }
    for (uint32_t t = 0; t < m_.tasks(); ++t) {
      const uint32_t call = static_cast<uint32_t>(index(p_.tasks[t].call));
      if (first_task_[call] == ~0u) first_task_[call] = t;
      for (const ir::Access& a : p_.tasks[t].accesses)
        if (a.writes()) add(writes_, a.region.buffer, call);
      if (first_task_[call] != t) continue;
      for (const Transfer& x : p_.calls[call].transfers)
        for (uint32_t a : x.from) add(from_, p_.tasks[t].accesses[a].region.buffer, call);
    }
  }

  /// Whether operand and result have as many elements as the promise means.
  void fits(const Collective& x) {
    if (x.kind == CollectiveKind::Barrier) return;
    const auto each = [&](bool blocks) { return blocks ? m_.world : 1; };
    const int64_t in = p_[x.in].max_elements(), out = p_[x.out].max_elements();
    const int64_t in_blocks_of = each(in_blocks(x.kind)), out_blocks_of = each(out_blocks(x.kind));
    if (in % in_blocks_of != 0 || out % out_blocks_of != 0 ||
        in / in_blocks_of != out / out_blocks_of)
      report_.error(fmt::format("contributions: '{}' promises {} of {} elements to {} of {} ranks",
                                x.op, name(x.kind), in, out, m_.world),
                    loc_of(x));
  }
  bool moves_between_ranks(size_t call) const {
    if (first_task_[call] == ~0u) return false;
    const std::vector<ir::Access>& accesses = p_.tasks[first_task_[call]].accesses;
    const auto is_slot = [&](uint32_t a) {
      return p_[accesses[a].region.buffer].kind == ir::BufferKind::Slot;
    };
    for (const Transfer& x : p_.calls[call].transfers)
      if (std::any_of(x.from.begin(), x.from.end(), is_slot) ||
          std::any_of(x.to.begin(), x.to.end(), is_slot))
        return true;
    return false;
  }

  /// The calls that touch the data of a collective, and the buffers that this data reaches.
  struct Members {
    std::vector<uint32_t> calls;
    std::vector<BufferId> buffers;
  };
  /// Is the call one of another collective, whose result the operand of `c` is? It may read that
  /// result to send it on, which is checked when that collective is followed.
  bool makes_operand(uint32_t call, const Collective& c) const {
    const auto made = results_.find(p_.calls[call].op);
    return made != results_.end() && made->first != c.op && made->first != c.sender &&
           std::find(made->second.begin(), made->second.end(), c.in) != made->second.end();
  }
  Members members_of(const Collective& c) {
    Members members;
    std::unordered_set<uint32_t> known;
    std::unordered_set<size_t> reached = {index(c.in)};
    const bool zeros = c.kind == CollectiveKind::Zeros;
    const auto join = [&](uint32_t call) {
      if (known.insert(call).second) members.calls.push_back(call);
    };
    members.buffers.push_back(c.in);
    // Tasks other than the sender's may write c.out; what they write says more than that nothing
    // came.
    if (c.of_some() && reached.insert(index(c.out)).second) members.buffers.push_back(c.out);
    for (size_t next = 0; next < members.buffers.size(); ++next) {
      const BufferId b = members.buffers[next];
      if (b != c.in || zeros)
        for (uint32_t call : writes_[index(b)]) join(call);
      for (uint32_t call : from_[index(b)]) {
        if (b == c.in && makes_operand(call, c)) continue;
        join(call);
        const ir::Task& t = p_.tasks[first_task_[call]];
        for (const Transfer& x : p_.calls[call].transfers)
          for (uint32_t a : x.to) {
            const BufferId to = t.accesses[a].region.buffer;
            // Another collective's result is that one's.
            if (is_result_[index(to)] && to != c.out) continue;
            if (reached.insert(index(to)).second) members.buffers.push_back(to);
          }
      }
    }
    return members;
  }

  // --- one collective ---

  void follow(const Collective& x, const Members& members, const std::vector<Node>& nodes) {
    x_ = &x;
    pieces_.clear();
    cuts_.clear();
    faults_.clear();
    reached_.assign(p_.buffers.size(), false);
    for (BufferId b : members.buffers) reached_[index(b)] = true;
    for (const Node n : nodes)
      // A node of a symmetric model is the task of every rank.
      for (int rank = m_.symmetric ? 0 : n.rank; rank < (m_.symmetric ? m_.world : n.rank + 1);
           ++rank)
        if (m_.runs(n.task, rank)) step(n.task, rank);
    for (int rank = 0; rank < m_.world; ++rank)
      if ((!x.of_some() || (x.ranks >> rank & 1)) && !delivered(rank)) return;
  }

  Pieces& pieces(BufferId b, int rank) {
    return pieces_[index(b) * static_cast<size_t>(m_.world) + static_cast<size_t>(rank)];
  }

  /// A region on one rank: where in the buffer, and where in a block of it.
  struct Place {
    Box box;  // elements of the buffer; of the most rows
    int64_t block = 0;
    Box in_block;
    uint32_t cut = 0;
  };

  uint32_t cut_of(const ir::Expr& rows, int64_t pitch) {
    std::string text = fmt::format("{} x {}", canonical(rows).str(), pitch);
    const auto at = std::find(cuts_.begin(), cuts_.end(), text);
    if (at != cuts_.end()) return static_cast<uint32_t>(at - cuts_.begin()) + 1;
    cuts_.push_back(std::move(text));
    return static_cast<uint32_t>(cuts_.size());
  }

  /// The region in block `block` of its own blocks (kNoBlock: it has none), in a buffer that has as
  /// many blocks as there are ranks, or one. Nothing if it can't be followed.
  std::optional<Place> place_of(const Region& r, int64_t block, bool blocks) {
    const ir::Buffer& b = p_[r.buffer];
    const int64_t height = r.r1 - r.r0, width = r.c1 - r.c0;
    Place place;
    if (r.from) return std::nullopt;
    if (r.block.value) {
      const ir::Value& rows = p_.values[*r.block.value];
      place.box = joined({(block * rows.range.hi + r.r0) * r.pitch + r.c0, r.pitch, height, width});
      if (!blocks || b.rows.is_constant()) return std::nullopt;
      place.block = block;
      place.in_block = joined({r.r0 * r.pitch + r.c0, r.pitch, height, width});
      place.cut = cut_of(rows.expr, r.pitch);
      return place;
    }
    const int64_t first = block == kNoBlock ? r.r0 : block * r.block.rows + r.r0;
    place.box = joined({first * r.pitch + r.c0, r.pitch, height, width});
    place.in_block = place.box;
    if (!b.rows.is_constant()) {
      // The rows of the buffer itself are what is cut.
      if (blocks || r.block.any() || r.pitch != b.cols) return std::nullopt;
      place.cut = cut_of(b.rows, r.pitch);
    } else if (blocks) {
      const int64_t size = b.max_elements() / m_.world;
      if (b.max_elements() % m_.world != 0) return std::nullopt;
      place.block = place.box.start / size;
      place.in_block.start -= place.block * size;
      if (place.in_block.end() > size) return std::nullopt;
    }
    return place;
  }
  bool has_blocks(BufferId b) const {
    return (b == x_->in && in_blocks(x_->kind)) || (b == x_->out && out_blocks(x_->kind));
  }
  /// The blocks that a region names on `rank`.
  ir::Ranks blocks_of(const Region& r, int rank) const {
    constexpr auto kNone = static_cast<int>(kNoBlock);
    if (!r.block.any()) return {kNone, kNone + 1};
    return resolve(r.block.ref, rank, m_.world);
  }

  // --- one task on one rank ---

  void step(uint32_t task, int rank) {
    const ir::Task& t = p_.tasks[task];
    std::vector<bool> moved(t.accesses.size(), false);
    for (const Transfer& x : p_[t.call].transfers) {
      const bool clears = x.kind == Transfer::Kind::Clear;
      const Content content = clears ? Content{} : read(task, rank, x);
      for (uint32_t a : x.to) {
        moved[a] = true;
        const Region& r = t.accesses[a].region;
        if (reached_[index(r.buffer)])
          write(task, rank, r, clears ? zeros(task, rank, r) : content);
      }
    }
    // Whatever else it writes isn't of the collective.
    for (size_t a = 0; a < t.accesses.size(); ++a) {
      const Region& r = t.accesses[a].region;
      if (moved[a] || !t.accesses[a].writes() || !reached_[index(r.buffer)] ||
          (r.buffer == x_->in && r.buffer != x_->out))
        continue;
      write(task, rank, r,
            faulty(task, rank,
                   fmt::format("writes {} without moving anything there", to_string(p_, r, rank))));
    }
  }
  /// The content of a region that is cleared: elements of no rank.
  Content zeros(uint32_t task, int rank, const Region& r) {
    const auto place = r.block.any() ? std::nullopt : place_of(r, kNoBlock, has_blocks(r.buffer));
    if (!place) return untold(task, rank, r, "clears");
    return {.tensor = r.buffer, .block = place->block, .at = place->in_block, .cut = place->cut};
  }
  ir::Ranks memories(const Region& r, int rank) const {
    if (p_[r.buffer].kind != ir::BufferKind::Slot) return {rank, rank + 1};
    return resolve(r.where, rank, m_.world);
  }

  /// What a transfer makes of what it reads.
  Content read(uint32_t task, int rank, const Transfer& x) {
    const ir::Task& t = p_.tasks[task];
    std::optional<Content> sum;
    bool averaged = false;
    for (uint32_t a : x.from)
      for (int block : blocks_of(t.accesses[a].region, rank)) {
        const Content c = read(task, rank, t.accesses[a].region, block);
        if (c.fault) return c;
        if (sum && x.kind == Transfer::Kind::Copy)
          return faulty(task, rank, "copies several regions to one place");
        // An average divides the sum of all, which may have been added up before.
        const bool same = c.reduce == x.reduce ||
                          (x.reduce == ir::Reduction::Avg && c.reduce == ir::Reduction::Sum);
        if (c.reduced && x.kind == Transfer::Kind::Reduce && !same)
          return faulty(task, rank,
                        fmt::format("reduces by '{}' what was reduced by '{}'", name(x.reduce),
                                    name(c.reduce)));
        averaged = averaged || (c.reduced && c.reduce == ir::Reduction::Avg);
        if (!sum) {
          sum = c;
          continue;
        }
        if (c.tensor != sum->tensor || c.block != sum->block || c.at != sum->at ||
            c.cut != sum->cut)
          return faulty(task, rank, fmt::format("adds {} to {}", text(c), text(*sum)));
        if (c.ranks & sum->ranks) {
          Content twice = c;
          twice.ranks &= sum->ranks;
          return faulty(task, rank, fmt::format("adds {} twice", text(twice)));
        }
        sum->ranks |= c.ranks;
      }
    if (!sum) return faulty(task, rank, "moves nothing");
    if (x.kind == Transfer::Kind::Copy) return *sum;
    // An average is the sum of all, divided once.
    if (x.reduce == ir::Reduction::Avg && (averaged || sum->ranks != world_mask_))
      return faulty(
          task, rank,
          "averages in several steps: only a step that has the elements of all ranks can");
    sum->reduced = true;
    sum->reduce = x.reduce;
    return *sum;
  }
  Content read(uint32_t task, int rank, const Region& r, int block) {
    const auto place = place_of(r, block, has_blocks(r.buffer));
    if (!place) return untold(task, rank, r, "reads");
    const Pieces& held = pieces(r.buffer, rank);
    // What is sent may be what another rank has received, and so the result of the same message.
    const bool sent = x_->kind == CollectiveKind::Message && r.buffer == x_->in;
    const std::string& op = p_[p_.tasks[task].call].op;
    if (sent && op != x_->sender && op != x_->op)
      return faulty(
          task, rank,
          fmt::format("sends {}, which is the operand of another message", to_string(p_, r, rank)));
    if (sent || (p_[r.buffer].kind != ir::BufferKind::Slot && held.empty()))
      return {.tensor = r.buffer,
              .ranks = uint64_t{1} << rank,
              .block = place->block,
              .at = place->in_block,
              .cut = place->cut};
    if (const auto content = held.read(place->box)) return *content;
    return faulty(task, rank,
                  fmt::format("reads {}, parts of which nothing was moved to in this launch",
                              to_string(p_, r, rank)));
  }

  void write(uint32_t task, int rank, const Region& r, const Content& content) {
    for (int block : blocks_of(r, rank)) {
      const auto place = place_of(r, block, has_blocks(r.buffer));
      Content there = content;
      Box box{0, 0, 1, p_[r.buffer].max_elements()};
      if (!place) {
        // Somewhere: nothing is known of the whole buffer any more.
        there = untold(task, rank, r, "writes");
      } else {
        box = place->box;
        if (!there.fault) check_room(task, rank, r, *place, there);
      }
      for (int memory : memories(r, rank)) pieces(r.buffer, memory).write({box, there, task});
    }
  }
  /// Whether what is moved is as large as where it goes, and cut as that is.
  void check_room(uint32_t task, int rank, const Region& r, const Place& place, Content& content) {
    const int64_t room = place.box.rows * place.box.width,
                  size = content.at.rows * content.at.width;
    if (room != size) {
      content = faulty(
          task, rank,
          fmt::format("moves {} elements to {}, which has {}", size, to_string(p_, r, rank), room));
      // A slot has room for all rows; a tensor has those that its dims say.
    } else if (p_[r.buffer].kind != ir::BufferKind::Slot &&
               (place.cut != content.cut || (place.cut != 0 && place.in_block != content.at))) {
      content = faulty(task, rank,
                       fmt::format("moves rows to {}, whose number of rows depends on other dims",
                                   to_string(p_, r, rank)));
    }
  }

  // --- what has to come of it ---

  /// What block `block` of the result on `rank` has to be.
  Content expected(int rank, int64_t block) const {
    const auto only = [](int64_t r) { return uint64_t{1} << r; };
    Content c{.tensor = x_->in};
    switch (x_->kind) {
      case CollectiveKind::AllReduce: c.ranks = world_mask_, c.reduced = true; break;
      case CollectiveKind::AllGather: c.ranks = only(block); break;
      case CollectiveKind::ReduceScatter:
        c.ranks = world_mask_, c.reduced = true, c.block = rank;
        break;
      case CollectiveKind::AllToAll: c.ranks = only(block), c.block = rank; break;
      case CollectiveKind::Broadcast: c.ranks = only(x_->peer); break;
      case CollectiveKind::RingShift:
        c.ranks = only(((rank - x_->peer) % m_.world + m_.world) % m_.world);
        break;
      case CollectiveKind::Message: c.ranks = only((rank - x_->peer + m_.world) % m_.world); break;
      case CollectiveKind::Zeros:
      case CollectiveKind::Barrier: break;
    }
    return c;
  }

  bool delivered(int rank) {
    const ir::Buffer& out = p_[x_->out];
    const bool blocks = out_blocks(x_->kind);
    int64_t elements = 0;
    for (const auto& [start, piece] : pieces(x_->out, rank)) {
      const auto [block, at] = place_in_result(piece, blocks);
      elements += at.rows * at.width;
      Content want = expected(rank, block);
      want.at = at;
      want.cut = piece.content.cut;  // compared when it was written
      if (m_.world == 1) want.reduced = piece.content.reduced;
      const Content& got = piece.content;
      if (got.reduced) want.reduce = x_->reduce;
      if (got == want) continue;
      if (got.fault) {
        const Fault& f = faults_[got.fault - 1];
        fail(f.task, f.rank, f.what);
        return false;
      }
      if (got.reduce != want.reduce) {
        fail(piece.task, rank,
             fmt::format("reduces by '{}', not by '{}' as '{}' has to", name(got.reduce),
                         name(want.reduce), x_->op));
        return false;
      }
      const uint64_t missing = want.ranks & ~got.ranks;
      std::string why;
      if (missing && got.block == want.block && got.at == want.at && (got.ranks & ~want.ranks) == 0)
        why = fmt::format(": that of {} is absent", ranks_text(missing));
      fail(piece.task, rank,
           fmt::format("makes {}{} of '{}' from {} instead of {}{}", elements_text(at),
                       blocks ? fmt::format(" of block {}", block) : "", out.name, text(got),
                       text(want), why));
      return false;
    }
    if (elements == out.max_elements()) return true;
    report_.error(
        fmt::format("contributions: '{}' leaves {} of the {} elements of '{}' on rank {} "
                    "unwritten",
                    x_->op, out.max_elements() - elements, out.max_elements(), out.name, rank),
        loc_of(*x_));
    return false;
  }
  /// The block and the place in it of a piece of the result. Blocks of a height that the launch
  /// decides lie where they do at the most rows, as place_of has put them.
  std::pair<int64_t, Box> place_in_result(const Pieces::Piece& piece, bool blocks) const {
    if (!blocks) return {0, piece.box};
    const int64_t size = p_[x_->out].max_elements() / m_.world;
    Box at = piece.box;
    const int64_t block = at.start / size;
    at.start -= block * size;
    return {block, at};
  }

  // --- what is wrong ---

  ir::Loc loc_of(const Collective& x) const {
    for (const Call& c : p_.calls)
      if (c.op == x.op) return c.loc;
    return {};
  }
  static std::string ranks_text(uint64_t ranks) {
    std::string s;
    for (int r = 0; r < 64; ++r)
      if (ranks >> r & 1) s += fmt::format("{}{}", s.empty() ? "" : ", ", r);
    return (ranks & (ranks - 1) ? "ranks " : "rank ") + s;
  }
  static std::string elements_text(const Box& box) {
    const int64_t end = box.start + box.width;
    if (box.rows <= 1) return fmt::format("elements {} to {}", box.start, end);
    return fmt::format("elements {} to {} and the same in {} more rows", box.start, end,
                       box.rows - 1);
  }
  std::string text(const Content& c) const {
    if (c.ranks == 0) return "zeros";
    std::string s = elements_text(c.at);
    if (in_blocks(x_->kind)) s += fmt::format(" of block {}", c.block);
    s += fmt::format(" of '{}' of {}", p_[c.tensor].name, ranks_text(c.ranks));
    return c.reduced ? "the reduction of " + s : s;
  }
  void fail(uint32_t task, int rank, const std::string& what) {
    report_.error(id_of<TaskId>(task), fmt::format("contributions: {} on rank {} {}",
                                                   describe(p_, id_of<TaskId>(task)), rank, what));
  }
  /// What is wrong only matters where a collective's result comes of it: operands may be shared
  /// with others.
  struct Fault {
    uint32_t task;
    int rank;
    std::string what;
  };
  Content faulty(uint32_t task, int rank, std::string what) {
    faults_.push_back({task, rank, std::move(what)});
    return {.fault = static_cast<uint32_t>(faults_.size())};
  }
  Content untold(uint32_t task, int rank, const Region& r, const char* does) {
    return faulty(
        task, rank,
        fmt::format("{} {}, whose content can't be determined where dims decide or blocks end",
                    does, to_string(p_, r, rank)));
  }

  const Model& m_;
  const ir::Program& p_;
  const std::vector<Node>& order_;
  Reporter& report_;
  uint64_t world_mask_ = 0;
  CallsByBuffer from_, writes_;  // transfers that read it; tasks that write it
  std::vector<bool> is_result_;  // by buffer: of a collective
  std::unordered_map<std::string_view, std::vector<BufferId>> results_;  // by op, likewise
  std::vector<uint32_t> first_task_;                                     // by call
  const Collective* x_ = nullptr;
  std::unordered_map<size_t, Pieces> pieces_;  // by buffer and rank
  std::vector<std::string> cuts_;              // what a cut's number stands for, less one
  std::vector<Fault> faults_;                  // likewise Content::fault
  std::vector<bool> reached_;                  // by buffer
};

}  // namespace

void check_contributions(const Model& model, const std::vector<Node>& order, Reporter& reporter) {
  Contributions(model, order, reporter).run();
}

}  // namespace maco::verify
