#include "runtime/reference/cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "ir/cuda_op.h"
#include "runtime/reference/ops.h"
#include "runtime/status.h"

namespace maco::reference {

namespace {

std::mutex mutex;
CudaLauncher& launcher() {
  static CudaLauncher one;
  return one;
}

void eval_cuda(Call& call) {
  const ir::Graph& graph = call.graph();
  const ir::Op& op = call.op();
  const ir::CudaOp k = ir::cuda_op(graph, op);
  const ir::CudaUnit* unit = graph.find_cuda_unit(call.word("unit", ""));
  if (!unit) return call.fail("its kernel has not been read");
  // A tensor that is updated in place begins with its old value.
  for (size_t o = 0; o < op.out.size(); ++o)
    for (size_t i = 0; i < op.in.size(); ++i)
      if (op.in[i] == op.out[o] && graph[op.out[o]].kind != ir::TensorKind::State)
        call.out[o] = *call.in[i];
  CudaLaunch launch{.original = unit->original, .block = k.block, .shared = k.shared};
  for (size_t a = 0; a < 3; ++a) launch.grid[a] = call.evaluate(k.grid[a]);
  std::vector<std::vector<std::byte>> inputs;  // copies, as a kernel may wrongly write to them
  inputs.reserve(k.args.size());
  for (const ir::CudaArg& arg : k.args) {
    if (const ir::Expr* e = std::get_if<ir::Expr>(&arg.value)) {
      launch.numbers.push_back(call.evaluate(*e));
    } else if (const ir::TensorId* id = arg.tensor()) {
      const auto out = std::find(op.out.begin(), op.out.end(), *id);
      std::vector<std::byte>* bytes = nullptr;
      if (out != op.out.end()) {
        bytes = &call.out[static_cast<size_t>(out - op.out.begin())].bytes;
      } else {
        const auto in = std::find(op.in.begin(), op.in.end(), *id);
        inputs.push_back(call.in[static_cast<size_t>(in - op.in.begin())]->bytes);
        bytes = &inputs.back();
      }
      launch.tensors.push_back(
          {graph[*id].name, reinterpret_cast<char*>(bytes->data()), bytes->size()});
    }
  }
  if (!call.status()) return;
  const std::lock_guard lock(mutex);
  if (!launcher()) return call.fail("there is nothing to run a CUDA kernel with");
  if (const runtime::Status s = launcher()(launch); !s) call.fail(s.message);
}

}  // namespace

void set_cuda_launcher(CudaLauncher given) {
  const std::lock_guard lock(mutex);
  launcher() = std::move(given);
}

std::vector<OpEntry> cuda_entries() {
  return {{.kind = "cuda", .eval = eval_cuda, .updates = true}};
}

}  // namespace maco::reference
