// maco_c.h over the C++ API. Nothing is thrown across it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "maco/maco.h"
#include "maco/maco_c.h"

struct maco_error {
  maco_code code;
  std::string message;
  std::vector<maco::Diagnostic> diagnostics;
  std::optional<maco::StoppedTask> stopped;
};
struct maco_graph {
  maco::Graph graph;
};
struct maco_model {
  maco::Model model;
};
struct maco_kernel {
  maco::Kernel kernel;
};
struct maco_session {
  maco::Session session;
  std::map<std::string, maco::IntegerForm, std::less<>> forms = {};  // maco_session_read_as
  maco::IntegerForm form_of(std::string_view name) const {
    const auto found = forms.find(name);
    return found == forms.end() ? maco::IntegerForm{} : found->second;
  }
};

namespace {

static_assert(static_cast<int>(maco::DType::U8) == MACO_U8);
static_assert(static_cast<int>(maco::TensorKind::Output) == MACO_OUTPUT);
static_assert(static_cast<int>(maco::Device::Cpu) == MACO_CPU);

void set_error(maco_error** error, maco_code code, const std::string& message,
               const std::vector<maco::Diagnostic>& diagnostics = {},
               const std::optional<maco::StoppedTask>& stopped = {}) noexcept {
  if (!error) return;
  *error = new (std::nothrow) maco_error{code, {}, {}, {}};
  try {
    if (!*error) return;
    (*error)->message = message;
    (*error)->diagnostics = diagnostics;
    (*error)->stopped = stopped;
  } catch (const std::bad_alloc&) {
    (*error)->code = MACO_INTERNAL;
  }
}

maco_code code_of(maco::ErrorCode code) {
  switch (code) {
    case maco::ErrorCode::InvalidArgument: return MACO_INVALID_ARGUMENT;
    case maco::ErrorCode::InvalidGraph: return MACO_INVALID_GRAPH;
    case maco::ErrorCode::Unavailable: return MACO_UNAVAILABLE;
    case maco::ErrorCode::RunFailed: return MACO_RUN_FAILED;
    case maco::ErrorCode::Internal: return MACO_INTERNAL;
  }
  return MACO_INTERNAL;
}

maco_code fail(maco_error** error, const maco::Error& e) {
  set_error(error, code_of(e.code), e.message, e.diagnostics, e.stopped);
  return code_of(e.code);
}
maco_code fail(maco_error** error, const char* why) {
  set_error(error, MACO_INVALID_ARGUMENT, why);
  return MACO_INVALID_ARGUMENT;
}

// What `f` returns; `failed` if it throws.
template <class T, class F>
T guarded(maco_error** error, T failed, F f) noexcept {
  try {
    return f();
  } catch (const std::exception& e) {
    set_error(error, MACO_INTERNAL, e.what());
  } catch (...) {
    set_error(error, MACO_INTERNAL, "something unknown was thrown");
  }
  return failed;
}

// A call whose result is a status.
template <class F>
maco_code call(maco_error** error, F f) noexcept {
  return guarded(error, MACO_INTERNAL, [&] {
    const maco::Status status = f();
    return status ? MACO_OK : fail(error, status.error());
  });
}

// A call that makes a handle.
template <class Handle, class F>
Handle* make(maco_error** error, F f) noexcept {
  return guarded(error, static_cast<Handle*>(nullptr), [&]() -> Handle* {
    auto made = f();
    if (made) return new Handle{std::move(*made)};
    fail(error, made.error());
    return nullptr;
  });
}

maco::Values values_of(const maco_value* values, size_t count) {
  maco::Values made;
  for (size_t i = 0; i < count; ++i) made[values[i].name ? values[i].name : ""] = values[i].value;
  return made;
}

maco::Error missing(const char* what) {
  return {maco::ErrorCode::InvalidArgument, std::string(what) + " is NULL", {}};
}

// Copies options that have their size in front: that of this version, or of an older one (`older`).
// Fields that such a caller lacks get their defaults. Returns false if it is neither.
template <class Options>
bool take_options(const Options* given, Options& made, std::initializer_list<size_t> older = {}) {
  made = {};
  if (given->size != sizeof made &&
      std::find(older.begin(), older.end(), given->size) == older.end())
    return false;
  std::memcpy(&made, given, given->size);
  return true;
}
// No padding at the end: a caller's padding is uninitialized, and a later version may put a field
// there.
static_assert(sizeof(maco_compile_options) ==
              offsetof(maco_compile_options, no_fuse_rule_count) + sizeof(size_t));
static_assert(sizeof(maco_session_options) ==
              offsetof(maco_session_options, reserved_too) + sizeof(int));
static_assert(static_cast<int>(maco::Diagnostic::Severity::Note) == MACO_SEVERITY_NOTE);
// Diagnostic number `index`.
maco_code give_diagnostic(const std::vector<maco::Diagnostic>& all, size_t index,
                          maco_diagnostic* out) {
  if (!out || out->size != sizeof *out || index >= all.size()) return MACO_INVALID_ARGUMENT;
  const maco::Diagnostic& d = all[index];
  out->severity = static_cast<maco_severity>(d.severity);
  out->line = d.line;
  out->column = d.column;
  out->reserved = 0;
  out->file = d.file.c_str();
  out->message = d.message.c_str();
  return MACO_OK;
}
/// Returns false if one of them is NULL.
bool take_list(const char* const* texts, size_t count, std::vector<std::string>& list) {
  for (size_t i = 0; i < count; ++i) {
    if (!texts || !texts[i]) return false;
    list.emplace_back(texts[i]);
  }
  return true;
}
maco::Error wrong_size(const char* what) {
  return {maco::ErrorCode::InvalidArgument,
          std::string("the size of ") + what + " is not one that this version knows",
          {}};
}

}  // namespace

extern "C" {

const char* maco_version(void) { return MACO_VERSION; }

maco_code maco_error_code(const maco_error* error) { return error ? error->code : MACO_OK; }
const char* maco_error_message(const maco_error* error) {
  return error ? error->message.c_str() : "";
}
void maco_error_free(maco_error* error) { delete error; }
size_t maco_error_diagnostics(const maco_error* error) {
  return error ? error->diagnostics.size() : 0;
}
maco_code maco_error_diagnostic(const maco_error* error, size_t index,
                                maco_diagnostic* diagnostic) {
  return error ? give_diagnostic(error->diagnostics, index, diagnostic) : MACO_INVALID_ARGUMENT;
}
maco_code maco_error_stopped(const maco_error* error, maco_stopped* stopped) {
  if (!error || !error->stopped || !stopped || stopped->size != sizeof *stopped)
    return MACO_INVALID_ARGUMENT;
  stopped->rank = error->stopped->rank;
  stopped->reserved = 0;
  stopped->task = error->stopped->task.c_str();
  stopped->event = error->stopped->event.c_str();
  stopped->expected = error->stopped->expected;
  stopped->seen = error->stopped->seen;
  return MACO_OK;
}
void maco_string_free(char* string) { std::free(string); }

maco_graph* maco_graph_parse(const char* text, const char* name, maco_error** error) {
  return make<maco_graph>(error, [&]() -> maco::Result<maco::Graph> {
    if (!text) return missing("the text");
    return maco::Graph::parse(text, name ? name : "<graph>");
  });
}
maco_graph* maco_graph_read(const char* path, maco_error** error) {
  return make<maco_graph>(error, [&]() -> maco::Result<maco::Graph> {
    if (!path) return missing("the path");
    return maco::Graph::read(path);
  });
}
maco_graph* maco_graph_parse_with(const char* text, const char* name,
                                  const char* const* collectives, size_t count,
                                  maco_error** error) {
  return make<maco_graph>(error, [&]() -> maco::Result<maco::Graph> {
    if (!text) return missing("the text");
    std::vector<std::string> texts;
    for (size_t i = 0; i < count; ++i) {
      if (!collectives || !collectives[i]) return missing("a text of collectives");
      texts.emplace_back(collectives[i]);
    }
    return maco::Graph::parse(text, name ? name : "<graph>", texts);
  });
}
char* maco_import_plan(const char* json, int64_t elements, maco_dtype dtype, maco_error** error) {
  return guarded(error, static_cast<char*>(nullptr), [&]() -> char* {
    if (!json) {
      fail(error, missing("the plan"));
      return nullptr;
    }
    const auto made = maco::import_plan(json, elements, static_cast<maco::DType>(dtype));
    if (made) return strdup(made->c_str());
    fail(error, made.error());
    return nullptr;
  });
}
void maco_graph_free(maco_graph* graph) { delete graph; }
char* maco_graph_text(const maco_graph* graph) {
  return guarded(nullptr, static_cast<char*>(nullptr),
                 [&] { return graph ? strdup(graph->graph.to_maco().c_str()) : nullptr; });
}

maco_model* maco_model_import(const char* folder, const maco_model_options* options,
                              maco_error** error) {
  return make<maco_model>(error, [&]() -> maco::Result<maco::Model> {
    if (!folder) return missing("the folder");
    maco::ModelOptions made;
    if (options) {
      maco_model_options given;
      if (!take_options(options, given, {})) return wrong_size("maco_model_options");
      if (given.world != 0) made.world = given.world;
      if (given.has_dtype) made.dtype = static_cast<maco::DType>(given.dtype);
      made.max_seq = given.max_seq;
      made.chunk = given.chunk;
      made.verify_rows = given.verify_rows;
      if (given.architecture) made.architecture = given.architecture;
    }
    return maco::import_model(folder, made);
  });
}
void maco_model_free(maco_model* model) { delete model; }
const char* maco_model_graph(const maco_model* model, const char* kind) {
  if (!model || !kind) return nullptr;
  const auto found = model->model.graphs.find(kind);
  return found == model->model.graphs.end() ? nullptr : found->second.c_str();
}
const char* maco_model_weights(const maco_model* model) {
  return model ? model->model.weights.c_str() : nullptr;
}

maco_kernel* maco_compile(const maco_graph* graph, const maco_compile_options* options,
                          maco_error** error) {
  return make<maco_kernel>(error, [&]() -> maco::Result<maco::Kernel> {
    if (!graph) return missing("the graph");
    maco::CompileOptions made;
    if (options) {
      maco_compile_options given;
      constexpr size_t without_folders = offsetof(maco_compile_options, include_folders);
      constexpr size_t without_warnings = offsetof(maco_compile_options, max_warnings);
      constexpr size_t without_rules = offsetof(maco_compile_options, no_fuse_rules);
      if (!take_options(options, given, {without_folders, without_warnings, without_rules}))
        return wrong_size("maco_compile_options");
      if (!take_list(given.include_folders, given.include_folder_count, made.include_folders) ||
          !take_list(given.defines, given.define_count, made.defines) ||
          !take_list(given.no_fuse_rules, given.no_fuse_rule_count, made.no_fuse))
        return missing("a folder, macro or rule of maco_compile_options");
      if (given.target) made.target = given.target;
      if (given.board) made.board = given.board;
      made.sms = given.sms;
      made.load_ahead = given.no_load_ahead == 0;
      made.fuse = given.no_fuse == 0;
      made.prune = given.no_prune == 0;
      made.packets = given.no_packets == 0;
      if (given.max_warnings != 0)
        made.max_warnings = static_cast<int>(
            std::clamp<int64_t>(given.max_warnings, 0, std::numeric_limits<int>::max()));
    }
    return maco::compile(graph->graph, made);
  });
}
maco_kernel* maco_kernel_from_source(const char* source, maco_error** error) {
  return make<maco_kernel>(error, [&]() -> maco::Result<maco::Kernel> {
    if (!source) return missing("the source");
    return maco::Kernel::from_source(source);
  });
}
void maco_kernel_free(maco_kernel* kernel) { delete kernel; }
const char* maco_kernel_source(const maco_kernel* kernel) {
  return kernel ? kernel->kernel.source().c_str() : "";
}
const char* maco_kernel_report(const maco_kernel* kernel) {
  return kernel ? kernel->kernel.report().c_str() : "";
}
int maco_kernel_world(const maco_kernel* kernel) { return kernel ? kernel->kernel.world() : 0; }
const char* maco_kernel_name(const maco_kernel* kernel) {
  return kernel ? kernel->kernel.name().c_str() : "";
}
const char* maco_kernel_target(const maco_kernel* kernel) {
  return kernel ? kernel->kernel.target().c_str() : "";
}
size_t maco_kernel_warnings(const maco_kernel* kernel) {
  return kernel ? kernel->kernel.warnings().size() : 0;
}
maco_code maco_kernel_warning(const maco_kernel* kernel, size_t index,
                              maco_diagnostic* diagnostic) {
  return kernel ? give_diagnostic(kernel->kernel.warnings(), index, diagnostic)
                : MACO_INVALID_ARGUMENT;
}
int maco_kernel_variables(const maco_kernel* kernel) {
  return kernel ? static_cast<int>(kernel->kernel.dims().size() + kernel->kernel.scalars().size())
                : 0;
}
maco_code maco_kernel_variable(const maco_kernel* kernel, int index, maco_variable_info* info,
                               maco_error** error) {
  if (!kernel || !info) return fail(error, "the kernel or the result is NULL");
  if (info->size != sizeof *info) return fail(error, wrong_size("maco_variable_info"));
  if (index < 0 || index >= maco_kernel_variables(kernel))
    return fail(error, "there is no such dim or scalar");
  const auto& dims = kernel->kernel.dims();
  const auto at = static_cast<size_t>(index);
  const bool is_dim = at < dims.size();
  const maco::VariableInfo& v = is_dim ? dims[at] : kernel->kernel.scalars()[at - dims.size()];
  info->name = v.name.c_str();
  info->lowest = v.lowest;
  info->highest = v.highest;
  info->is_dim = is_dim ? 1 : 0;
  info->reserved = 0;
  return MACO_OK;
}
int maco_kernel_tensors(const maco_kernel* kernel) {
  return kernel ? static_cast<int>(kernel->kernel.tensors().size()) : 0;
}
maco_code maco_kernel_tensor(const maco_kernel* kernel, int index, maco_tensor_info* info,
                             maco_error** error) {
  if (!kernel || !info) return fail(error, kernel ? "the info is NULL" : "the kernel is NULL");
  if (index < 0 || index >= maco_kernel_tensors(kernel)) return fail(error, "no such tensor");
  const maco::TensorInfo& t = kernel->kernel.tensors()[static_cast<size_t>(index)];
  *info = {};
  info->name = t.name.c_str();
  info->kind = static_cast<maco_kind>(t.kind);
  info->dtype = static_cast<maco_dtype>(t.dtype);
  info->axes = static_cast<int>(t.shape.size());
  for (size_t i = 0; i < t.shape.size(); ++i) info->shape[i] = t.shape[i];
  info->bytes = t.bytes;
  return MACO_OK;
}

maco_session* maco_session_open(const maco_kernel* kernel, const maco_session_options* options,
                                maco_error** error) {
  return make<maco_session>(error, [&]() -> maco::Result<maco::Session> {
    if (!kernel) return missing("the kernel");
    maco::SessionOptions made;
    if (options) {
      maco_session_options given;
      constexpr size_t without_processes = offsetof(maco_session_options, process_a_rank);
      constexpr size_t without_memory = offsetof(maco_session_options, peer_memory);
      constexpr size_t without_profile = offsetof(maco_session_options, profile);
      constexpr size_t without_group = offsetof(maco_session_options, group);
      if (!take_options(options, given,
                        {without_processes, without_memory, without_profile, without_group}))
        return wrong_size("maco_session_options");
      made.device = given.device == MACO_CPU ? maco::Device::Cpu : maco::Device::Cuda;
      if (given.ranks_per_gpu != 0) made.ranks_per_gpu = given.ranks_per_gpu;
      if (given.timeout_ms != 0) made.timeout = std::chrono::milliseconds(given.timeout_ms);
      made.process_a_rank = given.process_a_rank != 0;
      if (given.peer_memory) made.peer_memory = given.peer_memory;
      made.profile = given.profile != 0;
      if (given.group) {
        made.group = given.group;
        made.rank = given.rank;
      }
      if (given.has_gpu != 0) made.gpu = given.gpu;
      if (given.has_order != 0) made.order = given.order;
      if (given.progress)
        made.progress = [tell = given.progress, data = given.progress_data](std::string_view what) {
          tell(data, std::string(what).c_str());
        };
    }
    return maco::Session::open(kernel->kernel, made);
  });
}
void maco_session_free(maco_session* session) { delete session; }

maco_code maco_session_bind(maco_session* session, int rank, const char* tensor, void* memory,
                            int64_t bytes, maco_error** error) {
  if (!session || !tensor) return fail(error, "the session or the tensor's name is NULL");
  return call(error, [&] { return session->session.bind(rank, tensor, memory, bytes); });
}
maco_code maco_session_share(maco_session* session, const maco_session* other, maco_error** error) {
  if (!session || !other) return fail(error, "a session is NULL");
  return call(error, [&] { return session->session.share(other->session); });
}
maco_code maco_session_allocate(maco_session* session, maco_error** error) {
  if (!session) return fail(error, "the session is NULL");
  return call(error, [&] { return session->session.allocate(); });
}
void* maco_session_address(const maco_session* session, int rank, const char* tensor,
                           maco_error** error) {
  return guarded(error, static_cast<void*>(nullptr), [&]() -> void* {
    if (!session || !tensor) {
      fail(error, "the session or the tensor's name is NULL");
      return nullptr;
    }
    auto address = session->session.address(rank, tensor);
    if (address) return *address;
    fail(error, address.error());
    return nullptr;
  });
}
maco_code maco_session_write(maco_session* session, int rank, const char* tensor, const void* from,
                             int64_t bytes, maco_error** error) {
  if (!session || !tensor || !from) return fail(error, "an argument is NULL");
  return call(error, [&] { return session->session.write(rank, tensor, from, bytes); });
}
maco_code maco_session_read(const maco_session* session, int rank, const char* tensor, void* to,
                            int64_t bytes, maco_error** error) {
  if (!session || !tensor || !to) return fail(error, "an argument is NULL");
  return call(error, [&] { return session->session.read(rank, tensor, to, bytes); });
}
maco_code maco_session_write_at(maco_session* session, int rank, const char* tensor, int64_t offset,
                                const void* from, int64_t bytes, maco_error** error) {
  if (!session || !tensor || !from) return fail(error, "an argument is NULL");
  return call(error, [&] { return session->session.write(rank, tensor, from, bytes, offset); });
}
maco_code maco_session_read_at(const maco_session* session, int rank, const char* tensor,
                               int64_t offset, void* to, int64_t bytes, maco_error** error) {
  if (!session || !tensor || !to) return fail(error, "an argument is NULL");
  return call(error, [&] { return session->session.read(rank, tensor, to, bytes, offset); });
}
maco_code maco_session_load(maco_session* session, const char* weights, const char* folder,
                            void (*progress)(void* progress_data, int64_t done, int64_t total),
                            void* progress_data, maco_error** error) {
  if (!session || !weights || !folder) return fail(error, "an argument is NULL");
  return call(error, [&] {
    std::function<void(int64_t, int64_t)> tell;
    if (progress) tell = [&](int64_t done, int64_t total) { progress(progress_data, done, total); };
    return session->session.load(weights, folder, tell);
  });
}
int maco_session_is_here(const maco_session* session, int rank) {
  return session && session->session.is_here(rank) ? 1 : 0;
}
maco_code maco_session_run(maco_session* session, const maco_value* values, size_t count,
                           maco_error** error) {
  if (!session || (!values && count > 0)) return fail(error, "an argument is NULL");
  return call(error, [&] { return session->session.run(values_of(values, count)); });
}
maco_code maco_session_launch(maco_session* session, const maco_value* values, size_t count,
                              void* const* streams, maco_error** error) {
  return maco_session_launch_at(session, values, count, nullptr, 0, streams, error);
}
maco_code maco_session_read_as(maco_session* session, const char* name, int bytes, int from_end,
                               maco_error** error) {
  if (!session || !name) return fail(error, "an argument is NULL");
  if (bytes != 4 && bytes != 8)
    return fail(error,
                ("integers of 4 and 8 bytes can be read, not of " + std::to_string(bytes)).c_str());
  const maco::Kernel& kernel = session->session.kernel();
  const auto known = [&](const std::vector<maco::VariableInfo>& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const maco::VariableInfo& v) { return v.name == name; });
  };
  if (!known(kernel.dims()) && !known(kernel.scalars()))
    return fail(
        error,
        ("'" + std::string(name) + "' is no dim or scalar of '" + kernel.name() + "'").c_str());
  return call(error, [&]() -> maco::Status {
    session->forms[name] = {bytes, from_end != 0};
    return {};
  });
}
maco_code maco_session_launch_at(maco_session* session, const maco_value* values, size_t count,
                                 const maco_address* addresses, size_t address_count,
                                 void* const* streams, maco_error** error) {
  return maco_session_launch_with(session, values, count, addresses, address_count, nullptr, 0,
                                  streams, error);
}
maco_code maco_session_launch_with(maco_session* session, const maco_value* values, size_t count,
                                   const maco_address* addresses, size_t address_count,
                                   const maco_place* places, size_t place_count,
                                   void* const* streams, maco_error** error) {
  if (!session || (!values && count > 0) || (!addresses && address_count > 0) ||
      (!places && place_count > 0))
    return fail(error, "an argument is NULL");
  for (const maco_address& a : std::span(addresses, address_count))
    if (!a.name || !a.at) return fail(error, "an address is NULL");
  for (const maco_place& p : std::span(places, place_count))
    if (!p.at || p.tensor < 0) return fail(error, "a place is NULL, or names no tensor");
  return call(error, [&] {
    size_t ranks = 0;  // of this process
    for (int r = 0; r < session->session.kernel().world(); ++r)
      ranks += session->session.is_here(r) ? 1 : 0;
    maco::Values all = values_of(values, count);
    for (const maco_address& a : std::span(addresses, address_count))
      all.insert_or_assign(a.name, maco::Value(std::vector<const void*>(a.at, a.at + ranks),
                                               session->form_of(a.name)));
    std::vector<maco::Place> placed;
    placed.reserve(place_count);
    for (const maco_place& p : std::span(places, place_count))
      placed.push_back({static_cast<size_t>(p.tensor), {p.at, ranks}});
    return session->session.launch(all, {streams, streams ? ranks : 0}, placed);
  });
}
maco_code maco_session_wait(maco_session* session, maco_error** error) {
  if (!session) return fail(error, "the session is NULL");
  return call(error, [&] { return session->session.wait(); });
}
void maco_session_stop(maco_session* session) {
  if (session) session->session.stop();
}
maco_code maco_session_ended(maco_session* session, int* all, maco_error** error) {
  if (!session || !all) return fail(error, "an argument is NULL");
  return call(error, [&]() -> maco::Status {
    const auto ended = session->session.ended();
    if (!ended) return ended.error();
    *all = *ended ? 1 : 0;
    return {};
  });
}
maco_code maco_session_profile(const maco_session* session, char** table, char** trace,
                               maco_error** error) {
  if (!session) return fail(error, "the session is NULL");
  return call(error, [&]() -> maco::Status {
    const auto profile = session->session.profile();
    if (!profile) return profile.error();
    if (table) *table = strdup(profile->table.c_str());
    if (trace) *trace = strdup(profile->trace.c_str());
    return {};
  });
}
maco_code maco_session_bench(maco_session* session, const maco_value* values, size_t count,
                             int launches, double* microseconds, maco_error** error) {
  if (!session || !microseconds || (!values && count > 0))
    return fail(error, "an argument is NULL");
  return call(error, [&]() -> maco::Status {
    const auto median = session->session.bench(values_of(values, count), launches);
    if (!median) return median.error();
    *microseconds = *median;
    return {};
  });
}

}  // extern "C"
