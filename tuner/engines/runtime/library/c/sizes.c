/* Sizes between entry points: a batch is split into runs, and other dimensions are padded. */
#include "sizes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const tunesmith_sizes *sizes(void) { return &tunesmith_plan.sizes; }

static int64_t value_of(int32_t entry, int32_t dimension) {
  return sizes()->values[(int64_t)entry * sizes()->dimension_count + dimension];
}

static int32_t axis_of(const int32_t *const *axes, int32_t tensor, int32_t axis) {
  return !ONE_SIZE && axes ? axes[tensor][axis] : -1;
}

/* Append to a text, and end it with dots if there is not enough room. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t room, const char *format, ...) {
  const size_t length = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  const int wanted = vsnprintf(text + length, room - length, format, arguments);
  va_end(arguments);
  if (wanted >= 0 && (size_t)wanted >= room - length && room > 4) memcpy(text + room - 4, "...", 4);
}

/* Read the value of each dimension. `from` are the inputs that they were read from. */
static int read_axis(int32_t input, int32_t axis, int64_t given, int64_t *values, const tunesmith_tensor **from,
                     char *problem, size_t room) {
  const tunesmith_tensor *wanted = &tunesmith_plan.description.entries[0].inputs[input];
  const int32_t dimension = axis_of(sizes()->input_axes, input, axis);
  *problem = 0;
  if (given < 0)
    append(problem, room, "input %s has size %lld on axis %d", wanted->name, (long long)given, axis);
  else if (dimension < 0 && given != wanted->shape[axis])
    append(problem, room, "input %s has size %lld on axis %d; the model has %lld", wanted->name, (long long)given, axis,
           (long long)wanted->shape[axis]);
  else if (dimension >= 0 && from[dimension] && values[dimension] != given)
    append(problem, room, "input %s has size %lld on axis %d, but %s has %lld there: both are %s", wanted->name,
           (long long)given, axis, from[dimension]->name, (long long)values[dimension],
           sizes()->dimensions[dimension].name);
  if (*problem) return TUNESMITH_INVALID_ARGUMENT;
  if (dimension >= 0) {
    values[dimension] = given;
    from[dimension] = wanted;
  }
  return TUNESMITH_OK;
}

static int read_shapes(const int64_t *const *shapes, int64_t *values, char *problem, size_t room) {
  const tunesmith_entry *entry = tunesmith_plan.description.entries;
  const tunesmith_tensor *from[SIZES_MOST_DIMENSIONS] = {NULL};
  for (int32_t i = 0; i < entry->input_count; ++i) {
    if (entry->inputs[i].rank && (!shapes || !shapes[i])) {
      snprintf(problem, room, "no shape of input %s was given", entry->inputs[i].name);
      return TUNESMITH_INVALID_ARGUMENT;
    }
    for (int32_t axis = 0; axis < entry->inputs[i].rank; ++axis) {
      const int status = read_axis(i, axis, shapes[i][axis], values, from, problem, room);
      if (status) return status;
    }
  }
  return TUNESMITH_OK;
}

static int is_exact(int32_t entry, const int64_t *values) {
  for (int32_t i = 0; i < sizes()->dimension_count; ++i)
    if (value_of(entry, i) != values[i]) return 0;
  return 1;
}

/* Whether an entry point can serve a size, or rows of it. */
static int is_usable(const served_size *size, int32_t entry) {
  for (int32_t i = 0; i < sizes()->dimension_count; ++i) {
    const int64_t wanted = size->values[i], value = value_of(entry, i);
    const int is_padded = size->is_padded && sizes()->dimensions[i].pads;
    if (wanted < 1 || value < 1) return 0;
    if (i != size->split && (is_padded ? value < wanted : value != wanted)) return 0;
  }
  return 1;
}

static int32_t quickest(const served_size *size) {
  int32_t found = -1;
  for (int32_t i = size->among.first; i < size->among.first + size->among.count; ++i)
    if (is_usable(size, i) && (found < 0 || tunesmith_plan.seconds[i] < tunesmith_plan.seconds[found])) found = i;
  return found;
}

static int32_t split_dimension(void) {
  for (int32_t i = 0; i < sizes()->dimension_count; ++i)
    if (sizes()->dimensions[i].splits) return i;
  return -1;
}

static void list_values(char *text, size_t room, const int64_t *values) {
  for (int32_t i = 0; i < sizes()->dimension_count; ++i)
    append(text, room, "%s%s=%lld", i ? ", " : "", sizes()->dimensions[i].name, (long long)values[i]);
}

static int no_such_size(const served_size *size, char *problem, size_t room) {
  int32_t flexible = 0;
  *problem = 0;
  append(problem, room, "no entry point serves ");
  list_values(problem, room, size->values);
  for (int32_t i = 0; i < sizes()->dimension_count; ++i) {
    const tunesmith_dimension *each = &sizes()->dimensions[i];
    if (each->splits || each->pads)
      append(problem, room, "%s%s can be %s", flexible++ ? ", " : " (", each->name, each->splits ? "split" : "padded");
  }
  append(problem, room, "%s; the sizes are ", flexible ? ")" : "");
  for (int32_t i = 0; i < size->among.count; ++i) {
    if (i) append(problem, room, "; ");
    list_values(problem, room, sizes()->values + (int64_t)(size->among.first + i) * sizes()->dimension_count);
  }
  return TUNESMITH_NO_SUCH_SIZE;
}

int sizes_find(served among, const int64_t *const *shapes, served_size *found, char *problem, size_t room) {
  *found = (served_size){.among = among, .is_exact = 1, .split = -1};
  const int status = read_shapes(shapes, found->values, problem, room);
  if (status || ONE_SIZE) return status;
  for (found->entry = among.first; found->entry < among.first + among.count; ++found->entry)
    if (is_exact(found->entry, found->values)) return TUNESMITH_OK;
  found->is_exact = 0;
  found->split = split_dimension();
  for (found->is_padded = 0; found->is_padded < 2; ++found->is_padded)
    if ((found->entry = quickest(found)) >= 0) return TUNESMITH_OK;
  return no_such_size(found, problem, room);
}

void sizes_of_output(const served_size *size, int32_t output, int64_t *shape) {
  const tunesmith_tensor *made = &tunesmith_plan.description.entries[size->entry].outputs[output];
  for (int32_t axis = 0; axis < made->rank; ++axis) {
    const int32_t dimension = axis_of(sizes()->output_axes, output, axis);
    shape[axis] = dimension < 0 ? made->shape[axis] : size->values[dimension];
  }
}

static uint64_t bytes_of(const served_size *size, const tunesmith_tensor *tensor, const int32_t *axes,
                         uint32_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (int32_t axis = 0; axis < tensor->rank; ++axis) {
    const int64_t length = axes && axes[axis] >= 0 ? size->values[axes[axis]] : tensor->shape[axis];
    if (__builtin_mul_overflow(bytes, (uint64_t)length, &bytes)) return UINT64_MAX;
  }
  return bytes;
}

uint64_t sizes_input_bytes(const served_size *size, int32_t input) {
  return bytes_of(size, &tunesmith_plan.description.entries[size->entry].inputs[input],
                  sizes()->input_axes ? sizes()->input_axes[input] : NULL, tunesmith_plan.inputs[input].element_bytes);
}

uint64_t sizes_output_bytes(const served_size *size, int32_t output) {
  return bytes_of(size, &tunesmith_plan.description.entries[size->entry].outputs[output],
                  sizes()->output_axes ? sizes()->output_axes[output] : NULL,
                  tunesmith_plan.outputs[output].element_bytes);
}

int64_t sizes_most_rows(served among) {
  const int32_t split = split_dimension();
  int64_t most = 0;
  for (int32_t i = among.first; split >= 0 && i < among.first + among.count; ++i)
    if (value_of(i, split) > most) most = value_of(i, split);
  return most;
}

void sizes_cover(const int64_t *batches, const double *seconds, int32_t count, int64_t rows, double *total,
                 int32_t *first) {
  total[0] = 0;
  first[0] = -1;
  for (int64_t covered = 1; covered <= rows; ++covered) {
    first[covered] = -1;
    for (int32_t i = 0; i < count; ++i) {
      if (batches[i] < 1) continue;
      const double needed = seconds[i] + total[covered > batches[i] ? covered - batches[i] : 0];
      if (first[covered] >= 0 && needed >= total[covered]) continue;
      first[covered] = i;
      total[covered] = needed;
    }
  }
}

split_rows sizes_split(const served_size *size, int64_t *batches, double *total, int32_t *first) {
  const served among = size->among;
  const double *seconds = tunesmith_plan.seconds + among.first;
  split_rows made = {.rows = size->values[size->split], .quickest = -1, .first = first};
  for (int32_t i = 0; i < among.count; ++i) {
    batches[i] = is_usable(size, among.first + i) ? value_of(among.first + i, size->split) : 0;
    if (batches[i] > made.covered) made.covered = batches[i];
    const int32_t best = made.quickest;
    if (batches[i] && (best < 0 || seconds[i] * (double)batches[best] < seconds[best] * (double)batches[i]))
      made.quickest = i;
  }
  sizes_cover(batches, seconds, among.count, made.rows < made.covered ? made.rows : made.covered, total, first);
  return made;
}

int32_t sizes_next(split_rows *left, const served_size *size, int64_t *rows) {
  if (left->rows < 1) return -1;
  const int32_t entry = size->among.first + (left->rows > left->covered ? left->quickest : left->first[left->rows]);
  const int64_t most = value_of(entry, size->split);
  *rows = left->rows < most ? left->rows : most;
  left->rows -= *rows;
  return entry;
}

/* Return the size of an axis in the caller's tensor, of the rows that one run serves. */
static int64_t length_of(const served_size *size, const tensor_part *part, int32_t axis, int64_t rows) {
  const int32_t dimension = part->axes ? part->axes[axis] : -1;
  if (dimension < 0) return part->whole->shape[axis];
  return dimension == size->split ? rows : size->values[dimension];
}

static tensor_part part_of(const served_size *size, tensor_part part, int64_t first, int64_t rows) {
  uint64_t row = part.element_bytes;
  part.is_whole = 1;
  for (int32_t axis = 0; axis < part.whole->rank; ++axis) {
    const int64_t length = length_of(size, &part, axis, rows);
    if (length != part.whole->shape[axis]) part.is_whole = 0;
    if (axis) row *= (uint64_t)length;
  }
  if (size->split >= 0 && part.whole->rank && part.axes[0] == size->split) part.offset = (uint64_t)first * row;
  return part;
}

tensor_part sizes_input_part(const served_size *size, int32_t entry, int32_t input, int64_t first, int64_t rows) {
  const tensor_part part = {.whole = &tunesmith_plan.description.entries[entry].inputs[input],
                            .axes = sizes()->input_axes[input],
                            .element_bytes = tunesmith_plan.inputs[input].element_bytes};
  return part_of(size, part, first, rows);
}

tensor_part sizes_output_part(const served_size *size, int32_t entry, int32_t output, int64_t first, int64_t rows) {
  const tensor_part part = {.whole = &tunesmith_plan.description.entries[entry].outputs[output],
                            .axes = sizes()->output_axes[output],
                            .element_bytes = tunesmith_plan.outputs[output].element_bytes};
  return part_of(size, part, first, rows);
}

/* Copy the elements that the caller's tensor and the entry point's both have, from one to the other. */
static void copy_common(const served_size *size, const tensor_part *part, int64_t rows, int32_t axis, int is_crop,
                        const unsigned char *from, unsigned char *to) {
  uint64_t mine = part->element_bytes, whole = part->element_bytes;
  for (int32_t i = axis + 1; i < part->whole->rank; ++i) {
    mine *= (uint64_t)length_of(size, part, i, rows);
    whole *= (uint64_t)part->whole->shape[i];
  }
  const uint64_t count = axis < part->whole->rank ? (uint64_t)length_of(size, part, axis, rows) : 1;
  if (mine == whole || axis >= part->whole->rank) {
    if (mine && count) memcpy(to, from, (size_t)(count * mine));
    return;
  }
  for (uint64_t i = 0; i < count; ++i)
    copy_common(size, part, rows, axis + 1, is_crop, from + i * (is_crop ? whole : mine),
                to + i * (is_crop ? mine : whole));
}

/* Fill memory with copies of its first bytes. */
static void repeat(unsigned char *memory, uint64_t pattern, uint64_t bytes) {
  for (uint64_t filled = pattern; filled < bytes; filled *= 2) {
    const uint64_t more = bytes - filled < filled ? bytes - filled : filled;
    memcpy(memory + filled, memory, (size_t)more);
  }
}

void sizes_pad(const served_size *size, int32_t input, const tensor_part *part, int64_t rows, const void *given,
               void *padded) {
  const uint64_t bytes = part->whole->bytes, element = part->element_bytes;
  unsigned char *to = padded;
  if (size->is_padded && bytes) {
    memcpy(to, tunesmith_plan.inputs[input].padding, (size_t)element);
    repeat(to, element, bytes);
  }
  copy_common(size, part, rows, 0, 0, (const unsigned char *)given + part->offset, to);
  if (!part->whole->rank || size->split < 0 || part->axes[0] != size->split) return;
  const uint64_t row = bytes / (uint64_t)part->whole->shape[0];
  const uint64_t spare = (uint64_t)(part->whole->shape[0] - rows) * row;
  if (!spare) return;
  memcpy(to + (uint64_t)rows * row, to, (size_t)row);
  repeat(to + (uint64_t)rows * row, row, spare);
}

void sizes_crop(const served_size *size, const tensor_part *part, int64_t rows, const void *padded, void *taken) {
  copy_common(size, part, rows, 0, 1, padded, (unsigned char *)taken + part->offset);
}
