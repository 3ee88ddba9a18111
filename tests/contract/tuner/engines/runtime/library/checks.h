/* For programs that check a library. */
#include <stdio.h>
#include <stdlib.h>

#include "tunesmith.h"

static const tunesmith_api *model;

#define CHECK(condition)                                                                        \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, model ? model->error() : ""); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)
