#include "compiler/codegen/manifest.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "compiler/functions/cuda_kernel.h"
#include "compiler/functions/function.h"
#include "compiler/functions/hand_over.h"
#include "ir/program_text.h"

namespace maco::codegen {

EventNumbers number_events(const ir::Program& program) {
  EventNumbers n;
  for (const ir::Event& e : program.events) {
    if (is_counter(e.kind))
      n.number.push_back(static_cast<uint32_t>(n.local++));
    else if (e.kind == ir::EventKind::Peer)
      n.number.push_back(static_cast<uint32_t>(n.peer++));
    else
      n.number.push_back(0);
  }
  return n;
}

MapNumbers number_maps(const ir::Program& program) {
  MapNumbers n;
  const std::vector<int> tensors = tensor_numbers(program);
  std::map<std::tuple<ir::BufferId, int64_t, int64_t, int64_t, int64_t>, int64_t> known;
  for (const ir::Call& call : program.calls) {
    std::vector<int64_t>& numbers = n.of_call.emplace_back(call.operands.size(), 0);
    for (const ir::Load& l : call.loads) {
      if (!l.box) continue;
      const ir::BufferId id = call.operands[l.operand];
      const ir::Buffer& b = program[id];
      const auto [it, fresh] =
          known.try_emplace({id, l.box->rows, l.box->cols, l.box->pitch, l.box->run},
                            static_cast<int64_t>(n.maps.size()));
      if (fresh)
        n.maps.push_back({tensors[index(id)], b.offset.value_or(0), b.dtype,
                          b.max_elements() / std::max<int64_t>(l.box->pitch, 1), l.box->pitch,
                          l.box->rows, l.box->cols, l.box->run});
      numbers[l.operand] = it->second;
    }
  }
  return n;
}

std::vector<int> tensor_numbers(const ir::Program& program) {
  std::vector<int> numbers;
  int next = 0;
  for (const ir::Buffer& b : program.buffers)
    numbers.push_back(b.kind == ir::BufferKind::Temp || b.kind == ir::BufferKind::Slot ? -1
                                                                                       : next++);
  return numbers;
}

std::vector<ir::ManifestRange> dims_of(const ir::Graph& graph) {
  std::vector<ir::ManifestRange> dims;
  for (const ir::Dim& d : graph.dims) dims.push_back({d.name, d.min, d.max});
  return dims;
}
std::vector<ir::ManifestRange> scalars_of(const ir::Graph& graph) {
  std::vector<ir::ManifestRange> scalars;
  for (const ir::Tensor& t : graph.tensors)
    if (t.kind == ir::TensorKind::Scalar) scalars.push_back({t.name, t.range_lo, t.range_hi - 1});
  return scalars;
}

namespace {

// In the order of the stream that they have in common.
std::vector<ir::ManifestHanded> handed_over(const ir::Program& program) {
  std::vector<ir::ManifestHanded> list;
  const std::vector<int> tensors = tensor_numbers(program);
  std::set<int64_t> known;  // of a broadcast the root and the others have a call each
  for (const auto& stream : ir::streams(program))
    for (const ir::TaskId task : stream) {
      const ir::Call& call = program[program[task].call];
      const auto h = functions::hand_over_of(call);
      if (!h || functions::find_function(call)->taken_back_by.empty() ||
          !known.insert(h->number).second)
        continue;
      ir::ManifestHanded handed;
      handed.number = h->number;
      handed.op = call.op;
      handed.kind = h->kind;
      handed.reduce = h->reduce;
      handed.peer = h->peer;
      handed.dtype = h->x;
      const auto place = [&](size_t operand, int64_t& tensor, int64_t& offset) {
        const ir::Buffer& b = program[call.operands[operand]];
        tensor = tensors[index(call.operands[operand])];
        offset = b.offset.value_or(0);
      };
      place(0, handed.x, handed.x_offset);
      place(2, handed.y, handed.y_offset);
      if (const int64_t* rows = std::get_if<int64_t>(&h->rows.v)) {
        handed.rows = *rows;
      } else {
        handed.value = std::get<uint32_t>(h->rows.v);
        handed.rows = program.values[static_cast<size_t>(handed.value)].range.hi;
      }
      handed.cols = h->cols;
      list.push_back(std::move(handed));
    }
  return list;
}

// What the zones of a temporary may reach up to is nobody else's.
std::vector<ir::ManifestTemporary> users_temporaries(const ir::Program& program) {
  std::vector<ir::ManifestTemporary> list;
  const std::vector<bool> users = functions::users_temporaries(program);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const ir::Buffer& own = program.buffers[b];
    if (!users[b]) continue;
    const int64_t begin = own.offset.value_or(0), end = begin + own.bytes();
    int64_t low = std::max<int64_t>(begin - functions::kRedZoneBytes, 0),
            high = std::min(end + functions::kRedZoneBytes, program.arena_bytes);
    for (const ir::Buffer& other : program.buffers) {
      if (other.kind != ir::BufferKind::Temp || &other == &own) continue;
      const int64_t from = other.offset.value_or(0), to = from + other.bytes();
      if (from < begin) low = std::clamp(to, low, begin);
      if (to > end) high = std::clamp(from, end, high);
    }
    list.push_back({own.tensor, own.dtype, own.max_elements(), begin, begin - low, high - end});
  }
  return list;
}

}  // namespace

ir::Manifest make_manifest(const ir::Graph& graph, const std::string& graph_text,
                           const ir::Program& program, const EventNumbers& events,
                           const MapNumbers& maps, const Options& options) {
  ir::Manifest m;
  m.name = program.name;
  m.world = program.world;
  m.target = program.target;
  m.ctas = program.ctas;
  m.consumers = program.uses.consumers;
  m.loaders = program.uses.loaders;
  m.signallers = program.uses.signallers;
  m.spare = program.uses.spare;
  m.shared_bytes = program.uses.shared_bytes();
  m.arena_bytes = program.arena_bytes;
  m.symmetric_bytes = program.symmetric_bytes;
  m.local_events = events.local;
  m.peer_events = events.peer;
  m.packet_uses = program.packet_uses();
  m.backend = ir::name(graph.backend);
  for (const ir::Buffer& b : program.buffers) {
    if (b.kind == ir::BufferKind::Temp || b.kind == ir::BufferKind::Slot) continue;
    const auto id = graph.find_tensor(b.tensor);
    m.tensors.push_back(
        {b.tensor, std::string(ir::name(b.kind)), b.dtype, graph[*id].shape, b.max_elements()});
  }
  m.temporaries = users_temporaries(program);
  m.maps = maps.maps;
  m.dims = dims_of(graph);
  m.scalars = scalars_of(graph);
  for (const ir::Value& v : program.values) m.values.push_back({v.expr, v.range.lo, v.range.hi});
  for (const ir::Call& c : program.calls) m.calls.push_back({c.op, c.op_kind});
  m.handed = handed_over(program);
  for (size_t e = 0; e < program.events.size(); ++e) {
    const ir::Event& event = program.events[e];
    if (event.kind == ir::EventKind::Packet) continue;
    ir::add_event_name(is_counter(event.kind) ? m.local_names : m.peer_names,
                       int64_t{events.number[e]}, event.name);
  }
  m.options = options.command_line;
  m.program_hash = ir::text_hash(ir::print(program));
  m.graph = graph_text;
  return m;
}

}  // namespace maco::codegen
