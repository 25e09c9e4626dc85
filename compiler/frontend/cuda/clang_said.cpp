#include "compiler/frontend/cuda/clang_said.h"

#include <clang/Basic/SourceManager.h>

#include <algorithm>
#include <cstring>

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

/// What the user may write in place of a name that Clang doesn't know; "" if nothing is known.
std::string instead(llvm::StringRef message) {
  struct Known {
    const char *name, *text;
  };
  constexpr Known known[] = {
      {"texture", "textures aren't tensors: a task can't read them"},
      {"surface", "surfaces aren't tensors: a task can't use them"},
      {"__u128AtomicCAS", "atomics have 64 bits at most"},
      {"__u128AtomicExch", "atomics have 64 bits at most"},
      {"__prof_trigger", "maco-run --profile says what ops take"},
      {"_alloca", "a task's memory is that of its tensors and its block's shared memory"},
      {"__syncthreads_", "__syncthreads, _count, _and and _or are there"},
      {"CUDART_PI_F", "<math_constants.h> has it"},
  };
  for (const char* begin : {"use of undeclared identifier '", "no template named '",
                            "unknown type name '", "no matching function for call to '"}) {
    if (!message.starts_with(begin)) continue;
    const llvm::StringRef name =
        message.drop_front(std::strlen(begin)).take_until([](char c) { return c == '\''; });
    for (const Known& k : known)
      if (name == k.name || (name.starts_with(k.name) && name.ends_with("_block")) ||
          (name.starts_with(k.name) && name.ends_with("_system")))
        return std::string("; ") + k.text;
  }
  return "";
}

}  // namespace

void Said::HandleDiagnostic(DiagnosticsEngine::Level level, const Diagnostic& info) {
  DiagnosticConsumer::HandleDiagnostic(level, info);
  const bool note = level == DiagnosticsEngine::Note && told_;
  if (level < DiagnosticsEngine::Error && !note) {
    told_ = false;
    return;
  }
  llvm::SmallString<256> text;
  info.FormatDiagnostic(text);
  Line line;
  line.error.message = text.str().str() + instead(text);
  line.error.note = note;
  if (info.hasSourceManager() && info.getLocation().isValid()) {
    line.at = info.getLocation();
    const PresumedLoc at =
        info.getSourceManager().getPresumedLoc(info.getSourceManager().getFileLoc(line.at));
    if (at.isValid()) {
      line.error.file = at.getFilename();
      line.error.line = static_cast<int32_t>(at.getLine());
      line.error.column = static_cast<int32_t>(at.getColumn());
    }
  }
  line.behind = line.error.file == "maco";
  if (note) {
    errors_.back().notes.push_back(std::move(line));
    return;
  }
  told_ = !line.behind;
  if (told_)
    errors_.push_back({std::move(line), {}});
  else
    behind_.push_back(std::move(line.error.message));
}

void Said::put(const Error& error, KernelReply& reply) {
  reply.errors.push_back(error.line.error);
  for (const Line& note : error.notes)
    if (!note.behind) reply.errors.push_back(note.error);
}

void Said::report(const SourceManager& sources, const std::function<bool(SourceLocation)>& needed,
                  KernelReply& reply) const {
  const auto asked = [](const Line& note) {
    const StringRef message = note.error.message;
    return message.starts_with("in instantiation of") || message.starts_with("while substituting");
  };
  for (const Error& error : errors_) {
    // An instance is compiled once, whoever asks for it first.
    const bool asks = std::any_of(error.notes.begin(), error.notes.end(), [&](const Line& note) {
      return asked(note) && (note.behind || (is_users(sources, note.at) && needed(note.at)));
    });
    if (asks || needed(error.line.at)) put(error, reply);
  }
}

void Said::report_all(KernelReply& reply) const {
  for (const Error& error : errors_) put(error, reply);
}

std::vector<SourceLocation> Said::places() const {
  std::vector<SourceLocation> places;
  for (const Error& error : errors_)
    if (error.line.at.isValid()) places.push_back(error.line.at);
  return places;
}

}  // namespace maco::frontend::cuda
