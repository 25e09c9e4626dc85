// Programs of real graphs, and what is left of them when a wait is taken out or tasks of a stream
// change places.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/pipeline.h"
#include "tests/catch.h"
#include "tests/paths.h"

namespace maco::test {

struct Subject {
  std::string name;
  ir::Graph graph;
  ir::Program program;
};

/// Synced for the CPU.
inline Subject compiled(const std::string& name, const std::string& text) {
  ir::Diagnostics d;
  auto graph = frontend::parse_graph(d.add_file(name, text), d);
  passes::PipelineOptions options;
  options.target = "cpu";
  passes::PipelineResult result;
  if (graph) result = passes::run_pipeline(*graph, options, d);
  INFO(d.render());
  REQUIRE(result.ok);
  return {name, std::move(*graph), std::move(std::get<ir::Program>(result.unit))};
}
inline Subject example(const std::string& name) {
  std::ifstream in(test::source_path("examples/graphs/") + name);
  return compiled(name, {std::istreambuf_iterator<char>(in), {}});
}

/// Without a wait; events that nobody waits for any more go with their signals, so that counts stay
/// right.
inline ir::Program without_wait(ir::Program p, size_t task, size_t wait) {
  auto& waits = p.tasks[task].waits;
  const ir::EventId event = waits[wait].event;
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait));
  for (const ir::Task& t : p.tasks)
    for (const ir::Wait& w : t.waits)
      if (w.event == event) return p;
  p.events.erase(p.events.begin() + static_cast<std::ptrdiff_t>(index(event)));
  const auto renumber = [&](ir::EventId& e) {
    if (index(e) > index(event)) e = ir::id_of<ir::EventId>(index(e) - 1);
  };
  for (ir::Task& t : p.tasks) {
    std::erase_if(t.signals, [&](const ir::Signal& s) { return s.event == event; });
    for (ir::Wait& w : t.waits) renumber(w.event);
    for (ir::Signal& s : t.signals) renumber(s.event);
  }
  return p;
}

/// With a task at the head of its stream.
inline ir::Program first_of_stream(ir::Program p, size_t task) {
  for (ir::Task& t : p.tasks)
    if (t.sm == p.tasks[task].sm && t.place < p.tasks[task].place) ++t.place;
  p.tasks[task].place = 0;
  return p;
}

/// With a task and the next of its stream in each other's place.
inline ir::Program swapped(ir::Program p, size_t task) {
  for (ir::Task& t : p.tasks)
    if (t.sm == p.tasks[task].sm && t.place == p.tasks[task].place + 1) {
      std::swap(t.place, p.tasks[task].place);
      break;
    }
  return p;
}

/// At most `most` of each kind of damage, evenly.
inline std::vector<ir::Program> damaged(const ir::Program& p, size_t most) {
  std::vector<std::pair<size_t, size_t>> waits;
  for (size_t t = 0; t < p.tasks.size(); ++t)
    for (size_t w = 0; w < p.tasks[t].waits.size(); ++w) waits.emplace_back(t, w);
  std::vector<ir::Program> list;
  for (size_t i = 0; i < std::min(most, waits.size()); ++i) {
    const auto [t, w] = waits[i * waits.size() / std::min(most, waits.size())];
    list.push_back(without_wait(p, t, w));
  }
  const size_t moves = std::min(most, p.tasks.size());
  for (size_t i = 0; i < moves; ++i) {
    list.push_back(swapped(p, i * p.tasks.size() / moves));
    list.push_back(first_of_stream(p, p.tasks.size() - 1 - i * p.tasks.size() / moves));
  }
  return list;
}

}  // namespace maco::test
