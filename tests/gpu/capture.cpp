// Launches that find their position in memory, in CUDA graphs that are replayed. They must give the
// bits of ordinary launches, also with ordinary launches in between. A position out of its range
// must be reported, and the next launch be right again. A CPU has no graphs: there the same
// launches are enqueued.
#include <fmt/format.h>

#include <stdexcept>

#include "compiler/api/compile.h"
#include "runtime/host/driver.h"
#include "runtime/host/library.h"
#include "tests/examples.h"
#include "tests/gpu/device_test.h"

namespace maco::gpu_test {

namespace {

using runtime::LaunchAddresses;
using runtime::Session;
using runtime::Status;
namespace cuda = runtime::cuda;

void require(const Status& status) {
  if (!status) throw std::runtime_error(status.message);
}

// Launches of one kind, with the scalar `pos` in memory.
class Launches {
 public:
  Launches() = default;
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;
  virtual ~Launches() = default;
  /// Sets the position, launches, and doesn't wait.
  virtual void launch(int32_t pos) = 0;
  /// Waits for the launches.
  virtual void wait() = 0;
};

class Enqueued : public Launches {
 public:
  explicit Enqueued(Session& session) : session_(session) {}
  void launch(int32_t pos) override {
    pos_ = pos;
    const auto world = static_cast<size_t>(session_.manifest().world);
    require(session_.enqueue({}, {{"pos", {std::vector<const void*>(world, &pos_)}}}, {}));
  }
  void wait() override {}

 private:
  Session& session_;
  int32_t pos_ = 0;
};

// Functions of the driver that the runtime doesn't use.
template <class... Parameters>
auto driver_function(const char* name) {
  static const auto library = runtime::Library::open({"libcuda.so.1"}, "cuInit");
  const auto found = reinterpret_cast<cuda::Result (*)(Parameters...)>(library.symbol(name));
  if (!found) throw std::runtime_error(fmt::format("the driver has no {}", name));
  return found;
}

// A CUDA graph for each rank.
class Replayed : public Launches {
 public:
  Replayed(Session& session, const Placement& placement)
      : driver_(open()), ranks_(static_cast<size_t>(placement.world)) {
    LaunchAddresses addresses;
    std::vector<void*> streams;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      const auto gpu = r / static_cast<size_t>(placement.ranks_per_gpu);
      rank.device = driver_->devices()[gpu].device;
      check(driver_->context_retain(&rank.context, rank.device), "open a GPU");
      enter(rank);
      check(driver_->stream_create(&rank.stream, cuda::kStreamNonBlocking), "make a stream");
      check(driver_->allocate(&rank.pos, sizeof(int32_t)), "allocate");
      // NOLINTNEXTLINE(performance-no-int-to-ptr): device memory
      addresses["pos"].at.push_back(reinterpret_cast<const void*>(rank.pos));
      streams.push_back(rank.stream);
    }
    constexpr int kGlobal = 0;  // the mode that forbids most
    for (Rank& rank : ranks_)
      call<cuda::Stream, int>("cuStreamBeginCapture_v2", rank.stream, kGlobal);
    const Status captured = session.enqueue({}, addresses, streams);
    for (Rank& rank : ranks_)
      call<cuda::Stream, void**>("cuStreamEndCapture", rank.stream, &rank.graph);
    require(captured);
    for (Rank& rank : ranks_) {
      enter(rank);
      call<void**, void*, unsigned long long>("cuGraphInstantiateWithFlags", &rank.instance,
                                              rank.graph, 0);
      // All are uploaded before the first runs and waits for its peers, as an upload may wait for
      // it.
      call<void*, cuda::Stream>("cuGraphUpload", rank.instance, rank.stream);
    }
    wait();
  }
  ~Replayed() override {
    for (Rank& rank : ranks_) {
      if (driver_->context_set(rank.context) != cuda::kSuccess) continue;
      driver_->stream_synchronize(rank.stream);
      driver_function<void*>("cuGraphExecDestroy")(rank.instance);
      driver_function<void*>("cuGraphDestroy")(rank.graph);
      driver_->free(rank.pos);
      driver_->stream_destroy(rank.stream);
      driver_->context_release(rank.device);
    }
  }
  void launch(int32_t pos) override {
    for (Rank& rank : ranks_) {
      enter(rank);
      // The copy from memory that isn't page-locked has been read when this returns.
      check(driver_->to_device(rank.pos, &pos, sizeof pos, rank.stream), "set the position");
      call<void*, cuda::Stream>("cuGraphLaunch", rank.instance, rank.stream);
    }
  }
  void wait() override {
    for (Rank& rank : ranks_) {
      enter(rank);
      check(driver_->stream_synchronize(rank.stream), "run a graph");
    }
  }

 private:
  struct Rank {
    cuda::Device device = 0;
    cuda::Context context = nullptr;
    cuda::Stream stream = nullptr;
    cuda::DevicePtr pos = 0;
    void *graph = nullptr, *instance = nullptr;
  };

  static std::unique_ptr<cuda::Driver> open() {
    Status status;
    auto driver = cuda::Driver::load(status);
    require(status);
    return driver;
  }
  void check(cuda::Result result, const std::string& what) const {
    require(driver_->check(result, what));
  }
  void enter(const Rank& rank) const { check(driver_->context_set(rank.context), "use a GPU"); }
  template <class... Parameters>
  void call(const char* name, Parameters... arguments) const {
    check(driver_function<Parameters...>(name)(arguments...), name);
  }

  std::unique_ptr<cuda::Driver> driver_;
  std::vector<Rank> ranks_;
};

// Outputs and states of all ranks.
std::vector<std::vector<std::byte>> results(const ir::Graph& graph, Session& session) {
  std::vector<std::vector<std::byte>> all;
  for (const auto& t : session.manifest().tensors)
    for (int rank = 0; rank < graph.world && (t.kind == "output" || t.kind == "state"); ++rank)
      all.push_back(read(session, t.name, rank));
  return all;
}

std::string check_replays(const Device& device, const std::string& file, int count,
                          const Placement& placement) {
  const api::Compiled c =
      compile_text(device, test::example_text(device.examples + "/" + file), placement);
  const auto open = [&](uint32_t first_epoch) {
    runtime::SessionOptions options;
    options.timeout_ms = 20000;
    options.first_epoch = first_epoch;
    Status status;
    auto session = make_session(device, c.kernel, placement, options, status);
    require(status);
    bind(c.graph, *session, 3);
    return session;
  };
  const auto ordinary = open(1);
  // Numbers of launches wrap on the way.
  const auto captured = open(0xfffffff0u), behind = open(5);
  const auto launches_of = [&](Session& session) -> std::unique_ptr<Launches> {
    if (device.cuda) return std::make_unique<Replayed>(session, placement);
    return std::make_unique<Enqueued>(session);
  };
  const auto launches = launches_of(*captured);
  const auto same = [&](Session& session) {
    return results(c.graph, session) == results(c.graph, *ordinary);
  };
  const int64_t end = captured->manifest().scalars.at(0).hi + 1;
  const auto position = [&](int launch) { return static_cast<int32_t>(launch % end); };
  for (int i = 0; i < count; ++i) {
    const int32_t pos = position(i);
    require(ordinary->launch({{"pos", pos}}));
    if (i % 10 == 9) {
      require(captured->launch({{"pos", pos}}));
    } else {
      launches->launch(pos);
      launches->wait();
    }
    if (!same(*captured)) return fmt::format("at position {} the bits differ", pos);
  }
  // One after the other, without waiting.
  const auto others = launches_of(*behind);
  for (int i = 0; i < count; ++i) others->launch(position(i));
  others->wait();
  require(behind->wait());
  if (!same(*behind)) return "the bits differ where nothing waits";

  launches->launch(static_cast<int32_t>(end));
  // A graph is launched once more, which does nothing.
  if (device.cuda) launches->launch(0);
  launches->wait();
  if (!same(*captured)) return "a position out of range changed something";
  const std::string told = captured->wait().message;
  for (int rank = 0; rank < placement.world; ++rank)
    if (told.find(fmt::format("rank {}: scalar 'pos' is {}, but must be from 0 to {}", rank, end,
                              end - 1)) == std::string::npos)
      return "of a position out of range is told: " + told;
  require(captured->wait());
  for (int i = count; i < count + 3; ++i) {
    require(ordinary->launch({{"pos", position(i)}}));
    launches->launch(position(i));
    launches->wait();
  }
  require(captured->wait());
  return same(*captured) ? "" : "the bits differ after a failure";
}

}  // namespace

void add_capture_cases(const Device& device, std::vector<Case>& cases) {
  const int count = device.cuda ? 100 : 20;
  std::vector<std::pair<const char*, int>> graphs = {{"decode_layer.maco", 2},
                                                     {"../../tests/e2e/attentions.maco", 1}};
  // On the CPU target the roles of a pair begin by themselves, and such a matmul takes seconds.
  if (device.cuda) graphs.emplace_back("../../tests/gpu/halves_captured.maco", 1);
  for (const auto& [file, world] : graphs)
    add_cases(device, cases, world, fmt::format("captured launches of {}", file),
              [&device, file = file, count](const Placement& p) {
                return check_replays(device, file, count, p);
              });
}

}  // namespace maco::gpu_test
