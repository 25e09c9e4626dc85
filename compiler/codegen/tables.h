// The constant tables of kernel.cu: streams, calls, operands, waits and signals. Rows are
// initialisers without what is zero at their end, several in a line; lists of waits and signals
// that several tasks have stand there once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/emitter.h"
#include "compiler/codegen/manifest.h"
#include "ir/program.h"

namespace maco::codegen {

/// A local event whose signals and waits are at sys scope. Words of peer events and packets always
/// are: nothing else reaches a peer.
bool is_counter_at_sys_scope(const ir::Event& event);

/// Whether a CTA's loader may load as soon as a task's waits are over, before the consumers come to
/// it. Not where packets tell of data: nobody knows of those but who polls them.
bool scouts(const ir::Program& program);

class Tables {
 public:
  /// All are kept by reference.
  Tables(const ir::Program& program, const EventNumbers& events, const MapNumbers& maps);

  /// How much there is of what rows name by number, and how much they can name.
  struct Limit {
    int64_t n, most;
    const char* what;
  };
  std::vector<Limit> limits() const;
  /// Whether any task waits for a hint.
  bool has_hints() const;
  /// Are there mates? Then CTAs come in clusters of two.
  bool has_mates() const;
  /// Takes limits() that are held. `kinds`: by call, the number of its kind of task.
  void emit(Emitter& e, const std::vector<size_t>& kinds) const;

 private:
  // How a task is synchronised: guards_[guard] are the ranks that run it, and syncs_[first] on has
  // its waits, then its signals.
  struct Sync {
    uint32_t guard = 0, first = 0, waits = 0, signals = 0;
    bool packets = false;  // it sends packets
    bool polls = false;    // all packets that it reads, without waiting for hints
    // Places back in its stream to the last task that writes what its loads read, at most; 0: none.
    uint32_t writer = 0;
  };

  void add_guards();
  void find_hints();
  bool is_hint(ir::EventId id) const { return p_[id].kind == ir::EventKind::Hint; }
  void add_syncs();
  void find_writers();
  using SyncRow = std::array<int64_t, 6>;
  SyncRow sync_row(ir::EventId id, ir::RankRef who, uint32_t lag) const;
  /// "r_(44,4),": a row of an event of peers by the macros of the table; nothing for other rows.
  static std::optional<std::string> short_form(const SyncRow& row);
  void emit_operands(Emitter& e) const;
  void emit_calls(Emitter& e, const std::vector<size_t>& kinds) const;
  void emit_tasks(Emitter& e, const std::vector<size_t>& kinds) const;
  std::vector<std::array<int64_t, 3>> call_rows(const std::vector<size_t>& kinds) const;
  std::array<int64_t, 8> task_row(ir::TaskId id) const;
  void emit_syncs(Emitter& e) const;
  std::string role_of(int32_t sm) const;

  const ir::Program& p_;
  const EventNumbers& events_;
  const MapNumbers& maps_;
  std::vector<uint64_t> guards_;
  std::vector<Sync> sync_of_task_;
  std::vector<bool> awaited_;  // by event: hints that somebody waits for
  std::vector<SyncRow> syncs_;
};

}  // namespace maco::codegen
