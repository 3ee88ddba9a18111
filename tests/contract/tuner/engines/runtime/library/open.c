/* open LIBRARY CASE: check a library that test_open_sizes.py made of kernels.c, without Python.
 *
 * x [8] becomes pairs [n, 2], flat [2 n], which is the same, and same = x: n elements of x are positive. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

enum { COUNT = 8, THREADS = 4, RUNS = 2000 };

static const char *path;

typedef struct buffers {
  _Alignas(64) char x[4 * COUNT + 64], pairs[8 * COUNT + 64], flat[8 * COUNT + 64], same[4 * COUNT + 64];
} buffers;

static tunesmith_session *created(void) {
  tunesmith_session *session;
  CHECK(!model->create(NULL, &session));
  return session;
}

/* Run with positive elements where `chosen` has bits, from buffers `skew` bytes beyond an aligned address. */
static void run(tunesmith_session *session, unsigned chosen, size_t skew) {
  buffers all;
  float x[COUNT], pairs[2 * COUNT], flat[2 * COUNT];
  int64_t n = 0, of_pairs[2], of_flat[1], of_same[1], *shapes[] = {of_pairs, of_flat, of_same};
  memset(&all, 0xff, sizeof all);
  for (int i = 0; i < COUNT; ++i) x[i] = chosen >> i & 1 ? (float)(i + 1) : -1.0f;
  memcpy(all.x + skew, x, sizeof x);
  const tunesmith_input inputs[] = {{all.x + skew, sizeof x}};
  const tunesmith_output outputs[] = {
      {all.pairs + skew, sizeof pairs}, {all.flat + skew, sizeof flat}, {all.same + skew, sizeof x}};
  CHECK(!model->run_open(session, inputs, 1, outputs, 3, shapes));
  memcpy(pairs, all.pairs + skew, sizeof pairs);
  memcpy(flat, all.flat + skew, sizeof flat);
  for (int i = 0; i < COUNT; ++i) n += chosen >> i & 1;
  CHECK(of_pairs[0] == n && of_pairs[1] == 2 && of_flat[0] == 2 * n && of_same[0] == COUNT);
  for (int i = 0, place = 0; i < COUNT; ++i)
    if (chosen >> i & 1) {
      CHECK(pairs[2 * place] == x[i] && pairs[2 * place + 1] == (float)n);
      ++place;
    }
  CHECK(!memcmp(pairs, flat, (size_t)n * 8));
  CHECK(!memcmp(all.same + skew, x, sizeof x));
}

static void runs(void) {
  tunesmith_session *session = created();
  for (unsigned chosen = 0; chosen < 256; ++chosen) run(session, chosen, chosen % 2 ? 4 : 0);
  model->close(session);
}

static void description(void) {
  const int32_t *const *open = model->sizes->open_axes;
  CHECK(open && open[0][0] >= 0 && open[0][1] < 0 && open[1][0] >= 0 && open[2][0] < 0);
  const tunesmith_tensor *outputs = model->description->entries->outputs;
  CHECK(outputs[0].shape[0] == COUNT && outputs[0].shape[1] == 2 && outputs[0].bytes == 8 * COUNT);
  CHECK(outputs[1].shape[0] == 2 * COUNT && outputs[1].rank == 1);
}

static void versions(void) {
  const tunesmith_api *(*get_api)(uint32_t, const char **);
  void *symbol = dlsym(dlopen(path, RTLD_NOW), "tunesmith_get_api");
  const char *error = NULL;
  memcpy(&get_api, &symbol, sizeof get_api);
  CHECK(get_api(3, &error) == model);
  CHECK(!get_api(2, &error) && strstr(error, "the program needs version 3 of Tunesmith's C interface; it asks for 2"));
  CHECK(!get_api(4, &error) && strstr(error, "the library has version 3 of"));
}

static void errors(void) {
  tunesmith_session *session = created();
  float x[COUNT] = {1, 2}, pairs[2 * COUNT], same[COUNT];
  int64_t of_pairs[2], of_flat[1], of_same[1], *shapes[] = {of_pairs, of_flat, of_same};
  const int64_t x_shape[] = {COUNT}, *x_shapes[] = {x_shape};
  const tunesmith_input inputs[] = {{x, sizeof x}};
  tunesmith_output outputs[] = {{pairs, sizeof pairs}, {NULL, 0}, {same, sizeof same}};
  CHECK(model->run(session, inputs, 1, outputs, 3) == TUNESMITH_INVALID_ARGUMENT);
  CHECK(strstr(model->error(), "a run decides the shape of output pairs: use run_open"));
  CHECK(model->run_shapes(session, inputs, x_shapes, 1, outputs, 3) == TUNESMITH_INVALID_ARGUMENT);
  CHECK(model->run_open(session, inputs, 1, outputs, 3, NULL) == TUNESMITH_INVALID_ARGUMENT);
  CHECK(model->run_open(NULL, inputs, 1, outputs, 3, shapes) == TUNESMITH_INVALID_ARGUMENT);
  CHECK(model->run_open(session, inputs, 1, outputs, 2, shapes) == TUNESMITH_INVALID_ARGUMENT);
  outputs[0].bytes = 16;
  CHECK(model->run_open(session, inputs, 1, outputs, 3, shapes) == TUNESMITH_INVALID_ARGUMENT);
  CHECK(strstr(model->error(), "output pairs has 64 bytes; 16 were given"));
  outputs[0].bytes = sizeof pairs;
  /* Outputs of fixed shape alone can be had by run, too. */
  const tunesmith_output fixed[] = {{NULL, 0}, {NULL, 0}, {same, sizeof same}};
  CHECK(!model->run(session, inputs, 1, fixed, 3));
  CHECK(!model->run_shapes(session, inputs, x_shapes, 1, fixed, 3));
  /* A kernel that asks for more than was planned for. */
  x[2] = 99;
  CHECK(model->run_open(session, inputs, 1, outputs, 3, shapes) == TUNESMITH_KERNEL_FAILED);
  CHECK(strstr(model->error(), "kernel read sizes failed: a size is 11, not 0 to 8"));
  run(session, 37, 0);
  model->close(session);
}

static void profile(void) {
  tunesmith_session *session = created();
  const tunesmith_entry *entry = model->description->entries;
  float x[COUNT] = {1, 2};
  const tunesmith_input inputs[] = {{x, sizeof x}};
  const tunesmith_output outputs[] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
  uint64_t nanoseconds[16];
  CHECK(entry->kernel_count == 4 && !strcmp(entry->kernels[1], "read sizes"));
  CHECK(!model->profile(session, inputs, 1, outputs, 3, nanoseconds, entry->kernel_count));
  float pairs[2 * COUNT];
  const tunesmith_output wanted[] = {{pairs, sizeof pairs}, {NULL, 0}, {NULL, 0}};
  CHECK(model->profile(session, inputs, 1, wanted, 3, nanoseconds, 4) == TUNESMITH_INVALID_ARGUMENT);
  model->close(session);
}

static void *repeat(void *session) {
  for (unsigned i = 0; i < RUNS; ++i) run(session, i * 37 % 256, 0);
  return NULL;
}

static void threads(void) {
  tunesmith_session *session = created();
  pthread_t started[THREADS];
  for (int i = 0; i < THREADS; ++i) CHECK(!pthread_create(&started[i], NULL, repeat, session));
  for (int i = 0; i < THREADS; ++i) pthread_join(started[i], NULL);
  model->close(session);
}

int main(int count, char **arguments) {
  const struct {
    const char *name;
    void (*check)(void);
  } cases[] = {{"runs", runs},     {"description", description}, {"versions", versions},
               {"errors", errors}, {"profile", profile},         {"threads", threads}};
  CHECK(count == 3);
  const char *error = "";
  path = arguments[1];
  model = tunesmith_open(path, &error);
  CHECK(model);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    if (!strcmp(cases[i].name, arguments[2])) return cases[i].check(), 0;
  return 2;
}
