/* The C interface of models that Tunesmith compiled: one header for all models and libraries.
 *
 * A library (libmodel.so) holds the code, the weights and a thread pool, needs libc alone, and exports one function,
 * tunesmith_get_api. A program that is linked with a library calls it; one that loads libraries calls tunesmith_open:
 *
 *     const char *error;
 *     const tunesmith_api *model = tunesmith_open("./libmodel.so", &error);
 *     tunesmith_session *session;
 *     if (!model || model->create(NULL, &session)) { ... }
 *     float image[3 * 224 * 224], scores[1000];
 *     tunesmith_input inputs[] = {{image, sizeof image}};
 *     tunesmith_output outputs[] = {{scores, sizeof scores}};
 *     if (model->run(session, inputs, 1, outputs, 1)) fprintf(stderr, "%s\n", model->error());
 *     model->close(session);
 *
 * A library may have entry points for several sizes of its inputs, such as batches of 1, 4 and 8. A session of all of
 * them serves these sizes, and sizes between them as tunesmith_api.sizes describes:
 *
 *     tunesmith_options options = {TUNESMITH_ALL_ENTRIES, 0, 0, 0};
 *     if (model->create(&options, &session)) { ... }
 *     const int64_t shape[] = {6, 3, 224, 224}, *shapes[] = {shape};
 *     int64_t made[2], *made_shapes[] = {made};
 *     if (model->shapes(session, shapes, 1, made_shapes, 1)) { ... }
 *     tunesmith_input inputs[] = {{images, sizeof images}};
 *     tunesmith_output outputs[] = {{scores, sizeof(float) * made[0] * made[1]}};
 *     if (model->run_shapes(session, inputs, shapes, 1, outputs, 1)) fprintf(stderr, "%s\n", model->error());
 *
 * In some models, such as detectors, the run decides the sizes of outputs. Their entry points have the largest ones:
 *
 *     float boxes[100 * 4];
 *     int64_t made[2], *made_shapes[] = {made};
 *     tunesmith_output outputs[] = {{boxes, sizeof boxes}};
 *     if (model->run_open(session, inputs, 1, outputs, 1, made_shapes)) { ... }
 *     for (int64_t i = 0; i < made[0]; ++i) use(&boxes[i * 4]);
 *
 * All functions may be called from any thread. Runs of one session wait for each other; sessions share the weights and
 * nothing else. After a fork, the child may use the sessions of its parent. Libraries stay loaded until the process
 * ends.
 */
#ifndef TUNESMITH_H
#define TUNESMITH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUNESMITH_API_VERSION 3

/* Results of functions; tunesmith_api.error has the text. */
enum {
  TUNESMITH_OK = 0,
  TUNESMITH_INVALID_ARGUMENT = 1, /* unknown entry point, or a missing, surplus or wrongly sized buffer */
  TUNESMITH_UNSUPPORTED_CPU = 2,  /* the code has instructions that this CPU lacks */
  TUNESMITH_OUT_OF_RESOURCES = 3, /* no memory, or no further thread */
  TUNESMITH_KERNEL_FAILED = 4,
  TUNESMITH_NO_SUCH_SIZE = 5 /* no entry point serves inputs of these sizes; the text lists those that there are */
};

/* tunesmith_options.entry of a session that serves all entry points. */
enum { TUNESMITH_ALL_ENTRIES = -1 };

typedef struct tunesmith_tensor {
  const char *name;
  const char *dtype; /* as numpy writes it: float32, int64, bool, ... */
  const int64_t *shape;
  int32_t rank;
  uint64_t bytes; /* of the whole tensor, in row-major order without gaps; at most, if a run decides its shape */
} tunesmith_tensor;

/* A function of the model for one set of shapes. */
typedef struct tunesmith_entry {
  const char *name;
  const tunesmith_tensor *inputs, *outputs;
  int32_t input_count, output_count;
  const char *const *kernels; /* in the order of their execution */
  int32_t kernel_count;
  uint64_t arena_bytes; /* memory of a session that has as many threads as it was tuned for */
} tunesmith_entry;

typedef struct tunesmith_description {
  const char *model;     /* sha256 of the ONNX file in hex, or "" if unknown */
  const char *toolchain; /* engine, TVM and LLVM version */
  const char *target;    /* what it was compiled for */
  int32_t threads;       /* number of threads that it was tuned for */
  uint64_t weight_bytes;
  const tunesmith_entry *entries;
  int32_t entry_count;
} tunesmith_description;

/* A size that differs between entry points. */
typedef struct tunesmith_dimension {
  const char *name;
  int32_t splits; /* not 0: the first axis, of which other sizes are made of several runs */
  int32_t pads;   /* not 0: inputs are padded to the next size, and outputs are cut */
} tunesmith_dimension;

typedef struct tunesmith_sizes {
  const tunesmith_dimension *dimensions; /* those that are neither split nor padded are served as they are alone */
  int32_t dimension_count;               /* 0 for a library of one size */
  const int64_t *values;                 /* of each dimension of the first entry point, then of the next, ... */
  /* Of each axis of each input and output, the position of its dimension, or -1; NULL for a library of one size. */
  const int32_t *const *input_axes, *const *output_axes;

  /* Since version 3: of each axis of each output, -1 unless a run decides its size, which is at most that of the entry
   * point; NULL if a run decides none. */
  const int32_t *const *open_axes;
} tunesmith_sizes;

typedef struct tunesmith_session tunesmith_session;

typedef struct tunesmith_options {
  int32_t entry;   /* position in tunesmith_description.entries, or TUNESMITH_ALL_ENTRIES */
  int32_t threads; /* 0: as it was tuned, but no more than the CPUs of the process's affinity mask and cgroup */
  int32_t spin;    /* how often an idle thread looks for work before it sleeps; 0: the default, negative: never */
  int32_t pin;     /* not 0: keep each of the session's own threads on a CPU of its own */
} tunesmith_options;

typedef struct tunesmith_input {
  const void *data; /* best aligned to 64 bytes; otherwise it is copied */
  uint64_t bytes;
} tunesmith_input;

typedef struct tunesmith_output {
  void *data; /* likewise; NULL for an output that is not wanted. Must not overlap with other buffers */
  uint64_t bytes;
} tunesmith_output;

typedef struct tunesmith_api {
  uint32_t version;
  const tunesmith_description *description;
  /* Create a session; options may be NULL for the defaults. */
  int (*create)(const tunesmith_options *options, tunesmith_session **session);
  /* Run once, with one buffer for each input and output of the entry point, in their order. */
  int (*run)(tunesmith_session *session, const tunesmith_input *inputs, int32_t input_count,
             const tunesmith_output *outputs, int32_t output_count);
  /* Likewise; also write the time of each kernel. nanoseconds has room for kernel_count values. */
  int (*profile)(tunesmith_session *session, const tunesmith_input *inputs, int32_t input_count,
                 const tunesmith_output *outputs, int32_t output_count, uint64_t *nanoseconds, int32_t kernel_count);
  /* The number of threads of a session. */
  int32_t (*threads)(const tunesmith_session *session);
  /* The error of the calling thread's latest call that failed; valid until its next call. */
  const char *(*error)(void);
  /* End a session that no thread uses; NULL is ignored. */
  void (*close)(tunesmith_session *session);

  /* Since version 2: */

  const tunesmith_sizes *sizes;
  /* Write the shapes of the outputs for inputs of these shapes. Ranks are those of the entry points, equal in all. */
  int (*shapes)(const tunesmith_session *session, const int64_t *const *input_shapes, int32_t input_count,
                int64_t *const *output_shapes, int32_t output_count);
  /* Run once on inputs of these shapes, with as many runs of entry points as that takes; run and profile are for
   * sessions of one entry point. */
  int (*run_shapes)(tunesmith_session *session, const tunesmith_input *inputs, const int64_t *const *input_shapes,
                    int32_t input_count, const tunesmith_output *outputs, int32_t output_count);

  /* Since version 3: */

  /* Run once as run does, and write the shape of each output, also of one that is not wanted. Buffers have room for the
   * largest; data are at their beginning. run, run_shapes and profile refuse to write an output whose shape a run
   * decides. */
  int (*run_open)(tunesmith_session *session, const tunesmith_input *inputs, int32_t input_count,
                  const tunesmith_output *outputs, int32_t output_count, int64_t *const *output_shapes);
} tunesmith_api;

/* Return the interface of a version, usually TUNESMITH_API_VERSION; NULL, and a text in *error (unless error is NULL),
 * if the library does not have it, or if the weights of a large model are not in the file beside it. Libraries have all
 * versions up to that of their own tunesmith.h, but those of which a run decides the shapes of outputs none below 3. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const tunesmith_api *tunesmith_get_api(uint32_t version, const char **error);

#ifndef TUNESMITH_NO_DLOPEN
#include <dlfcn.h>
#include <string.h>

/* Load a library and return its interface; NULL and a text in *error if that fails. A name without a slash is searched
 * for as the dynamic loader does. */
static inline const tunesmith_api *tunesmith_open(const char *path, const char **error) {
  const tunesmith_api *(*get_api)(uint32_t, const char **) = 0;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, "tunesmith_get_api") : 0;
  if (!symbol) {
    *error = dlerror();
    return 0;
  }
  memcpy(&get_api, &symbol, sizeof get_api);
  return get_api(TUNESMITH_API_VERSION, error);
}
#endif

#ifdef __cplusplus
}
#endif
#endif
