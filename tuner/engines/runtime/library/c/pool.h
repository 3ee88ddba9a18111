/* The threads of a session, and the temporary memory of kernels. */
#ifndef TUNESMITH_POOL_H
#define TUNESMITH_POOL_H

#include <stdint.h>

typedef struct pool pool;

/* What kernels get as the environment of a task. */
typedef struct task_group {
  void *sync;
  int32_t tasks;
} task_group;

typedef int (*task_body)(int task, task_group *group, void *closure);

enum { POOL_SPINS = 64 }; /* default of pool_create's spins: a few microseconds */

/* Create a pool of threads, of which the caller of pool_enter is the first; NULL if there is not enough memory or the
 * system grants no further threads. */
pool *pool_create(int threads, int spins, int pin);
int pool_threads(const pool *pool);

/* End the threads; has_threads is 0 in the child of a fork that did not call pool_restart. */
void pool_destroy(pool *pool, int has_threads);

/* In the child of a fork, which has none of the threads: start them again. Returns 0, or -1 if the system refuses. */
int pool_restart(pool *pool);

/* Make the calling thread the pool's first one until pool_leave, which takes back what kernels that failed kept. */
void pool_enter(pool *pool);
void pool_leave(int has_failed);

/* Report an error of a kernel that the calling thread runs; the first of a run is kept. */
void pool_report(const char *text);

/* Temporary memory of kernels that was planned: of the first thread, then of the others, in multiples of 64 bytes. */
typedef struct workspace {
  unsigned char *memory;
  uint64_t first_bytes, other_bytes;
  int threads;
} workspace;

/* Set what pool_borrow hands out from now on. Threads that need more, or are more, get memory of their own. */
void pool_use(pool *pool, workspace planned);

/* The text of the error that a kernel of the calling thread's pool reported, or "". */
const char *pool_error(void);

/* Temporary memory for a kernel that the calling thread runs, aligned to 64 bytes; NULL if there is none. */
void *pool_borrow(uint64_t bytes);
void pool_return(void *memory);

#endif
