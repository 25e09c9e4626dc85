#include "compiler/pipeline/manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "compiler/functions/function.h"
#include "compiler/passes/lowering.h"
#include "compiler/pipeline/text_diff.h"
#include "compiler/pipeline/unit_text.h"
#include "compiler/verify/verify.h"
#include "ir/check.h"

namespace maco::passes {

namespace {

/// Runs `work`, and adds its time to the log.
template <class Work>
bool timed(PassLog& log, std::string what, Work work) {
  const auto begin = std::chrono::steady_clock::now();
  const bool ok = work();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  log.seconds.emplace_back(std::move(what), time.count());
  return ok;
}

/// Prints the unit and parses it again, so that nothing passes between passes that a text can't
/// hold.
void reparse(Unit& unit, const std::string& pass) {
  ir::Diagnostics d;
  auto read = parse_unit(d.add_file("after " + pass, to_text(unit)), d);
  MACO_CHECK(read, "text after " + pass + " can't be read back:\n" + d.render());
  MACO_CHECK(*read == unit, "text after " + pass + " loses something");
  unit = std::move(*read);
}

}  // namespace

PassManager::PassManager(std::optional<PassContext> context, const PipelineOptions& options,
                         ir::Diagnostics& diagnostics)
    : options_(options),
      diagnostics_(diagnostics),
      context_(std::move(context)),
      failed_(!context_) {}

Unit PassManager::run(std::string_view name, Unit unit) {
  if (stopped()) return unit;
  if (options_.print_changed && !text_) text_ = to_text(unit);
  const Pass* pass = find_pass(name);
  MACO_CHECK(pass, std::string(name));
  failed_ = !timed(log_, pass->name, [&] {
    const auto* program = std::get_if<ir::Program>(&unit);
    if (program && name == "verify") return prove(*program, true);
    // The caller, or a tile rule from outside, may have made the first Program.
    return apply(*pass, unit, *context_, std::exchange(structured_, program != nullptr));
  });
  log_.statistics = context_->statistics;
  log_.fusions = context_->fusions;
  if (failed_) return unit;
  if (pass->lower) tiled_ = std::get<ir::Program>(unit);
  if (options_.after_pass) options_.after_pass(*pass, unit);
  show(*pass, unit);
  const auto* program = std::get_if<ir::Program>(&unit);
  if (options_.verify_each && program && *program != proved_) {
    const bool shared = name == "share-slots";
    failed_ =
        !timed(log_, fmt::format("verify after {}", name), [&] { return prove(*program, shared); });
    if (failed_) {
      log_.broken_by = name;
      return unit;
    }
  }
  log_.right_after = name;
  ended_ = options_.stop_after == name;
  return unit;
}

ir::Graph PassManager::run(std::string_view pass, ir::Graph graph) {
  Unit unit = run(pass, Unit(std::move(graph)));
  MACO_CHECK(std::holds_alternative<ir::Graph>(unit), std::string(pass) + " lowers");
  return std::get<ir::Graph>(std::move(unit));
}

// Unknown functions are allowed: such a Program is one about order only.
bool PassManager::calls_hold(const ir::Program& program) {
  const int before = diagnostics_.errors();
  for (const ir::Call& call : program.calls)
    if (functions::find_function(call.function))
      for (const std::string& wrong : functions::check(program, call))
        diagnostics_.error(call.loc, fmt::format("'{}' {}", call.op, wrong));
  return diagnostics_.errors() == before && functions::check_mates(program, diagnostics_) &&
         functions::check_touches(program, diagnostics_);
}

bool PassManager::prove(const ir::Program& program, bool shared) {
  if (program == proved_) return true;
  verify::VerifyOptions options;
  options.symmetric_limit = shared;
  options.witnesses = options_.witnesses;
  verify::VerifyStatistics numbers;
  if (!verify::verify(program, diagnostics_, options, &numbers)) {
    failed_ = log_.proof_failed = true;
    return false;
  }
  context_->statistics["clocks joined by verify"] = numbers.joins;
  context_->statistics["accesses compared by verify"] = numbers.pairs;
  if (!calls_hold(program) || !check_lowering(program, *context_, tiled_ ? &*tiled_ : nullptr)) {
    failed_ = log_.proof_failed = true;
    return false;
  }
  if (options_.verify_each && (shared || !program.limits.symmetric_bytes)) proved_ = program;
  return true;
}

void PassManager::show(const Pass& pass, Unit& unit) {
  if (options_.reparse) reparse(unit, pass.name);
  const int number = number_++;
  const bool named =
      std::any_of(options_.print_after.begin(), options_.print_after.end(),
                  [&](const std::string& name) { return name == "all" || name == pass.name; });
  if (!named && !options_.print_changed && !options_.dump) return;
  const char* kind = std::holds_alternative<ir::Graph>(unit) ? "maco" : "program";
  Dump dump{pass.name, fmt::format("{:02}-{}.{}", number, pass.name, kind), to_text(unit)};
  const bool changed = options_.print_changed && dump.text != text_;
  if (changed && !named) {
    constexpr size_t kMostLines = 60;
    dump.changes = pass.lower ? fmt::format("a Program of {} tasks (--print-after={} prints it)\n",
                                            std::get<ir::Program>(unit).tasks.size(), pass.name)
                              : diff_lines(text_.value_or(""), dump.text, kMostLines);
  }
  if (options_.print && (named || changed)) options_.print(dump);
  if (options_.dump) options_.dump(dump);
  text_ = dump.text;
}

}  // namespace maco::passes
