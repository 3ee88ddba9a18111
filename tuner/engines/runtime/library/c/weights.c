/* Compiled with WEIGHTS_OUTSIDE for a library whose weights are in a file of their own. */
#define _GNU_SOURCE
#include "weights.h"

#include "plan.h"

#ifndef WEIGHTS_OUTSIDE

const unsigned char *weights_start(char *problem, size_t room) {
  (void)problem, (void)room;
  return tunesmith_weights;
}

#else

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compat.h"

OLD_VERSION(dladdr, dladdr);

/* BLAKE2b without a key, RFC 7693. */

enum { BLOCK_BYTES = 128, DIGEST_BYTES = 32 };

static const uint64_t initial[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

static const uint8_t order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static uint64_t rotated(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

/* Inlined, so that places in the arrays are constants: three times as fast. */
#define INLINED static inline __attribute__((always_inline)) void

INLINED mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
  v[a] += v[b] + x;
  v[d] = rotated(v[d] ^ v[a], 32);
  v[c] += v[d];
  v[b] = rotated(v[b] ^ v[c], 24);
  v[a] += v[b] + y;
  v[d] = rotated(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = rotated(v[b] ^ v[c], 63);
}

INLINED mix_all(uint64_t *v, const uint64_t *m, const uint8_t *s) {
  mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
  mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
  mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
  mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
  mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
  mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
  mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
  mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
}

/* Take in a block, with which `bytes` were taken in so far. */
static void take(uint64_t *state, const unsigned char *block, uint64_t bytes, int is_last) {
  uint64_t v[16], m[16];
  memcpy(m, block, sizeof m);
  memcpy(v, state, 8 * sizeof *v);
  memcpy(v + 8, initial, sizeof initial);
  v[12] ^= bytes;
  if (is_last) v[14] = ~v[14];
  mix_all(v, m, order[0]);
  mix_all(v, m, order[1]);
  mix_all(v, m, order[2]);
  mix_all(v, m, order[3]);
  mix_all(v, m, order[4]);
  mix_all(v, m, order[5]);
  mix_all(v, m, order[6]);
  mix_all(v, m, order[7]);
  mix_all(v, m, order[8]);
  mix_all(v, m, order[9]);
  mix_all(v, m, order[0]);
  mix_all(v, m, order[1]);
  for (int i = 0; i < 8; ++i) state[i] ^= v[i] ^ v[8 + i];
}

static int has_digest(const unsigned char *data, uint64_t bytes, const unsigned char *expected) {
  unsigned char last[BLOCK_BYTES] = {0};
  uint64_t state[8], at = 0;
  memcpy(state, initial, sizeof state);
  state[0] ^= 0x01010000u ^ DIGEST_BYTES;
  for (; bytes - at > BLOCK_BYTES; at += BLOCK_BYTES) take(state, data + at, at + BLOCK_BYTES, 0);
  memcpy(last, data + at, (size_t)(bytes - at));
  take(state, last, bytes, 1);
  return !memcmp(state, expected, DIGEST_BYTES);
}

/* Write the path of the file: it lies beside the library, or the program if the library is part of that. */
static int find(char *path, size_t room) {
  static char whole[PATH_MAX];
  Dl_info found;
  const char *name = dladdr(&tunesmith_plan, &found) ? found.dli_fname : NULL;
  /* A program's name is as it was called, if it has one. */
  if (!name || !strchr(name, '/')) name = "/proc/self/exe";
  if (!realpath(name, whole)) return 0;
  int folder = (int)(strrchr(whole, '/') - whole);
  return snprintf(path, room, "%.*s/%s", folder, whole, tunesmith_plan.weights_file) < (int)room;
}

const unsigned char *weights_start(char *problem, size_t room) {
  static char path[PATH_MAX];
  const uint64_t bytes = tunesmith_plan.description.weight_bytes;
  if (!find(path, sizeof path)) {
    snprintf(problem, room, "cannot find the folder of the library, where its weights are");
    return NULL;
  }
  /* A pipe of this name does not hang. */
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    snprintf(problem, room, "cannot open the weights %s: %m", path);
    return NULL;
  }
  const int64_t size = lseek(file, 0, SEEK_END);
  void *mapped = MAP_FAILED;
  if (size != (int64_t)bytes)
    snprintf(problem, room, "the weights %s have %lld bytes, not %llu", path, (long long)size,
             (unsigned long long)bytes);
  else if ((mapped = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, file, 0)) == MAP_FAILED)
    snprintf(problem, room, "cannot map the weights %s: %m", path);
  close(file);
  if (mapped == MAP_FAILED) return NULL;
  if (has_digest(mapped, bytes, tunesmith_plan.weights_digest)) return mapped;
  snprintf(problem, room, "the weights %s are not those of this library: they were changed, or are another build's",
           path);
  munmap(mapped, (size_t)bytes);
  return NULL;
}

#endif
