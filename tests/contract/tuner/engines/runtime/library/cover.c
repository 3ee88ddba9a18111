/* cover: read lines of rows, and a batch and seconds of each entry point, from the standard input; print the entry
 * points of the runs that sizes.c covers the rows with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sizes.h"

enum { MOST = 16 };

static int64_t batches[MOST];
static double seconds[MOST];
static tunesmith_tensor inputs[MOST], outputs[MOST];
static tunesmith_entry entries[MOST];
static const tunesmith_dimension dimensions[] = {{"batch", 1, 0}};
static const int32_t axis[] = {0};
static const int32_t *const axes[] = {axis};
static const plan_operand operands[] = {{4, {0}}};

const plan tunesmith_plan = {
    {"", "", "", 1, 0, entries, MOST},
    NULL,
    {dimensions, 1, batches, axes, axes, NULL},
    seconds,
    operands,
    operands,
    NULL,
    NULL,
    NULL,
};

static void cover(int32_t count, int64_t rows) {
  const int64_t *shapes[] = {&rows};
  const served among = {0, count};
  served_size size;
  char problem[1024];
  if (sizes_find(among, shapes, &size, problem, sizeof problem)) {
    printf("%s\n", problem);
    return;
  }
  if (size.is_exact) {
    printf("exact %d\n", size.entry);
    return;
  }
  const size_t most = (size_t)sizes_most_rows(among) + 1;
  int64_t *usable = calloc((size_t)count, sizeof *usable), served_rows;
  double *total = calloc(most, sizeof *total);
  int32_t *first = calloc(most, sizeof *first), entry;
  split_rows left = sizes_split(&size, usable, total, first);
  while ((entry = sizes_next(&left, &size, &served_rows)) >= 0) printf("%d:%lld ", entry, (long long)served_rows);
  printf("\n");
  free(usable);
  free(total);
  free(first);
}

int main(void) {
  long long rows, batch;
  int count;
  while (scanf("%lld %d", &rows, &count) == 2 && count <= MOST) {
    for (int i = 0; i < count; ++i) {
      if (scanf("%lld %lf", &batch, &seconds[i]) != 2) return 1;
      batches[i] = batch;
      inputs[i] = (tunesmith_tensor){"x", "float32", &batches[i], 1, 4 * (uint64_t)batch};
      outputs[i] = inputs[i];
      entries[i] = (tunesmith_entry){"", &inputs[i], &outputs[i], 1, 1, NULL, 0, 0};
    }
    cover(count, rows);
  }
  return 0;
}
