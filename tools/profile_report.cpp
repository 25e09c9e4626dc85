#include "tools/profile_report.h"

#include <cstdio>

#include "runtime/profile/table.h"
#include "runtime/profile/trace.h"
#include "tools/products.h"

namespace maco::tools {

int report_profile(const ir::Program& program, runtime::Session& session,
                   const runtime::Group* group, const std::string& file, const Console& console) {
  std::vector<runtime::RankStamps> stamps;
  runtime::Status status = session.stamps(stamps);
  if (group && !group->speaks()) return status ? kOk : kRunFailed;
  std::optional<runtime::Timeline> line;
  if (status) line = runtime::Timeline::make(program, stamps, status);
  if (!line) {
    console.error("--profile: " + status.message);
    return kRunFailed;
  }
  if (std::string error; file != "-" && !write_product(file, runtime::chrome_trace(*line), error)) {
    console.error(error);
    return kRunFailed;
  }
  std::fputs(runtime::print(*line, runtime::make_table(*line)).c_str(), stdout);
  return kOk;
}

}  // namespace maco::tools
