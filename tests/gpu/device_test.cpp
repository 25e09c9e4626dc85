// maco-device-test --device cpu|cuda [--examples DIR] [--only WORD] [--gpus N] [--part K/N --lock
// FILE]: runs the cases, one line each. If several parts run at a time, each compiles its kernels,
// but only the one with the lock runs them.
#include "tests/gpu/device_test.h"
#include "compiler/api/compile.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <set>
#include <stdexcept>

#include "compiler/frontend/frontend.h"
#include "runtime/cpu/session.h"
#include "runtime/host/cuda_session.h"
#include "runtime/host/driver.h"
#include "runtime/host/jit.h"
#include "runtime/reference/fill.h"
#include "runtime/reference/reference.h"

namespace maco::gpu_test {

std::vector<Placement> placements(const Device& device, int64_t world) {
  if (!device.cuda) return {{world, 1}};
  const std::set<int64_t> ranks_per_gpu = {1, std::min<int64_t>(2, world),
                                           (world + device.gpus - 1) / device.gpus, world};
  std::vector<Placement> all;
  for (int64_t n : ranks_per_gpu) all.push_back({world, static_cast<int>(n)});
  return all;
}

void add_cases(const Device& device, std::vector<Case>& cases, int64_t world,
               const std::string& name, const std::function<std::string(const Placement&)>& run) {
  for (const Placement& p : placements(device, world))
    cases.push_back({name + " on " + p.str(), [&device, p, run]() -> std::string {
                       if (device.cuda && p.gpus() > device.gpus)
                         throw Skip{fmt::format("{} GPUs are needed", p.gpus())};
                       return run(p);
                     }});
}

api::Compiled compile_text(const Device& device, const std::string& text,
                           const Placement& placement, bool load_ahead) {
  ir::Diagnostics d;
  auto graph = frontend::parse_graph(d.add_file("test", text), d);
  api::Options options;
  options.target = device.cuda ? "sm_90a" : "cpu";
  options.load_ahead = load_ahead;
  if (device.cuda && placement.ranks_per_gpu > 1)
    options.sms = cost::find_machine(options.target)->sms / placement.ranks_per_gpu;
  std::optional<api::Compiled> compiled;
  if (graph) compiled = api::compile(*graph, options, d);
  if (!compiled) throw std::runtime_error(d.render());
  if (device.lock >= 0) {  // into the cache, before it is one's turn; what goes wrong shows then
    std::string image;
    runtime::compile_kernel(compiled->kernel, options.target, false, image);
  }
  return std::move(*compiled);
}

std::unique_ptr<runtime::Session> make_session(const Device& device, const std::string& kernel,
                                               const Placement& placement,
                                               runtime::SessionOptions options,
                                               runtime::Status& status) {
  options.ranks_per_gpu = placement.ranks_per_gpu;
  if (device.lock >= 0) ::flock(device.lock, LOCK_EX);  // until the case has ended
  if (device.cuda) return runtime::make_cuda_session(kernel, options, status);
  options.ranks_per_gpu = 1;
  return runtime::make_cpu_session(kernel, options, status);
}

void skip_shared(const Device& device, const Placement& placement) {
  if (device.cuda && placement.ranks_per_gpu > 1) throw Skip{"NCCL takes one rank a GPU"};
}

void bind(const ir::Graph& graph, runtime::Session& session, uint64_t seed) {
  reference::Values values;
  for (const ir::Dim& d : graph.dims) values[d.name] = d.max;
  for (int rank = 0; rank < graph.world; ++rank)
    for (size_t i = 0; i < session.manifest().tensors.size(); ++i) {
      const auto id = *graph.find_tensor(session.manifest().tensors[i].name);
      if (graph[id].kind == ir::TensorKind::Output) continue;
      const auto value =
          reference::fill(graph, id, rank, seed, reference::actual_shape(graph, values, id));
      const auto status = session.write(rank, i, value.bytes.data(), value.bytes.size());
      if (!status) throw std::runtime_error(status.message);
    }
}

std::vector<std::byte> read(runtime::Session& session, const std::string& name, int rank) {
  for (size_t i = 0; i < session.manifest().tensors.size(); ++i) {
    const auto& t = session.manifest().tensors[i];
    if (t.name != name) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(t.max_elements * ir::size_of(t.dtype)));
    const auto status = session.read(rank, i, bytes.data(), bytes.size());
    if (!status) throw std::runtime_error(status.message);
    return bytes;
  }
  throw std::runtime_error("no tensor " + name);
}

}  // namespace maco::gpu_test

int main(int argc, char** argv) {
  using namespace maco::gpu_test;
  Device device;
  std::string kind, only, lock;
  int limit = 8;
  size_t part = 0, parts = 1;
  bool understood = true;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--device")
      kind = value;
    else if (option == "--examples")
      device.examples = value;
    else if (option == "--only")
      only = value;
    else if (option == "--gpus")
      understood &=
          std::from_chars(value.data(), value.data() + value.size(), limit).ec == std::errc{} &&
          limit > 0;
    else if (option == "--part")
      understood &= std::sscanf(value.c_str(), "%zu/%zu", &part, &parts) == 2 && part < parts;
    else if (option == "--lock")
      lock = value;
    else
      understood = false;
  }
  if (!understood || (kind != "cpu" && kind != "cuda") || device.examples.empty()) {
    std::fprintf(
        stderr,
        "usage: maco-device-test --device cpu|cuda --examples DIR [--only WORD] [--gpus N]\n"
        "                        [--part K/N (K from 0) --lock FILE]\n");
    return 2;
  }
  device.cuda = kind == "cuda";
  if (device.cuda && !lock.empty()) {
    device.lock = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (device.lock < 0) {
      std::fprintf(stderr, "maco-device-test: '%s' can't be opened\n", lock.c_str());
      return 2;
    }
  }
  if (device.cuda) {
    maco::runtime::Status status;
    const auto driver = maco::runtime::cuda::Driver::load(status);
    if (driver) device.gpus = std::min(limit, static_cast<int>(driver->devices().size()));
    if (device.gpus == 0) {
      std::printf("skipped: no GPU here%s%s\n", status.message.empty() ? "" : ": ",
                  status.message.c_str());
      return 77;
    }
    std::printf("%d GPU%s\n", device.gpus, device.gpus == 1 ? "" : "s");
  }
  std::vector<Case> cases;
  add_example_cases(device, cases);
  add_capture_cases(device, cases);
  add_session_cases(device, cases);
  add_fault_cases(device, cases);
  add_profile_cases(device, cases);
  std::erase_if(cases, [&](const Case& c) { return c.name.find(only) == std::string::npos; });
  if (cases.empty()) {
    std::fprintf(stderr, "maco-device-test: no case has '%s' in its name\n", only.c_str());
    return 2;
  }
  for (size_t i = cases.size(); i-- > 0;)
    if (i % parts != part) cases.erase(cases.begin() + static_cast<std::ptrdiff_t>(i));
  int passed = 0, failed = 0, skipped = 0;
  for (const Case& c : cases) {
    const auto begin = std::chrono::steady_clock::now();
    std::string problem;
    try {
      problem = c.run();
    } catch (const Skip& skip) {
      std::printf("skipped  %s: %s\n", c.name.c_str(), skip.reason.c_str());
      ++skipped;
      continue;
    } catch (const std::exception& e) {
      problem = e.what();
    }
    if (device.lock >= 0) ::flock(device.lock, LOCK_UN);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("%-7s %7.2f s  %s\n", problem.empty() ? "ok" : "FAILED", seconds, c.name.c_str());
    if (!problem.empty()) std::printf("%s\n", problem.c_str());
    std::fflush(stdout);
    ++(problem.empty() ? passed : failed);
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed ? 1 : 0;
}
