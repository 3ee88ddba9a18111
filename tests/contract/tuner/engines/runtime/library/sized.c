/* sized LIBRARY CASE: check a library of several sizes that test_sizes.py made of kernels.c, without Python.
 *
 * x [batch, sequence] and mask [sequence] become shifted = x + 3 [batch, sequence], sums = x · mask [batch] and
 * same = x. Inputs are padded with 5 and 0. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

enum { MOST_ROWS = 40, MOST_COLUMNS = 64, MOST = MOST_ROWS * MOST_COLUMNS, RUNS = 200 };

typedef struct buffers {
  _Alignas(64) float x[MOST + 32];
  _Alignas(64) float mask[MOST_COLUMNS + 32];
  _Alignas(64) float shifted[MOST + 32];
  _Alignas(64) float sums[MOST_ROWS + 32];
  _Alignas(64) float same[MOST + 32];
} buffers;

static tunesmith_session *session_of(int32_t entry, int32_t threads) {
  const tunesmith_options options = {entry, threads, 0, 0};
  tunesmith_session *session;
  CHECK(!model->create(&options, &session));
  return session;
}

/* Run on rows × columns; buffers start `skew` floats beyond an aligned address. */
static int run(tunesmith_session *session, buffers *all, int64_t rows, int64_t columns, size_t skew) {
  const int64_t x_shape[] = {rows, columns}, mask_shape[] = {columns};
  const int64_t *shapes[] = {x_shape, mask_shape};
  const size_t count = (size_t)(rows * columns);
  float *x = all->x + skew, *mask = all->mask + skew;
  float *shifted = all->shifted + skew, *sums = all->sums + skew, *same = all->same + skew;
  for (size_t i = 0; i < count; ++i) x[i] = (float)((i * 7 + (size_t)rows) % 19);
  for (size_t i = 0; i < (size_t)columns; ++i) mask[i] = (float)(i % 3);
  for (size_t i = 0; i < MOST + 8; ++i) shifted[i] = same[i] = -1;
  for (size_t i = 0; i < MOST_ROWS + 8; ++i) sums[i] = -1;
  const tunesmith_input inputs[] = {{x, 4 * count}, {mask, 4 * (uint64_t)columns}};
  const tunesmith_output outputs[] = {{shifted, 4 * count}, {sums, 4 * (uint64_t)rows}, {same, 4 * count}};
  const int status = model->run_shapes(session, inputs, shapes, 2, outputs, 3);
  if (status) return status;
  for (size_t i = 0; i < count; ++i) {
    CHECK(shifted[i] == x[i] + 3);
    CHECK(same[i] == x[i]);
  }
  for (size_t row = 0; row < (size_t)rows; ++row) {
    float sum = 0;
    for (size_t i = 0; i < (size_t)columns; ++i) sum += x[row * (size_t)columns + i] * mask[i];
    CHECK(sums[row] == sum);
  }
  /* Nothing beyond the outputs was written. */
  for (size_t i = count; i < MOST + 8; ++i) CHECK(shifted[i] == -1 && same[i] == -1);
  for (size_t i = (size_t)rows; i < MOST_ROWS + 8; ++i) CHECK(sums[i] == -1);
  int64_t made[2], made_sums[1], made_same[2];
  int64_t *made_shapes[] = {made, made_sums, made_same};
  CHECK(!model->shapes(session, shapes, 2, made_shapes, 3));
  CHECK(made[0] == rows && made[1] == columns && made_sums[0] == rows && made_same[1] == columns);
  const tunesmith_output unwanted[] = {{NULL, 0}, {sums, 4 * (uint64_t)rows}, {NULL, 0}};
  CHECK(!model->run_shapes(session, inputs, shapes, 2, unwanted, 3));
  return 0;
}

static void grid(void) {
  static buffers all;
  for (int32_t threads = 1; threads < 4; ++threads) {
    tunesmith_session *session = session_of(TUNESMITH_ALL_ENTRIES, threads);
    for (int64_t rows = 1; rows <= MOST_ROWS; ++rows)
      for (int64_t columns = 1; columns <= MOST_COLUMNS; columns += columns < 18 ? 1 : 7)
        CHECK(!run(session, &all, rows, columns, (size_t)((rows + columns) % 5)));
    CHECK(!run(session, &all, 12, 64, 0));
    model->close(session);
  }
}

static void description(void) {
  const tunesmith_sizes *sizes = model->sizes;
  CHECK(model->version == TUNESMITH_API_VERSION && model->description->entry_count == 5);
  CHECK(sizes->dimension_count == 2 && sizes->input_axes[0][0] == 0 && sizes->input_axes[0][1] == 1);
  CHECK(sizes->input_axes[1][0] == 1 && sizes->output_axes[1][0] == 0);
  CHECK(!strcmp(sizes->dimensions[0].name, "batch") && sizes->dimensions[0].splits && !sizes->dimensions[0].pads);
  CHECK(!strcmp(sizes->dimensions[1].name, "sequence") && !sizes->dimensions[1].splits && sizes->dimensions[1].pads);
  for (int32_t i = 0; i < 5; ++i) {
    const tunesmith_tensor *x = &model->description->entries[i].inputs[0];
    CHECK(x->shape[0] == sizes->values[2 * i] && x->shape[1] == sizes->values[2 * i + 1]);
  }
}

static void refused(tunesmith_session *session, int64_t rows, int64_t columns, int64_t masked, int status,
                    const char *text) {
  const int64_t x_shape[] = {rows, columns}, mask_shape[] = {masked};
  const int64_t *shapes[] = {x_shape, mask_shape};
  int64_t made[2], made_sums[1], made_same[2];
  int64_t *made_shapes[] = {made, made_sums, made_same};
  float x[4] = {0};
  const tunesmith_input inputs[] = {{x, sizeof x}, {x, sizeof x}};
  const tunesmith_output outputs[] = {{x, sizeof x}, {x, sizeof x}, {x, sizeof x}};
  CHECK(model->run_shapes(session, inputs, shapes, 2, outputs, 3) == status);
  if (strncmp(model->error(), text, strlen(text))) {
    fprintf(stderr, "%s\n", model->error());
    exit(1);
  }
  const int found = model->shapes(session, shapes, 2, made_shapes, 3);
  CHECK(found == status || (!found && made[0] == rows && made[1] == columns));
}

static void errors(void) {
  static buffers all;
  tunesmith_session *session = session_of(TUNESMITH_ALL_ENTRIES, 1);
  const int invalid = TUNESMITH_INVALID_ARGUMENT, none = TUNESMITH_NO_SUCH_SIZE;
  refused(session, 2, 65, 65, none,
          "no entry point serves batch=2, sequence=65 (batch can be split, sequence can be padded); the sizes are "
          "batch=1, sequence=16; batch=4, sequence=16; batch=1, sequence=64; batch=4, sequence=64; batch=8, "
          "sequence=64");
  refused(session, 0, 16, 16, none, "no entry point serves batch=0, sequence=16");
  refused(session, 1, 0, 0, none, "no entry point serves batch=1, sequence=0");
  refused(session, -1, 16, 16, invalid, "input x has size -1 on axis 0");
  refused(session, 1, INT64_MIN, 16, invalid, "input x has size -9223372036854775808 on axis 1");
  refused(session, 2, 16, 17, invalid, "input mask has size 17 on axis 0, but x has 16 there: both are sequence");
  refused(session, 3, 7, 7, invalid, "input x has 84 bytes; 16 were given");
  refused(session, INT64_MAX, 16, 16, invalid, "input x has 18446744073709551615 bytes; 16 were given");
  refused(session, INT64_MAX / 64 + 1, 16, 16, invalid, "input x has ");
  refused(session, 1, INT64_MAX, INT64_MAX, none, "no entry point serves batch=1, sequence=9223372036854775807");
  const tunesmith_input input = {&all, 16};
  const int64_t shape[] = {1, 16}, *shapes[] = {shape, shape + 1}, *missing[] = {shape, NULL};
  const tunesmith_output output = {&all, 4};
  CHECK(model->run(session, &input, 1, &output, 1) == invalid);
  CHECK(!strcmp(model->error(), "the session serves 5 entry points: use run_shapes, or a session of one entry point"));
  CHECK(model->profile(session, &input, 1, &output, 1, NULL, 0) == invalid);
  CHECK(model->run_shapes(session, &input, shapes, 1, &output, 3) == invalid);
  CHECK(!strcmp(model->error(), "the model has 2 inputs and 3 outputs; 1 and 3 were given"));
  CHECK(model->run_shapes(session, NULL, NULL, 2, NULL, 3) == invalid);
  CHECK(model->run_shapes(session, NULL, missing, 2, NULL, 3) == invalid);
  CHECK(!strcmp(model->error(), "no shape of input mask was given"));
  CHECK(model->run_shapes(NULL, NULL, shapes, 2, NULL, 3) == invalid);
  CHECK(!run(session, &all, 3, 9, 1));
  model->close(session);
  const tunesmith_options options = {-2, 0, 0, 0}, beyond = {5, 0, 0, 0};
  CHECK(model->create(&options, &session) == invalid && model->create(&beyond, &session) == invalid);
}

/* A session of one entry point serves what can be split and padded into that one. */
static void single(void) {
  static buffers all;
  for (int32_t entry = 0; entry < 5; ++entry) {
    tunesmith_session *session = session_of(entry, 2);
    const int64_t columns = model->sizes->values[2 * entry + 1];
    for (int64_t rows = 1; rows < 20; ++rows)
      for (int64_t i = 1; i <= columns; i += 3) CHECK(!run(session, &all, rows, i, 0));
    if (columns < 64) CHECK(run(session, &all, 1, 64, 0) == TUNESMITH_NO_SUCH_SIZE);
    model->close(session);
  }
  tunesmith_session *first;
  CHECK(!model->create(NULL, &first));
  for (int i = 0; i < 16; ++i) all.x[i] = all.mask[i] = 1;
  const tunesmith_input inputs[] = {{all.x, 64}, {all.mask, 64}};
  const tunesmith_output outputs[] = {{NULL, 0}, {all.sums, 4}, {NULL, 0}};
  CHECK(!model->run(first, inputs, 2, outputs, 3) && all.sums[0] == 16);
  uint64_t times[8];
  CHECK(!model->profile(first, inputs, 2, outputs, 3, times, model->description->entries[0].kernel_count));
  model->close(first);
}

static void *repeat(void *given) {
  buffers *all = aligned_alloc(64, sizeof *all);
  tunesmith_session *own = session_of(TUNESMITH_ALL_ENTRIES, 2);
  for (int i = 0; i < RUNS; ++i) {
    CHECK(!run(own, all, i % 20 + 1, i % 64 + 1, (size_t)i % 3));
    CHECK(!run(given, all, i % 23 + 1, i % 61 + 1, (size_t)i % 3));
  }
  model->close(own);
  free(all);
  return NULL;
}

static void threads(void) {
  pthread_t all[4];
  tunesmith_session *shared = session_of(TUNESMITH_ALL_ENTRIES, 2);
  for (int i = 0; i < 4; ++i) CHECK(!pthread_create(&all[i], NULL, repeat, shared));
  for (int i = 0; i < 4; ++i) pthread_join(all[i], NULL);
  model->close(shared);
}

static void forked(void) {
  static buffers all;
  tunesmith_session *session = session_of(TUNESMITH_ALL_ENTRIES, 2);
  CHECK(!run(session, &all, 5, 20, 0));
  const pid_t child = fork();
  CHECK(child >= 0);
  CHECK(!run(session, &all, 6, 21, 0) && !run(session, &all, 4, 16, 0));
  model->close(session);
  if (!child) _exit(0);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static size_t allocated(void) {
  const struct mallinfo2 found = mallinfo2();
  return found.uordblks + found.hblkhd;
}

/* A session has the memory of its largest entry point, and that of larger inputs and outputs only when it needs it. */
static void memory(void) {
  static buffers all;
  uint64_t largest = 0;
  for (int32_t i = 0; i < 5; ++i)
    if (model->description->entries[i].arena_bytes > largest) largest = model->description->entries[i].arena_bytes;
  const size_t before = allocated();
  tunesmith_session *session = session_of(TUNESMITH_ALL_ENTRIES, 1);
  const size_t created = allocated() - before;
  CHECK(largest > (1 << 20) && created >= largest && created < largest + 20000);
  /* Outputs that are not wanted are staged, too. */
  CHECK(!run(session, &all, 8, 64, 0));
  CHECK(allocated() - before < created + 8000);
  CHECK(!run(session, &all, 3, 10, 0));
  const size_t staged = allocated() - before;
  CHECK(staged > created && staged < created + 20000);
  for (int64_t i = 1; i < MOST_COLUMNS; ++i) CHECK(!run(session, &all, i % 30 + 1, i, 1));
  CHECK(allocated() - before == staged);
  model->close(session);
  CHECK(allocated() < before + 8000);
}

static double seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Print the nanoseconds that run_shapes takes longer than run for the size of an entry point. */
static void overhead(void) {
  static buffers all;
  tunesmith_session *one = session_of(4, 1), *session = session_of(TUNESMITH_ALL_ENTRIES, 1);
  const int64_t x_shape[] = {8, 64}, mask_shape[] = {64};
  const int64_t *shapes[] = {x_shape, mask_shape};
  const tunesmith_input inputs[] = {{all.x, 4 * 512}, {all.mask, 4 * 64}};
  const tunesmith_output outputs[] = {{all.shifted, 4 * 512}, {all.sums, 4 * 8}, {all.same, 4 * 512}};
  double best[2] = {1, 1};
  for (int turn = 0; turn < 400; ++turn) {
    const double started = seconds();
    for (int i = 0; i < 100; ++i) CHECK(!model->run(one, inputs, 2, outputs, 3));
    const double between = seconds();
    for (int i = 0; i < 100; ++i) CHECK(!model->run_shapes(session, inputs, shapes, 2, outputs, 3));
    const double ended = seconds();
    if (between - started < best[0]) best[0] = between - started;
    if (ended - between < best[1]) best[1] = ended - between;
  }
  printf("%.0f\n", (best[1] - best[0]) * 1e7);
  model->close(one);
  model->close(session);
}

int main(int count, char **arguments) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"grid", grid},     {"description", description}, {"errors", errors},
               {"single", single}, {"threads", threads},         {"fork", forked},
               {"memory", memory}, {"overhead", overhead}};
  const char *error = "";
  if (count != 3) return 2;
#ifdef LINKED
  model = LINKED(TUNESMITH_API_VERSION, &error);
#else
  model = tunesmith_open(arguments[1], &error);
#endif
  if (!model) {
    fprintf(stderr, "%s\n", error);
    return 3;
  }
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    if (!strcmp(cases[i].name, arguments[2])) {
      cases[i].run();
      return 0;
    }
  return 2;
}
