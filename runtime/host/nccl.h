// NCCL, opened at run time, and what a rank hands over to it.
//
// A kernel and the library meet in two words for each collective (runtime/device/abi.cuh, Handed).
// The rank's side stream waits until the kernel has raised `ready`, lowers it, runs the collective
// and raises `done`, for which the kernel waits. The library runs on SMs that the kernel leaves
// free.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "ir/manifest.h"
#include "runtime/host/abi.h"
#include "runtime/host/driver.h"
#include "runtime/host/group.h"

namespace maco::runtime {

/// The library's functions. Thread safe.
class Nccl {
 public:
  struct Api;
  using Id = std::array<char, 128>;
  /// Opens NCCL. If $MACO_NCCL is set (a file, or its folder), only from there; else under its
  /// usual name, or from a Python package. Returns null with the reason if there is none.
  static std::shared_ptr<const Nccl> load(Status& status);
  ~Nccl();
  const Api& api() const { return *api_; }
  /// "2.28.9"; and the file.
  const std::string& version() const { return version_; }
  const std::string& path() const;
  /// The id with which all ranks begin. In a group rank 0 makes it and tells the others.
  Status make_id(Group* group, Id& id) const;

 private:
  Nccl();
  std::unique_ptr<Api> api_;
  std::string version_;
};

/// A rank's end of a communicator. Sessions of this process that run the same ranks share it.
class Communicator {
 public:
  /// All ranks call this at once, with one id, each on a thread of its own with its context
  /// current. Returns null with the reason if it fails.
  static std::shared_ptr<Communicator> join(std::shared_ptr<const Nccl> nccl, const Nccl::Id& id,
                                            int rank, int ranks, int sms, Status& status);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// The handle for NCCL's functions; null once a session has given up unfinished work.
  void* handle() const { return comm_; }
  void abort();
  /// All ranks have the same id.
  const Nccl::Id& id() const { return id_; }

  /// The communicator that sessions with the same `key` share; null if there is none, or it was
  /// given up.
  static std::shared_ptr<Communicator> find(const std::string& key);
  static void keep(const std::string& key, const std::shared_ptr<Communicator>& one);

 private:
  Communicator(std::shared_ptr<const Nccl> nccl, const Nccl::Id& id)
      : nccl_(std::move(nccl)), id_(id) {}
  const std::shared_ptr<const Nccl> nccl_;
  const Nccl::Id id_;
  void* comm_ = nullptr;
};

/// A rank's end: its communicator and its side stream. The rank's context is current in all calls,
/// which are made on one thread at a time.
class NcclRank {
 public:
  NcclRank(const cuda::Driver& driver, const Nccl& nccl, const ir::Manifest& manifest, int rank);
  /// Gives up what has not ended.
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  /// Allocates what the rank needs. Called on all ranks before any joins, as a joining rank waits
  /// for all others.
  Status prepare();
  /// All ranks call this at once, each on a thread of its own. Makes the library connect them for
  /// everything that the kernel hands over; later, connecting would wait for the kernel.
  Status connect(std::shared_ptr<Communicator> communicator);
  /// The words, one Handed for each collective: Launch::handed.
  cuda::DevicePtr words() const { return words_; }
  /// Puts a launch's collectives on the side stream. `tensors` and `arena`: the addresses of
  /// operands and results; `values`: Launch::values.
  Status enqueue(const cuda::DevicePtr* tensors, cuda::DevicePtr arena, const int32_t* values);
  /// After a launch that failed, on all ranks at once: lets the collectives for which nobody waits
  /// any more end, and lowers all words. Fails if that takes too long.
  Status drain();

 private:
  Status collective(const ir::ManifestHanded& h, cuda::DevicePtr x, cuda::DevicePtr y,
                    size_t elements);
  Status meet();
  Status check(int result, const std::string& what) const;
  void* comm() const { return communicator_->handle(); }

  const cuda::Driver& driver_;
  const Nccl& nccl_;
  const ir::Manifest& manifest_;
  const int rank_;
  std::shared_ptr<Communicator> communicator_;
  cuda::Stream stream_ = nullptr, side_ = nullptr;
  cuda::DevicePtr words_ = 0, word_ = 0;  // word_: two words for meet
  // An operand and a result, of at most most_ bytes, for the first collectives.
  cuda::DevicePtr first_ = 0;
  size_t most_ = 256;
};

}  // namespace maco::runtime
