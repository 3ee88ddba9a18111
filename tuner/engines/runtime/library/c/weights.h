/* The weights of the model, in the library or in a file beside it. */
#ifndef TUNESMITH_WEIGHTS_H
#define TUNESMITH_WEIGHTS_H

#include <stddef.h>

/* Return where the weights start. Each call maps the file and compares its digest, which reads all of it; return NULL,
 * and a text, if the file is missing or another one. Calls must not overlap. */
const unsigned char *weights_start(char *problem, size_t room);

#endif
