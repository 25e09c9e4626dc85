// Graphs as passes leave them, where a user's graph is expected.
#pragma once

#include <string>
#include <vector>

namespace maco::api {

/// What in a text tells that it is a graph behind one of macoc's passes, as --dump-dir,
/// --print-after and --emit=graph write it, DSL or JSON: "graph 'layer', in which 'h' is a
/// 'fused'". "" if it is none, or one that is still a graph like a user's.
std::string passes_made(const std::string& text, const std::vector<std::string>& algorithms);

}  // namespace maco::api
