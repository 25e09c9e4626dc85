// maco-run --profile: where the time of a launch went.
#pragma once

#include <string>

#include "ir/program.h"
#include "runtime/host/group.h"
#include "runtime/host/session.h"
#include "tools/driver.h"

namespace maco::tools {

/// Writes a trace of the session's last launch to `file`, unless that is "-", and a table to
/// standard output; of a `group`, all of which call it, by the rank that speaks. The session was
/// made with stamps for `program`, the one behind its kernel. Returns the tool's exit status,
/// having reported.
int report_profile(const ir::Program& program, runtime::Session& session,
                   const runtime::Group* group, const std::string& file, const Console& console);

}  // namespace maco::tools
