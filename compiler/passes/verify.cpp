// verify.cpp: the pass that calls the proofs (compiler/verify).

#include "compiler/verify/verify.h"

#include "compiler/passes/passes.h"

namespace maco::passes {

bool verify(ir::Program& program, PassContext& context) {
  return verify::verify(program, context.diagnostics);
}

}  // namespace maco::passes
