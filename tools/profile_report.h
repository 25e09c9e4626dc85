// maco-run --profile: where the time of a launch went.
#pragma once

#include <string>

#include "ir/program.h"
#include "runtime/host/group.h"
#include "runtime/host/session.h"
#include "tools/driver.h"

namespace maco::tools {

/// Writes a trace of the session's last launch to `file`, unless that is "-", and a table to
/// standard output. All processes of a `group` call it, and the reporting rank writes. The session
/// was made with stamps for `program`, from which its kernel was made. Returns the tool's exit
/// status, after reporting.
int report_profile(const ir::Program& program, runtime::Session& session,
                   const runtime::Group* group, const std::string& file, const Console& console);

}  // namespace maco::tools
