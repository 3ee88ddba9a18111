/* Sizes that a run decides: a kernel of plans that reads them from tensors. */
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
