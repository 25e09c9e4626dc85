#include "runtime/host/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ir/variants.h"

namespace maco::runtime {

namespace {

class VariantsSession final : public Session {
 public:
  struct Variant {
    std::optional<ir::Expr> condition;
    std::unique_ptr<Session> session;
  };
  explicit VariantsSession(std::vector<Variant> variants) : variants_(std::move(variants)) {}
  /// The first session owns the tensors of all, and is destroyed last.
  ~VariantsSession() override {
    while (!variants_.empty()) variants_.pop_back();
  }

  const ir::Manifest& manifest() const override { return first().manifest(); }
  RanksHere here() const override { return first().here(); }
  Status bind(int rank, size_t tensor, void* memory) override {
    for (Variant& v : variants_) MACO_TRY(v.session->bind(rank, tensor, memory));
    return {};
  }
  Status allocate(int rank, size_t tensor) override {
    MACO_TRY(first().allocate(rank, tensor));
    return share(rank, tensor);
  }
  /// Makes all sessions have a tensor where the first has it.
  Status share(int rank, size_t tensor) {
    for (size_t i = 1; i < variants_.size(); ++i)
      MACO_TRY(variants_[i].session->bind(rank, tensor, first().address(rank, tensor)));
    return {};
  }
  void* address(int rank, size_t tensor) const override { return first().address(rank, tensor); }
  Status write_at(int rank, size_t tensor, size_t offset, const void* data, size_t bytes) override {
    return first().write_at(rank, tensor, offset, data, bytes);
  }
  Status read_at(int rank, size_t tensor, size_t offset, void* data, size_t bytes) override {
    return first().read_at(rank, tensor, offset, data, bytes);
  }
  std::unique_ptr<TensorWriter> make_writer(size_t staging, Status& status) override {
    return first().make_writer(staging, status);
  }
  Status launch(const LaunchValues& values) override {
    MACO_TRY(choose(values, {}));
    return last().launch(values);
  }
  Status enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                 std::span<void* const> streams, TensorPlaces places) override {
    MACO_TRY(choose(values, addresses));
    waited_ = false;
    return last().enqueue(values, addresses, streams, places);
  }
  Status wait() override {
    waited_ = true;
    return last().wait();
  }
  Status ended(bool& all) override { return last().ended(all); }
  void stop() override {
    for (const Variant& v : variants_) v.session->stop();
  }
  Status bench(const LaunchValues& values, int launches, double& median_us) override {
    MACO_TRY(choose(values, {}));
    return last().bench(values, launches, median_us);
  }
  Status stamps(std::vector<RankStamps>&) override {
    return Status::failure("a kernel of several variants isn't profiled: compile one of them");
  }

 private:
  Session& first() const { return *variants_[0].session; }
  Session& last() const { return *variants_[last_].session; }
  /// Makes the variant that these values choose the current one; the previous variant's launches
  /// have ended by then. Missing or out-of-range values choose a variant that will report them.
  Status choose(const LaunchValues& values, const LaunchAddresses& addresses) {
    const ir::Manifest& m = manifest();
    const auto value_of = [&](std::string_view name) -> std::optional<int64_t> {
      if (name == "world") return m.world;
      if (const auto it = values.find(std::string(name)); it != values.end()) return it->second;
      for (const ir::ManifestRange& dim : m.dims)
        if (dim.name == name) return dim.hi;
      return std::nullopt;
    };
    size_t at = 0;
    for (; variants_[at].condition; ++at) {
      for (const std::string& name : variants_[at].condition->vars())
        if (addresses.count(name) > 0)
          return Status::failure(fmt::format(
              "'{}' says which SMs do what ('sm_roles'): it has to be a number, not in memory",
              name));
      if (ir::evaluate(*variants_[at].condition, value_of).value.value_or(0) != 0) break;
    }
    if (at != last_ && !waited_) MACO_TRY(wait());
    last_ = at;
    return {};
  }

  std::vector<Variant> variants_;
  size_t last_ = 0;     // the variant that ran last, or is to run
  bool waited_ = true;  // whether everything given to it was awaited
};

}  // namespace

std::unique_ptr<Session> open_session(const std::string& source, const SessionOptions& options,
                                      const OpenSession& open, Status& status) {
  ir::VariantsResult split = ir::split_variants(source);
  if (split.variants.empty()) {
    status = Status::failure(std::move(split.error));
    return nullptr;
  }
  if (split.variants.size() == 1) return open(split.variants[0].kernel, options, status);
  if (options.profiled_tasks > 0) {
    status = Status::failure("a kernel of several variants isn't profiled: compile one of them");
    return nullptr;
  }
  std::vector<VariantsSession::Variant> variants;
  SessionOptions one = options;
  for (size_t i = 0; i < split.variants.size(); ++i) {
    one.allocate_tensors = options.allocate_tensors && i == 0;
    options.tell(fmt::format("variant {} of {}", i + 1, split.variants.size()));
    auto session = open(split.variants[i].kernel, one, status);
    if (!session) return nullptr;
    const auto types = [](const Session& s) {
      std::string text;
      for (const ir::ManifestTensor& t : s.manifest().tensors) {
        text += fmt::format("{} {} {}", t.name, t.kind, ir::name(t.dtype));
        for (const ir::Expr& e : t.shape) text += fmt::format(" {}", e.str());
      }
      return text;
    };
    if (i > 0 && types(*session) != types(*variants[0].session)) {
      status = Status::failure("the variants of the kernel have different tensors");
      return nullptr;
    }
    variants.push_back({std::move(split.variants[i].condition), std::move(session)});
  }
  auto all = std::make_unique<VariantsSession>(std::move(variants));
  if (!options.allocate_tensors) return all;
  for (int rank = 0; rank < all->manifest().world; ++rank)
    for (size_t t = 0; all->is_here(rank) && t < all->manifest().tensors.size(); ++t)
      if (status = all->share(rank, t); !status) return nullptr;
  return all;
}

}  // namespace maco::runtime
