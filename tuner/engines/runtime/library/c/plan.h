/* The plan of a model: what the generated model.c and entry_N.c define, and session.c runs. */
#ifndef TUNESMITH_PLAN_H
#define TUNESMITH_PLAN_H

#include "tunesmith.h"

/* Compiled with ONE_SIZE=1, a library leaves out what serves several sizes. */
#ifndef ONE_SIZE
#define ONE_SIZE 0
#endif

/* Where a tensor's data lies. */
enum {
  PLACE_ARENA,
  PLACE_WEIGHTS,
  PLACE_INPUT,
  PLACE_OUTPUT,
  PLACE_SIZES, /* the sizes that a run decides */
  PLACE_SIZE   /* one of them: no tensor, but a number for kernels */
};

typedef struct plan_tensor {
  uint8_t place;
  uint8_t type_code, type_bits; /* as in DLPack */
  int32_t rank;
  const int64_t *shape;
  uint64_t at; /* offset in the arena or the weights, or the position of the input, output or size */
  /* Of each axis, the position of its size among those that a run decides, or -1; NULL if a run decides none. The shape
   * has the largest size. */
  const int32_t *open;
} plan_tensor;

typedef struct plan_call {
  void (*kernel)(void);  /* its true type follows from plan_entry.convention */
  uint32_t first, count; /* its part of plan_entry.arguments */
  uint32_t is_open;      /* a run decides the size of an argument, or its value */
  /* Its temporary memory: offset in the arena, and bytes of the first thread and of each other one. The arena has room
   * for plan.description.threads of them. */
  uint64_t workspace, first_bytes, other_bytes;
} plan_call;

/* An output that is not written in place, because it is an input, a constant or another output. */
typedef struct plan_copy {
  uint32_t tensor;
  int32_t output;
} plan_copy;

/* Calling conventions of kernels. */
enum { CONVENTION_PACKED, /* TVM 0.19: TVMPackedCFunc */ CONVENTION_FFI /* TVM 0.27: TVMFFISafeCallType */ };

typedef struct plan_entry {
  int convention;
  const plan_tensor *tensors;
  uint32_t tensor_count;
  const plan_call *calls;
  const uint32_t *arguments; /* positions in tensors */
  uint32_t argument_count;
  uint32_t longest_call; /* largest number of arguments */
  const plan_copy *copies;
  uint32_t copy_count;
  const uint32_t *outputs; /* positions in tensors */
  uint32_t size_count;     /* how many sizes a run decides */
  uint32_t open_axes;      /* axes of all tensors that have such a size */
} plan_entry;

/* An input or output of all entry points. */
typedef struct plan_operand {
  uint32_t element_bytes;
  unsigned char padding[8]; /* the element that inputs are padded with */
} plan_operand;

typedef struct plan {
  tunesmith_description description;
  const plan_entry *const *entries; /* one for each of description.entries */
  tunesmith_sizes sizes;
  const double *seconds; /* that a run of each entry point takes; NULL for a library of one size */
  const plan_operand *inputs, *outputs;
  const char *const *features; /* LLVM's names of the CPU features of the target, ended by NULL */
  const char *weights_file;    /* name of the file beside the library that has the weights; NULL if they are inside */
  const unsigned char *weights_digest; /* BLAKE2b of that file, 32 bytes */
} plan;

extern const plan tunesmith_plan;
extern const unsigned char tunesmith_weights[];

#endif
