// put, combine, take, hop, clear, nothing: the tiles of collectives.
#include "compiler/functions/exchange.h"
#include "compiler/functions/families.h"

namespace maco::functions {

namespace {

template <class Enum>
std::vector<std::string> words(size_t count) {
  std::vector<std::string> all;
  for (size_t i = 0; i < count; ++i) all.emplace_back(name(static_cast<Enum>(i)));
  return all;
}

// Parameters that say how a tensor is cut into tiles, and where its peers and slots are.
std::vector<ParamSpec> tiles() {
  return {integer("W"),
          integer("T"),
          integer("cols"),
          integer("BR"),
          integer("BC"),
          integer("across"),
          integer("stride"),
          value("rows"),
          word("mode", "ops::PeerMode", words<PeerMode>(kPeerModes)),
          integer("peer"),
          flag("blocked"),
          flag("own_blocked"),
          integer("slot_div"),
          flag("source_rows"),
          flag("packets"),
          dtype("X"),
          dtype("Y")};
}

Function function(std::string name, std::vector<ParamSpec> own, std::vector<OperandSpec> operands,
                  std::vector<std::string> more_headers = {}) {
  Function f{.name = std::move(name),
             .params = tiles(),
             .operands = std::move(operands),
             .source = {{"ops/collectives.cuh"}},
             .touches = exchange_touches};
  f.params.insert(f.params.end(), own.begin(), own.end());
  auto& headers = f.source.headers;
  headers.insert(headers.end(), more_headers.begin(), more_headers.end());
  return f;
}

}  // namespace

std::vector<Function> collective_functions() {
  const std::vector<ParamSpec> sums = {
      word("reduce", "ops::Reduction", words<ir::Reduction>(kReductions)), flag("forward"),
      flag("forward_packets"), dtype("S")};
  // Packets suit small tiles: the operand comes from this rank's matmul, and the result goes to
  // whoever reads the sum.
  const auto takes_packets = [](const CallView& c, size_t i) {
    return i != 1 && c.flag("packets") && !c.flag("forward") && !c.flag("own_blocked");
  };
  Function combine =
      function("combine", sums,
               {in_packets(reads("x", "X")), reads("slots", "S"), in_packets(writes("y", "Y")),
                writes("results", "Y", Count::Optional)},
               {"ops/combine.cuh"});
  Function finished =
      function("combine_finished", sums,
               {in_packets(reads("x", "X")), reads("slots", "S"), in_packets(writes("y", "Y")),
                in_packets(reads("more", "", Count::Many))},
               {"ops/combine.cuh", "vectors.cuh"});
  finished.params.push_back(integer("N"));
  finished.params.push_back(body("epilogue"));
  combine.takes_packets = finished.takes_packets = takes_packets;
  return {
      function("put", {}, {reads("x", "X"), writes("slots", "X")}, {"ops/put.cuh"}),
      combine,
      finished,
      function("take", {flag("own")}, {reads("x", "X"), writes("y", "Y")}, {"ops/take.cuh"}),
      function("hop",
               {word("reduce", "ops::Reduction", words<ir::Reduction>(kReductions)), flag("own"),
                flag("arrived"), flag("keep"), flag("pass"), integer("places"), dtype("In"),
                dtype("Out")},
               {reads("x", "X"), reads("arrived", "In"), writes("y", "Y"), writes("next", "Out")},
               {"ops/hop.cuh"}),
      function("clear", {}, {writes("y", "Y")}, {"ops/take.cuh"}),
      {.name = "nothing", .source = {{"ops/collectives.cuh"}}}};
}

}  // namespace maco::functions
