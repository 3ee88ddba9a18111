/* Sizes of inputs: which entry points serve them, and how. */
#ifndef TUNESMITH_SIZES_H
#define TUNESMITH_SIZES_H

#include <stddef.h>

#include "plan.h"

enum { SIZES_MOST_DIMENSIONS = 8 };

/* The entry points of a session. */
typedef struct served {
  int32_t first, count;
} served;

/* How inputs of given shapes are served. */
typedef struct served_size {
  served among;
  int64_t values[SIZES_MOST_DIMENSIONS]; /* of the dimensions */
  int32_t is_exact;                      /* an entry point has exactly these sizes */
  int32_t entry;                         /* that one, or the one that runs if nothing is split */
  int32_t split;                         /* dimension whose rows are split; -1: none */
  int32_t is_padded;                     /* no entry point has the sizes of the dimensions that are not split */
} served_size;

/* Find how inputs of these shapes are served. Returns TUNESMITH_OK, or a status and a text. */
int sizes_find(served among, const int64_t *const *shapes, served_size *found, char *problem, size_t room);

/* Write the shape of an output. */
void sizes_of_output(const served_size *size, int32_t output, int64_t *shape);

/* Return the bytes of an input or output, or UINT64_MAX if they have no number. */
uint64_t sizes_input_bytes(const served_size *size, int32_t input);
uint64_t sizes_output_bytes(const served_size *size, int32_t output);

/* The largest number of rows that an entry point splits into; 0 if none does. */
int64_t sizes_most_rows(served among);

/* For each number of rows from 1 to `rows`, write the entry point of the first run of those with the least total of
 * seconds, and that total. An entry point has batches[i] rows; those with 0 are not used, and one has more. The last
 * run may have fewer rows than its entry point. Both arrays have room for rows + 1. */
void sizes_cover(const int64_t *batches, const double *seconds, int32_t count, int64_t rows, double *total,
                 int32_t *first);

/* The runs that rows are split into. */
typedef struct split_rows {
  int64_t rows;     /* that are left */
  int64_t covered;  /* the most that `first` is for */
  int32_t quickest; /* entry point of the runs before */
  const int32_t *first;
} split_rows;

/* Return how to split the rows of a size; total and first have room for sizes_most_rows and one more, batches for the
 * entry points. */
split_rows sizes_split(const served_size *size, int64_t *batches, double *total, int32_t *first);

/* Return the entry point of the next run, and how many rows it serves; -1 at the end. */
int32_t sizes_next(split_rows *left, const served_size *size, int64_t *rows);

/* The part of a caller's tensor that one run of an entry point serves. */
typedef struct tensor_part {
  const tunesmith_tensor *whole; /* of the entry point */
  const int32_t *axes;           /* dimension of each axis, or -1 */
  uint32_t element_bytes;
  uint64_t offset; /* bytes from the start of the caller's tensor */
  int is_whole;    /* it has the entry point's shape */
} tensor_part;

/* Describe the part of an input or output of rows first to first + rows, all of them if nothing is split. */
tensor_part sizes_input_part(const served_size *size, int32_t entry, int32_t input, int64_t first, int64_t rows);
tensor_part sizes_output_part(const served_size *size, int32_t entry, int32_t output, int64_t first, int64_t rows);

/* Copy a part of an input of the caller's to memory of the entry point's shape. Its other elements get the padding, and
 * spare rows are copies of the first one. */
void sizes_pad(const served_size *size, int32_t input, const tensor_part *part, int64_t rows, const void *given,
               void *padded);

/* Copy what belongs to an output of the caller's from memory of the entry point's shape. */
void sizes_crop(const served_size *size, const tensor_part *part, int64_t rows, const void *padded, void *taken);

#endif
