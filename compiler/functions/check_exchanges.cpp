#include "compiler/functions/check_exchanges.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "compiler/functions/exchange.h"

namespace maco::functions {

bool check_exchanges(const ir::Program& program, ir::Diagnostics& diagnostics) {
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
    diagnostics.error(program[task.call].loc,
                      fmt::format("{} touches other regions than it declares",
                                  ir::describe(program, ir::id_of<ir::TaskId>(t))));
    return false;
  }
  return true;
}

}  // namespace maco::functions
