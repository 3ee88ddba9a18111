/* A library in a C process, for bench/runtime.py: runtime_arm LIBRARY INPUTS OUTPUTS THREADS
 *
 * INPUTS has the bytes of all inputs, one after the other; those of the outputs of the first run are written to
 * OUTPUTS. Each line of standard input is then a command, which is answered by a line of JSON.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tunesmith.h"

enum { MOST_BUFFERS = 64, MOST_SESSIONS = 64, MOST_RUNS = 1 << 20 };

typedef struct client {
  tunesmith_session *session;
  tunesmith_input inputs[MOST_BUFFERS];
  tunesmith_output outputs[MOST_BUFFERS];
  double seconds;
  double *times;
  int runs;
} client;

static const tunesmith_api *model;
static const tunesmith_entry *entry;
static const char *inputs_path;

static void require(int holds, const char *text) {
  if (holds) return;
  fprintf(stderr, "%s\n", text);
  exit(1);
}

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *memory(uint64_t bytes) {
  void *made = aligned_alloc(64, (bytes + 64) / 64 * 64);
  require(made != NULL, "no memory");
  return made;
}

static void start(client *made, int threads) {
  tunesmith_options options = {0, threads, 0, 0};
  FILE *file = fopen(inputs_path, "rb");
  require(file && entry->input_count <= MOST_BUFFERS && entry->output_count <= MOST_BUFFERS, "cannot read the inputs");
  for (int i = 0; i < entry->input_count; ++i) {
    void *data = memory(entry->inputs[i].bytes);
    require(fread(data, 1, entry->inputs[i].bytes, file) == entry->inputs[i].bytes, "the inputs are too short");
    made->inputs[i] = (tunesmith_input){data, entry->inputs[i].bytes};
  }
  fclose(file);
  for (int i = 0; i < entry->output_count; ++i)
    made->outputs[i] = (tunesmith_output){memory(entry->outputs[i].bytes), entry->outputs[i].bytes};
  require(!model->create(&options, &made->session), model->error());
}

static void run(client *one) {
  require(!model->run(one->session, one->inputs, entry->input_count, one->outputs, entry->output_count),
          model->error());
}

static void answer_time(client *one, int number) {
  /* As TVM's time_evaluator does: it wakes threads and fills caches. */
  run(one);
  double began = now(CLOCK_MONOTONIC);
  for (int i = 0; i < number; ++i) run(one);
  printf("{\"seconds\": %.9f}\n", (now(CLOCK_MONOTONIC) - began) / number);
}

/* The median time of a run that is not spent in kernels. */
static int by_size(const void *one, const void *other) {
  double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

static void answer_overhead(client *one, int number) {
  uint64_t *kernels = calloc((size_t)entry->kernel_count + 1, sizeof *kernels);
  double *outside = calloc((size_t)number, sizeof *outside);
  require(kernels && outside, "no memory");
  for (int i = 0; i < number; ++i) {
    double began = now(CLOCK_MONOTONIC);
    require(!model->profile(one->session, one->inputs, entry->input_count, one->outputs, entry->output_count, kernels,
                            entry->kernel_count),
            model->error());
    outside[i] = now(CLOCK_MONOTONIC) - began;
    for (int j = 0; j < entry->kernel_count; ++j) outside[i] -= (double)kernels[j] * 1e-9;
  }
  qsort(outside, (size_t)number, sizeof *outside, by_size);
  printf("{\"seconds\": %.9f}\n", outside[number / 2]);
  free(outside);
  free(kernels);
}

static void answer_paced(client *one, int number, double rate) {
  double began = now(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 0; i < number; ++i) {
    run(one);
    usleep((unsigned)(1e6 / rate));
  }
  printf("{\"cpu_seconds\": %.6f}\n", now(CLOCK_PROCESS_CPUTIME_ID) - began);
}

static void *keep_running(void *argument) {
  client *mine = argument;
  double end = now(CLOCK_MONOTONIC) + mine->seconds, began;
  while ((began = now(CLOCK_MONOTONIC)) < end && mine->runs < MOST_RUNS) {
    run(mine);
    mine->times[mine->runs++] = now(CLOCK_MONOTONIC) - began;
  }
  return NULL;
}

static void answer_crowd(int sessions, double seconds) {
  static client clients[MOST_SESSIONS];
  pthread_t threads[MOST_SESSIONS];
  int runs = 0;
  require(sessions <= MOST_SESSIONS, "too many sessions");
  for (int i = 0; i < sessions; ++i) {
    start(&clients[i], 1);
    run(&clients[i]);
    clients[i].seconds = seconds;
    clients[i].runs = 0;
    clients[i].times = calloc(MOST_RUNS, sizeof(double));
    require(clients[i].times != NULL, "no memory");
  }
  for (int i = 0; i < sessions; ++i)
    require(!pthread_create(&threads[i], NULL, keep_running, &clients[i]), "no thread");
  for (int i = 0; i < sessions; ++i) {
    pthread_join(threads[i], NULL);
    runs += clients[i].runs;
  }
  double *all = calloc((size_t)runs + 1, sizeof *all);
  require(all && runs, "nothing was run");
  for (int i = 0, at = 0; i < sessions; ++i) {
    memcpy(all + at, clients[i].times, (size_t)clients[i].runs * sizeof *all);
    at += clients[i].runs;
    model->close(clients[i].session);
    free(clients[i].times);
  }
  qsort(all, (size_t)runs, sizeof *all, by_size);
  printf("{\"p50\": %.9f, \"p99\": %.9f, \"runs\": %d}\n", all[runs / 2], all[(size_t)runs * 99 / 100], runs);
  free(all);
}

static void answer_memory(void) {
  char line[256];
  long kilobytes = 0;
  uint64_t buffers = 0;
  for (int i = 0; i < entry->input_count; ++i) buffers += entry->inputs[i].bytes;
  for (int i = 0; i < entry->output_count; ++i) buffers += entry->outputs[i].bytes;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) sscanf(line, "VmRSS: %ld", &kilobytes);
  if (file) fclose(file);
  printf("{\"rss_bytes\": %ld, \"weight_bytes\": %llu, \"arena_bytes\": %llu, \"buffer_bytes\": %llu}\n",
         kilobytes * 1024, (unsigned long long)model->description->weight_bytes, (unsigned long long)entry->arena_bytes,
         (unsigned long long)buffers);
}

static void write_outputs(const client *one, const char *path) {
  FILE *file = fopen(path, "wb");
  require(file != NULL, "cannot write the outputs");
  for (int i = 0; i < entry->output_count; ++i) fwrite(one->outputs[i].data, 1, one->outputs[i].bytes, file);
  fclose(file);
}

int main(int count, char **arguments) {
  static client one;
  const char *error = NULL;
  char line[256];
  int number = 0;
  double value = 0;
  require(count == 5, "usage: runtime_arm LIBRARY INPUTS OUTPUTS THREADS");
  model = tunesmith_open(arguments[1], &error);
  require(model != NULL, error);
  entry = &model->description->entries[0];
  inputs_path = arguments[2];
  start(&one, atoi(arguments[4]));
  run(&one);
  printf("{}\n");
  fflush(stdout);
  write_outputs(&one, arguments[3]);
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "time %d", &number) == 1) answer_time(&one, number);
    if (sscanf(line, "overhead %d", &number) == 1) answer_overhead(&one, number);
    if (sscanf(line, "paced %d %lf", &number, &value) == 2) answer_paced(&one, number, value);
    if (sscanf(line, "crowd %d %lf", &number, &value) == 2) answer_crowd(number, value);
    if (!strcmp(line, "memory\n")) answer_memory();
    fflush(stdout);
  }
  return 0;
}
