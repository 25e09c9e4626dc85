#include "tests/proofs/grammar_judge.h"
#include "compiler/frontend/dumps.h"

#include <fmt/format.h>

#include <sstream>

#include "compiler/api/match.h"
#include "compiler/pipeline/manager.h"
#include "compiler/verify/verify.h"
#include "ir/manifest.h"
#include "ir/program_text.h"
#include "tests/fuzz/run_case.h"

namespace maco::proofs {
namespace {

// Seeds of fibres, jitter and values.
constexpr uint64_t kOrders = 3;

std::string first_error(const ir::Diagnostics& diagnostics) {
  for (const ir::Diagnostic& d : diagnostics.all())
    if (d.severity == ir::Severity::Error) return d.message;
  return "";
}

/// The proof that said so: the word in front of the first colon. Structure has none.
std::string proof_of(const std::string& message) {
  const size_t colon = message.find(": ");
  if (colon == std::string::npos) return "structure";
  const std::string word = message.substr(0, colon);
  for (const char c : word)
    if (c < 'a' || c > 'z') return "structure";
  return word;
}

}  // namespace

std::string code_of(const std::string& kernel) {
  std::istringstream in(kernel);
  std::string code;
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with("//@maco")) code += line + "\n";
  return code;
}

std::string launch_of(const std::string& kernel) {
  const auto m = ir::parse_manifest(kernel).manifest;
  if (!m) return "";
  std::string s =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}\n", m->world, m->ctas, m->consumers,
                  m->loaders, m->signallers, m->spare, m->shared_bytes, m->arena_bytes,
                  m->symmetric_bytes, m->local_events, m->peer_events, m->packet_uses);
  for (const ir::ManifestTensor& t : m->tensors)
    s += fmt::format("{} {} {}\n", t.name, ir::name(t.dtype), t.max_elements);
  for (const ir::ManifestValue& v : m->values) s += v.expr.str() + "\n";
  return s;
}

Verdict judge(const GraphSubject& subject, const std::string& text) {
  ir::Diagnostics diagnostics;
  const auto refused = [&](std::string word) {
    return Verdict{std::move(word), first_error(diagnostics), std::nullopt, {}};
  };
  auto program = frontend::parse_program(diagnostics.add_file("mutant", text), diagnostics);
  if (!program) return refused("parse");
  if (ir::print(*program) == subject.program) return {"same Program", "", std::nullopt, {}};
  passes::PassManager passes(passes::make_context(*program, subject.options, diagnostics),
                             subject.options, diagnostics);
  if (!passes.ok()) return refused("machine");
  if (!passes.prove(*program)) {
    ir::Diagnostics again;
    const std::string proof = proof_of(first_error(diagnostics));
    return refused(proof != "lowering" && verify::verify(*program, again) ? "calls" : proof);
  }
  if (!api::check_program(subject.graph, *program, subject.options, diagnostics))
    return refused("match");
  Verdict v{"accepted", "", std::nullopt, {}};
  v.kernel = api::emit_kernel(subject.graph, *program, subject.options, diagnostics);
  if (v.kernel.empty()) return refused("kernel");
  if (code_of(v.kernel) == subject.code && launch_of(v.kernel) == subject.launch)
    return {"same kernel", "", std::nullopt, {}};
  v.program = std::move(program);
  return v;
}

std::string run(const Runnable& mutant, const std::shared_ptr<runtime::CpuLibrary>& library,
                size_t index) {
  fuzz::Prepared p;
  p.c.name = mutant.subject->name;
  p.c.launches = mutant.subject->launches;
  p.c.timeout_ms = mutant.timeout_ms;
  p.graph = mutant.subject->graph;
  p.program = mutant.program;
  p.kernel = mutant.kernel;
  for (uint64_t order = 0; order < kOrders; ++order) {
    p.c.seed = mutant.seed + order;
    fuzz::Results results;
    const std::string wrong = fuzz::run(p, library, index, true, results);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace maco::proofs
