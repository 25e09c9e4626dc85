// maco-run --tokens: runs a prompt through the graphs of a model, and decodes greedily after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/host/group.h"
#include "runtime/host/session.h"
#include "runtime/weights/map.h"
#include "tools/driver.h"

namespace maco::tools {

struct ModelOptions {
  std::vector<int64_t> tokens;  // the prompt
  int64_t max_new_tokens = 0;   // 0: until an end token, or the caches are full
};

/// Why these aren't the prefill and decode graphs of one model, as macoc import writes them, or why
/// they can't take the prompt; "" if all is right.
std::string wrong_model(const ir::Graph& prefill, const ir::Graph& decode,
                        const runtime::WeightMap& map, const ModelOptions& options);

/// Runs the prompt and decodes after it; prints the new ids on standard output. The sessions share
/// their memory; caches are empty. `group`: the processes that run the ranks, or null. Returns the
/// tool's exit status, after reporting.
int run_model(const ir::Graph& prefill, runtime::Session& prefill_session, const ir::Graph& decode,
              runtime::Session& decode_session, const runtime::WeightMap& map,
              const ModelOptions& options, runtime::Group* group, const Console& console);

}  // namespace maco::tools
