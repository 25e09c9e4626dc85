#include "compiler/verify/verify.h"

#include "compiler/verify/at_once.h"
#include "compiler/verify/contributions.h"
#include "compiler/verify/counts.h"
#include "compiler/verify/defined.h"
#include "compiler/verify/hand_overs.h"
#include "compiler/verify/lifetimes.h"
#include "compiler/verify/model.h"
#include "compiler/verify/operands.h"
#include "compiler/verify/order.h"
#include "compiler/verify/overlays.h"
#include "compiler/verify/own_packets.h"
#include "compiler/verify/races.h"
#include "compiler/verify/report.h"
#include "compiler/verify/resources.h"
#include "compiler/verify/scope.h"
#include "compiler/verify/structure.h"

namespace maco::verify {

bool verify(const ir::Program& program, ir::Diagnostics& diagnostics) {
  return verify(program, diagnostics, {});
}

bool verify(const ir::Program& program, ir::Diagnostics& diagnostics, const VerifyOptions& options,
            VerifyStatistics* statistics) {
  Reporter reporter(program, diagnostics, options.max_reports, options.witnesses);
  // Every index and address that the Program holds may be used from here on.
  check_structure(program, reporter);
  if (reporter.failed()) return false;
  // The list of tasks says what everything is,
  check_defined(program, reporter);
  if (reporter.failed()) return false;
  // addresses don't change what it says,
  if (program.stage >= ir::Stage::Planned) {
    check_lifetimes(program, reporter);
    check_overlays(program, reporter);
  }
  if (reporter.failed()) return false;
  // and all of its CTAs run at once.
  if (program.stage >= ir::Stage::Scheduled)
    check_resources(program, options.symmetric_limit, reporter);
  if (reporter.failed()) return false;
  if (program.stage < ir::Stage::Synced) return true;

  // What follows is about order. Every wait is for signals that exist:
  const Model model(program, options.use_symmetry);
  check_counts(model, reporter);
  if (reporter.failed()) return false;

  // each of them makes seen what it is to make seen,
  check_scope(model, reporter);
  if (reporter.failed()) return false;

  // what is handed over is taken back before anything may touch it again,
  check_hand_overs(model, reporter);
  if (reporter.failed()) return false;

  // and packets of temporaries can be told from those of other launches;
  check_own_packets(model, reporter);
  if (reporter.failed()) return false;

  // and every task will start:
  const auto common = common_order(model);
  const auto order = topological_order(model, common, reporter);
  if (!order) return false;

  // and what they touch is ordered. Mostly that can be seen at once; if not, races are looked for.
  VerifyStatistics local;
  VerifyStatistics& numbers = statistics ? *statistics : local;
  numbers = {.launches = model.launches, .symmetric = model.symmetric};
  numbers.at_once = options.at_once && common && proved_at_once(model, *common, options, numbers);
  if (!numbers.at_once) {
    numbers.nodes = numbers.pairs = numbers.joins = 0;
    check_races(model, *order, options, reporter, numbers);
  }
  if (reporter.failed()) return false;

  // So collectives deliver whatever the order, of one value, and it is what they must.
  check_operands(program, reporter);
  if (reporter.failed()) return false;
  check_contributions(model, *order, reporter);
  return !reporter.failed();
}

}  // namespace maco::verify
