/* program LIBRARY CASE: check a library that test_linking.py made of kernels.c, without Python. */
#define _GNU_SOURCE
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

enum { COUNT = 1024, RUNS = 300, MEGABYTE = 1 << 20 };

/* Buffers whose addresses lie `skew` bytes beyond a multiple of 64. */
typedef struct buffers {
  _Alignas(64) char x[4 * COUNT + 64], scaled[4 * COUNT + 64], sum[4 + 60 + 64], same[4 * COUNT + 64],
      flat[4 * COUNT + 64];
} buffers;

static int run(tunesmith_session *session, buffers *all, size_t skew, float start) {
  float x[COUNT], scaled[COUNT], sum = 0, expected = 0, same[COUNT], flat[COUNT];
  for (int i = 0; i < COUNT; ++i) x[i] = start + (float)(i % 7);
  memcpy(all->x + skew, x, sizeof x);
  tunesmith_input inputs[] = {{all->x + skew, sizeof x}};
  tunesmith_output outputs[] = {{all->scaled + skew, sizeof x},
                                {all->sum + skew, sizeof sum},
                                {all->same + skew, sizeof x},
                                {all->flat + skew, sizeof x}};
  int status = model->run(session, inputs, 1, outputs, 4);
  if (status) return status;
  memcpy(scaled, all->scaled + skew, sizeof x);
  memcpy(&sum, all->sum + skew, sizeof sum);
  memcpy(same, all->same + skew, sizeof x);
  memcpy(flat, all->flat + skew, sizeof x);
  for (int i = 0; i < COUNT; ++i) {
    /* The weights are 0, 1, 2, 3, 0, ... */
    CHECK(scaled[i] == x[i] * (float)(i % 4));
    CHECK(same[i] == x[i]);
    CHECK(flat[i] == scaled[i]);
    expected += scaled[i];
  }
  CHECK(sum == expected);
  return 0;
}

/* The library calls these instead of libc's. */
static atomic_int claimed_cpu = -1, changes;
static cpu_set_t masks[2]; /* of the first two changes */

int sched_getcpu(void) {
  unsigned cpu = 0;
  if (claimed_cpu >= 0) return claimed_cpu;
  return syscall(SYS_getcpu, &cpu, NULL, NULL) ? -1 : (int)cpu;
}

int sched_setaffinity(pid_t thread, size_t bytes, const cpu_set_t *mask) {
  const int change = changes++;
  if (change < 2) masks[change] = *mask;
  return (int)syscall(SYS_sched_setaffinity, thread, bytes, mask);
}

static tunesmith_session *session_of(int32_t threads) {
  tunesmith_options options = {0, threads, 0, threads > 1};
  tunesmith_session *session;
  CHECK(model->create(&options, &session) == TUNESMITH_OK);
  CHECK(model->threads(session) == threads);
  return session;
}

static void check_runs(void) {
  static buffers all;
  for (int32_t threads = 1; threads <= 4; ++threads) {
    tunesmith_session *session = session_of(threads);
    for (int i = 0; i < RUNS; ++i) CHECK(run(session, &all, i % 3 ? 0 : (size_t)(i % 16) * 4, (float)i) == 0);
    /* Threads sleep by now. */
    usleep(20000);
    CHECK(run(session, &all, 0, 5) == 0);
    model->close(session);
  }
  model->close(NULL);
}

static void check_description(void) {
  const tunesmith_description *all = model->description;
  CHECK(!strcmp(all->model, "abc") && !strcmp(all->target, "a \"target\"\\") && all->threads == 2);
  CHECK(all->entry_count == 1 && !strcmp(all->entries[0].name, "main"));
  const tunesmith_entry *entry = &all->entries[0];
  CHECK(entry->input_count == 1 && entry->output_count == 4 && entry->kernel_count == 3);
  CHECK(!strcmp(entry->inputs[0].name, "x") && !strcmp(entry->inputs[0].dtype, "float32"));
  CHECK(entry->inputs[0].rank == 2 && entry->inputs[0].shape[1] == 256 && entry->inputs[0].bytes == 4096);
  CHECK(!strcmp(entry->outputs[1].name, "sum") && entry->outputs[1].rank == 0 && entry->outputs[1].bytes == 4);
  CHECK(!strcmp(entry->kernels[1], "scale"));
}

static void check_profile(void) {
  tunesmith_session *session = session_of(1);
  float x[COUNT] = {0};
  uint64_t times[3] = {0};
  tunesmith_input inputs[] = {{x, sizeof x}};
  /* None is wanted. */
  tunesmith_output outputs[4] = {{NULL, 0}};
  CHECK(model->profile(session, inputs, 1, outputs, 4, times, 3) == 0);
  CHECK(times[0] && times[1] && times[2] && times[0] < 1000000000);
  CHECK(model->profile(session, inputs, 1, outputs, 4, times, 2) == TUNESMITH_INVALID_ARGUMENT);
  CHECK(!strcmp(model->error(), "the model has 3 kernels; room for 2 times was given"));
  model->close(session);
}

static void check_errors(void) {
  static buffers all;
  tunesmith_session *session = session_of(2), *other;
  float x[COUNT] = {0};
  tunesmith_input inputs[] = {{x, sizeof x - 1}};
  tunesmith_output outputs[4] = {{NULL, 0}};
  CHECK(model->run(session, inputs, 1, outputs, 4) == TUNESMITH_INVALID_ARGUMENT);
  CHECK(!strcmp(model->error(), "input x has 4096 bytes; 4095 were given"));
  inputs[0].bytes = sizeof x;
  CHECK(model->run(session, inputs, 1, outputs, 3) == TUNESMITH_INVALID_ARGUMENT);
  CHECK(!strcmp(model->error(), "the model has 1 inputs and 4 outputs; 1 and 3 were given"));
  outputs[0] = (tunesmith_output){x, 8};
  CHECK(model->run(session, inputs, 1, outputs, 4) == TUNESMITH_INVALID_ARGUMENT);
  CHECK(!strcmp(model->error(), "output scaled has 4096 bytes; 8 were given"));
  CHECK(run(session, &all, 0, -1) == TUNESMITH_KERNEL_FAILED);
  CHECK(!strcmp(model->error(), "kernel check failed: ValueError: the kernel broke"));
  for (int i = 0; i < 20; ++i) CHECK(run(session, &all, 0, -1) == TUNESMITH_KERNEL_FAILED);
  CHECK(run(session, &all, 0, 1) == TUNESMITH_OK);
  tunesmith_options options = {3, 0, 0, 0};
  CHECK(model->create(&options, &other) == TUNESMITH_INVALID_ARGUMENT && !other);
  CHECK(!strcmp(model->error(), "no entry point 3; the model has 1"));
  options = (tunesmith_options){0, 5000, 0, 0};
  CHECK(model->create(&options, &other) == TUNESMITH_INVALID_ARGUMENT);
  model->close(session);
}

static size_t allocated(void) {
  struct mallinfo2 all = mallinfo2();
  return all.uordblks + all.hblkhd;
}

/* Kernels get their workspaces from the arena. */
static void check_memory(void) {
  static buffers all;
  CHECK(model->description->entries[0].arena_bytes == 3 * MEGABYTE);
  for (int32_t threads = 1; threads <= 2; ++threads) {
    tunesmith_session *session = session_of(threads);
    size_t before = allocated();
    CHECK(run(session, &all, 0, 1) == 0);
    CHECK(allocated() - before < MEGABYTE);
    model->close(session);
  }
}

static void *run_often(void *session) {
  static _Thread_local buffers all;
  for (int i = 0; i < RUNS; ++i) CHECK(run(session, &all, 0, (float)i) == 0);
  return NULL;
}

/* Two threads share one session; two more have their own. */
static void check_threads(void) {
  pthread_t threads[4];
  tunesmith_session *sessions[] = {session_of(2), session_of(2), session_of(1)};
  tunesmith_session *used[] = {sessions[0], sessions[0], sessions[1], sessions[2]};
  for (int i = 0; i < 4; ++i) CHECK(!pthread_create(&threads[i], NULL, run_often, used[i]));
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < 3; ++i) model->close(sessions[i]);
}

/* A child uses a session of its parent, of which another thread held the lock. */
static void check_fork(void) {
  pthread_t thread;
  static buffers all;
  tunesmith_session *session = session_of(2), *unused = session_of(2);
  CHECK(!pthread_create(&thread, NULL, run_often, session));
  for (int i = 0; i < 20; ++i) {
    pid_t child = fork();
    if (!child) {
      alarm(20);
      CHECK(run(session, &all, 0, 3) == 0 && run(session, &all, 0, 4) == 0);
      model->close(session);
      model->close(unused);
      _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  pthread_join(thread, NULL);
  CHECK(run(session, &all, 0, 3) == 0);
  model->close(session);
  model->close(unused);
}

static void run_unpinned(const cpu_set_t *mask) {
  static buffers all;
  tunesmith_options options = {0, 2, 0, 0};
  tunesmith_session *session;
  CHECK(!sched_setaffinity(0, sizeof *mask, mask));
  changes = 0;
  CHECK(model->create(&options, &session) == TUNESMITH_OK);
  /* Until the other thread had a turn. */
  for (int i = 0; i < RUNS && changes < 2; ++i, usleep(1000)) CHECK(run(session, &all, 0, 1) == 0);
  model->close(session);
}

/* A thread that finds itself on the caller's CPU moves, and may be moved by others afterwards. */
static void check_placement(void) {
  cpu_set_t allowed, one, others;
  CHECK(!sched_getaffinity(0, sizeof allowed, &allowed));
  CPU_ZERO(&one);
  claimed_cpu = 0;
  while (!CPU_ISSET((size_t)claimed_cpu, &allowed)) ++claimed_cpu;
  CPU_SET((size_t)claimed_cpu, &one);
  run_unpinned(&one);
  CHECK(changes == 0);
  if (CPU_EQUAL(&one, &allowed)) return;
  run_unpinned(&allowed);
  CPU_XOR(&others, &allowed, &one);
  CHECK(changes >= 2 && CPU_EQUAL(&masks[0], &others) && CPU_EQUAL(&masks[1], &allowed));
}

static double cpu_seconds(void) {
  struct timespec time;
  CHECK(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time));
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Idle threads sleep, however long they look for work before that. */
static void check_spinning(void) {
  static buffers all;
  static const int32_t spins[] = {0, -1, 100000};
  for (size_t i = 0; i < sizeof spins / sizeof *spins; ++i) {
    tunesmith_options options = {0, 4, spins[i], 0};
    tunesmith_session *session;
    CHECK(model->create(&options, &session) == TUNESMITH_OK);
    for (int j = 0; j < RUNS / 10; ++j) CHECK(run(session, &all, 0, (float)j) == 0);
    usleep(200000); /* 100,000 looks take some milliseconds of each thread */
    const double before = cpu_seconds();
    usleep(1000000);
    CHECK(cpu_seconds() - before < 0.05);
    model->close(session);
  }
}

static int masks_of_others_are(const cpu_set_t *wanted) {
  DIR *threads = opendir("/proc/self/task");
  int equal = 1, others = 0;
  CHECK(threads);
  for (struct dirent *each; (each = readdir(threads));) {
    const int thread = atoi(each->d_name);
    cpu_set_t mask;
    if (!thread || thread == getpid()) continue;
    ++others;
    CHECK(!sched_getaffinity(thread, sizeof mask, &mask));
    equal = equal && CPU_EQUAL(&mask, wanted);
  }
  closedir(threads);
  CHECK(others == 1);
  return equal;
}

/* A session's own thread stays on the second CPU of the mask; the caller's may be moved. */
static void check_pinning(void) {
  static buffers all;
  cpu_set_t allowed, second, own;
  CHECK(!sched_getaffinity(0, sizeof allowed, &allowed));
  if (CPU_COUNT(&allowed) < 2) return;
  CPU_ZERO(&second);
  for (size_t cpu = 0, seen = 0; seen < 2; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && ++seen == 2) CPU_SET(cpu, &second);
  for (int32_t pin = 0; pin < 2; ++pin) {
    const cpu_set_t *wanted = pin ? &second : &allowed;
    tunesmith_options options = {0, 2, 0, pin};
    tunesmith_session *session;
    CHECK(model->create(&options, &session) == TUNESMITH_OK);
    for (int i = 0; i < RUNS; ++i) CHECK(run(session, &all, 0, (float)i) == 0);
    /* Its thread may not have begun, or just move. */
    for (int i = 0; i < 1000 && !masks_of_others_are(wanted); ++i) usleep(1000);
    CHECK(masks_of_others_are(wanted));
    CHECK(!sched_getaffinity(0, sizeof own, &own) && CPU_EQUAL(&own, &allowed));
    model->close(session);
  }
}

int main(int count, char **arguments) {
  static const struct {
    const char *name;
    void (*check)(void);
  } cases[] = {{"runs", check_runs},      {"description", check_description}, {"profile", check_profile},
               {"errors", check_errors},  {"threads", check_threads},         {"fork", check_fork},
               {"memory", check_memory},  {"placement", check_placement},     {"spinning", check_spinning},
               {"pinning", check_pinning}};
  const char *error = "";
  if (count != 3) return 2;
  model = tunesmith_open(arguments[1], &error);
  if (!strcmp(arguments[2], "create")) {
    tunesmith_session *session;
    int status = model ? model->create(NULL, &session) : -1;
    printf("%d %s\n", status, model ? model->error() : error);
    return 0;
  }
  if (model && !strcmp(arguments[2], "threads-by-default")) {
    tunesmith_session *session;
    CHECK(model->create(NULL, &session) == TUNESMITH_OK);
    printf("%d", model->threads(session));
    return 0;
  }
  if (!model) fprintf(stderr, "%s\n", error);
  for (size_t i = 0; model && i < sizeof cases / sizeof *cases; ++i)
    if (!strcmp(cases[i].name, arguments[2])) {
      cases[i].check();
      return 0;
    }
  return 2;
}
