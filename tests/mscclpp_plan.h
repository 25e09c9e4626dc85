// MSCCL++ execution plans as text, for tests.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

namespace maco::test {

/// A plan of ranks that all have the same: `memory` and `port` channels to each other rank in
/// ascending order, a switch channel of all ranks for `group`, and the peers' memory: input, output
/// and scratch of the first peer, then of the next. Thread blocks number all of them as the rank
/// does.
struct Plan {
  std::string name = "p", collective = "allreduce";
  int world = 2;
  int input = 4, output = 4, scratch = 4;
  bool in_place = false;
  int memory = 1, port = 1;
  std::string group = "i";
  std::vector<std::string> semaphores;        // of each rank: "{\"init_value\":0}"
  std::vector<std::vector<std::string>> ops;  // of rank and thread block; ops[0] if it is alone

  std::string text() const {
    std::string gpus;
    for (int rank = 0; rank < world; ++rank) {
      std::vector<int> peers, memory_peers, port_peers, memory_ids, port_ids, remote_ids;
      std::vector<std::string> remote;
      for (int p = 0; p < world; ++p) {
        if (p == rank) continue;
        peers.push_back(p);
        for (const char* buffer : {"i", "o", "s"}) {
          remote_ids.push_back(static_cast<int>(remote.size()));
          remote.push_back(fmt::format(
              R"({{"rank":{},"type":"{}","access_channel_types":["memory","port"]}})", p, buffer));
        }
      }
      for (int i = 0; i < memory; ++i)
        for (int p : peers) {
          memory_ids.push_back(static_cast<int>(memory_peers.size()));
          memory_peers.push_back(p);
        }
      for (int i = 0; i < port; ++i)
        for (int p : peers) {
          port_ids.push_back(static_cast<int>(port_peers.size()));
          port_peers.push_back(p);
        }
      std::vector<int> all;
      for (int p = 0; p < world; ++p) all.push_back(p);
      std::vector<std::string> blocks;
      for (const std::string& block : ops.size() == 1 ? ops[0] : ops[static_cast<size_t>(rank)])
        blocks.push_back(fmt::format(
            R"({{"id":{},"ops":[{}],)"
            R"("channels":[{{"channel_type":"memory","channel_ids":[{}]}},)"
            R"({{"channel_type":"port","channel_ids":[{}]}},)"
            R"({{"channel_type":"switch","channel_ids":[0]}}],)"
            R"("remote_buffer_refs":[{{"access_channel_type":"memory","remote_buffer_ids":[{}]}},)"
            R"({{"access_channel_type":"port","remote_buffer_ids":[{}]}}]}})",
            blocks.size(), block, fmt::join(memory_ids, ","), fmt::join(port_ids, ","),
            fmt::join(remote_ids, ","), fmt::join(remote_ids, ",")));
      gpus += fmt::format(
          R"({}{{"id":{},"input_chunks":{},"output_chunks":{},"scratch_chunks":{},)"
          "\n\"threadblocks\":[{}],\n"
          R"("channels":[{{"channel_type":"memory","connected_to":[{}]}},)"
          R"({{"channel_type":"port","connected_to":[{}]}},)"
          R"({{"channel_type":"switch","buffer_type":"{}",)"
          R"("rank_groups":[{{"size":{},"ranks":[{}]}}]}}],)"
          R"("remote_buffers":[{}],"semaphores":[{}]}})",
          rank == 0 ? "" : ",\n", rank, input, output, scratch, fmt::join(blocks, ",\n"),
          fmt::join(memory_peers, ","), fmt::join(port_peers, ","), group, world,
          fmt::join(all, ","), fmt::join(remote, ","),
          semaphores.empty() ? "" : semaphores[static_cast<size_t>(rank) % semaphores.size()]);
    }
    return fmt::format(
        R"({{"name":"{}","collective":"{}","protocol":"Simple","inplace":{},"gpus":[)"
        "\n{}\n"
        R"(],"num_threads_per_block":1024,"max_message_size":18446744073709551615}})",
        name, collective, in_place, gpus);
  }
};

/// Chunks of the rank itself, of buffer "i", "o" or "s".
inline std::string own(const std::string& buffer, int index, int size = 1) {
  return fmt::format(R"({{"type":"{}","index":{},"size":{}}})", buffer, index, size);
}
/// Chunks of entry `id` of the peers' memory that the thread block numbers.
inline std::string peers(int id, int index, int size = 1) {
  return fmt::format(R"({{"buffer_id":{},"index":{},"size":{}}})", id, index, size);
}
/// An operation that moves chunks; `more`: its other keys.
inline std::string moves(const std::string& name, const std::string& from, const std::string& to,
                         const std::string& more = R"("channel_type":"memory")") {
  return fmt::format(R"({{"name":"{}","src_buff":[{}],"dst_buff":[{}],{}}})", name, from, to, more);
}
/// One that signals, waits or flushes on channels.
inline std::string syncs(const std::string& name, const std::string& ids,
                         const std::string& type = "memory") {
  return fmt::format(R"({{"name":"{}","channel_ids":[{}],"channel_type":"{}"}})", name, ids, type);
}

}  // namespace maco::test
