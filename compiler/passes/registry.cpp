// The table of passes, in the order in which the pipeline runs them.
#include "compiler/passes/passes.h"

namespace maco::passes {

const std::vector<Pass>& registry() {
  static const std::vector<Pass> table = {
      {"check-support", "refuse by name what can't be compiled", Form::Graph, Form::Cut,
       Form::Supported, check_support, nullptr, nullptr},
      {"canonicalize", "one spelling for each meaning; drop what nothing uses", Form::Supported,
       Form::Cut, Form::Canonical, canonicalize, nullptr, nullptr},
      {"prepare-operands", "operands of products to where loads are quick", Form::Canonical,
       Form::Cut, Form::Canonical, prepare_operands, nullptr, nullptr},
      {"choose-collectives", "an algorithm for each collective", Form::Canonical, Form::Cut,
       Form::Chosen, choose_collectives, nullptr, nullptr},
      {"fuse", "one op of those that are faster together, by rules (--no-fuse)", Form::Chosen,
       Form::Cut, Form::Chosen, fuse, nullptr, nullptr},
      {"assign-roles", "which SMs compute and which communicate", Form::Chosen, Form::Cut,
       Form::Roles, assign_roles, nullptr, nullptr},
      {"choose-tiles", "a method and a tile for each op", Form::Roles, Form::Cut, Form::Cut,
       choose_tiles, nullptr, nullptr},
      {"tile", "cut ops into tasks with the regions they touch", Form::Cut, Form::Cut, Form::Tiled,
       nullptr, tile, nullptr},
      {"send-packets", "small temporaries as packets, whose flags show that they are there",
       Form::Tiled, Form::Tiled, Form::Tiled, nullptr, nullptr, send_packets},
      {"plan-memory", "addresses of temporaries, by lifetime and branch, and of slots", Form::Tiled,
       Form::Tiled, Form::Planned, nullptr, nullptr, plan_memory},
      {"schedule", "an SM and a place in its stream for each task", Form::Planned, Form::Planned,
       Form::Scheduled, nullptr, nullptr, schedule},
      {"insert-sync", "events for every dependency between regions", Form::Scheduled,
       Form::Scheduled, Form::Synced, nullptr, nullptr, insert_sync},
      {"prune-sync", "remove waits that stream order or other waits imply", Form::Synced,
       Form::Synced, Form::Synced, nullptr, nullptr, prune_sync},
      {"share-slots", "slots that are never in use at once in one place", Form::Synced,
       Form::Synced, Form::Synced, nullptr, nullptr, share_slots},
      {"verify", "prove what the Program's stage promises", Form::Tiled, Form::Synced, Form::Tiled,
       nullptr, nullptr, verify},
  };
  return table;
}

const Pass* find_pass(std::string_view name) {
  for (const Pass& p : registry())
    if (p.name == name) return &p;
  return nullptr;
}

}  // namespace maco::passes
