/* A graph compiled and run from C, on the CPU target: two ranks add up what each has. */
#include <maco/maco_c.h>
#include <stdio.h>
#include <stdlib.h>

static const char* const kGraph =
    "graph plain_c(world = 2) {\n"
    "  scalar times in [0, 100)\n"
    "  input x : f32[8]\n"
    "  output y = allreduce(x)\n"
    "}\n";

/* Ends the program where something failed. */
static void check(maco_error* error) {
  if (!error) return;
  fprintf(stderr, "%s\n", maco_error_message(error));
  maco_error_free(error);
  exit(EXIT_FAILURE);
}

int main(void) {
  maco_error* error = NULL;
  maco_graph* graph = maco_graph_parse(kGraph, "plain_c.maco", &error);
  check(error);
  maco_compile_options compile = {.size = sizeof compile, .target = "cpu"};
  maco_kernel* kernel = maco_compile(graph, &compile, &error);
  check(error);
  maco_session_options where = {.size = sizeof where, .device = MACO_CPU};
  maco_session* session = maco_session_open(kernel, &where, &error);
  check(error);

  /* Memory of our own: nothing is copied. */
  _Alignas(16) float x[2][8], y[2][8];
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 8; ++i) x[rank][i] = (float)(i + 10 * rank);
    maco_session_bind(session, rank, "x", x[rank], sizeof x[rank], &error);
    check(error);
    maco_session_bind(session, rank, "y", y[rank], sizeof y[rank], &error);
    check(error);
  }
  const maco_value values[] = {{"times", 1}};
  maco_session_run(session, values, 1, &error);
  check(error);

  int wrong = 0;
  for (int rank = 0; rank < 2; ++rank)
    for (int i = 0; i < 8; ++i) wrong += y[rank][i] != (float)(2 * i + 10);
  printf("%s: %d wrong\n", maco_version(), wrong);
  maco_session_free(session);
  maco_kernel_free(kernel);
  maco_graph_free(graph);
  return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
