/* The functions tvm.contrib.sort.* of TVM's runtime. */
#ifndef TUNESMITH_SORTING_H
#define TUNESMITH_SORTING_H

#include "abi.h"

/* An argument of a kernel's call, whatever the convention; what it is not is NULL or 0. */
typedef struct argument {
  const dl_tensor *tensor;
  const char *text;
  int64_t number; /* truth values are 0 or 1 */
} argument;

/* All return NULL, or why they cannot compute; the text is a literal. Arguments as in TVM:
 *   sort(data, sorted, axis, is_ascend)
 *   argsort(data, indices, axis, is_ascend)
 *   argsort_nms(data, counts, indices, axis, is_ascend): of each line, the first counts[line] elements
 *   topk(data, [values,] [indices,] k, axis, "both" | "values" | "indices", is_ascend): k < 1 for all */
const char *sorting_sort(const argument *arguments, int count);
const char *sorting_argsort(const argument *arguments, int count);
const char *sorting_argsort_nms(const argument *arguments, int count);
const char *sorting_topk(const argument *arguments, int count);

#endif
