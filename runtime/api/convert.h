// Converts between the types of the public headers and those of the libraries behind them.
#pragma once

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/manifest.h"
#include "ir/program.h"
#include "maco/kernel.h"
#include "runtime/status.h"

namespace maco {

struct Graph::Data {
  ir::Graph graph;              // checked, with its shapes
  ir::Diagnostics diagnostics;  // with the files of the graph's places
};

struct Kernel::Data {
  std::string source, report;
  ir::Manifest manifest;
  std::vector<TensorInfo> tensors;
  std::vector<VariableInfo> dims, scalars;
  std::vector<Diagnostic> warnings;
  std::optional<ir::Program> program;  // behind the kernel; nothing if that came as source
};

inline DType public_type(ir::DType type) { return static_cast<DType>(type); }
inline ir::DType ir_type(DType type) { return static_cast<ir::DType>(type); }
/// `most`: the most that an extent can be.
TensorInfo tensor_info(std::string name, TensorKind kind, ir::DType type,
                       const std::vector<ir::Expr>& shape, int64_t max_elements,
                       const ir::Lookup& most);

std::vector<Diagnostic> public_diagnostics(const ir::Diagnostics& diagnostics,
                                           int max_warnings = CompileOptions().max_warnings);
/// ErrorCode::InvalidGraph, with what was reported.
Error graph_error(const ir::Diagnostics& diagnostics,
                  int max_warnings = CompileOptions().max_warnings);
Error error(ErrorCode code, std::string message);
/// What `f` returns, a Result; an Error if it throws, which means a fault of MACO's or no memory.
template <class F>
auto guarded(F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return error(ErrorCode::RunFailed, "out of memory");
  } catch (const std::exception& e) {
    return error(ErrorCode::Internal,
                 std::string("this is a bug in MACO, not in the graph: ") + e.what());
  }
}
/// Ok, or an error of that kind.
Status status_of(const runtime::Status& status, ErrorCode code);

}  // namespace maco
