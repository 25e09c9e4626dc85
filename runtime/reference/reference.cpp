#include "runtime/reference/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "ir/check.h"

namespace maco::reference {

using ir::TensorKind;

Status complete_values(const ir::Graph& graph, Values& values) {
  for (const auto& [name, value] : values) {
    const auto tensor = graph.find_tensor(name);
    const bool scalar = tensor && graph[*tensor].kind == TensorKind::Scalar;
    if (!scalar && !graph.find_dim(name))
      return Status::failure(fmt::format("'{}' has no dim or scalar '{}'", graph.name, name));
  }
  for (const ir::Dim& dim : graph.dims) {
    const int64_t v = values.emplace(dim.name, dim.max).first->second;
    if (v < dim.min || v > dim.max)
      return Status::failure(
          fmt::format("dim '{}' is {}, outside {} to {}", dim.name, v, dim.min, dim.max));
  }
  for (const ir::Tensor& t : graph.tensors) {
    if (t.kind != TensorKind::Scalar) continue;
    const auto it = values.find(t.name);
    if (it == values.end()) return Status::failure(fmt::format("scalar '{}' has no value", t.name));
    if (it->second < t.range_lo || it->second >= t.range_hi)
      return Status::failure(fmt::format("scalar '{}' is {}, outside [{}, {})", t.name, it->second,
                                         t.range_lo, t.range_hi));
  }
  return {};
}

Extents actual_shape(const ir::Graph& graph, const Values& values, ir::TensorId tensor) {
  Extents out;
  for (const ir::Expr& e : graph[tensor].shape) {
    const ir::EvalResult r = evaluate_on(graph, values, 0, e);
    MACO_CHECK(r.value && *r.value >= 0, "shape of '" + graph[tensor].name + "': " + r.error);
    out.push_back(*r.value);
  }
  return out;
}

Reference::Reference(ir::Graph graph) : graph_(std::move(graph)) {
  tensors_.assign(static_cast<size_t>(graph_.world), std::vector<Tensor>(graph_.tensors.size()));
  for (auto& of_rank : tensors_)
    for (size_t t = 0; t < of_rank.size(); ++t)
      if (graph_.tensors[t].kind == TensorKind::State)
        of_rank[t] =
            Tensor(graph_.tensors[t].dtype, actual_shape(graph_, {}, ir::id_of<ir::TensorId>(t)));
}

Status Reference::set(int rank, ir::TensorId tensor, Tensor value) {
  const ir::Tensor& t = graph_[tensor];
  if (t.kind != TensorKind::Input && t.kind != TensorKind::Param && t.kind != TensorKind::State)
    return Status::failure(fmt::format("'{}' is not an input, param or state", t.name));
  const Extents most = actual_shape(graph_, {}, tensor);
  bool fits =
      value.dtype == t.dtype && value.shape.size() == most.size() && value.shape[0] <= most[0];
  for (size_t a = 1; fits && a < most.size(); ++a) fits = value.shape[a] == most[a];
  if (!fits)
    return Status::failure(fmt::format("'{}' is {}, not {}", t.name, describe(t.dtype, most),
                                       describe(value.dtype, value.shape)));
  keep(rank, tensor, std::move(value));
  return {};
}

void Reference::keep(int rank, ir::TensorId tensor, Tensor value) {
  Tensor& place = tensors_[static_cast<size_t>(rank)][ir::index(tensor)];
  if (value.bytes.size() < place.bytes.size() && graph_[tensor].kind == TensorKind::State)
    std::memcpy(place.bytes.data(), value.bytes.data(), value.bytes.size());
  else
    place = std::move(value);
}

// A state's leading rows, if dims leave it fewer rows than its maximum.
Tensor Reference::view(int rank, ir::TensorId tensor) const {
  const Tensor& whole = tensors_[static_cast<size_t>(rank)][ir::index(tensor)];
  Tensor rows(whole.dtype, actual_shape(graph_, values_, tensor));
  std::memcpy(rows.bytes.data(), whole.bytes.data(), rows.bytes.size());
  return rows;
}

Tensor Reference::get(int rank, ir::TensorId tensor) const {
  if (graph_[tensor].kind == TensorKind::State) return view(rank, tensor);
  return tensors_[static_cast<size_t>(rank)][ir::index(tensor)];
}

Status Reference::bound() const {
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    const ir::Tensor& t = graph_.tensors[i];
    if (t.kind != TensorKind::Input && t.kind != TensorKind::Param) continue;
    const Extents shape = actual_shape(graph_, values_, ir::id_of<ir::TensorId>(i));
    for (size_t rank = 0; rank < tensors_.size(); ++rank) {
      const Tensor& value = tensors_[rank][i];
      if (value.shape.empty())
        return Status::failure(fmt::format("'{}' is not bound on rank {}", t.name, rank));
      if (value.shape != shape)
        return Status::failure(fmt::format("'{}' on rank {} is {}, and this launch takes {}",
                                           t.name, rank, to_string(value.shape), to_string(shape)));
    }
  }
  return {};
}

// `views` owns copies of states that dims shorten; it must outlive the call.
Call Reference::make_call(const ir::Op& op, int rank, std::vector<Tensor>& views) {
  Call call(graph_, op, values_, rank);
  auto& tensors = tensors_[static_cast<size_t>(rank)];
  views.reserve(op.in.size());
  for (ir::TensorId id : op.in) {
    const Tensor* t = &tensors[ir::index(id)];
    if (graph_[id].kind == TensorKind::State && actual_shape(graph_, values_, id) != t->shape) {
      views.push_back(view(rank, id));
      t = &views.back();
    }
    call.in.push_back(t);
  }
  const OpEntry* entry = find_entry(op.kind);
  for (ir::TensorId id : op.out) {
    if (entry && entry->in_place && graph_[id].kind == TensorKind::State && id == op.in[0] &&
        views.empty())
      call.out.push_back(std::move(tensors[ir::index(id)]));
    else if (entry && entry->in_place)
      call.out.push_back(*call.in[0]);
    else if (entry && entry->updates && graph_[id].kind == TensorKind::State)
      call.out.push_back(view(rank, id));
    else
      call.out.emplace_back(graph_[id].dtype, actual_shape(graph_, values_, id));
  }
  return call;
}

Status Reference::run_one(size_t index, int rank) {
  const ir::Op& op = graph_.ops[index];
  std::vector<Tensor> views;
  Call call = make_call(op, rank, views);
  if (op.kind == "send") {
    if (mailbox_.takes_part(index, rank)) mailbox_.put(index, rank, *call.in[0]);
  } else if (op.kind == "recv") {
    if (mailbox_.takes_part(index, rank)) {
      const Tensor& letter = mailbox_.get(index, rank);
      if (letter.dtype != call.out[0].dtype || letter.elements() != call.out[0].elements())
        call.fail(fmt::format("it takes {}, and {} was sent",
                              describe(call.out[0].dtype, call.out[0].shape),
                              describe(letter.dtype, letter.shape)));
      else
        call.out[0].bytes = letter.bytes;
    }
  } else if (op.kind != "barrier") {
    const OpEntry* entry = find_entry(op.kind);
    MACO_CHECK(entry && entry->eval, "the reference has no '" + op.kind + "'");
    entry->eval(call);
  }
  for (size_t i = 0; i < op.out.size(); ++i) keep(rank, op.out[i], std::move(call.out[i]));
  return call.status();
}

Status Reference::run_collective(size_t index) {
  const ir::Op& op = graph_.ops[index];
  std::vector<std::vector<Tensor>> views(tensors_.size());
  std::vector<Call> calls;
  for (size_t r = 0; r < tensors_.size(); ++r)
    calls.push_back(make_call(op, static_cast<int>(r), views[r]));
  find_entry(op.kind)->collective(calls);
  for (Call& call : calls) {
    if (!call.status()) return call.status();
    for (size_t i = 0; i < op.out.size(); ++i) keep(call.rank(), op.out[i], std::move(call.out[i]));
  }
  return {};
}

// Ops run when their data is available. Definition order works as long as every receive finds its
// letter. A receive that doesn't is put off, with everything on its rank that depends on it, so
// that neighbours may pass data on in a chain or cross each other.
Status Reference::run(Values values) {
  values_ = std::move(values);
  if (Status s = complete_values(graph_, values_); !s) return s;
  if (Status s = bound(); !s) return s;
  if (Status s = mailbox_.plan(graph_, values_); !s) return s;

  const size_t world = tensors_.size(), ops = graph_.ops.size();
  std::vector<std::vector<bool>> done(ops, std::vector<bool>(world));
  size_t left = ops * world;
  while (left > 0) {
    const size_t before = left;
    // By rank: what the ops that were put off in this sweep read and write; later ops must not
    // overtake them there.
    std::vector<std::set<ir::TensorId>> reads(world), writes(world);
    auto may_run = [&](size_t i, size_t r) {
      const ir::Op& op = graph_.ops[i];
      auto in = [](const std::set<ir::TensorId>& s) {
        return [&](ir::TensorId t) { return s.count(t) > 0; };
      };
      if (std::any_of(op.in.begin(), op.in.end(), in(writes[r]))) return false;
      if (std::any_of(op.out.begin(), op.out.end(), in(writes[r]))) return false;
      if (std::any_of(op.out.begin(), op.out.end(), in(reads[r]))) return false;
      const auto rank = static_cast<int>(r);
      return op.kind != "recv" || !mailbox_.takes_part(i, rank) || mailbox_.arrived(i, rank);
    };
    for (size_t i = 0; i < ops; ++i) {
      const ir::Op& op = graph_.ops[i];
      const OpEntry* entry = find_entry(op.kind);
      const bool together = entry && entry->collective;
      bool all = true;
      for (size_t r = 0; r < world; ++r) all = all && (done[i][r] || may_run(i, r));
      for (size_t r = 0; r < world; ++r) {
        if (done[i][r]) continue;
        if (together ? all : may_run(i, r)) {
          Status s;
          if (!together)
            s = run_one(i, static_cast<int>(r));
          else if (r == 0)
            s = run_collective(i);
          if (!s) return s;
          done[i][r] = true;
          --left;
        } else {
          reads[r].insert(op.in.begin(), op.in.end());
          writes[r].insert(op.out.begin(), op.out.end());
        }
      }
    }
    if (left == before) {
      for (size_t i = 0; i < ops; ++i)
        for (size_t r = 0; r < world; ++r)
          if (!done[i][r])
            return Status::failure(
                fmt::format("{} '{}' on rank {} can never run: what it waits for waits for it",
                            graph_.ops[i].kind, graph_.ops[i].name, r));
    }
  }
  return {};
}

}  // namespace maco::reference
