// MACO for C, and for bindings: what maco.h provides for C++, through opaque handles.
//
// A function that can fail takes a maco_error** last, which may be NULL. If it fails, it returns
// NULL (if it makes a handle) or a maco_code other than MACO_OK, and stores an error there, which
// the caller frees; otherwise it doesn't change it. Each kind of handle has a function that frees
// it and accepts NULL. A handle may be freed before handles that were made from it. Strings are
// UTF-8, end with a 0 and, unless stated otherwise, belong to their handle. Several threads may use
// graphs and kernels at once, but only one a session at a time.
#ifndef MACO_MACO_C_H
#define MACO_MACO_C_H

#include <stddef.h>  // NOLINT: C has no <cstddef>
#include <stdint.h>  // NOLINT

#include "maco/export.h"

#ifdef __cplusplus
extern "C" {
#endif

// Handles.
typedef struct maco_error maco_error;
typedef struct maco_graph maco_graph;
typedef struct maco_kernel maco_kernel;
typedef struct maco_session maco_session;

// How calls end.
typedef enum {
  MACO_OK = 0,
  MACO_INVALID_ARGUMENT = 1,  // an argument is wrong
  MACO_INVALID_GRAPH = 2,     // the graph is wrong or can't be compiled
  MACO_UNAVAILABLE = 3,       // no GPU, driver, NVRTC or C++ compiler
  MACO_RUN_FAILED = 4,        // no memory, or a launch that was stopped
  MACO_INTERNAL = 5           // a fault of MACO's, or no memory for its own needs
} maco_code;

// "0.1.0".
MACO_API const char* maco_version(void);

// An error's code and message; the message belongs to the error.
MACO_API maco_code maco_error_code(const maco_error* error);
MACO_API const char* maco_error_message(const maco_error* error);
MACO_API void maco_error_free(maco_error* error);

// What is wrong with a graph, and where, as maco::Diagnostic. The texts belong to the error or
// kernel.
typedef enum { MACO_SEVERITY_ERROR, MACO_SEVERITY_WARNING, MACO_SEVERITY_NOTE } maco_severity;
typedef struct {
  size_t size;             // sizeof(maco_diagnostic), set by the caller
  maco_severity severity;  // a note belongs to the diagnostic before it
  int line, column;        // from 1; 0: unknown
  int reserved;            // 0
  const char* file;        // the name under which the graph was read
  const char* message;
} maco_diagnostic;
// How many diagnostics an error has (0: it isn't about a graph), and diagnostic number `index`.
MACO_API size_t maco_error_diagnostics(const maco_error* error);
MACO_API maco_code maco_error_diagnostic(const maco_error* error, size_t index,
                                         maco_diagnostic* diagnostic);

// For a launch that stopped: which task of which rank stopped first, and for what it waited, as
// maco::StoppedTask. The texts belong to the error.
typedef struct {
  size_t size;  // sizeof(maco_stopped), set by the caller
  int rank;
  int reserved;       // 0
  const char* task;   // "" if unknown
  const char* event;  // "" if it didn't wait
  int64_t expected, seen;
} maco_stopped;
// MACO_INVALID_ARGUMENT if the error is about something else.
MACO_API maco_code maco_error_stopped(const maco_error* error, maco_stopped* stopped);

// Frees a string that the caller got from a function.
MACO_API void maco_string_free(char* string);

// ---- graphs -------------------------------------------------------------------------------------

// Element types, as in maco/graph.h.
typedef enum {
  MACO_F32,
  MACO_F16,
  MACO_BF16,
  MACO_F8E4M3,
  MACO_F8E5M2,
  MACO_I32,
  MACO_U8
} maco_dtype;

// Parses a graph from its text, JSON or the language of .maco files. Messages call it `name`, which
// may be NULL.
MACO_API maco_graph* maco_graph_parse(const char* text, const char* name, maco_error** error);
MACO_API maco_graph* maco_graph_read(const char* path, maco_error** error);
// As maco_graph_parse; the graph's ops may name the collectives of `count` further texts as their
// algorithm.
MACO_API maco_graph* maco_graph_parse_with(const char* text, const char* name,
                                           const char* const* collectives, size_t count,
                                           maco_error** error);
// An MSCCL++ execution plan (JSON) as the text of a graph with the plan's algorithm as a
// collective. The caller frees it by maco_string_free. `elements`: of the input on each rank; 0: a
// usual number.
MACO_API char* maco_import_plan(const char* json, int64_t elements, maco_dtype dtype,
                                maco_error** error);
MACO_API void maco_graph_free(maco_graph* graph);
// The graph's text. The caller frees it by maco_string_free.
MACO_API char* maco_graph_text(const maco_graph* graph);

// ---- checkpoints --------------------------------------------------------------------------------

// A Hugging Face checkpoint as graphs, with the places of its bytes: maco/model.h.
typedef struct maco_model maco_model;
// All fields zero except `size`: the defaults.
typedef struct {
  size_t size;       // sizeof(maco_model_options)
  int world;         // ranks that share the model; 0: 1
  int has_dtype;     // 1: `dtype` counts, one of MACO_F32, MACO_F16 and MACO_BF16
  maco_dtype dtype;  // default: the checkpoint's
  int reserved;      // 0
  int64_t max_seq, chunk, verify_rows;  // as maco::ModelOptions
  const char* architecture;             // path of an .arch file, or NULL
} maco_model_options;
// Imports a folder with config.json and safetensors; `options` may be NULL.
MACO_API maco_model* maco_model_import(const char* folder, const maco_model_options* options,
                                       maco_error** error);
MACO_API void maco_model_free(maco_model* model);
// The text of the graph "decode", "prefill" or "verify"; NULL if there is no such kind.
MACO_API const char* maco_model_graph(const maco_model* model, const char* kind);
// The text of weights.json, for maco_session_load.
MACO_API const char* maco_model_weights(const maco_model* model);

// ---- kernels ------------------------------------------------------------------------------------

// All fields zero except `size`: the defaults. A caller that was compiled with an older version of
// this header has fewer fields; those that it lacks get their defaults.
typedef struct {
  size_t size;         // sizeof(maco_compile_options)
  const char* target;  // NULL: the board's, or "sm_90a"
  const char* board;   // NULL: the target's usual one
  int64_t sms;         // 0: all of the board's
  int no_load_ahead, no_fuse, no_prune, no_packets;
  // For sources of ops `cuda`, in addition to what the ops name: folders of headers, relative to
  // the process's folder, and macros, NAME or NAME=VALUE. NULL if the count is 0.
  const char* const* include_folders;
  const char* const* defines;
  size_t include_folder_count, define_count;
  // The most warnings of each kind in maco_kernel_warnings; 0: 20, less than 0: all.
  int64_t max_warnings;
  // Rules of fusion that are left out, as macoc --no-fuse=NAME takes them. NULL if the count is 0.
  const char* const* no_fuse_rules;
  size_t no_fuse_rule_count;
} maco_compile_options;

// `options` may be NULL.
MACO_API maco_kernel* maco_compile(const maco_graph* graph, const maco_compile_options* options,
                                   maco_error** error);
// Makes a kernel from a kernel.cu.
MACO_API maco_kernel* maco_kernel_from_source(const char* source, maco_error** error);
MACO_API void maco_kernel_free(maco_kernel* kernel);
MACO_API const char* maco_kernel_source(const maco_kernel* kernel);
MACO_API const char* maco_kernel_report(const maco_kernel* kernel);
MACO_API int maco_kernel_world(const maco_kernel* kernel);
MACO_API const char* maco_kernel_name(const maco_kernel* kernel);
// The target for which it was compiled: "sm_90a", "cpu".
MACO_API const char* maco_kernel_target(const maco_kernel* kernel);
// Warnings of the compiler, with their notes.
MACO_API size_t maco_kernel_warnings(const maco_kernel* kernel);
MACO_API maco_code maco_kernel_warning(const maco_kernel* kernel, size_t index,
                                       maco_diagnostic* diagnostic);

// A dim or scalar of launches.
typedef struct {
  size_t size;              // sizeof(maco_variable_info), set by the caller
  const char* name;         // belongs to the kernel
  int64_t lowest, highest;  // both included
  int is_dim;               // 1: a dim, with the default `highest`; 0: a scalar
  int reserved;             // 0
} maco_variable_info;
// How many dims and scalars there are, and number `index`: dims, then scalars.
MACO_API int maco_kernel_variables(const maco_kernel* kernel);
MACO_API maco_code maco_kernel_variable(const maco_kernel* kernel, int index,
                                        maco_variable_info* info, maco_error** error);

// The kind of a tensor, as in maco/graph.h.
typedef enum { MACO_INPUT, MACO_PARAM, MACO_STATE, MACO_OUTPUT } maco_kind;
typedef struct {
  const char* name;
  maco_kind kind;
  maco_dtype dtype;
  int axes;
  int64_t shape[4];  // of one rank, dims at their maxima
  int64_t bytes;
} maco_tensor_info;

// For how many tensors the caller provides memory.
MACO_API int maco_kernel_tensors(const maco_kernel* kernel);
// Tensor number `index`; its name belongs to the kernel.
MACO_API maco_code maco_kernel_tensor(const maco_kernel* kernel, int index, maco_tensor_info* info,
                                      maco_error** error);

// ---- sessions -----------------------------------------------------------------------------------

// Where ranks run, as maco::Device.
typedef enum { MACO_CUDA, MACO_CPU } maco_device;
// All fields zero except `size`: the defaults.
typedef struct {
  size_t size;  // sizeof(maco_session_options)
  maco_device device;
  int ranks_per_gpu;        // 0: 1
  int64_t timeout_ms;       // 0: 30000
  int process_a_rank;       // 1: this process runs one rank (maco/session.h)
  int reserved;             // 0
  const char* peer_memory;  // NULL, "nccl" or "nvshmem": maco/session.h
  int profile;              // 1: compile the kernel to stamp its tasks, for maco_session_profile
  int has_order;            // 1: `order` counts
  uint64_t order;           // CPU: tasks take turns in an order that follows from this seed
  // Called with the name of each step that may take seconds while a session is opened; "" at the
  // end. Called on the thread that opens it. May be NULL.
  void (*progress)(void* progress_data, const char* what);
  void* progress_data;
  // With process_a_rank: as in SessionOptions of maco/session.h.
  const char* group;  // NULL: the environment names the rank, and `rank` is ignored
  int rank;
  int has_gpu;  // 1: `gpu` counts
  int gpu;
  int reserved_too;  // 0
} maco_session_options;

// `options` may be NULL.
MACO_API maco_session* maco_session_open(const maco_kernel* kernel,
                                         const maco_session_options* options, maco_error** error);
MACO_API void maco_session_free(maco_session* session);

// As Session::bind, share, allocate, address, write and read of maco/session.h.
MACO_API maco_code maco_session_bind(maco_session* session, int rank, const char* tensor,
                                     void* memory, int64_t bytes, maco_error** error);
MACO_API maco_code maco_session_share(maco_session* session, const maco_session* other,
                                      maco_error** error);
MACO_API maco_code maco_session_allocate(maco_session* session, maco_error** error);
// Also NULL if the tensor has no memory yet.
MACO_API void* maco_session_address(const maco_session* session, int rank, const char* tensor,
                                    maco_error** error);
MACO_API maco_code maco_session_write(maco_session* session, int rank, const char* tensor,
                                      const void* from, int64_t bytes, maco_error** error);
MACO_API maco_code maco_session_read(const maco_session* session, int rank, const char* tensor,
                                     void* to, int64_t bytes, maco_error** error);

// As maco_session_write and maco_session_read, from byte `offset` of the tensor on.
MACO_API maco_code maco_session_write_at(maco_session* session, int rank, const char* tensor,
                                         int64_t offset, const void* from, int64_t bytes,
                                         maco_error** error);
MACO_API maco_code maco_session_read_at(const maco_session* session, int rank, const char* tensor,
                                        int64_t offset, void* to, int64_t bytes,
                                        maco_error** error);
// Fills the params from a checkpoint, as Session::load of maco/session.h. `weights`: the text of
// weights.json; `folder`: the checkpoint's. If `progress` isn't NULL, it is called on this thread
// with the loaded and the total bytes.
MACO_API maco_code maco_session_load(maco_session* session, const char* weights, const char* folder,
                                     void (*progress)(void* progress_data, int64_t done,
                                                      int64_t total),
                                     void* progress_data, maco_error** error);
// 1 if this process runs the rank.
MACO_API int maco_session_is_here(const maco_session* session, int rank);

// The value of a dim or scalar.
typedef struct {
  const char* name;
  int64_t value;
} maco_value;
// Runs once on all ranks, and waits.
MACO_API maco_code maco_session_run(maco_session* session, const maco_value* values, size_t count,
                                    maco_error** error);
// Puts a launch on streams and returns, as Session::launch. streams[r] (a CUstream) gets rank r's
// launch; with a process for each rank there is only streams[0]. NULL: the session's own streams.
MACO_API maco_code maco_session_launch(maco_session* session, const maco_value* values,
                                       size_t count, void* const* streams, maco_error** error);
// A dim or scalar in memory of the ranks' devices, as maco::Value.
typedef struct {
  const char* name;
  const int32_t* const* at;  // one address for each rank of this process
} maco_address;
// How a session reads a dim or scalar in memory, in the launches that follow: with 4 bytes (the
// default) or 8 (`at` then points to an int64_t). from_end 1: negative values count from the end of
// the range of values.
MACO_API maco_code maco_session_read_as(maco_session* session, const char* name, int bytes,
                                        int from_end, maco_error** error);
// The same with some dims and scalars in memory. Streams may be captured, as with Session::launch.
MACO_API maco_code maco_session_launch_at(maco_session* session, const maco_value* values,
                                          size_t count, const maco_address* addresses,
                                          size_t address_count, void* const* streams,
                                          maco_error** error);
// A tensor in other memory for one launch, as maco::Place.
typedef struct {
  int tensor;       // its number in maco_kernel_tensor
  int reserved;     // 0
  void* const* at;  // one address for each rank of this process
} maco_place;
// As maco_session_launch, with tensors at other addresses than the bound ones.
MACO_API maco_code maco_session_launch_with(maco_session* session, const maco_value* values,
                                            size_t count, const maco_address* addresses,
                                            size_t address_count, const maco_place* places,
                                            size_t place_count, void* const* streams,
                                            maco_error** error);
// Waits for all launches.
MACO_API maco_code maco_session_wait(maco_session* session, maco_error** error);
// Ends the launches for which another thread waits, or its load, as Session::stop. May be called
// from any thread.
MACO_API void maco_session_stop(maco_session* session);
// Whether all launches have ended (1) or not (0), as Session::ended.
MACO_API maco_code maco_session_ended(maco_session* session, int* all, maco_error** error);
// Where the time of the last launch went: a table for people and a trace in JSON, as
// Session::profile; either may be NULL. The caller frees them by maco_string_free.
MACO_API maco_code maco_session_profile(const maco_session* session, char** table, char** trace,
                                        maco_error** error);
// The median of `launches` launches in microseconds.
MACO_API maco_code maco_session_bench(maco_session* session, const maco_value* values, size_t count,
                                      int launches, double* microseconds, maco_error** error);

#ifdef __cplusplus
}
#endif

#endif
