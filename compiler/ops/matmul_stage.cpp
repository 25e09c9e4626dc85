#include "compiler/ops/matmul_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/functions/function.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_tiles.h"
#include "ir/check.h"
#include "ir/registry.h"

namespace maco::ops {

namespace {

ir::Registry<MatmulStage>& table() {
  static ir::Registry<MatmulStage> stages(
      &MatmulStage::name, {pair_stage(), norm_stage(), turn_stage(), append_stage(), send_stage(),
                           add_stage(), gather_stage(), halve_stage()});
  return stages;
}

bool has_stage(const ir::Op& op, const MatmulStage& stage) {
  if (stage.tasks) return false;
  const auto attr = op.attrs.find(stage.attrs.front().name);
  if (attr == op.attrs.end()) return false;
  const bool* flag = std::get_if<bool>(&attr->second.value);
  return !flag || *flag;
}

}  // namespace

std::vector<MatmulStage> matmul_stages() { return table().all(); }

const StageUse* MatmulInputs::find(std::string_view stage) const {
  const auto at = std::find_if(stages.begin(), stages.end(),
                               [&](const StageUse& use) { return use.stage->name == stage; });
  return at == stages.end() ? nullptr : &*at;
}

std::vector<StageUse> matmul_stages_of(const ir::Op& op) {
  std::vector<StageUse> uses;
  int first = 2;
  table().each([&](const MatmulStage& stage) {
    if (!has_stage(op, stage)) return;
    uses.push_back({&stage, first});
    first += stage.inputs;
  });
  return uses;
}

MatmulInputs matmul_inputs(const ir::Op& op) {
  MatmulInputs r;
  r.stages = matmul_stages_of(op);
  for (const StageUse& use : r.stages) {
    r.bias_at += use.stage->inputs;
    r.sums = std::max(r.sums, use.stage->sums);
  }
  const auto body = epilogue_of(op);
  r.epilogue_first =
      static_cast<int>(op.in.size()) - (body ? std::max(0, body->operands() - r.sums) : 0);
  r.bias = r.epilogue_first > r.bias_at;
  return r;
}

void add_stage_inputs(ir::Op& op, std::string_view stage, const std::vector<ir::TensorId>& inputs,
                      ir::Loc loc) {
  std::ptrdiff_t at = 2;
  bool found = false;
  table().each([&](const MatmulStage& s) {
    found = found || s.name == stage;
    if (!found && has_stage(op, s)) at += s.inputs;
  });
  MACO_CHECK(found, std::string(stage));
  op.in_loc.resize(op.in.size(), op.loc);
  op.in.insert(op.in.begin() + at, inputs.begin(), inputs.end());
  op.in_loc.insert(op.in_loc.begin() + at, inputs.size(), loc);
}

bool may_have_stage(const ir::Op& op, std::string_view stage) {
  std::set<std::string_view> names = {stage};
  for (const StageUse& use : matmul_stages_of(op))
    if (!names.insert(use.stage->name).second) return false;
  ir::Call call;
  call.function = "matmul";
  for (const functions::Stage* s : functions::stages_of("matmul"))  // in their order
    if (names.count(s->name) > 0) call.stages.push_back(s->name);
  return functions::refuse_stages(call).empty();
}

std::string register_matmul_stage(MatmulStage stage) {
  const auto refuse = [&](std::string_view why) {
    return fmt::format("stage '{}' of matmul: {}", stage.name, why);
  };
  const auto known = functions::stages_of("matmul");
  if (std::none_of(known.begin(), known.end(),
                   [&](const functions::Stage* s) { return s->name == stage.name; }))
    return refuse("no functions::Stage has this name");
  if (stage.attrs.empty() && !stage.tasks)
    return refuse("it has no attribute that says that an op has it");
  if (stage.inputs > 0 && !stage.reads) return refuse("it doesn't say what tasks read");
  for (const AttrSpec& attr : find_op("matmul")->attrs)
    for (AttrSpec& own : stage.attrs) {
      if (own.name == attr.name)
        return refuse(fmt::format("attribute '{}' is there already", own.name));
      own.internal = true;
    }
  if (!table().add(stage)) return refuse("it is there already");
  add_attrs("matmul", stage.attrs);
  return "";
}

}  // namespace maco::ops
