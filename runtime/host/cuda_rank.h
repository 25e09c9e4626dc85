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

/// The least memory of a GPU that a rank takes, without that of tensors that the caller provides.
size_t device_bytes(const ir::Manifest& manifest, const SessionOptions& options = {});
/// A failure that gives the numbers if `ranks` ranks don't fit into `free` of `total` bytes.
Status check_memory(const ir::Manifest& manifest, int ranks, const cuda::DeviceInfo& device,
                    size_t free, size_t total, const SessionOptions& options = {});

/// Built in steps: open, load, allocate, bind, connect; then reset, and from then on only copies
/// and launches. Steps of one rank are called on one thread at a time; all make the rank's context
/// current first.
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
  /// Loads the code and checks that all CTAs of all ranks on this GPU can be resident at once.
  Status load(const std::string& image);
  /// Whether the GPU has the memory that all of its ranks will allocate. Before any of them does.
  Status check_free_memory() const;
  Status allocate();
  Status bind(const SymmetricMemory& symmetric, const SymmetricLayout& layout);

  /// Where the kernel hands collectives over to NCCL: gets ready on all ranks, before all join at
  /// once.
  Status prepare_hand_over(const Nccl& nccl);
  /// What sessions share a communicator by: the rank's place among the others, and its SMs.
  std::string communicator_key() const;
  /// With `id`: joins a communicator that begins with it; else the one that is there by that key.
  Status connect(std::shared_ptr<const Nccl> nccl, const Nccl::Id* id);

  /// Runs maco_reset: counters and this rank's symmetric memory as before launch `epoch`; clears
  /// the reports. Waits for it.
  Status reset(uint32_t epoch);
  /// Where a tensor lives; 0: nowhere yet. What changes takes effect with `place_tensors`.
  cuda::DevicePtr tensor(size_t i) const { return tensors_[i]; }
  void bind_tensor(size_t i, cuda::DevicePtr memory);
  Status allocate_tensor(size_t i);
  /// Tells the kernel where the tensors live, if that has changed. Waits for it.
  Status place_tensors();
  Status write(size_t tensor, size_t offset, const void* data, size_t bytes);
  Status read(size_t tensor, size_t offset, void* data, size_t bytes);
  /// Of the last launch.
  Status read_stamps(RankStamps& stamps);

  /// Launch::values of the launches that follow.
  void set_values(const std::vector<int32_t>& values);
  /// From now on launches are numbered in the rank's memory: `epoch` is the next one, and there may
  /// be `left` until a reset. They get their values from `set_variables`. Waits for it.
  Status number(uint32_t epoch, uint32_t left);
  /// How many of those are left.
  Status read_left(uint32_t& left);
  /// Dims and scalars of the launches that follow, at most kMaxVariables.
  void set_variables(const std::vector<LaunchVariable>& variables);
  /// Puts a launch on the stream, and `begin` and `end` around it unless they are null. Doesn't
  /// wait.
  Status enqueue(uint32_t epoch, cuda::Event begin, cuda::Event end);
  /// Puts what the kernel of a launch hands over on the rank's side stream.
  Status enqueue_handed();
  /// Holds the stream until the host-visible word `gate` reaches `value`; does nothing on devices
  /// that can't wait for a word.
  void enqueue_gate(cuda::DevicePtr gate, uint32_t value);
  /// Waits for all that was enqueued, or until `give_up`; fails if the kernel faulted or was given
  /// up.
  Status wait(const std::atomic<bool>& give_up);
  /// The same on any stream (null: the device's default one), behind the last launch that was
  /// enqueued so, which `wait_for_last` and `last_ended` are about.
  /// `places`: tensors that it has elsewhere, this rank as number `here` of its process's.
  Status enqueue_on(cuda::Stream stream, uint32_t epoch, TensorPlaces places, size_t here);
  /// Puts a launch, whose number the rank's memory has, on a stream that is being captured.
  Status capture_on(cuda::Stream stream, TensorPlaces places, size_t here);
  Status is_capturing(cuda::Stream stream, bool& capturing) const;
  /// Waits for all that runs on the GPU; fails while a stream of it is being captured.
  Status synchronize() const;
  cuda::Stream own_stream() const { return stream_; }
  Status wait_for_last(const std::atomic<bool>& give_up);
  Status last_ended(bool& ended);
  /// Whether `place_tensors` has something to tell.
  bool moved() const { return moved_; }
  cuda::Result make_events(size_t count);
  cuda::Event event(size_t i) const { return events_[i]; }

  /// While a kernel runs: a number that changes with this rank's heartbeat, in a group with any
  /// rank's (false if it can't be had), and an abort as a peer
  /// would write it, for 1 + `rank` that is gone, or the host (the world's size). In a group the
  /// other processes' ranks are told, too.
  bool read_heartbeat(uint32_t& heartbeat);
  void write_abort(int rank);
  /// Waits until that has been written.
  Status settle() const;

  /// One a CTA. Not while a kernel runs.
  std::span<const Report> reports() const { return {reports_, ctas()}; }
  SymmetricRank place() const { return {device_.device, device_.index, context_}; }
  /// Never frees anything: a kernel still runs in this memory.
  void abandon() { abandoned_ = true; }

 private:
  Status check(cuda::Result result, const std::string& what) const;
  /// The same of what failed already.
  Status of_rank(Status status) const;
  /// Where tensors are with these places; stays until the next call.
  std::span<const cuda::DevicePtr> with_places(TensorPlaces places, size_t here);
  Status start_with(const TensorTables::Table& table, cuda::Stream stream);
  Status make_current() const;
  Status allocate_device(cuda::DevicePtr& memory, size_t bytes, const std::string& what);
  /// Of tensors and temporaries, which have their addresses.
  Status encode_maps();
  Status copy_pointers(cuda::DevicePtr to, const std::vector<cuda::DevicePtr>& pointers);
  Status check_residency() const;
  int free_sms() const { return device_.multiprocessors - static_cast<int>(manifest_.ctas); }
  Status start(cuda::Function function, size_t shared, bool cooperative, cuda::Stream stream);
  // A launch of the kernel that may begin before the one in front of it has ended, which its code
  // waits for.
  Status start_early(bool cooperative, cuda::Stream stream);
  Status start_kernel(cuda::Stream stream);
  // Until query() says anything but 'not ready'.
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
  bool early_ = false;  // launches that number themselves are start_early's

  cuda::Context context_ = nullptr;
  cuda::Module module_ = nullptr;
  cuda::Function kernel_ = nullptr, reset_ = nullptr;
  cuda::Stream stream_ = nullptr, side_ = nullptr;
  std::vector<cuda::Event> events_;
  cuda::Event last_ = nullptr;            // behind the last launch that was enqueued on some stream
  uint64_t last_stream_ = 0;              // the id of that
  std::vector<cuda::DevicePtr> memory_;   // everything to free
  std::vector<cuda::DevicePtr> tensors_;  // one a tensor of the manifest
  bool moved_ = true;                     // since place_tensors
  std::vector<cuda::DevicePtr> placed_;   // of the last launch that had places; else empty
  std::unique_ptr<TensorTables> tables_;  // once a launch had places
  std::vector<cuda::DevicePtr> controls_;  // of this rank, in a group of all
  Report* reports_ = nullptr;              // host memory, mapped
  // Host memory for copies while a kernel runs: [0] heartbeat, [1] abort.
  uint32_t* words_ = nullptr;
  cuda::DevicePtr cta_stamps_ = 0, task_stamps_ = 0;  // of a profile
  cuda::DevicePtr states_ = 0;  // LaunchState, one a CTA, which may be in use or not
  Launch launch_{};
  std::unique_ptr<NcclRank> nccl_;  // if the kernel hands something over
};

}  // namespace maco::runtime
