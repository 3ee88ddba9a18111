/* Sorting as TVM's src/runtime/contrib/sort/sort.cc computes it with the C++ library of GNU.
 *
 * That library's algorithms are followed comparison by comparison: NaNs are neither less nor greater than anything, so
 * where they end up depends on the algorithm. */
#include "sorting.h"

#include <string.h>

#include "pool.h"

enum { CHUNK = 7, READ_AHEAD = 64 };

typedef struct element {
  int64_t index; /* in its line */
  union {
    double real;
    int64_t whole;
  } key; /* smaller for what comes earlier: that of a descending order is negated or inverted */
} element;

typedef struct order {
  int is_real;
  int breaks_ties; /* by the index */
} order;

/* Inlined with a constant order, so that comparisons do not ask for it. */
#define INLINED static inline __attribute__((always_inline))

INLINED int precedes(order by, const element *a, const element *b) {
  if (by.breaks_ties && (by.is_real ? a->key.real == b->key.real : a->key.whole == b->key.whole))
    return a->index < b->index;
  return by.is_real ? a->key.real < b->key.real : a->key.whole < b->key.whole;
}

static void move(element *to, const element *from, int64_t count) { memmove(to, from, (size_t)count * sizeof *to); }

/* Stable sort: chunks by insertion, merged back and forth between both places; then the two halves. */

INLINED void insertion_sort(element *first, const element *last, order by) {
  for (element *each = first; each < last; ++each) {
    const element value = *each;
    element *place = each;
    if (precedes(by, &value, first)) {
      place = first;
      move(first + 1, first, each - first);
    } else {
      for (; place > first && precedes(by, &value, place - 1); --place) *place = place[-1];
    }
    *place = value;
  }
}

INLINED element *merge(const element *a, const element *a_end, const element *b, const element *b_end, element *to,
                       order by) {
  while (a < a_end && b < b_end) *to++ = precedes(by, b, a) ? *b++ : *a++;
  move(to, a, a_end - a);
  to += a_end - a;
  move(to, b, b_end - b);
  return to + (b_end - b);
}

INLINED void merge_pairs(const element *from, int64_t count, element *to, int64_t step, order by) {
  for (; count >= 2 * step; from += 2 * step, count -= 2 * step)
    to = merge(from, from + step, from + step, from + 2 * step, to, by);
  if (step > count) step = count;
  merge(from, from + step, from + step, from + count, to, by);
}

INLINED void sort_half(element *first, int64_t count, element *spare, order by) {
  int64_t start = 0;
  for (; count - start >= CHUNK; start += CHUNK) insertion_sort(first + start, first + start + CHUNK, by);
  insertion_sort(first + start, first + count, by);
  for (int64_t step = CHUNK; step < count; step *= 4) {
    merge_pairs(first, count, spare, step, by);
    merge_pairs(spare, count, first, 2 * step, by);
  }
}

/* Merge what ends at middle, at its place, and count elements of spare; write the result from its end. */
INLINED void merge_backward(const element *first, const element *middle, const element *spare, int64_t count,
                            element *end, order by) {
  const element *a = middle, *b = spare + count;
  while (a > first && b > spare) *--end = precedes(by, b - 1, a - 1) ? *--a : *--b;
  move(end - (b - spare), spare, b - spare);
}

/* spare has room for half of the elements, rounded up. */
INLINED void sort_by(element *first, int64_t count, element *spare, order by) {
  const int64_t front = (count + 1) / 2, back = count - front;
  element *middle = first + front, *end = first + count;
  sort_half(first, front, spare, by);
  sort_half(middle, back, spare, by);
  if (front <= back) {
    move(spare, first, front);
    merge(spare, spare + front, middle, end, first, by);
  } else {
    move(spare, middle, back);
    merge_backward(first, middle, spare, back, end, by);
  }
}

/* A heap, at whose top lies the element that all others precede. */

INLINED void rise(element *heap, int64_t hole, int64_t top, element value, order by) {
  for (int64_t parent = (hole - 1) / 2; hole > top && precedes(by, &heap[parent], &value); parent = (hole - 1) / 2) {
    heap[hole] = heap[parent];
    hole = parent;
  }
  heap[hole] = value;
}

INLINED void sink(element *heap, int64_t hole, int64_t count, element value, order by) {
  const int64_t top = hole;
  int64_t child = hole;
  while (child < (count - 1) / 2) {
    child = 2 * (child + 1);
    if (precedes(by, &heap[child], &heap[child - 1])) --child;
    heap[hole] = heap[child];
    hole = child;
  }
  if (count % 2 == 0 && child == (count - 2) / 2) {
    child = 2 * child + 1;
    heap[hole] = heap[child];
    hole = child;
  }
  rise(heap, hole, top, value, by);
}

INLINED void make_heap(element *heap, int64_t count, order by) {
  for (int64_t parent = (count - 2) / 2; count > 1 && parent >= 0; --parent)
    sink(heap, parent, count, heap[parent], by);
}

/* Put an element into a heap with room for one more, and take out the one at its top. */
INLINED void replace_top(element *heap, int64_t count, element added, order by) {
  rise(heap, count, 0, added, by);
  sink(heap, 0, count, heap[count], by);
}

/* Tensors as lines along an axis. */

typedef struct lines {
  int64_t before, length, after;
} lines;

static int64_t start_of(const lines *all, int64_t line) {
  return line / all->after * all->length * all->after + line % all->after;
}

static const char *split(const dl_tensor *tensor, int64_t axis, lines *found) {
  *found = (lines){1, 1, 1};
  if (axis < 0) axis += tensor->rank;
  if (axis < 0 || axis >= tensor->rank) return "the tensor has no such axis";
  for (int32_t i = 0; i < tensor->rank; ++i) {
    if (i < axis) found->before *= tensor->shape[i];
    if (i == axis) found->length = tensor->shape[i];
    if (i > axis) found->after *= tensor->shape[i];
  }
  return NULL;
}

static double half(uint16_t bits) {
  const uint64_t sign = (uint64_t)(bits >> 15) << 63, exponent = bits >> 10 & 31, fraction = bits & 1023;
  uint64_t wide = sign | (exponent + 1023 - 15) << 52 | fraction << 42;
  double value;
  if (exponent == 31) wide = sign | 0x7ffull << 52 | fraction << 42;
  /* A denormal: its fraction without the leading 1. */
  if (exponent == 0) wide = sign | (1023ull - 14) << 52 | fraction << 42;
  memcpy(&value, &wide, sizeof value);
  return exponent ? value : value - (sign ? -1 : 1) * 0x1p-14;
}

static int is_real(const dl_tensor *tensor) { return tensor->type_code == TYPE_FLOAT; }

static int has_type(const dl_tensor *tensor, int code, int bits) {
  return tensor->type_code == code && tensor->type_bits == bits;
}

static int is_sortable(const dl_tensor *tensor) {
  const int bits = tensor->type_bits;
  if (tensor->lanes != 1) return 0;
  if (is_real(tensor)) return bits == 16 || bits == 32 || bits == 64;
  return has_type(tensor, TYPE_UINT, 8) || (tensor->type_code == TYPE_INT && (bits == 8 || bits == 32 || bits == 64));
}

#define READ(type, member, key_of)                                      \
  for (int64_t i = 0; i < count; ++i) {                                 \
    const type x = ((const type *)data->data)[at + (first + i) * step]; \
    to[i].key.member = key_of;                                          \
  }

/* Read the keys of some elements of a line that starts at an offset. */
static void read_keys(const dl_tensor *data, int64_t at, int64_t step, int64_t first, int64_t count, int is_descending,
                      element *to) {
  const double sign = is_descending ? -1 : 1;
  const int64_t inverted = is_descending ? -1 : 0;
  if (has_type(data, TYPE_FLOAT, 16)) READ(uint16_t, real, sign *half(x))
  if (has_type(data, TYPE_FLOAT, 32)) READ(float, real, sign *(double)x)
  if (has_type(data, TYPE_FLOAT, 64)) READ(double, real, sign *x)
  if (has_type(data, TYPE_INT, 8)) READ(int8_t, whole, inverted ^ x)
  if (has_type(data, TYPE_INT, 32)) READ(int32_t, whole, inverted ^ x)
  if (has_type(data, TYPE_INT, 64)) READ(int64_t, whole, inverted ^ x)
  if (has_type(data, TYPE_UINT, 8)) READ(uint8_t, whole, inverted ^ x)
}

/* Read the first elements of a line. */
static void read_line(const dl_tensor *data, int64_t at, int64_t step, int64_t count, int is_descending, element *to) {
  for (int64_t i = 0; i < count; ++i) to[i].index = i;
  read_keys(data, at, step, 0, count, is_descending, to);
}

#define WRITE(type) \
  for (int64_t i = 0; i < count; ++i) ((type *)indices->data)[at + i * step] = (type)from[i].index

static void write_indices(const dl_tensor *indices, int64_t at, int64_t step, const element *from, int64_t count) {
  if (has_type(indices, TYPE_FLOAT, 32)) WRITE(float);
  if (has_type(indices, TYPE_FLOAT, 64)) WRITE(double);
  if (has_type(indices, TYPE_INT, 8)) WRITE(int8_t);
  if (has_type(indices, TYPE_INT, 32)) WRITE(int32_t);
  if (has_type(indices, TYPE_INT, 64)) WRITE(int64_t);
  if (has_type(indices, TYPE_UINT, 8)) WRITE(uint8_t);
}

static void write_values(const dl_tensor *data, int64_t from_at, const dl_tensor *values, int64_t at, int64_t step,
                         const element *from, int64_t count) {
  const size_t size = data->type_bits / 8u;
  const char *source = data->data;
  char *target = values->data;
  for (int64_t i = 0; i < count; ++i)
    memcpy(target + (size_t)(at + i * step) * size, source + (size_t)(from_at + from[i].index * step) * size, size);
}

static int is_index(const dl_tensor *tensor) { return is_sortable(tensor) && !has_type(tensor, TYPE_FLOAT, 16); }

static element *borrow(int64_t count) { return pool_borrow((uint64_t)count * sizeof(element)); }

static void stable_sort(element *line, int64_t count, element *spare, int is_real) {
  if (is_real)
    sort_by(line, count, spare, (order){1, 0});
  else
    sort_by(line, count, spare, (order){0, 0});
}

/* Sort each line of data into values or indices, whichever is given. */
static const char *sort_lines(const dl_tensor *data, const dl_tensor *values, const dl_tensor *indices,
                              const argument *axis, const argument *is_ascend) {
  lines all;
  const char *problem = split(data, axis->number, &all);
  if (problem) return problem;
  if (!is_sortable(data) || (indices && !is_index(indices))) return "tensors of such types are not sorted";
  if (values && !has_type(values, data->type_code, data->type_bits)) return "the tensors have different types";
  element *line = borrow(all.length + (all.length + 1) / 2);
  if (!line) return "no memory";
  for (int64_t i = 0; i < all.before * all.after; ++i) {
    const int64_t at = start_of(&all, i);
    read_line(data, at, all.after, all.length, !is_ascend->number, line);
    stable_sort(line, all.length, line + all.length, is_real(data));
    if (indices) write_indices(indices, at, all.after, line, all.length);
    if (values) write_values(data, at, values, at, all.after, line, all.length);
  }
  pool_return(line);
  return NULL;
}

static const char UNKNOWN_FORM[] = "its arguments have an unknown form";

const char *sorting_sort(const argument *arguments, int count) {
  if (count != 4 || !arguments[0].tensor || !arguments[1].tensor) return UNKNOWN_FORM;
  return sort_lines(arguments[0].tensor, arguments[1].tensor, NULL, &arguments[2], &arguments[3]);
}

const char *sorting_argsort(const argument *arguments, int count) {
  if (count != 4 || !arguments[0].tensor || !arguments[1].tensor) return UNKNOWN_FORM;
  return sort_lines(arguments[0].tensor, NULL, arguments[1].tensor, &arguments[2], &arguments[3]);
}

const char *sorting_argsort_nms(const argument *arguments, int count) {
  if (count != 5 || !arguments[0].tensor || !arguments[1].tensor || !arguments[2].tensor) return UNKNOWN_FORM;
  const dl_tensor *data = arguments[0].tensor, *counts = arguments[1].tensor, *indices = arguments[2].tensor;
  lines all;
  const char *problem = split(data, arguments[3].number, &all);
  if (problem) return problem;
  if (!has_type(data, TYPE_FLOAT, 32) || !has_type(counts, TYPE_INT, 32) || !has_type(indices, TYPE_INT, 32))
    return "tensors of such types are not sorted";
  element *line = borrow(all.length + (all.length + 1) / 2);
  if (!line) return "no memory";
  for (int64_t i = 0; i < all.before * all.after; ++i) {
    const int64_t at = start_of(&all, i), given = ((const int32_t *)counts->data)[i];
    const int64_t sorted = given < 0 ? 0 : given > all.length ? all.length : given;
    read_line(data, at, all.after, all.length, !arguments[4].number, line);
    stable_sort(line, sorted, line + all.length, 1);
    write_indices(indices, at, all.after, line, all.length);
  }
  pool_return(line);
  return NULL;
}

/* Keep the first elements of a line in a heap, then sort it. heap has room for one more and for half of them. */
INLINED void select_by(const dl_tensor *data, int64_t at, const lines *all, int64_t kept, int is_descending, order by,
                       element *heap) {
  read_line(data, at, all->after, kept, is_descending, heap);
  make_heap(heap, kept, by);
  for (int64_t i = kept; i < all->length; i += READ_AHEAD) {
    element read[READ_AHEAD];
    const int64_t count = all->length - i < READ_AHEAD ? all->length - i : READ_AHEAD;
    read_keys(data, at, all->after, i, count, is_descending, read);
    for (int64_t j = 0; j < count; ++j) {
      /* Of two that tie, the one in the heap precedes. */
      if (!precedes((order){by.is_real, 0}, &read[j], heap)) continue;
      read[j].index = i + j;
      replace_top(heap, kept, read[j], by);
    }
  }
  sort_by(heap, kept, heap + kept, by);
}

static void select_from(const dl_tensor *data, int64_t at, const lines *all, int64_t kept, int is_descending,
                        element *heap) {
  if (is_real(data))
    select_by(data, at, all, kept, is_descending, (order){1, 1}, heap);
  else
    select_by(data, at, all, kept, is_descending, (order){0, 1}, heap);
}

const char *sorting_topk(const argument *arguments, int count) {
  if (count < 6 || !arguments[0].tensor) return UNKNOWN_FORM;
  const argument *options = arguments + count - 4;
  const char *wanted = options[2].text;
  const int has_both = wanted && !strcmp(wanted, "both");
  const dl_tensor *data = arguments[0].tensor, *values = NULL, *indices = NULL;
  if (!wanted || count != (has_both ? 7 : 6)) return UNKNOWN_FORM;
  if (has_both || !strcmp(wanted, "values")) values = arguments[1].tensor;
  if (has_both || !strcmp(wanted, "indices")) indices = arguments[has_both ? 2 : 1].tensor;
  if ((has_both && (!values || !indices)) || (!values && !indices)) return UNKNOWN_FORM;
  lines all;
  const char *problem = split(data, options[1].number, &all);
  if (problem) return problem;
  if (!is_sortable(data) || (indices && !is_index(indices))) return "tensors of such types are not sorted";
  if (values && !has_type(values, data->type_code, data->type_bits)) return "the tensors have different types";
  const int64_t most = options[0].number < 1 ? all.length : options[0].number;
  const int64_t kept = most < all.length ? most : all.length;
  element *heap = borrow(kept + (kept + 1) / 2 + 1);
  if (!heap) return "no memory";
  const lines written = {all.before, most, all.after};
  for (int64_t i = 0; i < all.before * all.after && kept; ++i) {
    const int64_t at = start_of(&all, i), to = start_of(&written, i);
    select_from(data, at, &all, kept, !options[3].number, heap);
    if (indices) write_indices(indices, to, all.after, heap, kept);
    if (values) write_values(data, at, values, to, all.after, heap, kept);
  }
  pool_return(heap);
  return NULL;
}
