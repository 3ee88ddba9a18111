/* The model as a custom operator of ONNX Runtime: libtunesmith_ort.so, which uses the libmodel.so beside it.
 *
 * ONNX Runtime's C interface only ever grows at its end, so the part that is used here is declared by ourselves, as it
 * has been since version 17.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat.h"
#include "tunesmith.h"

OLD_VERSION(dlopen, dlopen);
OLD_VERSION(dlsym, dlsym);
OLD_VERSION(dlerror, dlerror);
OLD_VERSION(dladdr, dladdr);
OLD_VERSION(pthread_once, pthread_once);

enum {
  ORT_VERSION = 17,
  ORT_FAIL = 1,
  ORT_INVALID_ARGUMENT = 2,
  MOST_THREADS = 1024,
  NAME_SIZE = 32,
  PATH_SIZE = 4096
};

static const char DOMAIN[] = "ai.tunesmith";
static const char LIBRARY[] = "libmodel.so";

typedef struct ort_status ort_status;
typedef struct ort_value ort_value;
typedef struct ort_shape ort_shape;
typedef struct ort_domain ort_domain;
typedef struct ort_session_options ort_session_options;
typedef struct ort_kernel_info ort_kernel_info;
typedef struct ort_kernel_context ort_kernel_context;
typedef struct ort_op ort_op;
typedef void (*ort_unused)(void);

/* OrtApi. */
typedef struct ort_api {
  ort_status *(*create_status)(int code, const char *text);
  ort_unused to_26[25];
  ort_status *(*create_domain)(const char *name, ort_domain **created);
  ort_status *(*add_op)(ort_domain *domain, const ort_op *op);
  ort_status *(*add_domain)(ort_session_options *options, ort_domain *domain);
  ort_unused to_51[22];
  ort_status *(*tensor_data)(ort_value *value, void **data);
  ort_unused to_61[9];
  ort_status *(*rank)(const ort_shape *shape, size_t *rank);
  ort_status *(*dimensions)(const ort_shape *shape, int64_t *dimensions, size_t count);
  ort_unused to_65[2];
  ort_status *(*tensor_shape)(const ort_value *value, ort_shape **shape);
  ort_unused to_86[20];
  ort_status *(*attribute_int64)(const ort_kernel_info *info, const char *name, int64_t *value);
  ort_unused to_90[3];
  ort_status *(*input)(const ort_kernel_context *context, size_t index, const ort_value **value);
  ort_status *(*output)(ort_kernel_context *context, size_t index, const int64_t *dimensions, size_t rank,
                        ort_value **value);
  ort_unused to_93;
  void (*release_status)(ort_status *status);
  ort_unused to_99[5];
  void (*release_shape)(ort_shape *shape);
} ort_api;

#define AT(member, index) _Static_assert(offsetof(ort_api, member) == (index) * sizeof(void *), #member)
AT(create_domain, 26);
AT(tensor_data, 51);
AT(rank, 61);
AT(tensor_shape, 65);
AT(attribute_int64, 86);
AT(input, 90);
AT(release_status, 93);
AT(release_shape, 99);

/* OrtApiBase. */
typedef struct ort_api_base {
  const ort_api *(*get_api)(uint32_t version);
  const char *(*version)(void);
} ort_api_base;

/* OrtCustomOp. */
struct ort_op {
  uint32_t version;
  ort_unused create_without_status;
  const char *(*name)(const ort_op *op);
  const char *(*provider)(const ort_op *op);
  int (*input_type)(const ort_op *op, size_t index);
  size_t (*input_count)(const ort_op *op);
  int (*output_type)(const ort_op *op, size_t index);
  size_t (*output_count)(const ort_op *op);
  ort_unused compute_without_status;
  void (*destroy)(void *kernel);
  int (*input_characteristic)(const ort_op *op, size_t index);
  int (*output_characteristic)(const ort_op *op, size_t index);
  int (*input_memory)(const ort_op *op, size_t index);
  int (*variadic[4])(const ort_op *op);
  ort_status *(*create)(const ort_op *op, const ort_api *api, const ort_kernel_info *info, void **kernel);
  ort_status *(*compute)(void *kernel, ort_kernel_context *context);
  ort_unused infer_shapes;
  int (*first_version)(const ort_op *op);
  int (*last_version)(const ort_op *op);
};

/* A node of a graph that runs. ONNX Runtime may run it from several threads, and a session of ours takes one at a time,
 * so it has as many as ran at once so far. */
typedef struct kernel {
  const ort_api *ort;
  int32_t threads;
  pthread_mutex_t lock;
  tunesmith_session **idle; /* room for all */
  size_t idle_count, count;
} kernel;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const tunesmith_api *model;
static char model_error[PATH_SIZE + 512];
static char op_name[NAME_SIZE];
static pthread_mutex_t domain_lock = PTHREAD_MUTEX_INITIALIZER;
static ort_domain *domain; /* must live as long as any session */
static const ort_api *domain_of;

static const tunesmith_entry *entry(void) { return model->description->entries; }

static const struct {
  const char *name;
  int code; /* of ONNXTensorElementDataType */
} types[] = {{"float32", 1}, {"uint8", 2},   {"int8", 3},     {"uint16", 4},   {"int16", 5},
             {"int32", 6},   {"int64", 7},   {"bool", 9},     {"float16", 10}, {"float64", 11},
             {"uint32", 12}, {"uint64", 13}, {"bfloat16", 16}};

enum { ALIGNMENT = 64 };

static int type_of(const tunesmith_tensor *tensor) {
  for (size_t i = 0; i < sizeof types / sizeof types[0]; ++i)
    if (!strcmp(types[i].name, tensor->dtype)) return types[i].code;
  return 0;
}

static const char *name(const ort_op *op) {
  (void)op;
  return op_name;
}

static const char *provider(const ort_op *op) {
  (void)op;
  return NULL; /* the CPU's */
}

static int input_type(const ort_op *op, size_t index) {
  (void)op;
  return type_of(&entry()->inputs[index]);
}

static int output_type(const ort_op *op, size_t index) {
  (void)op;
  return type_of(&entry()->outputs[index]);
}

static size_t input_count(const ort_op *op) {
  (void)op;
  return (size_t)entry()->input_count;
}

static size_t output_count(const ort_op *op) {
  (void)op;
  return (size_t)entry()->output_count;
}

/* Zero of several enumerations: a required operand, in the default memory. */
static int zero_at(const ort_op *op, size_t index) {
  (void)op;
  (void)index;
  return 0;
}

static int zero(const ort_op *op) {
  (void)op;
  return 0;
}

static int one(const ort_op *op) {
  (void)op;
  return 1;
}

static int any_later(const ort_op *op) {
  (void)op;
  return INT32_MAX;
}

static int attribute(const ort_api *ort, const ort_kernel_info *info, const char *wanted, int64_t *value) {
  ort_status *missing = ort->attribute_int64(info, wanted, value);
  if (missing) ort->release_status(missing);
  return !missing;
}

static ort_status *create(const ort_op *op, const ort_api *ort, const ort_kernel_info *info, void **created) {
  (void)op;
  int64_t threads = 0;
  if (attribute(ort, info, "threads", &threads) && (threads < 0 || threads > MOST_THREADS))
    return ort->create_status(ORT_INVALID_ARGUMENT, "threads must be 0 (as tuned) to 1024");
  kernel *made = calloc(1, sizeof *made);
  if (!made) return ort->create_status(ORT_FAIL, "no memory for a kernel");
  made->ort = ort;
  made->threads = (int32_t)threads;
  pthread_mutex_init(&made->lock, NULL);
  *created = made;
  return NULL;
}

static void destroy(void *given) {
  kernel *node = given;
  for (size_t i = 0; i < node->idle_count; ++i) model->close(node->idle[i]);
  free(node->idle);
  pthread_mutex_destroy(&node->lock);
  free(node);
}

/* Return an idle session, or a new one; NULL if that fails. */
static tunesmith_session *take(kernel *node) {
  tunesmith_session *session = NULL;
  pthread_mutex_lock(&node->lock);
  if (node->idle_count) {
    session = node->idle[--node->idle_count];
    pthread_mutex_unlock(&node->lock);
    return session;
  }
  tunesmith_session **longer = realloc(node->idle, (node->count + 1) * sizeof *longer);
  if (longer) {
    node->idle = longer;
    ++node->count;
  }
  pthread_mutex_unlock(&node->lock);
  if (!longer) return NULL;
  const tunesmith_options options = {.entry = TUNESMITH_ALL_ENTRIES, .threads = node->threads};
  model->create(&options, &session);
  return session;
}

static void give_back(kernel *node, tunesmith_session *session) {
  pthread_mutex_lock(&node->lock);
  node->idle[node->idle_count++] = session;
  pthread_mutex_unlock(&node->lock);
}

/* Whether the library has entry points for several sizes, so that shapes are only known when it runs. */
static int is_sized(void) { return model->sizes->dimension_count > 0; }

/* Read the shape of an input, which has the rank of `wanted`. */
static ort_status *read_shape(const ort_api *ort, const ort_value *value, const tunesmith_tensor *wanted,
                              int64_t *dimensions) {
  size_t rank = 0;
  ort_shape *shape;
  ort_status *failed = ort->tensor_shape(value, &shape);
  if (failed) return failed;
  failed = ort->rank(shape, &rank);
  const int fits = !failed && rank == (size_t)wanted->rank;
  if (fits) failed = ort->dimensions(shape, dimensions, rank);
  ort->release_shape(shape);
  if (failed || (fits && (is_sized() || !memcmp(dimensions, wanted->shape, rank * sizeof *dimensions)))) return failed;
  char text[256];
  snprintf(text, sizeof text, "input %s has another shape than the model was compiled for", wanted->name);
  return ort->create_status(ORT_INVALID_ARGUMENT, text);
}

/* The tensors of a run, and their shapes, one after the other. */
typedef struct operands {
  tunesmith_input *inputs;
  tunesmith_output *outputs;
  int64_t **shapes; /* of the inputs, then of the outputs */
} operands;

static uint64_t bytes_of(const tunesmith_tensor *tensor, const int64_t *shape) {
  uint64_t elements = 1, others = 1;
  for (int32_t i = 0; i < tensor->rank; ++i) {
    elements *= (uint64_t)tensor->shape[i];
    others *= (uint64_t)shape[i];
  }
  return elements ? tensor->bytes / elements * others : 0;
}

static ort_status *bind_inputs(const ort_api *ort, ort_kernel_context *context, const operands *all) {
  for (int32_t i = 0; i < entry()->input_count; ++i) {
    const ort_value *value;
    void *data;
    ort_status *failed = ort->input(context, (size_t)i, &value);
    if (!failed) failed = read_shape(ort, value, &entry()->inputs[i], all->shapes[i]);
    /* It is only read. */
    if (!failed) failed = ort->tensor_data((ort_value *)(uintptr_t)value, &data);
    if (failed) return failed;
    all->inputs[i] = (tunesmith_input){data, bytes_of(&entry()->inputs[i], all->shapes[i])};
  }
  return NULL;
}

static ort_status *bind_outputs(const ort_api *ort, ort_kernel_context *context, const operands *all) {
  for (int32_t i = 0; i < entry()->output_count; ++i) {
    const tunesmith_tensor *made = &entry()->outputs[i];
    const int64_t *shape = all->shapes[entry()->input_count + i];
    ort_value *value;
    void *data;
    ort_status *failed = ort->output(context, (size_t)i, shape, (size_t)made->rank, &value);
    if (!failed) failed = ort->tensor_data(value, &data);
    if (failed) return failed;
    all->outputs[i] = (tunesmith_output){data, bytes_of(made, shape)};
  }
  return NULL;
}

static ort_status *failure(const ort_api *ort, int status) {
  const int is_ours = status == TUNESMITH_NO_SUCH_SIZE || status == TUNESMITH_INVALID_ARGUMENT;
  return ort->create_status(is_ours ? ORT_INVALID_ARGUMENT : ORT_FAIL, model->error());
}

/* Run into memory of our own: only then are the shapes of the outputs known. */
static ort_status *run_open(const ort_api *ort, tunesmith_session *session, ort_kernel_context *context,
                            const operands *all) {
  const int32_t inputs = entry()->input_count, outputs = entry()->output_count;
  tunesmith_output made[outputs + 1];
  ort_status *failed = NULL;
  for (int32_t i = 0; i < outputs; ++i) {
    const uint64_t bytes = entry()->outputs[i].bytes;
    made[i] = (tunesmith_output){aligned_alloc(ALIGNMENT, (size_t)(bytes / ALIGNMENT + 1) * ALIGNMENT), bytes};
    if (!made[i].data && !failed) failed = ort->create_status(ORT_FAIL, "no memory for the outputs");
  }
  if (!failed) {
    const int status = model->run_open(session, all->inputs, inputs, made, outputs, all->shapes + inputs);
    failed = status ? failure(ort, status) : bind_outputs(ort, context, all);
  }
  for (int32_t i = 0; i < outputs; ++i) {
    if (!failed && all->outputs[i].bytes) memcpy(all->outputs[i].data, made[i].data, (size_t)all->outputs[i].bytes);
    free(made[i].data);
  }
  return failed;
}

static ort_status *run(const ort_api *ort, tunesmith_session *session, ort_kernel_context *context,
                       const operands *all) {
  const int32_t inputs = entry()->input_count, outputs = entry()->output_count;
  const int64_t *const *shapes = (const int64_t *const *)all->shapes;
  if (model->sizes->open_axes) return run_open(ort, session, context, all);
  int status = model->shapes(session, shapes, inputs, all->shapes + inputs, outputs);
  if (status) return failure(ort, status);
  ort_status *failed = bind_outputs(ort, context, all);
  if (failed) return failed;
  status = model->run_shapes(session, all->inputs, shapes, inputs, all->outputs, outputs);
  return status ? failure(ort, status) : NULL;
}

static int32_t ranks(const tunesmith_tensor *tensors, int32_t count) {
  int32_t sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += tensors[i].rank;
  return sum;
}

static void place_shapes(const tunesmith_tensor *tensors, int32_t count, int64_t **shapes, int64_t *sizes) {
  for (int32_t i = 0; i < count; ++i) {
    shapes[i] = sizes;
    sizes += tensors[i].rank;
  }
}

static ort_status *compute(void *given, ort_kernel_context *context) {
  kernel *node = given;
  const ort_api *ort = node->ort;
  const int32_t input_count = entry()->input_count, output_count = entry()->output_count;
  const int32_t input_ranks = ranks(entry()->inputs, input_count);
  tunesmith_input inputs[input_count + 1];
  tunesmith_output outputs[output_count + 1];
  int64_t *shapes[input_count + output_count + 1], sizes[input_ranks + ranks(entry()->outputs, output_count) + 1];
  place_shapes(entry()->inputs, input_count, shapes, sizes);
  place_shapes(entry()->outputs, output_count, shapes + input_count, sizes + input_ranks);
  const operands all = {inputs, outputs, shapes};
  ort_status *failed = bind_inputs(ort, context, &all);
  if (failed) return failed;
  tunesmith_session *session = take(node);
  if (!session) return ort->create_status(ORT_FAIL, model->error());
  failed = run(ort, session, context, &all);
  give_back(node, session);
  return failed;
}

static const ort_op operator_of_model = {
    .version = ORT_VERSION,
    .name = name,
    .provider = provider,
    .input_type = input_type,
    .input_count = input_count,
    .output_type = output_type,
    .output_count = output_count,
    .destroy = destroy,
    .input_characteristic = zero_at,
    .output_characteristic = zero_at,
    .input_memory = zero_at,
    .variadic = {zero, zero, zero, zero},
    .create = create,
    .compute = compute,
    .first_version = one,
    .last_version = any_later,
};

/* Load the library that lies in the folder of this one. */
static void load(void) {
  Dl_info here;
  char path[PATH_SIZE];
  const char *error = NULL;
  if (!dladdr(&once, &here) || !here.dli_fname) {
    snprintf(model_error, sizeof model_error, "cannot tell where this library lies");
    return;
  }
  const char *slash = strrchr(here.dli_fname, '/');
  int folder = slash ? (int)(slash - here.dli_fname) : 1;
  if (snprintf(path, sizeof path, "%.*s/%s", folder, slash ? here.dli_fname : ".", LIBRARY) >= (int)sizeof path) {
    snprintf(model_error, sizeof model_error, "the path of the library is too long");
    return;
  }
  model = tunesmith_open(path, &error);
  if (!model) snprintf(model_error, sizeof model_error, "cannot load %s: %s", path, error ? error : "unknown error");
  if (model) snprintf(op_name, sizeof op_name, "Model_%.16s", model->description->model);
}

static ort_status *make_domain(const ort_api *ort) {
  if (domain_of == ort) return NULL;
  ort_status *failed = ort->create_domain(DOMAIN, &domain);
  if (!failed) failed = ort->add_op(domain, &operator_of_model);
  if (!failed) domain_of = ort;
  return failed;
}

/* What ONNX Runtime calls after it has loaded this library. */
__attribute__((visibility("default"))) ort_status *RegisterCustomOps(ort_session_options *options,
                                                                     const ort_api_base *base) {
  const ort_api *ort = base->get_api(ORT_VERSION);
  /* Every version makes a status in the same way. */
  if (!ort) return base->get_api(1)->create_status(ORT_FAIL, "ONNX Runtime 1.17 or later is needed");
  pthread_once(&once, load);
  if (!model) return ort->create_status(ORT_FAIL, model_error);
  pthread_mutex_lock(&domain_lock);
  ort_status *failed = make_domain(ort);
  pthread_mutex_unlock(&domain_lock);
  return failed ? failed : ort->add_domain(options, domain);
}
