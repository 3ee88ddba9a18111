/* Sizes that a run decides: kernels that read them from tensors, and that select as many elements as are not 0. */
#include <stdio.h>

#include "abi.h"
#include "pool.h"

enum { FROM, TO, LEAST, MOST, RULE };

static int refuse(int64_t size, const int64_t *rule) {
  char text[120];
  snprintf(text, sizeof text, "a size is %lld, not %lld to %lld", (long long)size, (long long)rule[LEAST],
           (long long)rule[MOST]);
  pool_report(text);
  return -1;
}

/* Arguments, all int64: values; rules [n, RULE]; and the sizes. By each rule, the value at position FROM has to lie
 * between LEAST and MOST, and becomes the size at position TO, unless that is negative. */
int tunesmith_read_sizes(void *self, const ffi_any *arguments, int32_t count, ffi_any *result);

int tunesmith_read_sizes(void *self, const ffi_any *arguments, int32_t count, ffi_any *result) {
  (void)self, (void)count, (void)result;
  const dl_tensor *rules = arguments[1].value.pointer;
  const int64_t *values = ((const dl_tensor *)arguments[0].value.pointer)->data;
  int64_t *sizes = ((const dl_tensor *)arguments[2].value.pointer)->data;
  for (int64_t i = 0; i < rules->shape[0]; ++i) {
    const int64_t *rule = (const int64_t *)rules->data + i * RULE, size = values[rule[FROM]];
    if (size < rule[LEAST] || size > rule[MOST]) return refuse(size, rule);
    if (rule[TO] >= 0) sizes[rule[TO]] = size;
  }
  return 0;
}

static int64_t count_of(const dl_tensor *tensor) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < tensor->rank; ++axis) count *= tensor->shape[axis];
  return count;
}

/* Whether an element is not 0. Of a real number, the sign does not count; it is in the last byte. */
static int is_nonzero(const dl_tensor *tensor, int64_t place) {
  const int64_t bytes = (tensor->type_bits + 7) / 8;
  const unsigned char *element = (const unsigned char *)tensor->data + place * bytes;
  const int is_real = tensor->type_code == TYPE_FLOAT || tensor->type_code == TYPE_BFLOAT;
  for (int64_t i = 0; i + 1 < bytes; ++i)
    if (element[i]) return 1;
  return (is_real ? element[bytes - 1] & 0x7f : element[bytes - 1]) != 0;
}

/* Arguments: a tensor, and how many of its elements are not 0, int64 [1]. */
int tunesmith_count_nonzero(void *self, const ffi_any *arguments, int32_t count, ffi_any *result);

int tunesmith_count_nonzero(void *self, const ffi_any *arguments, int32_t count, ffi_any *result) {
  (void)self, (void)count, (void)result;
  const dl_tensor *given = arguments[0].value.pointer;
  const int64_t all = count_of(given);
  int64_t found = 0;
  for (int64_t place = 0; place < all; ++place) found += is_nonzero(given, place);
  *(int64_t *)((const dl_tensor *)arguments[1].value.pointer)->data = found;
  return 0;
}

/* Arguments: a tensor, and the positions of its elements that are not 0, int64 [rank, n]. */
int tunesmith_nonzero(void *self, const ffi_any *arguments, int32_t count, ffi_any *result);

int tunesmith_nonzero(void *self, const ffi_any *arguments, int32_t count, ffi_any *result) {
  (void)self, (void)count, (void)result;
  const dl_tensor *given = arguments[0].value.pointer, *places = arguments[1].value.pointer;
  const int64_t all = count_of(given), most = places->shape[1];
  int64_t found = 0;
  for (int64_t place = 0; place < all && found < most; ++place) {
    if (!is_nonzero(given, place)) continue;
    int64_t rest = place;
    for (int32_t axis = given->rank - 1; axis >= 0; --axis) {
      ((int64_t *)places->data)[axis * most + found] = rest % given->shape[axis];
      rest /= given->shape[axis];
    }
    ++found;
  }
  return 0;
}
