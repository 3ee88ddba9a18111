/* What kernels exchange with the driver: tensors, and arguments in both calling conventions. */
#ifndef TUNESMITH_ABI_H
#define TUNESMITH_ABI_H

#include <stdint.h>

/* DLTensor of DLPack. */
typedef struct dl_tensor {
  void *data;
  int32_t device_type, device_id, rank;
  uint8_t type_code, type_bits;
  uint16_t lanes;
  const int64_t *shape;
  const int64_t *strides;
  uint64_t byte_offset;
} dl_tensor;

_Static_assert(sizeof(dl_tensor) == 48, "DLPack fixes the layout");

/* type_code */
enum { TYPE_INT, TYPE_UINT, TYPE_FLOAT, TYPE_BFLOAT = 4 };

/* A value of an argument: TVM 0.19's TVMValue, and the second half of TVM 0.27's TVMFFIAny. */
typedef union abi_value {
  int64_t number;
  uint8_t truth;
  void *pointer;
} abi_value;

typedef struct ffi_any {
  int32_t type;
  uint32_t zero;
  abi_value value;
} ffi_any;

/* What marks a tensor, a text, a truth value and a number in each convention. */
enum { TENSOR_ARGUMENT = 7, PACKED_TEXT = 11, PACKED_TRUTH = 15, FFI_NUMBER = 1, FFI_TRUTH = 2, FFI_TEXT = 8 };

/* Functions that kernels are called as, and that they call: TVM 0.19's TVMPackedCFunc, TVM 0.27's TVMFFISafeCallType.
 */
typedef int (*packed_kernel)(abi_value *values, int *codes, int count, void *result, int *result_code, void *resource);
typedef int (*ffi_kernel)(void *self, const ffi_any *arguments, int32_t count, ffi_any *result);

#endif
