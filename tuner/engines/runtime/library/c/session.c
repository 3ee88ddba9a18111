/* Sessions: memory of their own, and the calls of the plan in its order. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi.h"
#include "cpu.h"
#include "plan.h"
#include "pool.h"
#include "weights.h"

enum { ALIGNMENT = 64, CPU = 1, MOST_THREADS = 1024 };

struct tunesmith_session {
  const tunesmith_entry *entry;
  const plan_entry *plan;
  tunesmith_session *previous, *next; /* in the list of all */
  pthread_mutex_t lock;
  int is_forked; /* the pool has no threads, which a fork left in the parent */
  pool *pool;
  unsigned char *arena;
  dl_tensor *tensors;
  abi_value *values; /* all arguments of all calls, in the packed convention */
  int *codes;        /* of the longest call */
  ffi_any *anys;     /* likewise in the other convention */
  void **staged;     /* aligned memory of inputs, then outputs; NULL until a buffer needs it */
  void **bound;      /* where this run's inputs and outputs lie */
};

static _Thread_local char error_text[1024];
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static tunesmith_session *list;
static const unsigned char *weights; /* set once, under the lock of the list */

static const char *error(void) { return error_text; }

__attribute__((format(printf, 2, 3))) static int fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
  return status;
}

static void before_fork(void) { pthread_mutex_lock(&list_lock); }

static void in_parent(void) { pthread_mutex_unlock(&list_lock); }

/* Another thread of the parent may have held a session's lock. */
static void in_child(void) {
  for (tunesmith_session *each = list; each; each = each->next) {
    pthread_mutex_init(&each->lock, NULL);
    each->is_forked = 1;
  }
  pthread_mutex_init(&list_lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, in_parent, in_child); }

static void add(tunesmith_session *session) {
  pthread_mutex_lock(&list_lock);
  session->next = list;
  if (list) list->previous = session;
  list = session;
  pthread_mutex_unlock(&list_lock);
}

static void take_out(tunesmith_session *session) {
  pthread_mutex_lock(&list_lock);
  if (session->next) session->next->previous = session->previous;
  if (session->previous) session->previous->next = session->next;
  if (list == session) list = session->next;
  pthread_mutex_unlock(&list_lock);
}

static void *aligned(uint64_t bytes) {
  if (bytes > SIZE_MAX - ALIGNMENT) return NULL;
  return aligned_alloc(ALIGNMENT, (size_t)(bytes / ALIGNMENT + 1) * ALIGNMENT);
}

static void free_session(tunesmith_session *session) {
  int buffers = session->entry->input_count + session->entry->output_count;
  for (int i = 0; session->staged && i < buffers; ++i) free(session->staged[i]);
  free(session->staged);
  free(session->bound);
  free(session->anys);
  free(session->codes);
  free(session->values);
  free(session->tensors);
  free(session->arena);
  free(session);
}

static void close_session(tunesmith_session *session) {
  if (!session) return;
  take_out(session);
  pool_destroy(session->pool, !session->is_forked);
  pthread_mutex_destroy(&session->lock);
  free_session(session);
}

static int allocate(tunesmith_session *session) {
  const plan_entry *plan = session->plan;
  size_t buffers = (size_t)(session->entry->input_count + session->entry->output_count);
  session->arena = aligned(session->entry->arena_bytes);
  session->tensors = calloc(plan->tensor_count + 1, sizeof(dl_tensor));
  session->values = calloc(plan->argument_count + 1, sizeof(abi_value));
  session->codes = calloc(plan->longest_call + 1, sizeof(int));
  session->anys = calloc(plan->argument_count + 1, sizeof(ffi_any));
  session->staged = calloc(buffers + 1, sizeof(void *));
  session->bound = calloc(buffers + 1, sizeof(void *));
  return session->arena && session->tensors && session->values && session->codes && session->anys && session->staged &&
         session->bound;
}

static void fill(tunesmith_session *session) {
  const plan_entry *plan = session->plan;
  for (uint32_t i = 0; i < plan->tensor_count; ++i) {
    const plan_tensor *planned = &plan->tensors[i];
    dl_tensor *tensor = &session->tensors[i];
    tensor->device_type = CPU;
    tensor->rank = planned->rank;
    tensor->type_code = planned->type_code;
    tensor->type_bits = planned->type_bits;
    tensor->lanes = 1;
    tensor->shape = planned->shape;
    if (planned->place == PLACE_ARENA) tensor->data = session->arena + planned->at;
    if (planned->place == PLACE_WEIGHTS) tensor->data = (void *)(uintptr_t)(weights + planned->at);
  }
  for (uint32_t i = 0; i < plan->argument_count; ++i) {
    session->values[i].pointer = &session->tensors[plan->arguments[i]];
    session->anys[i].type = TENSOR_ARGUMENT;
    session->anys[i].value = session->values[i];
  }
  for (uint32_t i = 0; i < plan->longest_call; ++i) session->codes[i] = TENSOR_ARGUMENT;
}

static int create(const tunesmith_options *options, tunesmith_session **created) {
  static const tunesmith_options defaults = {0};
  const tunesmith_description *model = &tunesmith_plan.description;
  if (!created) return fail(TUNESMITH_INVALID_ARGUMENT, "no place for the session was given");
  *created = NULL;
  if (!options) options = &defaults;
  if (options->entry < 0 || options->entry >= model->entry_count)
    return fail(TUNESMITH_INVALID_ARGUMENT, "no entry point %d; the model has %d", options->entry, model->entry_count);
  if (options->threads < 0 || options->threads > MOST_THREADS)
    return fail(TUNESMITH_INVALID_ARGUMENT, "%d threads asked for; the most are %d", options->threads, MOST_THREADS);
  char missing[sizeof error_text / 2];
  if (cpu_missing(tunesmith_plan.features, missing, sizeof missing))
    return fail(TUNESMITH_UNSUPPORTED_CPU, "this CPU lacks %s, which the model was compiled for (%s)", missing,
                model->target);
  tunesmith_session *session = calloc(1, sizeof *session);
  if (!session) return fail(TUNESMITH_OUT_OF_RESOURCES, "no memory for a session");
  session->entry = &model->entries[options->entry];
  session->plan = &tunesmith_plan.entries[options->entry];
  int allowed = cpu_allowed(), threads = options->threads;
  if (!threads) threads = model->threads < allowed ? model->threads : allowed;
  int spins = options->spin ? options->spin : POOL_SPINS;
  if (!allocate(session)) {
    free_session(session);
    return fail(TUNESMITH_OUT_OF_RESOURCES, "no memory for a session");
  }
  session->pool = pool_create(threads, spins > 0 ? spins : 0, options->pin);
  if (!session->pool) {
    free_session(session);
    return fail(TUNESMITH_OUT_OF_RESOURCES, "cannot start %d threads", threads);
  }
  pthread_mutex_init(&session->lock, NULL);
  fill(session);
  add(session);
  *created = session;
  return TUNESMITH_OK;
}

static int is_aligned(const void *data) { return (uintptr_t)data % ALIGNMENT == 0; }

/* Return the session's own memory for an input or output, allocated when it is first needed. */
static void *staging(tunesmith_session *session, int32_t position, uint64_t bytes) {
  if (!session->staged[position]) session->staged[position] = aligned(bytes);
  return session->staged[position];
}

static int check(const tunesmith_entry *entry, const tunesmith_input *inputs, int32_t input_count,
                 const tunesmith_output *outputs, int32_t output_count) {
  if (input_count != entry->input_count || output_count != entry->output_count)
    return fail(TUNESMITH_INVALID_ARGUMENT, "the model has %d inputs and %d outputs; %d and %d were given",
                entry->input_count, entry->output_count, input_count, output_count);
  for (int32_t i = 0; i < input_count; ++i) {
    const tunesmith_tensor *wanted = &entry->inputs[i];
    if (inputs[i].bytes != wanted->bytes || (!inputs[i].data && wanted->bytes))
      return fail(TUNESMITH_INVALID_ARGUMENT, "input %s has %llu bytes; %llu%s were given", wanted->name,
                  (unsigned long long)wanted->bytes, (unsigned long long)inputs[i].bytes,
                  inputs[i].data ? "" : " at NULL");
  }
  for (int32_t i = 0; i < output_count; ++i)
    if (outputs[i].data && outputs[i].bytes != entry->outputs[i].bytes)
      return fail(TUNESMITH_INVALID_ARGUMENT, "output %s has %llu bytes; %llu were given", entry->outputs[i].name,
                  (unsigned long long)entry->outputs[i].bytes, (unsigned long long)outputs[i].bytes);
  return TUNESMITH_OK;
}

/* Find an aligned place for each input and output, and copy the inputs that need one. */
static int bind(tunesmith_session *session, const tunesmith_input *inputs, const tunesmith_output *outputs) {
  const tunesmith_entry *entry = session->entry;
  void **bound_outputs = session->bound + entry->input_count;
  for (int32_t i = 0; i < entry->input_count; ++i) {
    /* Kernels only read it. */
    session->bound[i] = (void *)(uintptr_t)inputs[i].data;
    if (is_aligned(inputs[i].data)) continue;
    if (!(session->bound[i] = staging(session, i, inputs[i].bytes))) return 0;
    memcpy(session->bound[i], inputs[i].data, (size_t)inputs[i].bytes);
  }
  for (int32_t i = 0; i < entry->output_count; ++i) {
    bound_outputs[i] = outputs[i].data;
    if (outputs[i].data && is_aligned(outputs[i].data)) continue;
    if (!(bound_outputs[i] = staging(session, entry->input_count + i, entry->outputs[i].bytes))) return 0;
  }
  for (uint32_t i = 0; i < session->plan->tensor_count; ++i) {
    const plan_tensor *planned = &session->plan->tensors[i];
    if (planned->place == PLACE_INPUT) session->tensors[i].data = session->bound[planned->at];
    if (planned->place == PLACE_OUTPUT) session->tensors[i].data = bound_outputs[planned->at];
  }
  return 1;
}

static void deliver(tunesmith_session *session, const tunesmith_output *outputs) {
  const tunesmith_entry *entry = session->entry;
  void **bound = session->bound + entry->input_count;
  for (uint32_t i = 0; i < session->plan->copy_count; ++i) {
    const plan_copy *copy = &session->plan->copies[i];
    if (entry->outputs[copy->output].bytes)
      memcpy(bound[copy->output], session->tensors[copy->tensor].data, (size_t)entry->outputs[copy->output].bytes);
  }
  for (int32_t i = 0; i < entry->output_count; ++i)
    if (outputs[i].data && outputs[i].data != bound[i] && outputs[i].bytes)
      memcpy(outputs[i].data, bound[i], (size_t)outputs[i].bytes);
}

static int call(tunesmith_session *session, const plan_call *call) {
  const workspace planned = {session->arena + call->workspace, call->first_bytes, call->other_bytes,
                             tunesmith_plan.description.threads};
  pool_use(session->pool, planned);
  if (tunesmith_plan.convention == CONVENTION_FFI) {
    ffi_any result = {0};
    return ((ffi_kernel)call->kernel)(NULL, session->anys + call->first, (int32_t)call->count, &result);
  }
  int64_t result = 0;
  int result_code = 0;
  return ((packed_kernel)call->kernel)(session->values + call->first, session->codes, (int)call->count, &result,
                                       &result_code, NULL);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int call_all(tunesmith_session *session, uint64_t *nanoseconds) {
  const int32_t count = session->entry->kernel_count;
  uint64_t before = nanoseconds ? now() : 0;
  for (int32_t i = 0; i < count; ++i) {
    if (call(session, &session->plan->calls[i]))
      return fail(TUNESMITH_KERNEL_FAILED, "kernel %s failed: %s", session->entry->kernels[i], pool_error());
    if (nanoseconds) {
      uint64_t after = now();
      nanoseconds[i] = after - before;
      before = after;
    }
  }
  return TUNESMITH_OK;
}

static int run_locked(tunesmith_session *session, const tunesmith_input *inputs, const tunesmith_output *outputs,
                      uint64_t *nanoseconds) {
  if (session->is_forked && pool_restart(session->pool))
    return fail(TUNESMITH_OUT_OF_RESOURCES, "cannot start threads after a fork");
  session->is_forked = 0;
  if (!bind(session, inputs, outputs)) return fail(TUNESMITH_OUT_OF_RESOURCES, "no memory for unaligned buffers");
  pool_enter(session->pool);
  int status = call_all(session, nanoseconds);
  pool_leave(status != TUNESMITH_OK);
  if (!status) deliver(session, outputs);
  return status;
}

static int run_and_time(tunesmith_session *session, const tunesmith_input *inputs, int32_t input_count,
                        const tunesmith_output *outputs, int32_t output_count, uint64_t *nanoseconds) {
  if (!session) return fail(TUNESMITH_INVALID_ARGUMENT, "no session was given");
  int status = check(session->entry, inputs, input_count, outputs, output_count);
  if (status) return status;
  pthread_mutex_lock(&session->lock);
  status = run_locked(session, inputs, outputs, nanoseconds);
  pthread_mutex_unlock(&session->lock);
  return status;
}

static int run(tunesmith_session *session, const tunesmith_input *inputs, int32_t input_count,
               const tunesmith_output *outputs, int32_t output_count) {
  return run_and_time(session, inputs, input_count, outputs, output_count, NULL);
}

static int profile(tunesmith_session *session, const tunesmith_input *inputs, int32_t input_count,
                   const tunesmith_output *outputs, int32_t output_count, uint64_t *nanoseconds, int32_t kernel_count) {
  if (session && (!nanoseconds || kernel_count != session->entry->kernel_count))
    return fail(TUNESMITH_INVALID_ARGUMENT, "the model has %d kernels; room for %d times was given",
                session->entry->kernel_count, nanoseconds ? kernel_count : 0);
  return run_and_time(session, inputs, input_count, outputs, output_count, nanoseconds);
}

static int32_t threads(const tunesmith_session *session) { return session ? pool_threads(session->pool) : 0; }

const tunesmith_api *tunesmith_get_api(uint32_t version, const char **text) {
  static const tunesmith_api api = {
      TUNESMITH_API_VERSION, &tunesmith_plan.description, create, run, profile, threads, error, close_session};
  int is_ready = 0;
  if (version == TUNESMITH_API_VERSION) {
    pthread_mutex_lock(&list_lock);
    if (!weights) weights = weights_start(error_text, sizeof error_text);
    is_ready = weights != NULL;
    pthread_mutex_unlock(&list_lock);
  } else {
    fail(TUNESMITH_INVALID_ARGUMENT, "the library has version %d of Tunesmith's C interface; the program needs %u",
         TUNESMITH_API_VERSION, version);
  }
  if (is_ready) return &api;
  if (text) *text = error_text;
  return NULL;
}
