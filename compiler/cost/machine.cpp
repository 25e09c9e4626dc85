#include "compiler/cost/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "compiler/cost/boards.h"
#include "ir/check.h"

namespace maco::cost {

namespace {

// What today's device functions need, whatever the graph. Emitted code takes its shape from the
// Program, and asserts that its own state fits in the head.
constexpr int32_t kConsumers = 256, kLoaders = 32, kSignallers = 32;
constexpr int64_t kHeadBytes = 3072, kScratchBytes = 16384;
// Additional bytes of the head if a signaller prepares tasks. On a GPU with a ring and few ranks
// they fit anyway: a CTA's state was reduced for that (runtime/device/context.cuh).
constexpr int64_t kPreparedBytes = 3072, kFewRanks = 8;
// Registers of a thread if roles divide registers. Three groups of 128 threads are launched with
// 168 registers each.
constexpr int32_t kConsumerRegisters = 224, kLoaderRegisters = 56;

// The most registers that the compiler gives a thread when CTAs of `threads` threads are launched,
// one on each SM. An SM has four parts with a quarter of the registers each, to which warps go in
// turn, and allots eight registers a thread at a time.
int32_t registers_of(const Machine& machine, int32_t threads) {
  constexpr int32_t most = 255, step = 8, warp = 32, parts = 4;
  const int32_t warps = (threads + parts * warp - 1) / (parts * warp) * parts;
  const int32_t share = machine.registers / (warps * warp) / step * step;
  return share < most ? share : most;
}

}  // namespace

bool Architecture::has_mma(ir::DType dtype) const {
  if (arch == 0) return true;  // any type: the CPU target stands in for all
  if (ir::size_of(dtype) == 1) return arch >= 89;
  return arch >= (dtype == ir::DType::F16 ? 75 : 80);
}

int64_t Architecture::users_shared_bytes() const {
  int64_t most = shared_bytes;
  if (arch == 0)
    for (const Architecture& a : all_architectures()) most = std::max(most, a.shared_bytes);
  return most;
}

int64_t signaller_bytes(const Machine& machine, const ir::Resources& uses, int64_t world) {
  return uses.loaders > 0 && machine.arch > 0 && world <= kFewRanks ? 0 : kPreparedBytes;
}

ir::Resources uses_of(const Machine& machine, int32_t pages, bool divided, int64_t world) {
  ir::Resources uses;
  uses.consumers = kConsumers;
  uses.loaders = pages > 0 ? kLoaders : 0;
  if (divided && pages > 0 && machine.divides_registers()) {
    // The signaller is one of the warps that complete the loaders' group. Long tasks in sequence
    // gain by it. Short tasks that wait for each other on different SMs get the signal 0.16 us
    // later (docs/benchmarks/logs/signaller-h200.txt).
    uses.signallers = kSignallers;
    uses.spare = ir::Resources::kRegisterGroup - kLoaders - uses.signallers;
    uses.consumer_registers = kConsumerRegisters;
    uses.loader_registers = kLoaderRegisters;
  }
  uses.registers = registers_of(machine, uses.threads());
  uses.head_bytes = kHeadBytes + (uses.signallers > 0 ? signaller_bytes(machine, uses, world) : 0);
  uses.scratch_bytes = kScratchBytes;
  if (pages > 0) {
    uses.pages = pages;
    uses.page_bytes = machine.page_bytes;
  }
  return uses;
}

void add_signaller(const Machine& machine, ir::Resources& uses, int64_t world) {
  if (uses.signallers > 0) return;
  const int64_t more = signaller_bytes(machine, uses, world);
  if (uses.shared_bytes() + more > machine.shared_bytes) return;
  // Without a loader tasks are short: two warps look them up ahead, and one signals.
  uses.signallers = uses.loaders > 0 ? kSignallers : 3 * kSignallers;
  uses.head_bytes += more;
  uses.registers = registers_of(machine, uses.threads());
}

ir::Limits limits_of(const Machine& machine, int64_t sms) {
  ir::Limits limits;
  limits.sms = static_cast<int32_t>(sms);
  limits.threads = machine.threads;
  limits.registers = machine.registers;
  limits.shared_bytes = machine.shared_bytes;
  return limits;
}

// Threads, registers and shared memory are from NVIDIA's tables of compute capabilities. Those of
// the CPU target are a small GPU's, since its kernels also run on one.
const std::vector<Architecture>& all_architectures() {
  constexpr int kib = 1024;
  static const std::vector<Architecture> architectures = {
      {"sm_90a", 90, 1024, 64 * kib, 227 * kib, 16 * kib, 13, 13, "h200"},
      {"sm_100a", 100, 1024, 64 * kib, 227 * kib, 16 * kib, 13, 13, "b200"},
      {"sm_120", 120, 1024, 64 * kib, 99 * kib, 16 * kib, 4, 4, "rtx-pro-6000"},
      {"sm_89", 89, 1024, 64 * kib, 99 * kib, 16 * kib, 4, 4, "l40s"},
      {"sm_86", 86, 1024, 64 * kib, 99 * kib, 16 * kib, 4, 4, "a40"},
      {"sm_80", 80, 1024, 64 * kib, 163 * kib, 16 * kib, 8, 8, "a100"},
      {"sm_75", 75, 1024, 64 * kib, 64 * kib, 8 * kib, 4, 4, "t4"},
      {"sm_70", 70, 1024, 64 * kib, 96 * kib, 16 * kib, 4, 4, "v100"},
      {"cpu", 0, 1024, 64 * kib, 64 * kib, 4 * kib, 10, 3, "cpu"},
  };
  return architectures;
}

namespace {

const Architecture* find_architecture(std::string_view target) {
  for (const Architecture& a : all_architectures())
    if (a.target == target) return &a;
  return nullptr;
}

}  // namespace

const std::vector<Machine>& all_machines() {
  static const std::vector<Machine> machines = [] {
    std::vector<Machine> list;
    for (const Board& board : all_boards()) {
      const Architecture* architecture = find_architecture(board.of_target);
      MACO_CHECK(architecture, board.board);
      list.push_back({*architecture, board});
    }
    return list;
  }();
  return machines;
}

namespace {

// The value of MACO_CPU_SMS; 0 if it isn't set or isn't valid.
int32_t chosen_cpu_sms() {
  const char* text = std::getenv(kCpuSms);
  int32_t sms = 0;
  if (!text || *text == 0) return 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, code] = std::from_chars(text, end, sms);
  return code == std::errc() && rest == end && sms >= 1 && sms <= kMostCpuSms ? sms : 0;
}

// The board of the CPU target with `sms` SMs.
const Machine* cpu_with(const Machine& usual, int32_t sms) {
  static std::mutex mutex;
  static std::map<int32_t, Machine> made;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = made.try_emplace(sms, usual);
  if (is_new) {
    found->second.sms = sms;
    found->second.sms_source = kCpuSms;
  }
  return &found->second;
}

const Machine* find_own(std::string_view board) {
  for (const Machine& m : all_machines())
    if (m.board == board) return &m;
  return nullptr;
}

// Machines of boards that users describe in files.
class FromFiles {
 public:
  static FromFiles& instance() {
    static FromFiles all;
    return all;
  }
  const Machine* named(std::string_view board) {
    const std::lock_guard lock(mutex_);
    const auto at = named_.find(board);
    return at == named_.end() ? nullptr : at->second.get();
  }
  // The machine that the file describes; nullptr, and why.
  const Machine* of_file(const std::string& path, std::string& why) {
    const std::lock_guard lock(mutex_);
    if (const auto at = files_.find(path); at != files_.end()) return at->second;
    std::optional<Board> board = read_board_file(path, why);
    if (!board) return nullptr;
    const Architecture* const architecture = find_architecture(board->of_target);
    if (!architecture) {
      why = fmt::format("is for target '{}', which MACO doesn't know", board->of_target);
      return nullptr;
    }
    if (find_own(board->board)) {
      why = fmt::format("has the name '{}', which a board of MACO's has", board->board);
      return nullptr;
    }
    auto machine = std::make_unique<Machine>(Machine{*architecture, *board});
    const auto [at, is_new] = named_.try_emplace(board->board, std::move(machine));
    if (!is_new) {
      why = fmt::format("has the name '{}', which another file's board has", board->board);
      return nullptr;
    }
    files_[path] = at->second.get();
    return at->second.get();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Machine>, std::less<>> named_;
  std::map<std::string, const Machine*> files_;  // by path
};

}  // namespace

const Machine* find_board(std::string_view board, std::string& why) {
  if (is_board_file(board)) return FromFiles::instance().of_file(std::string(board), why);
  if (const Machine* const m = find_own(board)) {
    const int32_t sms = m->arch == 0 ? chosen_cpu_sms() : 0;
    return sms == 0 ? m : cpu_with(*m, sms);
  }
  return FromFiles::instance().named(board);
}

const Machine* find_board(std::string_view board) {
  std::string why;
  return find_board(board, why);
}

const Machine* find_machine(std::string_view target, std::string_view board) {
  const Architecture* architecture = find_architecture(target);
  if (!architecture) return nullptr;
  const Machine* machine = find_board(board.empty() ? architecture->default_board : board);
  return machine && machine->target == target ? machine : nullptr;
}

const Machine* find_machine(std::string_view target, std::string_view board,
                            ir::Diagnostics& diagnostics) {
  if (const Machine* machine = find_machine(target, board)) {
    const char* chosen = std::getenv(kCpuSms);
    if (machine->arch != 0 || !chosen || *chosen == 0 || chosen_cpu_sms() > 0) return machine;
    diagnostics.error({}, fmt::format("{} is '{}', but must be a number from 1 to {}", kCpuSms,
                                      chosen, kMostCpuSms));
    return nullptr;
  }
  if (!find_architecture(target)) {
    std::vector<std::string> targets;
    for (const Architecture& a : all_architectures()) targets.push_back(a.target);
    diagnostics.error(
        {}, fmt::format("unknown target '{}'{}", target, ir::did_you_mean(target, targets)));
    return nullptr;
  }
  std::string why;
  if (const Machine* other = find_board(board, why)) {
    diagnostics.error({}, fmt::format("board '{}' has GPUs of target '{}', not '{}'", board,
                                      other->target, target));
  } else if (!why.empty()) {
    diagnostics.error({}, fmt::format("board file '{}' {}", board, why));
  } else {
    std::vector<std::string> boards;
    for (const Board& b : all_boards()) boards.push_back(b.board);
    diagnostics.error({},
                      fmt::format("unknown board '{}'{}", board, ir::did_you_mean(board, boards)));
  }
  return nullptr;
}

}  // namespace maco::cost
