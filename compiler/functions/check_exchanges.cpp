#include "compiler/functions/check_exchanges.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "compiler/functions/chunks.h"
#include "compiler/functions/exchange.h"
#include "compiler/functions/hand_over.h"
#include "compiler/functions/matmul.h"
#include "ir/ranks.h"

namespace maco::functions {

namespace {

bool differs(const ir::Program& program, size_t task, ir::Diagnostics& diagnostics) {
  diagnostics.error(program[program.tasks[task].call].loc,
                    fmt::format("{} touches other regions than it declares",
                                ir::describe(program, ir::id_of<ir::TaskId>(task))));
  return false;
}

// Checks the tasks of users' algorithms, each of which runs on one rank.
bool check_chunks(const ir::Program& program, ir::Diagnostics& diagnostics) {
  // Calls of one op have one table.
  std::vector<std::shared_ptr<const Chunks>> chunks(program.calls.size());
  const ir::Call* last = nullptr;
  std::shared_ptr<const Chunks> of_last;
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const ir::Task& task = program.tasks[t];
    const ir::Call& call = program[task.call];
    if (!is_chunks(call.function)) continue;
    auto& c = chunks[index(task.call)];
    if (!c) {
      if (!last || last->params != call.params || last->operands != call.operands) {
        auto read = chunks_of(call);
        of_last = read ? std::make_shared<const Chunks>(std::move(*read)) : nullptr;
        last = &call;
      }
      c = of_last;
    }
    const int rank = std::countr_zero(task.ranks);
    if (!c || c->world != program.world || task.tile >= c->moves.size() ||
        std::popcount(task.ranks) != 1 || rank >= program.world) {
      diagnostics.error(call.loc, fmt::format("chunks of '{}' hasn't the parameters, operands and "
                                              "rank that it takes",
                                              call.op));
      return false;
    }
    if (call.transfers != std::vector{transfer_of(*c, c->moves[task.tile])}) {
      diagnostics.error(call.loc, fmt::format("{} moves other data than it declares",
                                              ir::describe(program, ir::id_of<ir::TaskId>(t))));
      return false;
    }
    if (task.accesses != accesses_of(program, *c, call.operands, rank, task.tile))
      return differs(program, t, diagnostics);
  }
  return true;
}

// Checks collectives that are handed over. hand_over and take_back of an op (both pairs of a
// broadcast) must have the same parameters, under a number that no other op has. No other call may
// use their wires.
bool check_pairs(const ir::Program& program, ir::Diagnostics& diagnostics) {
  const auto wrong = [&](const ir::Call& call, const std::string& what) {
    diagnostics.error(call.loc, fmt::format("{} of '{}' {}", call.function, call.op, what));
    return false;
  };
  std::map<int64_t, const ir::Call*> first;  // by number
  std::map<std::string, int64_t> numbers;    // by op
  for (const ir::Call& call : program.calls) {
    const bool hands = is_hand_over(call.function);
    for (size_t i = 0; i < call.operands.size(); ++i)
      if (program[call.operands[i]].wire != (hands && (i == 1 || i == 3)))
        return wrong(call, fmt::format("takes '{}', which {} a wire",
                                       program[call.operands[i]].name, hands ? "isn't" : "is"));
    if (!hands) continue;
    const auto h = hand_over_of(call);
    if (!h) return wrong(call, "hasn't the parameters and operands that it takes");
    const auto [at, fresh] = first.try_emplace(h->number, &call);
    if (numbers.try_emplace(call.op, h->number).first->second != h->number ||
        at->second->op != call.op)
      return wrong(call, "has another's number");
    if (fresh) continue;
    HandOver same = *hand_over_of(*at->second);
    same.root = h->root;
    if (params_of(same) != params_of(*h) || at->second->operands != call.operands)
      return wrong(call, "hands over other data, or in another way, than its op's other calls");
  }
  int64_t next = 0;
  for (const auto& [number, call] : first)
    if (number != next++) return wrong(*call, "leaves a number out");
  return true;
}

bool check_hand_overs(const ir::Program& program, ir::Diagnostics& diagnostics) {
  if (!check_pairs(program, diagnostics)) return false;
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const ir::Task& task = program.tasks[t];
    const ir::Call& call = program[task.call];
    if (!is_hand_over(call.function)) continue;
    const auto h = hand_over_of(call);
    if (!h || h->world != program.world || task.tile != 0) {
      diagnostics.error(call.loc, fmt::format("{} of '{}' hasn't the parameters and operands that "
                                              "it takes",
                                              call.function, call.op));
      return false;
    }
    if (call.transfers != transfers_of(call.function, *h)) {
      diagnostics.error(call.loc, fmt::format("{} of '{}' moves other data than it declares",
                                              call.function, call.op));
      return false;
    }
    if (task.accesses != accesses_of(program, call, *h)) return differs(program, t, diagnostics);
    if (h->kind != ir::CollectiveKind::Broadcast) continue;
    const uint64_t all = ir::all_ranks(program.world);
    const uint64_t root = uint64_t{1} << h->peer;
    if ((task.ranks & all) == (h->root ? root : all & ~root)) continue;
    diagnostics.error(call.loc, fmt::format("{} of '{}' runs on other ranks than it is for",
                                            call.function, call.op));
    return false;
  }
  return true;
}

// Checks matmuls that push their tiles: their stores must go where they are expected. A matmul that
// adds up must read what the other ranks have sent.
bool check_pushes(const ir::Program& program, ir::Diagnostics& diagnostics) {
  std::vector<std::optional<Exchange>> pushes, sums;
  for (const ir::Call& call : program.calls) {
    pushes.push_back(push_of(call));
    sums.push_back(sum_of(call));
  }
  using Transfer = ir::Transfer;
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const ir::Task& task = program.tasks[t];
    const ir::Call& call = program[task.call];
    if (!is_pushing(call.function)) continue;
    const auto &e = pushes[index(task.call)], &sum = sums[index(task.call)];
    const bool adds = matmul_form_of(call.function)->added;
    const size_t all = task.accesses.size(), before = adds ? 4 : 2;
    const auto stored = static_cast<uint32_t>(all - 1);
    const auto right = [&] {
      if (all < before || !e || adds != sum.has_value() || e->world != program.world ||
          program[call.operands[3]].packets != e->packets)
        return false;
      if (!adds)
        return call.transfers ==
               std::vector<Transfer>{
                   {.kind = Transfer::Kind::Copy, .from = {stored}, .to = {stored - 1}}};
      return !program[call.operands[4]].packets &&
             call.transfers == std::vector<Transfer>{{.kind = Transfer::Kind::Reduce,
                                                      .reduce = sum->reduce,
                                                      .from = {stored - 2, stored - 3},
                                                      .to = {stored, stored - 1}}};
    };
    if (!right()) {
      diagnostics.error(call.loc, fmt::format("{} of '{}' moves other data than it declares",
                                              call.function, call.op));
      return false;
    }
    const ir::Region& y = task.accesses[stored].region;
    const ir::Block block = push_block_of(call, *e, task.tile);
    const int64_t tile = block.any() ? task.tile % e->tiles : task.tile;
    const int64_t r = tile / e->across * e->BR, c = tile % e->across * e->BC;
    if (y.buffer != call.operands[2] || y.r0 != r || y.c0 != c || y.pitch != e->cols ||
        y.block != block || task.accesses[0].region.block != block ||
        task.accesses[stored - 1] != push_access_of(program, call.operands[3], *e, task.tile))
      return differs(program, t, diagnostics);
    if (!adds) continue;
    ir::Access own = task.accesses[stored];
    own.region.buffer = call.operands[5];
    if (task.accesses[stored - 2] != own || task.tile >= e->tiles ||
        task.accesses[stored - 3] != sum_access_of(program, call.operands[4], *sum, task.tile))
      return differs(program, t, diagnostics);
  }
  return true;
}

}  // namespace

bool check_exchanges(const ir::Program& program, ir::Diagnostics& diagnostics) {
  if (!check_chunks(program, diagnostics) || !check_hand_overs(program, diagnostics)) return false;
  if (!check_pushes(program, diagnostics)) return false;
  std::vector<std::optional<Exchange>> exchanges;
  for (const ir::Call& call : program.calls) {
    exchanges.push_back(exchange_of(call));
    const auto& e = exchanges.back();
    if (!e) {
      if (!is_exchange(call.function)) continue;
      diagnostics.error(call.loc, fmt::format("{} of '{}' hasn't the parameters and operands that "
                                              "it takes",
                                              call.function, call.op));
      return false;
    }
    if (e->world != program.world || call.transfers != transfers_of(call.function, *e)) {
      diagnostics.error(call.loc, fmt::format("{} of '{}' moves other data than it declares",
                                              call.function, call.op));
      return false;
    }
  }
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const ir::Task& task = program.tasks[t];
    const auto& e = exchanges[index(task.call)];
    if (!e || task.accesses == accesses_of(program, program[task.call], *e, task.tile)) continue;
    return differs(program, t, diagnostics);
  }
  return true;
}

}  // namespace maco::functions
