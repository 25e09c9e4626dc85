#include "compiler/codegen/device_sources.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>

#include "cmake/embedded.h"
#include "ir/check.h"

extern const maco::EmbeddedFile maco_device_sources[];
extern const size_t maco_device_sources_count;

namespace maco::codegen {

namespace {

constexpr std::string_view kRoot = "runtime/device/";
constexpr std::string_view kCore[] = {"intrinsics/machine.cuh",
                                      "intrinsics/cta.cuh",
                                      "intrinsics/arithmetic.cuh",
                                      "intrinsics/memory.cuh",
                                      "intrinsics/flags.cuh",
                                      "intrinsics/pair.cuh",
                                      "intrinsics/copies.cuh",
                                      "intrinsics/mma.cuh",
                                      "intrinsics/wgmma.cuh",
                                      "intrinsics/profile.cuh",
                                      "abi.cuh",
                                      "numbers.cuh",
                                      "profile.cuh",
                                      "context.cuh",
                                      "sync.cuh",
                                      "packets.cuh",
                                      "pages.cuh",
                                      "advance.cuh",
                                      "worker.cuh",
                                      "expressions.cuh"};

const std::map<std::string, std::string, std::less<>>& files() {
  static const auto table = [] {
    std::map<std::string, std::string, std::less<>> t;
    for (size_t i = 0; i < maco_device_sources_count; ++i)
      t[std::string(maco_device_sources[i].name).substr(kRoot.size())] =
          maco_device_sources[i].text;
    return t;
  }();
  return table;
}

}  // namespace

std::string unknown_header(const functions::Source& source) {
  for (const std::string& header : source.headers)
    if (!files().count(header)) return header;
  return "";
}

std::string cta_source(const ir::Resources& uses, int64_t world, bool scouts) {
  return fmt::format(
      "// -------- the shape of a CTA --------\n"
      "// Threads that run tasks; behind them threads that fill pages, that signal, that leave at\n"
      "// once; tasks that a signaller prepares ahead; registers of consumers and of others, if\n"
      "// roles divide them; bytes of shared memory for the CTA's own books and for the task that\n"
      "// runs, then pages; ranks; whether waits are looked at ahead of the consumers.\n"
      "{}"
      "namespace maco {{\n"
      "struct Cta {{\n"
      "  static constexpr int kConsumers = {}, kLoaders = {}, kSignallers = {}, kSpare = {};\n"
      "  static constexpr int kPrepared = {};\n"
      "  static constexpr int kConsumerRegisters = {}, kLoaderRegisters = {};\n"
      "  static constexpr int kHeadBytes = {}, kScratchBytes = {};\n"
      "  static constexpr int kPages = {}, kPageBytes = {};\n"
      "  static constexpr int kWorld = {};\n"
      "  static constexpr bool kScouts = {};\n"
      "}};\n"
      "}}  // namespace maco\n\n",
      uses.divides_registers() ? "#define MACO_DIVIDES_REGISTERS\n" : "", uses.consumers,
      uses.loaders, uses.signallers, uses.spare, uses.prepared(), uses.consumer_registers,
      uses.loader_registers, uses.head_bytes, uses.scratch_bytes, uses.pages, uses.page_bytes,
      world, scouts);
}

std::string device_header(std::string_view name) {
  const auto it = files().find(name);
  MACO_CHECK(it != files().end(), std::string(name));
  return it->second;
}

std::string device_sources(const std::vector<const functions::Function*>& functions,
                           const std::vector<const functions::Method*>& methods, bool prepared) {
  std::string out;
  std::set<std::string_view> done;
  const auto add = [&](std::string_view title, std::string_view text) {
    out.append("// -------- ").append(title).append(" --------\n").append(text).append("\n");
  };
  const auto add_header = [&](std::string_view name) {
    if (!done.insert(name).second) return;
    const auto it = files().find(name);
    MACO_CHECK(it != files().end(), std::string(name));
    add(std::string(kRoot) + it->first, it->second);
  };
  for (std::string_view core : kCore) add_header(core);
  if (prepared) add_header("prepared.cuh");
  for (const functions::Function* f : functions)
    for (const std::string& header : f->source.headers) add_header(header);
  for (const functions::Method* m : methods)
    for (const std::string& header : m->source.headers) add_header(header);
  // A text may have several functions.
  const auto add_text = [&](const std::string& name, const std::string& text) {
    if (!text.empty() && done.insert(text).second) add(name + ", registered", text);
  };
  for (const functions::Function* f : functions) {
    add_text(f->name, f->source.text);
    for (const std::string& text : f->source.more) add_text("a stage of " + f->name, text);
  }
  for (const functions::Method* m : methods)
    add_text(fmt::format("method {} of {}", m->name, m->function), m->source.text);
  return out;
}

}  // namespace maco::codegen
