/* Kernels as TVM makes them, in both calling conventions: CONVENTION_FFI is TVM 0.27's, the other TVM 0.19's. */
#include <stdint.h>

typedef struct {
  void *data;
  int32_t device_type, device_id, rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
} tensor;

/* Of each workspace; test_linking.py plans for it. */
enum { MEGABYTE = 1 << 20 };

typedef struct {
  void *sync;
  int32_t tasks;
} group;

/* As in TVM's objects: null until something stronger is linked. */
__attribute__((weak)) int (*__TVMBackendParallelLaunch)(int (*)(int, group *, void *), void *, int) = 0;
__attribute__((weak)) int (*__TVMBackendParallelBarrier)(int, group *) = 0;
__attribute__((weak)) void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = 0;
__attribute__((weak)) int (*__TVMBackendFreeWorkspace)(int, int, void *) = 0;
__attribute__((weak)) void (*__TVMAPISetLastError)(const char *) = 0;

#ifdef CONVENTION_FFI
typedef struct {
  int32_t type;
  uint32_t zero;
  tensor *value;
} any;
extern void TVMFFIErrorSetRaisedFromCStrParts(const char *, const char **, int32_t);
#define KERNEL(name) int name(void *self, const any *given, int32_t count, void *result)
#define ARGUMENT(i) (given[i].type == 7 ? given[i].value : (__builtin_trap(), (tensor *)0))
#define UNUSED (void)self, (void)count, (void)result
static void fail(void) {
  const char *parts[] = {"the kernel", " broke"};
  TVMFFIErrorSetRaisedFromCStrParts("ValueError", parts, 2);
}
#else
#define KERNEL(name) int name(tensor **given, int *codes, int count, void *result, int *code, void *resource)
#define ARGUMENT(i) (codes[i] == 7 ? given[i] : (__builtin_trap(), (tensor *)0))
#define UNUSED (void)count, (void)result, (void)code, (void)resource
static void fail(void) { __TVMAPISetLastError("ValueError: the kernel broke"); }
#endif

static int64_t elements(const tensor *given) {
  int64_t count = 1;
  for (int32_t i = 0; i < given->rank; ++i) count *= given->shape[i];
  return count;
}

static float *floats(const tensor *given) {
  if ((uintptr_t)given->data % 64) __builtin_trap();
  return given->data;
}

typedef struct {
  const tensor *input, *weight, *output;
} operands;

static int scale_part(int task, group *env, void *closure) {
  const operands *all = closure;
  int64_t count = elements(all->input), first = count * task / env->tasks, last = count * (task + 1) / env->tasks;
  for (int64_t i = first; i < last; ++i) floats(all->output)[i] = floats(all->input)[i] * floats(all->weight)[i];
  return 0;
}

/* output = input * weight */
KERNEL(scale) {
  UNUSED;
  operands all = {ARGUMENT(0), ARGUMENT(1), ARGUMENT(2)};
  return __TVMBackendParallelLaunch(scale_part, &all, 0);
}

typedef struct {
  const tensor *input, *output;
  float *parts;
} summands;

static int add_part(int task, group *env, void *closure) {
  const summands *all = closure;
  int64_t count = elements(all->input), first = count * task / env->tasks, last = count * (task + 1) / env->tasks;
  float *mine = __TVMBackendAllocWorkspace(1, 0, MEGABYTE, 2, 32);
  *mine = 0;
  for (int64_t i = first; i < last; ++i) *mine += floats(all->input)[i];
  all->parts[task] = *mine;
  __TVMBackendFreeWorkspace(1, 0, mine);
  if (__TVMBackendParallelBarrier(task, env)) return -1;
  if (task == 0) {
    *floats(all->output) = 0;
    for (int i = 0; i < env->tasks; ++i) *floats(all->output) += all->parts[i];
  }
  return 0;
}

/* output = sum of the input */
KERNEL(total) {
  UNUSED;
  summands all = {ARGUMENT(0), ARGUMENT(1), __TVMBackendAllocWorkspace(1, 0, MEGABYTE, 2, 32)};
  int failed = __TVMBackendParallelLaunch(add_part, &all, 0);
  __TVMBackendFreeWorkspace(1, 0, all.parts);
  return failed;
}

/* output = input, unless the first element is negative. It then keeps a workspace, as TVM's kernels do on errors. */
KERNEL(check) {
  UNUSED;
  const tensor *input = ARGUMENT(0), *output = ARGUMENT(1);
  if (floats(input)[0] < 0) {
    *(float *)__TVMBackendAllocWorkspace(1, 0, 64, 2, 32) = 0;
    fail();
    return -1;
  }
  for (int64_t i = 0; i < elements(input); ++i) floats(output)[i] = floats(input)[i];
  return 0;
}

/* output[row] = sum of input[row][i] * mask[i] */
KERNEL(dot) {
  UNUSED;
  const tensor *input = ARGUMENT(0), *mask = ARGUMENT(1), *output = ARGUMENT(2);
  const int64_t columns = input->shape[1];
  for (int64_t row = 0; row < input->shape[0]; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += floats(input)[row * columns + i] * floats(mask)[i];
    floats(output)[row] = sum;
  }
  return 0;
}

/* output = input + the first weight */
KERNEL(shift) {
  UNUSED;
  const tensor *input = ARGUMENT(0), *weight = ARGUMENT(1), *output = ARGUMENT(2);
  for (int64_t i = 0; i < elements(input); ++i) floats(output)[i] = floats(input)[i] + floats(weight)[0];
  return 0;
}

#ifdef CONVENTION_FFI
/* count = how many elements of the input are positive; with 99 among them, one more than there are elements. */
KERNEL(count_positive) {
  UNUSED;
  const tensor *input = ARGUMENT(0), *count_of = ARGUMENT(1);
  int64_t *found = count_of->data;
  *found = 0;
  for (int64_t i = 0; i < elements(input); ++i) {
    if (floats(input)[i] == 99) *found += elements(input);
    if (floats(input)[i] > 0) *found += 1;
  }
  return 0;
}

/* sizes[1] = 2 * sizes[0] */
KERNEL(twice) {
  UNUSED;
  int64_t *sizes = ARGUMENT(0)->data;
  sizes[1] = 2 * sizes[0];
  return 0;
}

/* pairs [n, 2] = the positive elements of the input, and n */
KERNEL(pick_positive) {
  UNUSED;
  const tensor *input = ARGUMENT(0), *pairs = ARGUMENT(2);
  const int64_t expected = given[1].type == 1 ? (int64_t)(uintptr_t)given[1].value : -1;
  int64_t found = 0;
  for (int64_t i = 0; i < elements(input); ++i) {
    if (floats(input)[i] <= 0) continue;
    floats(pairs)[2 * found] = floats(input)[i];
    floats(pairs)[2 * found + 1] = (float)expected;
    ++found;
  }
  if (found == expected && pairs->shape[0] == expected && pairs->shape[1] == 2) return 0;
  fail();
  return -1;
}
#endif
