// One rank on one GPU: its module, memory, streams and launches.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/host/abi.h"
#include "runtime/host/driver.h"
#include "runtime/host/nccl.h"
#include "runtime/host/symmetric.h"
#include "runtime/host/tensor_tables.h"

namespace maco::runtime {

/// The least memory of a GPU that a rank takes, without tensors that the caller provides.
size_t device_bytes(const ir::Manifest& manifest, const SessionOptions& options = {});
/// Fails, with the numbers, if `ranks` ranks don't fit into `free` of `total` bytes.
Status check_memory(const ir::Manifest& manifest, int ranks, const cuda::DeviceInfo& device,
                    size_t free, size_t total, const SessionOptions& options = {});

/// Built in steps: open, load, allocate, bind, connect; then reset, and from then on only copies
/// and launches. Steps of one rank are called on one thread at a time; each first makes the rank's
/// context current.
class CudaRank {
 public:
  /// `sharing`: how many ranks run on this GPU. All arguments must outlive the object.
  CudaRank(const cuda::Driver& driver, const ir::Manifest& manifest, const SessionOptions& options,
           int rank, const cuda::DeviceInfo& device, int sharing);
  /// Frees everything, unless the rank was abandoned.
  ~CudaRank();
  CudaRank(const CudaRank&) = delete;
  CudaRank& operator=(const CudaRank&) = delete;

  Status open();
  /// Loads the code, and checks that all CTAs of all ranks on this GPU can be resident at once.
  Status load(const std::string& image);
  /// Whether the GPU has the memory that all of its ranks will allocate. Called before any of them
  /// allocates.
  Status check_free_memory() const;
  Status allocate();
  Status bind(const SymmetricMemory& symmetric, const SymmetricLayout& layout);

  /// For a kernel that hands collectives over to NCCL: prepares all ranks before all join at once.
  Status prepare_hand_over(const Nccl& nccl);
  /// The key by which sessions share a communicator: the rank's place among the others, and its
  /// SMs.
  std::string communicator_key() const;
  /// With `id`: joins a new communicator with that id; else takes the existing one with that key.
  Status connect(std::shared_ptr<const Nccl> nccl, const Nccl::Id* id);

  /// Runs maco_reset: sets counters and this rank's symmetric memory as before launch `epoch`, and
  /// clears the reports. Waits for it.
  Status reset(uint32_t epoch);
  /// A tensor's address; 0: none yet. Changes take effect with `place_tensors`.
  cuda::DevicePtr tensor(size_t i) const { return tensors_[i]; }
  void bind_tensor(size_t i, cuda::DevicePtr memory);
  Status allocate_tensor(size_t i);
  /// Tells the kernel the tensors' addresses, if they have changed. Waits for it.
  Status place_tensors();
  Status write(size_t tensor, size_t offset, const void* data, size_t bytes);
  Status read(size_t tensor, size_t offset, void* data, size_t bytes);
  /// The stamps of the last launch.
  Status read_stamps(RankStamps& stamps);

  /// Sets Launch::values of the following launches.
  void set_values(const std::vector<int32_t>& values);
  /// From now on launches are numbered in the rank's memory: `epoch` is the next number, and `left`
  /// launches are allowed until a reset. They get their values from `set_variables`. Waits for it.
  Status number(uint32_t epoch, uint32_t left);
  /// How many of these launches are left.
  Status read_left(uint32_t& left);
  /// Sets dims and scalars of the following launches, at most kMaxVariables.
  void set_variables(const std::vector<LaunchVariable>& variables);
  /// Puts a launch on the stream, with `begin` and `end` around it unless they are null. Doesn't
  /// wait.
  Status enqueue(uint32_t epoch, cuda::Event begin, cuda::Event end);
  /// Puts the collectives that a launch hands over on the rank's side stream.
  Status enqueue_handed();
  /// Holds the stream until the host-visible word `gate` reaches `value`; does nothing on devices
  /// that can't wait for a word.
  void enqueue_gate(cuda::DevicePtr gate, uint32_t value);
  /// Waits for everything that was enqueued, or until `give_up`; fails if the kernel faulted or was
  /// given up.
  Status wait(const std::atomic<bool>& give_up);
  /// Puts a launch on any stream (null: the device's default one), behind the last launch that was
  /// enqueued in this way. `wait_for_last` and `last_ended` refer to that one. `places`: tensors
  /// with other addresses in this launch; this rank is number `here` of its process's.
  Status enqueue_on(cuda::Stream stream, uint32_t epoch, TensorPlaces places, size_t here);
  /// Puts a launch, whose number is in the rank's memory, on a stream that is being captured.
  Status capture_on(cuda::Stream stream, TensorPlaces places, size_t here);
  Status is_capturing(cuda::Stream stream, bool& capturing) const;
  /// Waits for everything on the GPU; fails while one of its streams is being captured.
  Status synchronize() const;
  cuda::Stream own_stream() const { return stream_; }
  Status wait_for_last(const std::atomic<bool>& give_up);
  Status last_ended(bool& ended);
  /// Whether `place_tensors` has changes to tell.
  bool moved() const { return moved_; }
  cuda::Result make_events(size_t count);
  cuda::Event event(size_t i) const { return events_[i]; }

  /// While a kernel runs. read_heartbeat: a number that changes with this rank's heartbeat, in a
  /// group with any rank's; returns false if it can't be read. write_abort: an abort as a peer
  /// would write it, for 1 + `rank` that is gone, or the host (the world's size). In a group the
  /// ranks of other processes are told, too.
  bool read_heartbeat(uint32_t& heartbeat);
  void write_abort(int rank);
  /// Waits until the abort has been written.
  Status settle() const;

  /// One for each CTA. Not while a kernel runs.
  std::span<const Report> reports() const { return {reports_, ctas()}; }
  SymmetricRank place() const { return {device_.device, device_.index, context_}; }
  /// Frees nothing from now on: a kernel still runs in this memory.
  void abandon() { abandoned_ = true; }

 private:
  Status check(cuda::Result result, const std::string& what) const;
  /// As check, for a status that is already a failure.
  Status of_rank(Status status) const;
  /// The tensors' addresses with these places; valid until the next call.
  std::span<const cuda::DevicePtr> with_places(TensorPlaces places, size_t here);
  Status start_with(const TensorTables::Table& table, cuda::Stream stream);
  Status make_current() const;
  Status allocate_device(cuda::DevicePtr& memory, size_t bytes, const std::string& what);
  /// Encodes the maps of tensors and temporaries, whose addresses are known.
  Status encode_maps();
  Status copy_pointers(cuda::DevicePtr to, const std::vector<cuda::DevicePtr>& pointers);
  Status check_residency() const;
  int free_sms() const { return device_.multiprocessors - static_cast<int>(manifest_.ctas); }
  Status start(cuda::Function function, size_t shared, bool cooperative, cuda::Stream stream);
  // Starts the kernel so that it may begin before the launch before it has ended; the code waits
  // for that.
  Status start_early(bool cooperative, cuda::Stream stream);
  Status start_kernel(cuda::Stream stream);
  // Waits until query() returns something other than 'not ready'.
  template <class Query>
  Status wait_until(const std::atomic<bool>& give_up, Query query);
  bool side_done();
  size_t ctas() const { return static_cast<size_t>(manifest_.ctas); }

  const cuda::Driver& driver_;
  const ir::Manifest& manifest_;
  const SessionOptions& options_;
  const int rank_;
  const cuda::DeviceInfo& device_;
  const int sharing_;
  bool abandoned_ = false;
  bool early_ = false;  // launches that number themselves use start_early

  cuda::Context context_ = nullptr;
  cuda::Module module_ = nullptr;
  cuda::Function kernel_ = nullptr, reset_ = nullptr;
  cuda::Stream stream_ = nullptr, side_ = nullptr;
  std::vector<cuda::Event> events_;
  cuda::Event last_ = nullptr;             // after the last launch that was enqueued on some stream
  uint64_t last_stream_ = 0;               // the id of that stream
  std::vector<cuda::DevicePtr> memory_;    // everything to free
  std::vector<cuda::DevicePtr> tensors_;   // one for each tensor of the manifest
  bool moved_ = true;                      // since place_tensors
  std::vector<cuda::DevicePtr> placed_;    // in the last launch with places; else empty
  std::unique_ptr<TensorTables> tables_;   // set once a launch had places
  std::vector<cuda::DevicePtr> controls_;  // this rank's; in a group all ranks'
  Report* reports_ = nullptr;              // host memory, mapped
  // Host memory for copies while a kernel runs: [0] heartbeat, [1] abort.
  uint32_t* words_ = nullptr;
  cuda::DevicePtr cta_stamps_ = 0, task_stamps_ = 0;  // for a profile
  cuda::DevicePtr states_ = 0;  // LaunchState, one for each CTA, in use or not
  Launch launch_{};
  std::unique_ptr<NcclRank> nccl_;  // if the kernel hands collectives over
};

}  // namespace maco::runtime
