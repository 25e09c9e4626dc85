#define _POSIX_C_SOURCE 200809L  // mkdtemp
// The library from C: failures are reported by code and message, and every handle may be NULL.
#include <maco/maco_c.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      ++failures;                                                     \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (0)

// Whether there was an error of that code whose message has `text`. Frees it.
static int failed(maco_error** error, maco_code code, const char* text) {
  const int right =
      *error && maco_error_code(*error) == code && strstr(maco_error_message(*error), text) != NULL;
  if (!right) fprintf(stderr, "said: %s\n", maco_error_message(*error));
  maco_error_free(*error);
  *error = NULL;
  return right;
}

static const char* const kGraph =
    "graph c(world = 2) {\n  dim n <= 4\n  scalar s in [1, 3)\n  input x : f32[n, 4]\n"
    "  param w : bf16[4]\n  output y = mul(x, w)\n}\n";

static void test_errors(void) {
  maco_error* error = NULL;
  CHECK(!maco_graph_parse("graph g {\n  output y = relu(x)\n}\n", "a.maco", &error));
  CHECK(failed(&error, MACO_INVALID_GRAPH, "a.maco:2:"));
  CHECK(!maco_graph_parse(NULL, NULL, &error));
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "NULL"));
  CHECK(!maco_graph_parse("graph", NULL, NULL));
  CHECK(!maco_graph_read("/nonexisting", &error));
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "/nonexisting"));
  CHECK(!maco_compile(NULL, NULL, &error));
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "NULL"));
  CHECK(!maco_kernel_from_source("int main;", &error));
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "//@maco"));
  CHECK(maco_session_run(NULL, NULL, 0, NULL) == MACO_INVALID_ARGUMENT);
  maco_stopped stopped = {.size = sizeof stopped};
  CHECK(!maco_graph_parse("graph", NULL, &error));
  CHECK(maco_error_stopped(error, &stopped) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_GRAPH, ""));
  CHECK(maco_error_stopped(NULL, &stopped) == MACO_INVALID_ARGUMENT);
  CHECK(maco_error_code(NULL) == MACO_OK && maco_error_message(NULL)[0] == 0);
  maco_error_free(NULL);
  maco_graph_free(NULL);
  maco_kernel_free(NULL);
  maco_session_free(NULL);
  maco_string_free(NULL);
}

// Reads what is wrong with a graph, and the compiler's warnings, piece by piece.
static void test_diagnostics(void) {
  maco_error* error = NULL;
  CHECK(!maco_graph_parse("graph g {\n  output y = relu(x)\n  output z = reluu(y)\n}\n", "a.maco",
                          &error));
  maco_diagnostic d = {.size = sizeof d};
  CHECK(maco_error_diagnostics(error) >= 1);
  CHECK(maco_error_diagnostic(error, 0, &d) == MACO_OK);
  CHECK(d.severity == MACO_SEVERITY_ERROR && strcmp(d.file, "a.maco") == 0 && d.line >= 2);
  CHECK(d.column > 0 && strlen(d.message) > 0 && !strchr(d.message, '\n'));
  CHECK(maco_error_diagnostic(error, maco_error_diagnostics(error), &d) == MACO_INVALID_ARGUMENT);
  CHECK(maco_error_diagnostic(NULL, 0, &d) == MACO_INVALID_ARGUMENT);
  d.size = 3;
  CHECK(maco_error_diagnostic(error, 0, &d) == MACO_INVALID_ARGUMENT);
  maco_error_free(error);
  error = NULL;
  CHECK(!maco_graph_read("/nonexisting", &error));
  CHECK(maco_error_diagnostics(error) == 0 && maco_error_diagnostics(NULL) == 0);
  maco_error_free(error);
  error = NULL;
  maco_graph* graph = maco_graph_parse(
      "graph w {\n  input x : f32[4]\n  a = relu(x)\n  b = exp(x)\n  output y = silu(x)\n}\n", "w",
      NULL);
  maco_compile_options compile = {.size = sizeof compile, .target = "cpu", .max_warnings = -1};
  maco_kernel* kernel = maco_compile(graph, &compile, &error);
  CHECK(kernel && !error);
  d.size = sizeof d;
  CHECK(maco_kernel_warnings(kernel) == 2);
  CHECK(maco_kernel_warning(kernel, 1, &d) == MACO_OK && d.line == 4 &&
        d.severity == MACO_SEVERITY_WARNING);
  CHECK(maco_kernel_warning(kernel, 2, &d) == MACO_INVALID_ARGUMENT);
  maco_graph_free(graph);
  maco_kernel_free(kernel);
}

static int told = 0;
static void tell(void* data, const char* what) {
  CHECK(data == &told && what);
  ++told;
}

// For a session of kGraph with w = 2 and memory for all tensors: scalars in memory with 8 bytes,
// and scalars that count from the end of 1 to 2.
static void test_forms(maco_session* session, const maco_value* values) {
  maco_error* error = NULL;
  int64_t s_of[] = {2, 2};
  const int32_t* const at[] = {(const int32_t*)&s_of[0], (const int32_t*)&s_of[1]};
  const maco_address address = {"s", at};
  CHECK(maco_session_read_as(session, "s", 8, 1, &error) == MACO_OK);
  for (int i = 0; i < 2; ++i) {
    s_of[0] = s_of[1] = i == 0 ? 2 : -1;
    CHECK(maco_session_launch_at(session, values + 1, 1, &address, 1, NULL, &error) == MACO_OK);
    CHECK(maco_session_wait(session, &error) == MACO_OK);
  }
  s_of[0] = s_of[1] = (1LL << 32) + 1;
  CHECK(maco_session_launch_at(session, values + 1, 1, &address, 1, NULL, &error) == MACO_OK);
  CHECK(maco_session_wait(session, &error) == MACO_RUN_FAILED);
  CHECK(failed(&error, MACO_RUN_FAILED, "scalar 's' is 4294967297, but must be from 1 to 2"));
  CHECK(maco_session_read_as(session, "s", 4, 0, &error) == MACO_OK);
  CHECK(maco_session_read_as(session, "s", 2, 0, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "not of 2"));
  CHECK(maco_session_read_as(session, "t", 8, 0, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "no dim or scalar"));
}
static void test_places(maco_session* session, const maco_value* values) {
  maco_error* error = NULL;
  float before[4] = {0}, after[4] = {0};
  CHECK(maco_session_read(session, 0, "y", before, sizeof before, &error) == MACO_OK);
  _Alignas(16) float x[2][16] = {{5, 6}, {7, 8}};
  _Alignas(16) float y[2][16] = {{0}};
  void* const at_x[] = {x[0], x[1]};
  void* const at_y[] = {y[0], y[1]};
  maco_place places[] = {{.tensor = 2, .at = at_y}, {.tensor = 0, .at = at_x}};
  CHECK(maco_session_launch_with(session, values, 2, NULL, 0, places, 2, NULL, &error) == MACO_OK);
  CHECK(maco_session_wait(session, &error) == MACO_OK);
  CHECK(y[0][0] == 10 && y[0][1] == 12 && y[1][0] == 14 && y[1][1] == 16);
  // The other addresses are for that launch only.
  CHECK(maco_session_read(session, 0, "y", after, sizeof after, &error) == MACO_OK);
  CHECK(memcmp(before, after, sizeof before) == 0);
  CHECK(maco_session_run(session, values, 2, &error) == MACO_OK);
  CHECK(y[0][0] == 10);
  CHECK(maco_session_launch_with(session, values, 2, NULL, 0, NULL, 1, NULL, &error) ==
        MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "NULL"));
  places[0].tensor = 3;
  CHECK(maco_session_launch_with(session, values, 2, NULL, 0, places, 2, NULL, &error) ==
        MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "no tensor 3"));
  places[0].tensor = 0;
  CHECK(maco_session_launch_with(session, values, 2, NULL, 0, places, 2, NULL, &error) ==
        MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "'x' is given two places"));
  void* const odd[] = {x[0] + 1, x[1]};
  places[0].at = odd;
  CHECK(maco_session_launch_with(session, values, 2, NULL, 0, places, 1, NULL, &error) ==
        MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "no multiple of 16"));
}

static void loaded(void* data, int64_t done, int64_t total) {
  CHECK(data == &told && done == total);
  ++told;
}

// For a session of kGraph: loads a file of four numbers; rank 1 has the last one first.
static void test_load(maco_session* session) {
  maco_error* error = NULL;
  char folder[] = "/tmp/maco_c_testXXXXXX", path[64], weights[1024];
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/a.safetensors", folder);
  const char header[] = "{\"t\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}}";
  const float values[5] = {1, 2, 3, 4, 0.5f};
  const unsigned char size[8] = {sizeof header - 1};
  FILE* file = fopen(path, "wb");
  CHECK(file && fwrite(size, 1, 8, file) == 8);
  CHECK(fwrite(header, 1, sizeof header - 1, file) == sizeof header - 1);
  CHECK(fwrite(values, 1, sizeof values, file) == sizeof values);
  fclose(file);
  snprintf(weights, sizeof weights,
           "{\"maco_weights\": 1, \"world\": 2, \"files\": [{\"name\": \"a.safetensors\", "
           "\"bytes\": %zu}], \"sources\": {\"t\": {\"file\": 0, \"dtype\": \"F32\", \"shape\": "
           "[5], \"begin\": %zu}}, \"params\": {\"w\": {\"dtype\": \"bf16\", \"shape\": [4], "
           "\"ranks\": [[{\"from\": \"t\", \"rows\": [0, 4]}], [{\"from\": \"t\", \"rows\": [1, "
           "5], \"plus\": 1}]]}}}",
           8 + sizeof header - 1 + sizeof values, 8 + sizeof header - 1);
  told = 0;
  CHECK(maco_session_load(session, weights, folder, loaded, &told, &error) == MACO_OK);
  CHECK(!error && told >= 1);
  uint16_t w[4];
  CHECK(maco_session_read(session, 1, "w", w, sizeof w, &error) == MACO_OK);
  CHECK(w[0] == 0x4040 && w[1] == 0x4080 && w[2] == 0x40a0 && w[3] == 0x3fc0);
  CHECK(maco_session_load(session, weights, "/nonexisting", NULL, NULL, &error) ==
        MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "/nonexisting/a.safetensors: cannot be opened"));
  CHECK(maco_session_load(session, "[", folder, NULL, NULL, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "weights.json: is no JSON"));
  CHECK(maco_session_load(session, weights, NULL, NULL, NULL, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "NULL"));
  CHECK(maco_session_load(NULL, weights, folder, NULL, NULL, NULL) == MACO_INVALID_ARGUMENT);
  remove(path);
  remove(folder);
}

static void test_run(void) {
  maco_error* error = NULL;
  maco_graph* graph = maco_graph_parse(kGraph, NULL, &error);
  CHECK(graph && !error);
  char* text = maco_graph_text(graph);
  CHECK(text && strncmp(text, "graph c(world = 2) {", 20) == 0);
  maco_string_free(text);
  maco_compile_options compile = {.size = sizeof compile, .target = "cpu", .no_fuse = 1};
  maco_kernel* kernel = maco_compile(graph, &compile, &error);
  CHECK(kernel && !error);
  // Sizes of no version, within a field, and of a later version.
  const size_t wrong[] = {3, offsetof(maco_compile_options, target) + 4, sizeof compile + 8};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    compile.size = wrong[i];
    CHECK(!maco_compile(graph, &compile, &error));
    CHECK(failed(&error, MACO_INVALID_ARGUMENT, "size"));
  }
  // Rules of fusion that are left out. A caller of before has no such fields.
  const char* rules[] = {"norm", "send"};
  maco_compile_options without = {
      .size = sizeof without, .target = "cpu", .no_fuse_rules = rules, .no_fuse_rule_count = 2};
  maco_kernel* apart = maco_compile(graph, &without, &error);
  CHECK(apart && strstr(maco_kernel_source(apart), "--no-fuse=norm,send"));
  maco_kernel_free(apart);
  without.size = offsetof(maco_compile_options, no_fuse_rules);
  apart = maco_compile(graph, &without, &error);
  CHECK(apart && !strstr(maco_kernel_source(apart), "--no-fuse"));
  maco_kernel_free(apart);
  without.size = sizeof without;
  rules[1] = "nrom";
  CHECK(!maco_compile(graph, &without, &error));
  CHECK(failed(&error, MACO_INVALID_GRAPH, "'nrom' is no rule of 'fuse'"));
  rules[1] = NULL;
  CHECK(!maco_compile(graph, &without, &error));
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "rule of maco_compile_options is NULL"));
  // A board has its target.
  const maco_compile_options of_board = {.size = sizeof of_board, .board = "cpu"};
  maco_kernel* other_kernel = maco_compile(graph, &of_board, &error);
  CHECK(other_kernel && strcmp(maco_kernel_target(other_kernel), "cpu") == 0);
  maco_kernel_free(other_kernel);
  maco_graph_free(graph);

  CHECK(maco_kernel_world(kernel) == 2 && maco_kernel_tensors(kernel) == 3);
  CHECK(strcmp(maco_kernel_name(kernel), "c") == 0 &&
        strcmp(maco_kernel_target(kernel), "cpu") == 0);
  maco_variable_info variable = {.size = sizeof variable};
  CHECK(maco_kernel_variables(kernel) == 2);
  CHECK(maco_kernel_variable(kernel, 0, &variable, &error) == MACO_OK);
  CHECK(strcmp(variable.name, "n") == 0 && variable.is_dim == 1);
  CHECK(variable.lowest == 1 && variable.highest == 4);
  CHECK(maco_kernel_variable(kernel, 1, &variable, &error) == MACO_OK);
  CHECK(strcmp(variable.name, "s") == 0 && variable.is_dim == 0);
  CHECK(variable.lowest == 1 && variable.highest == 2);
  CHECK(maco_kernel_variable(kernel, 2, &variable, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "no such dim"));
  CHECK(strstr(maco_kernel_source(kernel), "maco_kernel") &&
        strstr(maco_kernel_report(kernel), "mul"));
  maco_tensor_info info;
  CHECK(maco_kernel_tensor(kernel, 1, &info, NULL) == MACO_OK);
  CHECK(strcmp(info.name, "w") == 0 && info.kind == MACO_PARAM && info.dtype == MACO_BF16);
  CHECK(info.axes == 1 && info.shape[0] == 4 && info.bytes == 8);
  CHECK(maco_kernel_tensor(kernel, 3, &info, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "no such tensor"));

  maco_session_options where = {
      .size = sizeof where, .device = MACO_CPU, .timeout_ms = 20000, .process_a_rank = 1};
  CHECK(!maco_session_open(kernel, &where, &error));
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, ""));
  // A caller compiled before there were processes: what lies behind its options isn't read.
  where.size = offsetof(maco_session_options, process_a_rank);
  maco_session* session = maco_session_open(kernel, &where, &error);
  CHECK(session && !error);
  CHECK(maco_session_address(session, 0, "x", &error) == NULL && !error);
  CHECK(maco_session_allocate(session, &error) == MACO_OK);
  CHECK(maco_session_address(session, 0, "x", &error) != NULL);
  const float x[16] = {1, 2, 3, 4};
  const uint16_t w[4] = {0x4000, 0x4000, 0x4000, 0x4000};  // 2
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(maco_session_write(session, rank, "x", x, sizeof x, &error) == MACO_OK);
    CHECK(maco_session_write(session, rank, "w", w, sizeof w, &error) == MACO_OK);
  }
  const maco_value values[] = {{"s", 2}, {"n", 1}};
  CHECK(maco_session_run(session, values, 2, &error) == MACO_OK);
  float y[4] = {0};
  CHECK(maco_session_read(session, 1, "y", y, sizeof y, &error) == MACO_OK);
  CHECK(y[0] == 2 && y[3] == 8);
  float part[2] = {0};
  CHECK(maco_session_read_at(session, 1, "y", 8, part, sizeof part, &error) == MACO_OK);
  CHECK(part[0] == y[2] && part[1] == y[3]);
  part[0] = 9;
  CHECK(maco_session_write_at(session, 0, "x", 4, part, 4, &error) == MACO_OK);
  CHECK(maco_session_run(session, values, 2, &error) == MACO_OK);
  CHECK(maco_session_read(session, 0, "y", y, sizeof y, &error) == MACO_OK);
  CHECK(y[0] == 2 && y[1] == 18 && y[3] == 8);
  CHECK(maco_session_write_at(session, 0, "x", 60, part, 8, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "has 64 bytes, not 8 behind 60"));
  CHECK(maco_session_read_at(session, 0, "x", -4, part, 4, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "negative"));
  CHECK(maco_session_is_here(session, 1) == 1 && maco_session_is_here(session, 2) == 0);
  int all = 0;
  CHECK(maco_session_ended(session, &all, &error) == MACO_OK && all == 1);
  CHECK(maco_session_profile(session, NULL, NULL, &error) != MACO_OK);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "without stamps"));
  double microseconds = 0;
  CHECK(maco_session_bench(session, values, 2, 2, &microseconds, &error) == MACO_OK);
  CHECK(microseconds > 0);
  CHECK(maco_session_launch(session, values, 2, NULL, &error) == MACO_OK);
  CHECK(maco_session_wait(session, &error) == MACO_OK);
  test_places(session, values);
  int32_t s_of[] = {2, 2};
  const int32_t* const at[] = {&s_of[0], &s_of[1]};
  maco_address address = {"s", at};
  CHECK(maco_session_launch_at(session, values + 1, 1, &address, 1, NULL, &error) == MACO_OK);
  CHECK(maco_session_wait(session, &error) == MACO_OK);
  s_of[0] = s_of[1] = 3;
  CHECK(maco_session_launch_at(session, NULL, 0, &address, 1, NULL, &error) == MACO_OK);
  CHECK(maco_session_wait(session, &error) == MACO_RUN_FAILED);
  maco_stopped stopped = {.size = sizeof stopped};
  CHECK(maco_error_stopped(error, &stopped) == MACO_OK && stopped.seen == 3);
  CHECK(stopped.rank == 0 && stopped.event[0] == 0);
  CHECK(failed(&error, MACO_RUN_FAILED, "scalar 's' is 3, but must be from 1 to 2"));
  test_forms(session, values);
  CHECK(maco_session_launch_at(session, NULL, 0, NULL, 1, NULL, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "NULL"));
  address.at = NULL;
  CHECK(maco_session_launch_at(session, NULL, 0, &address, 1, NULL, &error) ==
        MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "an address is NULL"));
  CHECK(maco_session_run(session, values, 0, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "'s'"));
  CHECK(maco_session_write(session, 0, "z", x, 4, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "no tensor 'z'"));
  CHECK(maco_session_bind(session, 0, "x", y, 4, &error) == MACO_INVALID_ARGUMENT);
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "64 bytes"));
  maco_session* other = maco_session_open(kernel, &where, &error);
  CHECK(maco_session_share(other, session, &error) == MACO_OK);
  CHECK(maco_session_address(other, 1, "w", &error) ==
        maco_session_address(session, 1, "w", &error));
  CHECK(maco_session_address(other, 1, "x", &error) == NULL);
  maco_session_free(other);
  maco_session_options stamped = {.size = sizeof stamped,
                                  .device = MACO_CPU,
                                  .profile = 1,
                                  .has_order = 1,
                                  .order = 7,
                                  .progress = tell,
                                  .progress_data = &told};
  CHECK(!maco_session_open(kernel, &stamped, &error));
  CHECK(failed(&error, MACO_INVALID_ARGUMENT, "in a chosen order run by turns and have no times"));
  stamped.profile = 0;
  other = maco_session_open(kernel, &stamped, &error);
  CHECK(other && !error && told == 2);
  CHECK(maco_session_allocate(other, &error) == MACO_OK);
  CHECK(maco_session_run(other, values, 2, &error) == MACO_OK);
  maco_session_free(other);
  stamped.profile = 1;
  stamped.has_order = 0;
  other = maco_session_open(kernel, &stamped, &error);
  CHECK(other && !error && told >= 2);
  CHECK(maco_session_allocate(other, &error) == MACO_OK);
  CHECK(maco_session_run(other, values, 2, &error) == MACO_OK);
  char *table = NULL, *trace = NULL;
  CHECK(maco_session_profile(other, &table, &trace, &error) == MACO_OK);
  CHECK(table && strstr(table, "critical path") && trace && trace[0] == '[');
  maco_string_free(table);
  maco_string_free(trace);
  maco_session_free(other);
  maco_kernel_free(kernel);
  test_load(session);
  maco_session_free(session);
}

int main(void) {
  test_errors();
  test_diagnostics();
  test_run();
  if (failures == 0) printf("%s: all passed\n", maco_version());
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
