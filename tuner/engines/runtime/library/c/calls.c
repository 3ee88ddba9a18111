/* Functions of TVM's runtime that kernels call by name, in both conventions. */
#include <stdio.h>
#include <string.h>

#include "pool.h"
#include "sorting.h"

enum { MOST_ARGUMENTS = 8 };

typedef struct function {
  const char *name;
  const char *(*run)(const argument *arguments, int count);
} function;

/* linking.py lists the names as well. */
static const function functions[] = {
    {"tvm.contrib.sort.argsort", sorting_argsort},
    {"tvm.contrib.sort.argsort_nms", sorting_argsort_nms},
    {"tvm.contrib.sort.sort", sorting_sort},
    {"tvm.contrib.sort.topk", sorting_topk},
};

static int find(void *module, const char *name, void **found) {
  (void)module;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i)
    if (!strcmp(functions[i].name, name)) {
      /* Kernels hand it back. */
      *found = (void *)(uintptr_t)&functions[i];
      return 0;
    }
  char text[200];
  snprintf(text, sizeof text, "the library has no function %s", name);
  pool_report(text);
  return -1;
}

static int run(const function *called, const argument *arguments, int count) {
  const char *problem = count > MOST_ARGUMENTS ? "too many arguments" : called->run(arguments, count);
  if (!problem) return 0;
  char text[200];
  snprintf(text, sizeof text, "%s: %s", called->name, problem);
  pool_report(text);
  return -1;
}

static argument argument_of(int is_tensor, int is_text, int is_truth, abi_value value) {
  argument made = {NULL, NULL, 0};
  if (is_tensor)
    made.tensor = value.pointer;
  else if (is_text)
    made.text = value.pointer;
  else
    made.number = is_truth ? value.truth : value.number;
  return made;
}

static int call_packed(const void *called, const abi_value *values, const int *codes, int count, void *result,
                       int *result_code) {
  argument arguments[MOST_ARGUMENTS];
  (void)result, (void)result_code;
  for (int i = 0; i < count && i < MOST_ARGUMENTS; ++i)
    arguments[i] =
        argument_of(codes[i] == TENSOR_ARGUMENT, codes[i] == PACKED_TEXT, codes[i] == PACKED_TRUTH, values[i]);
  return run(called, arguments, count);
}

static int call_ffi(const void *called, const ffi_any *anys, int32_t count, ffi_any *result) {
  argument arguments[MOST_ARGUMENTS];
  (void)result;
  for (int i = 0; i < count && i < MOST_ARGUMENTS; ++i)
    arguments[i] = argument_of(anys[i].type == TENSOR_ARGUMENT, anys[i].type == FFI_TEXT, anys[i].type == FFI_TRUTH,
                               anys[i].value);
  return run(called, arguments, count);
}

/* Threads may look up the same function at the same time, and find the same. */
static int init_once(void **handle, int (*look_up)(void **found)) {
  void *found = __atomic_load_n(handle, __ATOMIC_ACQUIRE);
  if (found) return 0;
  if (look_up(&found)) return -1;
  __atomic_store_n(handle, found, __ATOMIC_RELEASE);
  return 0;
}

/* Weak null pointers in the objects of kernels, as in pool.c. The first two are TVM 0.19's. */
extern int (*__TVMBackendGetFuncFromEnv)(void *, const char *, void **);
extern int (*__TVMFuncCall)(const void *, const abi_value *, const int *, int, void *, int *);
extern int (*__TVMFFIEnvModLookupFromImports)(void *, const char *, void **);
extern int (*__TVMFFIHandleInitOnce)(void **, int (*)(void **));
extern int (*__TVMFFIFunctionCall)(const void *, const ffi_any *, int32_t, ffi_any *);

int (*__TVMBackendGetFuncFromEnv)(void *, const char *, void **) = find;
int (*__TVMFuncCall)(const void *, const abi_value *, const int *, int, void *, int *) = call_packed;
int (*__TVMFFIEnvModLookupFromImports)(void *, const char *, void **) = find;
int (*__TVMFFIHandleInitOnce)(void **, int (*)(void **)) = init_once;
int (*__TVMFFIFunctionCall)(const void *, const ffi_any *, int32_t, ffi_any *) = call_ffi;
