// Recognizes graphs that passes have changed, where a user's graph is expected.
#pragma once

#include <string>
#include <vector>

namespace maco::api {

/// Why a text is a graph from behind one of macoc's passes, as --dump-dir, --print-after and
/// --emit=graph write it, DSL or JSON: "graph 'layer', in which 'h' is a 'fused'". "" if it is no
/// graph, or one that a user could have written.
std::string passes_made(const std::string& text, const std::vector<std::string>& algorithms);

}  // namespace maco::api
