/* Sessions: memory of their own, and the calls of the plans of their entry points in their order. */
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
#include "sizes.h"
#include "weights.h"

enum { ALIGNMENT = 64, CPU = 1, MOST_THREADS = 1024, SINCE_OPEN = 3 };

/* An entry point with a session's memory. */
typedef struct entry_state {
  const tunesmith_entry *entry;
  const plan_entry *plan;
  dl_tensor *tensors;
  abi_value *values; /* all arguments of all calls, in the packed convention */
  ffi_any *anys;     /* likewise in the other convention */
  int64_t *sizes;    /* those that a run decides, aligned as kernels expect tensors */
  int64_t *shapes;   /* of tensors that have such sizes, one after the other */
} entry_state;

struct tunesmith_session {
  served among;
  entry_state *entries;               /* among.count of them */
  tunesmith_session *previous, *next; /* in the list of all */
  pthread_mutex_t lock;
  int is_forked; /* the pool has no threads, which a fork left in the parent */
  pool *pool;
  unsigned char *arena; /* of the entry point that needs most */
  int *codes;           /* of the longest call */
  void **staged;        /* aligned memory of inputs, then outputs; NULL until a buffer needs it */
  void **bound;         /* where this run's inputs and outputs lie */
  /* What a run of several entry points needs; NULL until there is one. */
  tunesmith_input *given; /* to the entry point that runs */
  tunesmith_output *taken;
  tensor_part *parts; /* of the inputs, then of the outputs */
  int64_t *batches;
  double *totals;
  int32_t *first;
};

/* Inputs and outputs are those of all entry points. */
static const tunesmith_entry *any_entry(void) { return tunesmith_plan.description.entries; }

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
  int buffers = any_entry()->input_count + any_entry()->output_count;
  for (int i = 0; session->staged && i < buffers; ++i) free(session->staged[i]);
  for (int32_t i = 0; session->entries && i < session->among.count; ++i) {
    free(session->entries[i].shapes);
    free(session->entries[i].sizes);
    free(session->entries[i].anys);
    free(session->entries[i].values);
    free(session->entries[i].tensors);
  }
  free(session->first);
  free(session->totals);
  free(session->batches);
  free(session->parts);
  free(session->taken);
  free(session->given);
  free(session->bound);
  free(session->staged);
  free(session->codes);
  free(session->arena);
  free(session->entries);
  free(session);
}

static void close_session(tunesmith_session *session) {
  if (!session) return;
  take_out(session);
  pool_destroy(session->pool, !session->is_forked);
  pthread_mutex_destroy(&session->lock);
  free_session(session);
}

static int allocate_entry(entry_state *state) {
  state->tensors = calloc(state->plan->tensor_count + 1, sizeof(dl_tensor));
  state->values = calloc(state->plan->argument_count + 1, sizeof(abi_value));
  state->anys = calloc(state->plan->argument_count + 1, sizeof(ffi_any));
  if (!state->tensors || !state->values || !state->anys || !state->plan->size_count)
    return state->tensors && state->values && state->anys;
  const uint64_t size_bytes = state->plan->size_count * sizeof(int64_t);
  if ((state->sizes = aligned(size_bytes))) memset(state->sizes, 0, (size_t)size_bytes);
  state->shapes = calloc(state->plan->open_axes + 1, sizeof(int64_t));
  return state->sizes && state->shapes;
}

static int allocate(tunesmith_session *session) {
  size_t buffers = (size_t)(any_entry()->input_count + any_entry()->output_count);
  uint64_t arena_bytes = 0;
  uint32_t longest_call = 0;
  session->entries = calloc((size_t)session->among.count, sizeof *session->entries);
  for (int32_t i = 0; session->entries && i < session->among.count; ++i) {
    entry_state *state = &session->entries[i];
    state->entry = &tunesmith_plan.description.entries[session->among.first + i];
    state->plan = tunesmith_plan.entries[session->among.first + i];
    if (!allocate_entry(state)) return 0;
    if (state->entry->arena_bytes > arena_bytes) arena_bytes = state->entry->arena_bytes;
    if (state->plan->longest_call > longest_call) longest_call = state->plan->longest_call;
  }
  session->arena = aligned(arena_bytes);
  session->codes = calloc(longest_call + 1, sizeof(int));
  session->staged = calloc(buffers + 1, sizeof(void *));
  session->bound = calloc(buffers + 1, sizeof(void *));
  for (uint32_t i = 0; session->codes && i < longest_call; ++i) session->codes[i] = TENSOR_ARGUMENT;
  return session->entries && session->arena && session->codes && session->staged && session->bound;
}

static void fill(const tunesmith_session *session, entry_state *state) {
  const plan_entry *plan = state->plan;
  int64_t *shape = state->shapes;
  for (uint32_t i = 0; i < plan->tensor_count; ++i) {
    const plan_tensor *planned = &plan->tensors[i];
    dl_tensor *tensor = &state->tensors[i];
    tensor->device_type = CPU;
    tensor->rank = planned->rank;
    tensor->type_code = planned->type_code;
    tensor->type_bits = planned->type_bits;
    tensor->lanes = 1;
    tensor->shape = planned->shape;
    if (planned->open) {
      tensor->shape = memcpy(shape, planned->shape, (size_t)planned->rank * sizeof *shape);
      shape += planned->rank;
    }
    if (planned->place == PLACE_SIZES) tensor->data = state->sizes;
    if (planned->place == PLACE_ARENA) tensor->data = session->arena + planned->at;
    if (planned->place == PLACE_WEIGHTS) tensor->data = (void *)(uintptr_t)(weights + planned->at);
  }
  for (uint32_t i = 0; i < plan->argument_count; ++i) {
    state->values[i].pointer = &state->tensors[plan->arguments[i]];
    state->anys[i].type = TENSOR_ARGUMENT;
    state->anys[i].value = state->values[i];
  }
}

static int create(const tunesmith_options *options, tunesmith_session **created) {
  static const tunesmith_options defaults = {0};
  const tunesmith_description *model = &tunesmith_plan.description;
  if (!created) return fail(TUNESMITH_INVALID_ARGUMENT, "no place for the session was given");
  *created = NULL;
  if (!options) options = &defaults;
  if (options->entry < TUNESMITH_ALL_ENTRIES || options->entry >= model->entry_count)
    return fail(TUNESMITH_INVALID_ARGUMENT, "no entry point %d; the model has %d", options->entry, model->entry_count);
  if (options->threads < 0 || options->threads > MOST_THREADS)
    return fail(TUNESMITH_INVALID_ARGUMENT, "%d threads asked for; the most are %d", options->threads, MOST_THREADS);
  char missing[sizeof error_text / 2];
  if (cpu_missing(tunesmith_plan.features, missing, sizeof missing))
    return fail(TUNESMITH_UNSUPPORTED_CPU, "this CPU lacks %s, which the model was compiled for (%s)", missing,
                model->target);
  tunesmith_session *session = calloc(1, sizeof *session);
  if (!session) return fail(TUNESMITH_OUT_OF_RESOURCES, "no memory for a session");
  session->among = (served){options->entry, 1};
  if (options->entry == TUNESMITH_ALL_ENTRIES) session->among = (served){0, model->entry_count};
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
  for (int32_t i = 0; i < session->among.count; ++i) fill(session, &session->entries[i]);
  add(session);
  *created = session;
  return TUNESMITH_OK;
}

static int is_aligned(const void *data) { return (uintptr_t)data % ALIGNMENT == 0; }

static uint64_t bytes_of(const tunesmith_entry *entry, int32_t position) {
  return position < entry->input_count ? entry->inputs[position].bytes
                                       : entry->outputs[position - entry->input_count].bytes;
}

/* Return the session's own memory for an input or output of any entry point, allocated when it is first needed. */
static void *staging(tunesmith_session *session, int32_t position) {
  if (session->staged[position]) return session->staged[position];
  uint64_t most = 0;
  for (int32_t i = 0; i < session->among.count; ++i) {
    const uint64_t bytes = bytes_of(session->entries[i].entry, position);
    if (bytes > most) most = bytes;
  }
  return session->staged[position] = aligned(most);
}

static int check_counts(int32_t input_count, int32_t output_count) {
  const tunesmith_entry *entry = any_entry();
  if (input_count != entry->input_count || output_count != entry->output_count)
    return fail(TUNESMITH_INVALID_ARGUMENT, "the model has %d inputs and %d outputs; %d and %d were given",
                entry->input_count, entry->output_count, input_count, output_count);
  return TUNESMITH_OK;
}

static int check_input(const char *name, const tunesmith_input *input, uint64_t bytes) {
  if (input->bytes == bytes && (input->data || !bytes)) return TUNESMITH_OK;
  return fail(TUNESMITH_INVALID_ARGUMENT, "input %s has %llu bytes; %llu%s were given", name, (unsigned long long)bytes,
              (unsigned long long)input->bytes, input->data ? "" : " at NULL");
}

static int check_output(const char *name, const tunesmith_output *output, uint64_t bytes) {
  if (!output->data || output->bytes == bytes) return TUNESMITH_OK;
  return fail(TUNESMITH_INVALID_ARGUMENT, "output %s has %llu bytes; %llu were given", name, (unsigned long long)bytes,
              (unsigned long long)output->bytes);
}

static int check(const tunesmith_entry *entry, const tunesmith_input *inputs, const tunesmith_output *outputs) {
  int status = TUNESMITH_OK;
  for (int32_t i = 0; !status && i < entry->input_count; ++i)
    status = check_input(entry->inputs[i].name, &inputs[i], entry->inputs[i].bytes);
  for (int32_t i = 0; !status && i < entry->output_count; ++i)
    status = check_output(entry->outputs[i].name, &outputs[i], entry->outputs[i].bytes);
  return status;
}

/* Find an aligned place for each input and output, and copy the inputs that need one. */
static int bind(tunesmith_session *session, entry_state *state, const tunesmith_input *inputs,
                const tunesmith_output *outputs) {
  const tunesmith_entry *entry = state->entry;
  void **bound_outputs = session->bound + entry->input_count;
  for (int32_t i = 0; i < entry->input_count; ++i) {
    /* Kernels only read it. */
    session->bound[i] = (void *)(uintptr_t)inputs[i].data;
    if (is_aligned(inputs[i].data)) continue;
    if (!(session->bound[i] = staging(session, i))) return 0;
    memcpy(session->bound[i], inputs[i].data, (size_t)inputs[i].bytes);
  }
  for (int32_t i = 0; i < entry->output_count; ++i) {
    bound_outputs[i] = outputs[i].data;
    if (outputs[i].data && is_aligned(outputs[i].data)) continue;
    if (!(bound_outputs[i] = staging(session, entry->input_count + i))) return 0;
  }
  for (uint32_t i = 0; i < state->plan->tensor_count; ++i) {
    const plan_tensor *planned = &state->plan->tensors[i];
    if (planned->place == PLACE_INPUT) state->tensors[i].data = session->bound[planned->at];
    if (planned->place == PLACE_OUTPUT) state->tensors[i].data = bound_outputs[planned->at];
  }
  return 1;
}

/* Give a tensor the shape that the run has decided so far. */
static void resize(const entry_state *state, uint32_t number) {
  const plan_tensor *planned = &state->plan->tensors[number];
  int64_t *shape = (int64_t *)(uintptr_t)state->tensors[number].shape; /* state->shapes has it */
  for (int32_t axis = 0; planned->open && axis < planned->rank; ++axis)
    if (planned->open[axis] >= 0) shape[axis] = state->sizes[planned->open[axis]];
}

/* The bytes that the run made of an output, of whatever shape. */
static size_t made_bytes(const entry_state *state, int32_t output) {
  const dl_tensor *tensor = &state->tensors[state->plan->outputs[output]];
  if (!state->plan->tensors[state->plan->outputs[output]].open) return (size_t)state->entry->outputs[output].bytes;
  size_t bytes = (tensor->type_bits + 7u) / 8u;
  for (int32_t axis = 0; axis < tensor->rank; ++axis) bytes *= (size_t)tensor->shape[axis];
  return bytes;
}

static void deliver(const tunesmith_session *session, const entry_state *state, const tunesmith_output *outputs) {
  const tunesmith_entry *entry = state->entry;
  void **bound = session->bound + entry->input_count;
  for (uint32_t i = 0; i < state->plan->copy_count; ++i) {
    const plan_copy *copy = &state->plan->copies[i];
    const size_t bytes = made_bytes(state, copy->output);
    if (bytes) memcpy(bound[copy->output], state->tensors[copy->tensor].data, bytes);
  }
  for (int32_t i = 0; i < entry->output_count; ++i) {
    const size_t bytes = made_bytes(state, i);
    if (outputs[i].data && outputs[i].data != bound[i] && bytes) memcpy(outputs[i].data, bound[i], bytes);
  }
}

static void resize_arguments(const entry_state *state, const plan_call *call) {
  for (uint32_t i = call->first; i < call->first + call->count; ++i) {
    const uint32_t number = state->plan->arguments[i];
    resize(state, number);
    if (state->plan->tensors[number].place != PLACE_SIZE) continue;
    state->anys[i].type = FFI_NUMBER;
    state->anys[i].value.number = state->sizes[state->plan->tensors[number].at];
  }
}

static int call(tunesmith_session *session, const entry_state *state, const plan_call *call) {
  if (call->is_open) resize_arguments(state, call);
  const workspace planned = {session->arena + call->workspace, call->first_bytes, call->other_bytes,
                             tunesmith_plan.description.threads};
  pool_use(session->pool, planned);
  if (state->plan->convention == CONVENTION_FFI) {
    ffi_any result = {0};
    return ((ffi_kernel)call->kernel)(NULL, state->anys + call->first, (int32_t)call->count, &result);
  }
  int64_t result = 0;
  int result_code = 0;
  return ((packed_kernel)call->kernel)(state->values + call->first, session->codes, (int)call->count, &result,
                                       &result_code, NULL);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int call_all(tunesmith_session *session, const entry_state *state, uint64_t *nanoseconds) {
  const int32_t count = state->entry->kernel_count;
  uint64_t before = nanoseconds ? now() : 0;
  for (int32_t i = 0; i < count; ++i) {
    if (call(session, state, &state->plan->calls[i]))
      return fail(TUNESMITH_KERNEL_FAILED, "kernel %s failed: %s", state->entry->kernels[i], pool_error());
    if (nanoseconds) {
      uint64_t after = now();
      nanoseconds[i] = after - before;
      before = after;
    }
  }
  return TUNESMITH_OK;
}

static int resize_outputs(const entry_state *state) {
  for (int32_t i = 0; i < state->entry->output_count; ++i) {
    const uint32_t number = state->plan->outputs[i];
    if (!state->plan->tensors[number].open) continue;
    resize(state, number);
    for (int32_t axis = 0; axis < state->tensors[number].rank; ++axis)
      if (state->tensors[number].shape[axis] < 0)
        return fail(TUNESMITH_KERNEL_FAILED, "output %s would have size %lld on axis %d", state->entry->outputs[i].name,
                    (long long)state->tensors[number].shape[axis], axis);
  }
  return TUNESMITH_OK;
}

static int run_locked(tunesmith_session *session, entry_state *state, const tunesmith_input *inputs,
                      const tunesmith_output *outputs, uint64_t *nanoseconds) {
  if (session->is_forked && pool_restart(session->pool))
    return fail(TUNESMITH_OUT_OF_RESOURCES, "cannot start threads after a fork");
  session->is_forked = 0;
  if (!bind(session, state, inputs, outputs))
    return fail(TUNESMITH_OUT_OF_RESOURCES, "no memory for unaligned buffers");
  pool_enter(session->pool);
  int status = call_all(session, state, nanoseconds);
  pool_leave(status != TUNESMITH_OK);
  if (!status) status = resize_outputs(state);
  if (!status) deliver(session, state, outputs);
  return status;
}

static int run_and_time(tunesmith_session *session, entry_state *state, const tunesmith_input *inputs,
                        const tunesmith_output *outputs, uint64_t *nanoseconds) {
  int status = check(state->entry, inputs, outputs);
  if (status) return status;
  pthread_mutex_lock(&session->lock);
  status = run_locked(session, state, inputs, outputs, nanoseconds);
  pthread_mutex_unlock(&session->lock);
  return status;
}

/* Whether a run decides the size of an axis of an output. */
static int is_open(int32_t output) {
  const int32_t *const *open = tunesmith_plan.sizes.open_axes;
  for (int32_t axis = 0; open && axis < any_entry()->outputs[output].rank; ++axis)
    if (open[output][axis] >= 0) return 1;
  return 0;
}

/* Check that no output is asked for whose shape the caller would not learn. */
static int check_fixed(const tunesmith_output *outputs) {
  for (int32_t i = 0; i < any_entry()->output_count; ++i)
    if (outputs[i].data && is_open(i))
      return fail(TUNESMITH_INVALID_ARGUMENT, "a run decides the shape of output %s: use run_open",
                  any_entry()->outputs[i].name);
  return TUNESMITH_OK;
}

/* Check that a session has one entry point, for functions without shapes. */
static int check_single(const tunesmith_session *session) {
  if (!session) return fail(TUNESMITH_INVALID_ARGUMENT, "no session was given");
  if (session->among.count == 1) return TUNESMITH_OK;
  return fail(TUNESMITH_INVALID_ARGUMENT,
              "the session serves %d entry points: use run_shapes, or a session of one entry point",
              session->among.count);
}

static int run(tunesmith_session *session, const tunesmith_input *inputs, int32_t input_count,
               const tunesmith_output *outputs, int32_t output_count) {
  int status = check_single(session);
  if (!status) status = check_counts(input_count, output_count);
  if (!status) status = check_fixed(outputs);
  return status ? status : run_and_time(session, session->entries, inputs, outputs, NULL);
}

static void write_shapes(const entry_state *state, int64_t *const *shapes) {
  for (int32_t i = 0; i < state->entry->output_count; ++i) {
    const dl_tensor *made = &state->tensors[state->plan->outputs[i]];
    if (made->rank) memcpy(shapes[i], made->shape, (size_t)made->rank * sizeof(int64_t));
  }
}

static int run_open(tunesmith_session *session, const tunesmith_input *inputs, int32_t input_count,
                    const tunesmith_output *outputs, int32_t output_count, int64_t *const *output_shapes) {
  int status = check_single(session);
  if (!status) status = check_counts(input_count, output_count);
  if (!status) status = check(session->entries->entry, inputs, outputs);
  if (!status && !output_shapes) status = fail(TUNESMITH_INVALID_ARGUMENT, "no place for the shapes was given");
  if (status) return status;
  pthread_mutex_lock(&session->lock);
  status = run_locked(session, session->entries, inputs, outputs, NULL);
  if (!status) write_shapes(session->entries, output_shapes);
  pthread_mutex_unlock(&session->lock);
  return status;
}

static int profile(tunesmith_session *session, const tunesmith_input *inputs, int32_t input_count,
                   const tunesmith_output *outputs, int32_t output_count, uint64_t *nanoseconds, int32_t kernel_count) {
  int status = check_single(session);
  if (status) return status;
  const int32_t kernels = session->entries->entry->kernel_count;
  if (!nanoseconds || kernel_count != kernels)
    return fail(TUNESMITH_INVALID_ARGUMENT, "the model has %d kernels; room for %d times was given", kernels,
                nanoseconds ? kernel_count : 0);
  status = check_counts(input_count, output_count);
  if (!status) status = check_fixed(outputs);
  return status ? status : run_and_time(session, session->entries, inputs, outputs, nanoseconds);
}

static int find_size(const tunesmith_session *session, const int64_t *const *input_shapes, int32_t input_count,
                     int32_t output_count, served_size *found) {
  if (!session) return fail(TUNESMITH_INVALID_ARGUMENT, "no session was given");
  const int status = check_counts(input_count, output_count);
  return status ? status : sizes_find(session->among, input_shapes, found, error_text, sizeof error_text);
}

static int shapes(const tunesmith_session *session, const int64_t *const *input_shapes, int32_t input_count,
                  int64_t *const *output_shapes, int32_t output_count) {
  served_size size;
  const int status = find_size(session, input_shapes, input_count, output_count, &size);
  for (int32_t i = 0; !status && i < output_count; ++i) sizes_of_output(&size, i, output_shapes[i]);
  return status;
}

/* Allocate, once, what runs of split or padded inputs need. */
static int prepare(tunesmith_session *session) {
  const size_t inputs = (size_t)any_entry()->input_count, outputs = (size_t)any_entry()->output_count;
  const size_t rows = (size_t)sizes_most_rows(session->among);
  if (!session->given) session->given = calloc(inputs + 1, sizeof *session->given);
  if (!session->taken) session->taken = calloc(outputs + 1, sizeof *session->taken);
  if (!session->parts) session->parts = calloc(inputs + outputs + 1, sizeof *session->parts);
  if (!session->batches) session->batches = calloc((size_t)session->among.count, sizeof *session->batches);
  if (!session->totals) session->totals = calloc(rows + 1, sizeof *session->totals);
  if (!session->first) session->first = calloc(rows + 1, sizeof *session->first);
  return session->given && session->taken && session->parts && session->batches && session->totals && session->first;
}

/* Point to the rows of the caller's buffers that an entry point takes as they are, and to memory of ours for others. */
static int stage(tunesmith_session *session, const served_size *size, int32_t entry, int64_t first, int64_t rows,
                 const tunesmith_input *inputs, const tunesmith_output *outputs) {
  const int32_t input_count = any_entry()->input_count, output_count = any_entry()->output_count;
  for (int32_t i = 0; i < input_count; ++i) {
    tensor_part *part = &session->parts[i];
    *part = sizes_input_part(size, entry, i, first, rows);
    void *staged = part->is_whole ? NULL : staging(session, i);
    if (!part->is_whole && !staged) return 0;
    if (staged) sizes_pad(size, i, part, rows, inputs[i].data, staged);
    session->given[i].data = staged ? staged : (const unsigned char *)inputs[i].data + part->offset;
    session->given[i].bytes = part->whole->bytes;
  }
  for (int32_t i = 0; i < output_count; ++i) {
    tensor_part *part = &session->parts[input_count + i];
    *part = sizes_output_part(size, entry, i, first, rows);
    const int is_staged = !part->is_whole && outputs[i].data;
    session->taken[i].data = outputs[i].data ? (unsigned char *)outputs[i].data + part->offset : NULL;
    session->taken[i].bytes = part->whole->bytes;
    if (is_staged && !(session->taken[i].data = staging(session, input_count + i))) return 0;
  }
  return 1;
}

/* Run an entry point once, on rows of the inputs. */
static int run_part(tunesmith_session *session, const served_size *size, int32_t entry, int64_t first, int64_t rows,
                    const tunesmith_input *inputs, const tunesmith_output *outputs) {
  if (!stage(session, size, entry, first, rows, inputs, outputs))
    return fail(TUNESMITH_OUT_OF_RESOURCES, "no memory for inputs and outputs of another size");
  entry_state *state = &session->entries[entry - session->among.first];
  const int status = run_locked(session, state, session->given, session->taken, NULL);
  for (int32_t i = 0; !status && i < state->entry->output_count; ++i) {
    const tensor_part *part = &session->parts[state->entry->input_count + i];
    if (outputs[i].data && !part->is_whole) sizes_crop(size, part, rows, session->taken[i].data, outputs[i].data);
  }
  return status;
}

static int run_parts(tunesmith_session *session, const served_size *size, const tunesmith_input *inputs,
                     const tunesmith_output *outputs) {
  if (!prepare(session)) return fail(TUNESMITH_OUT_OF_RESOURCES, "no memory for inputs and outputs of another size");
  if (size->split < 0) return run_part(session, size, size->entry, 0, 0, inputs, outputs);
  split_rows left = sizes_split(size, session->batches, session->totals, session->first);
  int64_t rows;
  for (int64_t first = 0; left.rows; first += rows) {
    const int32_t entry = sizes_next(&left, size, &rows);
    const int status = run_part(session, size, entry, first, rows, inputs, outputs);
    if (status) return status;
  }
  return TUNESMITH_OK;
}

static int run_shapes(tunesmith_session *session, const tunesmith_input *inputs, const int64_t *const *input_shapes,
                      int32_t input_count, const tunesmith_output *outputs, int32_t output_count) {
  served_size size;
  int status = find_size(session, input_shapes, input_count, output_count, &size);
  if (!status) status = check_fixed(outputs);
  if (status) return status;
  if (ONE_SIZE || size.is_exact)
    return run_and_time(session, &session->entries[size.entry - session->among.first], inputs, outputs, NULL);
  for (int32_t i = 0; !status && i < input_count; ++i)
    status = check_input(any_entry()->inputs[i].name, &inputs[i], sizes_input_bytes(&size, i));
  for (int32_t i = 0; !status && i < output_count; ++i)
    status = check_output(any_entry()->outputs[i].name, &outputs[i], sizes_output_bytes(&size, i));
  if (status) return status;
  pthread_mutex_lock(&session->lock);
  status = run_parts(session, &size, inputs, outputs);
  pthread_mutex_unlock(&session->lock);
  return status;
}

static int32_t threads(const tunesmith_session *session) { return session ? pool_threads(session->pool) : 0; }

#define API(version)                                                                        \
  {version,       &tunesmith_plan.description, create, run,        profile, threads, error, \
   close_session, &tunesmith_plan.sizes,       shapes, run_shapes, run_open}

const tunesmith_api *tunesmith_get_api(uint32_t version, const char **text) {
  /* A version has the members of those before it. */
  static const tunesmith_api apis[TUNESMITH_API_VERSION] = {API(1), API(2), API(3)};
  int is_ready = 0;
  if (version >= 1 && version <= TUNESMITH_API_VERSION) {
    pthread_mutex_lock(&list_lock);
    if (!weights) weights = weights_start(error_text, sizeof error_text);
    is_ready = weights != NULL;
    pthread_mutex_unlock(&list_lock);
    if (is_ready && version < SINCE_OPEN && tunesmith_plan.sizes.open_axes) {
      fail(TUNESMITH_INVALID_ARGUMENT,
           "a run decides shapes of outputs: the program needs version %d of Tunesmith's C interface; it asks for %u",
           SINCE_OPEN, version);
      is_ready = 0;
    }
  } else {
    fail(TUNESMITH_INVALID_ARGUMENT, "the library has version %d of Tunesmith's C interface; the program needs %u",
         TUNESMITH_API_VERSION, version);
  }
  if (is_ready) return &apis[version - 1];
  if (text) *text = error_text;
  return NULL;
}
