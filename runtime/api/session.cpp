#include "maco/session.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/api/convert.h"
#include "runtime/cpu/session.h"
#include "runtime/host/cuda_session.h"
#include "runtime/host/group.h"
#include "runtime/host/profile.h"
#include "runtime/host/session.h"
#include "runtime/host/settings.h"
#include "runtime/host/variants.h"
#include "runtime/profile/table.h"
#include "runtime/profile/trace.h"
#include "runtime/weights/load.h"

namespace maco {

namespace {

Status failed(const runtime::Status& status) { return status_of(status, ErrorCode::RunFailed); }
Status refused(const runtime::Status& status) {
  return status_of(status, ErrorCode::InvalidArgument);
}

// This process's rank and group; nothing for a kernel of one rank if the environment names no rank.
Result<std::optional<runtime::GroupPlace>> place_of(const SessionOptions& options, int world) {
  std::optional<runtime::GroupPlace> place;
  if (options.rank < 0) {
    runtime::Status status;
    place = runtime::group_from_environment(status);
    if (!status) return error(ErrorCode::InvalidArgument, status.message);
  } else if (options.group.empty()) {
    return error(ErrorCode::InvalidArgument, "a rank needs the name of its group");
  } else if (options.rank >= world) {
    return error(ErrorCode::InvalidArgument,
                 fmt::format("there is no rank {} of {}", options.rank, world));
  } else if (world > 1) {
    place = runtime::GroupPlace{options.rank, world, options.group};
  }
  if (!place) return place;
  // The sessions of a group are opened in one order.
  static std::mutex mutex;
  static std::map<std::string, int> opened;
  const std::lock_guard lock(mutex);
  place->processes = place->name;
  place->name += fmt::format("#{}", opened[place->name]++);
  return place;
}

}  // namespace

struct Session::State {
  Kernel kernel;
  std::unique_ptr<runtime::Group> group;  // outlives the session
  std::unique_ptr<runtime::Session> session;
  Device device = Device::Cuda;
  std::atomic<bool> stop_loading{false};

  State(const Kernel& k, std::unique_ptr<runtime::Group> g, std::unique_ptr<runtime::Session> s,
        Device d)
      : kernel(k), group(std::move(g)), session(std::move(s)), device(d) {}

  // The tensor's index in the manifest.
  Result<size_t> find(std::string_view name) const {
    const auto& tensors = kernel.tensors();
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].name == name) return i;
    std::vector<std::string> names;
    for (const TensorInfo& t : tensors) names.push_back(t.name);
    return error(ErrorCode::InvalidArgument, fmt::format("'{}' has no tensor '{}'{}", kernel.name(),
                                                         name, ir::did_you_mean(name, names)));
  }
  // Values in the runtime's form.
  struct Given {
    runtime::LaunchValues values;
    runtime::LaunchAddresses addresses;
    explicit Given(const Values& all) {
      for (const auto& [name, value] : all)
        if (value.addresses().empty())
          values.emplace(name, value.number());
        else
          addresses.emplace(name, runtime::LaunchAddress{value.addresses(), value.form().bytes,
                                                         value.form().from_end});
    }
  };
  // Checks that a launch can have these values, with this memory.
  Status check_launch(const Given& given, runtime::TensorPlaces places = {}) const {
    if (Status status = refused(runtime::check_bound(*session, places)); !status) return status;
    std::vector<int32_t> evaluated;
    std::vector<runtime::LaunchVariable> variables;
    const ir::Manifest& manifest = session->manifest();
    const runtime::RanksHere here = session->here();
    for (int rank = here.first; here.has(rank); ++rank) {
      const runtime::Status status =
          given.addresses.empty()
              ? runtime::evaluate_values(manifest, given.values, rank, evaluated)
              : runtime::list_variables(manifest, given.values, given.addresses, rank, here,
                                        variables);
      if (!status) return refused(status);
    }
    return {};
  }
  // As check_launch, for a launch of all processes: none of them launches if one can't. `wrong`:
  // another failure of this process.
  Status check_launch_of_all(const Given& given, const Status& wrong = {}) const {
    Status mine = wrong ? check_launch(given) : wrong;
    if (!group) return mine;
    runtime::Status all =
        group->agree(mine ? runtime::Status{} : runtime::Status::failure(mine.error().message));
    if (group->broken()) return failed(all);
    if (!mine || !all) return mine ? refused(all) : mine;
    std::string names;
    for (const auto& [name, addresses] : given.addresses) names += name + " ";
    std::vector<std::string> others;
    all = group->exchange(names, others);
    for (size_t r = 1; all && r < others.size(); ++r)
      if (others[r] != others[0])
        return error(ErrorCode::InvalidArgument,
                     fmt::format("rank {} has other dims or scalars in memory than rank 0", r));
    return failed(all);
  }
  Status check_rank(int rank) const {
    if (rank >= 0 && rank < kernel.world()) return {};
    return error(ErrorCode::InvalidArgument, fmt::format("'{}' has no rank {}, but {} of them",
                                                         kernel.name(), rank, kernel.world()));
  }
  // The tensor's index, if this process has the rank.
  Result<size_t> find(int rank, std::string_view name) const {
    if (Status status = check_rank(rank); !status) return status.error();
    return find(name);
  }
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Result<Session> Session::open(const Kernel& kernel, const SessionOptions& options) {
  constexpr std::chrono::hours kLongest(24 * 365);
  if (options.timeout.count() < 1 || options.timeout > kLongest)
    return error(ErrorCode::InvalidArgument, "a time-out must be from a millisecond to a year");
  if (options.ranks_per_gpu < 1)
    return error(ErrorCode::InvalidArgument, "a GPU must have at least one rank");
  if (options.order && options.device != Device::Cpu)
    return error(ErrorCode::InvalidArgument, "an order of tasks can be chosen on the CPU only");
  runtime::SessionOptions all;
  all.timeout_ms = static_cast<uint64_t>(options.timeout.count());
  all.ranks_per_gpu = options.ranks_per_gpu;
  all.replay = options.order;
  all.allocate_tensors = false;
  all.progress = options.progress;
  all.peer_memory = options.peer_memory;
  if (!options.peer_memory.empty() && options.device == Device::Cpu)
    return error(ErrorCode::InvalidArgument, "the kind of peer memory can be chosen on GPUs only");
  if (options.profile && options.order)
    return error(
        ErrorCode::InvalidArgument,
        "tasks in a chosen order run by turns and have no times: profile without an order");
  if (options.profile) {
    if (!kernel.data().program)
      return error(ErrorCode::InvalidArgument,
                   "a kernel that came as source, or has variants, can't be profiled: compile its "
                   "graph, with one choice of roles");
    all.profiled_tasks = static_cast<int64_t>(kernel.data().program->tasks.size());
  }
  if (!options.process_a_rank && (options.rank >= 0 || !options.group.empty() || options.gpu >= 0))
    return error(
        ErrorCode::InvalidArgument,
        "a rank, a group or a GPU can be chosen only where each rank has a process of its own");
  all.gpu = options.gpu;
  runtime::Status status;
  std::unique_ptr<runtime::Group> group;
  std::unique_ptr<runtime::Session> session;
  return guarded([&]() -> Result<Session> {
    if (options.process_a_rank) {
      const auto found = place_of(options, kernel.world());
      if (!found) return found.error();
      const std::optional<runtime::GroupPlace>& place = *found;
      if (place && place->size != kernel.world())
        return error(ErrorCode::InvalidArgument,
                     fmt::format("there are {} processes, but '{}' has {} ranks", place->size,
                                 kernel.name(), kernel.world()));
      if (!place && kernel.world() > 1)
        return error(ErrorCode::InvalidArgument,
                     "the environment names no rank (RANK, WORLD_SIZE)");
      if (place) {
        runtime::Settings told = runtime::settings_of(kernel.source(), all);
        told.push_back({"the device", options.device == Device::Cpu ? "the CPU" : "a GPU"});
        group = runtime::Group::join(*place, told, all.timeout_ms, status);
        if (!group) return error(ErrorCode::Unavailable, status.message);
        all.group = group.get();
      }
    }
    session = runtime::open_session(
        kernel.source(), all,
        [&](const std::string& source, const runtime::SessionOptions& of_one,
            runtime::Status& opened) -> std::unique_ptr<runtime::Session> {
          if (options.device == Device::Cpu)
            return runtime::make_cpu_session(source, of_one, opened);
          return runtime::make_cuda_session(source, of_one, opened);
        },
        status);
    all.tell("");
    if (!session) return error(ErrorCode::Unavailable, status.message);
    return Session(
        std::make_unique<State>(kernel, std::move(group), std::move(session), options.device));
  });
}

const Kernel& Session::kernel() const { return state_->kernel; }
bool Session::is_here(int rank) const {
  return rank >= 0 && rank < kernel().world() && state_->session->is_here(rank);
}

Status Session::bind(int rank, std::string_view tensor, void* memory, int64_t bytes) {
  const Result<size_t> at = state_->find(rank, tensor);
  if (!at) return at.error();
  const TensorInfo& info = state_->kernel.tensors()[*at];
  if (bytes < info.bytes)
    return error(ErrorCode::InvalidArgument,
                 fmt::format("'{}' has {} bytes, but is bound to {}", tensor, info.bytes, bytes));
  return refused(state_->session->bind(rank, *at, memory));
}

Status Session::share(const Session& other) {
  if (other.kernel().world() != kernel().world())
    return error(ErrorCode::InvalidArgument,
                 fmt::format("'{}' has {} ranks, but '{}' has {}", kernel().name(),
                             kernel().world(), other.kernel().name(), other.kernel().world()));
  if (other.state_->device != state_->device)
    return error(ErrorCode::InvalidArgument, "one session is on the CPU, the other on GPUs");
  return refused(runtime::share(*state_->session, *other.state_->session));
}

Status Session::allocate() { return failed(runtime::allocate_all(*state_->session)); }

Result<void*> Session::address(int rank, std::string_view tensor) const {
  const Result<size_t> at = state_->find(rank, tensor);
  if (!at) return at.error();
  return state_->session->address(rank, *at);
}

Status Session::write(int rank, std::string_view tensor, const void* from, int64_t bytes,
                      int64_t offset) {
  const Result<size_t> at = state_->find(rank, tensor);
  if (!at) return at.error();
  if (bytes < 0 || offset < 0 || (bytes > 0 && !from))
    return error(ErrorCode::InvalidArgument, "a negative size or offset, or a null pointer");
  return refused(state_->session->write_at(rank, *at, static_cast<size_t>(offset), from,
                                           static_cast<size_t>(bytes)));
}

Status Session::read(int rank, std::string_view tensor, void* to, int64_t bytes,
                     int64_t offset) const {
  const Result<size_t> at = state_->find(rank, tensor);
  if (!at) return at.error();
  if (bytes < 0 || offset < 0 || (bytes > 0 && !to))
    return error(ErrorCode::InvalidArgument, "a negative size or offset, or a null pointer");
  return refused(state_->session->read_at(rank, *at, static_cast<size_t>(offset), to,
                                          static_cast<size_t>(bytes)));
}

Status Session::load(std::string_view weights, const std::string& folder,
                     const std::function<void(int64_t done, int64_t total)>& progress) {
  return guarded([&]() -> Status {
    runtime::Session& session = *state_->session;
    state_->stop_loading = false;
    const auto [map, wrong] = runtime::parse_weights(weights);
    if (!map) return error(ErrorCode::InvalidArgument, wrong);
    const ir::Manifest& m = session.manifest();
    if (Status status = refused(check_weights(*map, m.world, runtime::params_of(m))); !status)
      return status;
    auto targets = runtime::targets_of(*map, session);
    runtime::WeightFiles files;
    if (Status status = refused(files.open(*map, folder, runtime::sources_of(targets))); !status)
      return status;
    runtime::LoadOptions options;
    options.progress = progress;
    options.stop = &state_->stop_loading;
    return failed(load_weights(session, *map, files, std::move(targets), options));
  });
}

Status Session::run(const Values& values) {
  const State::Given given(values);
  if (Status status = state_->check_launch_of_all(given); !status) return status;
  if (given.addresses.empty()) return failed(state_->session->launch(given.values));
  Status launched = launch(values);
  // In a group all processes wait, whatever went wrong here.
  if (!launched && !state_->group) return launched;
  const Status ended = wait();
  return launched ? ended : launched;
}

Status Session::launch(const Values& values, std::span<void* const> streams,
                       std::span<const Place> places) {
  const State::Given given(values);
  std::vector<runtime::TensorPlace> placed;
  placed.reserve(places.size());
  for (const Place& place : places) placed.push_back({place.tensor, place.at});
  // Invalid places needn't reach the session.
  const runtime::Status placing = runtime::check_places(*state_->session, placed);
  if (!placing) placed.clear();
  Status wrong = placing ? state_->check_launch(given, placed) : refused(placing);
  if (wrong) wrong = refused(runtime::check_streams(*state_->session, streams.size()));
  // In a group the session finds the same failure, and tells the other processes.
  if (!wrong && !state_->group) return wrong;
  const Status launched =
      failed(state_->session->enqueue(given.values, given.addresses, streams, placed));
  return wrong ? launched : wrong;
}

void Session::stop() {
  state_->stop_loading = true;
  state_->session->stop();
}

Status Session::wait() { return failed(state_->session->wait()); }

Result<bool> Session::ended() {
  bool all = false;
  if (Status status = failed(state_->session->ended(all)); !status) return status.error();
  return all;
}

Result<Profile> Session::profile() const {
  const auto& program = state_->kernel.data().program;
  if (!program)
    return error(ErrorCode::InvalidArgument,
                 "a kernel that came as source, or has variants, has no profile");
  std::vector<runtime::RankStamps> stamps;
  runtime::Status status = state_->session->stamps(stamps);
  if (!status) return error(ErrorCode::InvalidArgument, status.message);
  const auto line = runtime::Timeline::make(*program, stamps, status);
  if (!line) return error(ErrorCode::InvalidArgument, status.message);
  return Profile{runtime::print(*line, runtime::make_table(*line)), runtime::chrome_trace(*line)};
}

Result<double> Session::bench(const Values& values, int launches) {
  const State::Given given(values);
  Status wrong;
  if (launches < 1)
    wrong = error(ErrorCode::InvalidArgument, "a measurement takes at least one launch");
  else if (!given.addresses.empty())
    wrong = error(ErrorCode::InvalidArgument,
                  fmt::format("a measurement needs numbers, but the value of '{}' is in memory",
                              given.addresses.begin()->first));
  if (Status status = state_->check_launch_of_all(given, wrong); !status) return status.error();
  double median = 0;
  if (Status status = failed(state_->session->bench(given.values, launches, median)); !status)
    return status.error();
  return median;
}

}  // namespace maco
