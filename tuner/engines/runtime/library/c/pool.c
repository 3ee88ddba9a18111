#define _GNU_SOURCE
#include "pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compat.h"
#include "cpu.h"

OLD_VERSION(pthread_create, pthread_create);
OLD_VERSION(pthread_join, pthread_join);
OLD_VERSION(pthread_sigmask, pthread_sigmask);

enum {
  ALIGNMENT = 64,
  KEPT_BLOCKS = 16,
  YIELDS = 100,       /* between runs: some ten microseconds on an idle machine */
  YIELDS_IN_RUN = 500 /* within a run: some hundred */
};

typedef struct block {
  void *memory;
  uint64_t bytes;
  int used;
} block;

typedef struct worker {
  pool *pool;
  int number;
  pthread_t thread;
  atomic_uint claimed;       /* the latest round of which its task was taken, by itself or the caller */
  uint64_t borrowed;         /* bytes of its part of pool.planned */
  block blocks[KEPT_BLOCKS]; /* of temporary memory beyond that, kept for the next kernels */
} worker;

struct pool {
  int threads, spins, pin;
  /* The current launch. Written before round is increased, read after. */
  task_body body;
  void *closure;
  int tasks;
  workspace planned; /* likewise */
  /* Words that threads wait for lie in cache lines of their own. */
  _Alignas(ALIGNMENT) atomic_uint round;
  atomic_int sleepers;
  atomic_int running; /* from pool_enter to pool_leave */
  atomic_int stopping;
  _Alignas(ALIGNMENT) atomic_uint pending; /* tasks of workers that are not done */
  atomic_int caller_sleeps;
  atomic_int failed;
  _Alignas(ALIGNMENT) atomic_int arrived;
  atomic_int barriers;
  atomic_int reported;
  char error[256];
  atomic_int *cpus; /* on which each thread was when it began its latest task; -1 before that */
  worker workers[];
};

static _Thread_local worker *self;

static void futex_wait(atomic_uint *word, unsigned seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

/* Look at a word until it differs from seen, for a bounded time: longer within a run, whose next launch comes soon. But
 * others may need the CPU, so yield early. */
static int changed_soon(const pool *pool, atomic_uint *word, unsigned seen) {
  for (int i = 0; i < pool->spins; ++i) {
    if (atomic_load_explicit(word, memory_order_acquire) != seen) return 1;
    cpu_relax();
  }
  for (int all = 0, idle = 0; pool->spins && all < YIELDS_IN_RUN && idle < YIELDS; ++all) {
    if (atomic_load_explicit(word, memory_order_acquire) != seen) return 1;
    idle = atomic_load_explicit(&pool->running, memory_order_relaxed) ? 0 : idle + 1;
    sched_yield();
  }
  return 0;
}

static void wait_for_round(pool *pool, unsigned seen) {
  if (changed_soon(pool, &pool->round, seen)) return;
  atomic_fetch_add(&pool->sleepers, 1);
  while (atomic_load(&pool->round) == seen) futex_wait(&pool->round, seen);
  atomic_fetch_sub(&pool->sleepers, 1);
}

static void wait_for_workers(pool *pool) {
  for (unsigned left; (left = atomic_load(&pool->pending)) != 0;) {
    if (changed_soon(pool, &pool->pending, left)) continue;
    atomic_store(&pool->caller_sleeps, 1);
    while ((left = atomic_load(&pool->pending)) != 0) futex_wait(&pool->pending, left);
    atomic_store(&pool->caller_sleeps, 0);
  }
}

/* Move to a CPU of the affinity mask on which no thread with a lower number is. */
static void move(const pool *pool, int number) {
  cpu_set_t allowed, free;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
  free = allowed;
  for (int i = 0; i < number; ++i) {
    const int cpu = atomic_load_explicit(&pool->cpus[i], memory_order_relaxed);
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR((size_t)cpu, &free);
  }
  if (CPU_COUNT(&free) && !sched_setaffinity(0, sizeof free, &free)) sched_setaffinity(0, sizeof allowed, &allowed);
}

static int note_cpu(const pool *pool, int number) {
  const int cpu = sched_getcpu();
  /* Other threads read it often. */
  if (cpu != atomic_load_explicit(&pool->cpus[number], memory_order_relaxed))
    atomic_store_explicit(&pool->cpus[number], cpu, memory_order_relaxed);
  return cpu;
}

/* The scheduler may put a thread that it wakes on the CPU of another, and leave both there for tens of milliseconds. */
static void keep_apart(const pool *pool, int number) {
  const int cpu = note_cpu(pool, number);
  for (int i = 0; i < number; ++i)
    if (atomic_load_explicit(&pool->cpus[i], memory_order_relaxed) == cpu) {
      move(pool, number);
      note_cpu(pool, number);
      return;
    }
}

/* Take the task of a thread in a round; return whether nobody else did before. */
static int claim(worker *of, unsigned round) {
  unsigned before = round - 1;
  return atomic_compare_exchange_strong(&of->claimed, &before, round);
}

static void run_task(pool *pool, int number) {
  task_group group = {pool, pool->tasks};
  if (pool->body(number, &group, pool->closure)) atomic_store(&pool->failed, 1);
}

static void *work(void *argument) {
  worker *mine = argument;
  pool *pool = mine->pool;
  self = mine;
  if (pool->pin) cpu_pin(mine->number);
  /* Not the current round: a launch may precede the start of this thread. */
  for (unsigned seen = 0;;) {
    wait_for_round(pool, seen);
    keep_apart(pool, mine->number);
    seen = atomic_load(&pool->round);
    if (atomic_load(&pool->stopping)) return NULL;
    if (!claim(mine, seen)) continue;
    run_task(pool, mine->number);
    if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->caller_sleeps)) futex_wake(&pool->pending);
  }
}

static void next_round(pool *pool) {
  atomic_fetch_add(&pool->round, 1);
  if (atomic_load(&pool->sleepers)) futex_wake(&pool->round);
}

static void stop(pool *pool, int started) {
  atomic_store(&pool->stopping, 1);
  next_round(pool);
  for (int i = 1; i < started; ++i) pthread_join(pool->workers[i].thread, NULL);
}

/* Kernels that fail keep what they borrowed. */
static void take_back(pool *pool) {
  for (int i = 0; i < pool->threads; ++i) {
    pool->workers[i].borrowed = 0;
    for (int j = 0; j < KEPT_BLOCKS; ++j) pool->workers[i].blocks[j].used = 0;
  }
}

int pool_restart(pool *pool) {
  atomic_store(&pool->round, 0);
  atomic_store(&pool->sleepers, 0);
  atomic_store(&pool->running, 0);
  atomic_store(&pool->stopping, 0);
  atomic_store(&pool->pending, 0);
  atomic_store(&pool->caller_sleeps, 0);
  atomic_store(&pool->arrived, 0);
  for (int i = 0; i < pool->threads; ++i) {
    atomic_store(&pool->workers[i].claimed, 0);
    atomic_store(&pool->cpus[i], -1);
  }
  take_back(pool);
  /* Signals are for the program's threads. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int started = 1;
  while (started < pool->threads &&
         !pthread_create(&pool->workers[started].thread, NULL, work, &pool->workers[started]))
    ++started;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (started == pool->threads) return 0;
  stop(pool, started);
  return -1;
}

pool *pool_create(int threads, int spins, int pin) {
  size_t bytes = sizeof(pool) + (size_t)threads * (sizeof(worker) + sizeof(atomic_int));
  bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  pool *made = aligned_alloc(ALIGNMENT, bytes);
  if (!made) return NULL;
  memset(made, 0, bytes);
  made->threads = threads;
  made->spins = spins;
  made->pin = pin;
  made->cpus = (atomic_int *)&made->workers[threads];
  for (int i = 0; i < threads; ++i) {
    made->workers[i].pool = made;
    made->workers[i].number = i;
  }
  if (!pool_restart(made)) return made;
  free(made);
  return NULL;
}

void pool_destroy(pool *pool, int has_threads) {
  if (has_threads) stop(pool, pool->threads);
  for (int i = 0; i < pool->threads; ++i)
    for (int j = 0; j < KEPT_BLOCKS; ++j) free(pool->workers[i].blocks[j].memory);
  free(pool);
}

int pool_threads(const pool *pool) { return pool->threads; }

void pool_enter(pool *pool) {
  self = &pool->workers[0];
  atomic_store_explicit(&pool->reported, 0, memory_order_relaxed);
  pool->error[0] = '\0';
  atomic_store_explicit(&pool->running, 1, memory_order_relaxed);
}

void pool_leave(int has_failed) {
  if (has_failed) take_back(self->pool);
  atomic_store_explicit(&self->pool->running, 0, memory_order_relaxed);
  self = NULL;
}

void pool_use(pool *pool, workspace planned) { pool->planned = planned; }

const char *pool_error(void) { return self->pool->error; }

/* The calling thread's part of the planned memory. */
static unsigned char *planned(uint64_t *bytes) {
  const workspace *all = &self->pool->planned;
  const int number = self->number;
  *bytes = !number ? all->first_bytes : number < all->threads ? all->other_bytes : 0;
  return number ? all->memory + all->first_bytes + (uint64_t)(number - 1) * *bytes : all->memory;
}

void *pool_borrow(uint64_t bytes) {
  uint64_t room;
  unsigned char *memory = planned(&room);
  if (bytes <= room - self->borrowed) {
    memory += self->borrowed;
    self->borrowed += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return memory;
  }
  block *best = NULL, *spare = NULL;
  for (block *each = self->blocks; each < self->blocks + KEPT_BLOCKS; ++each) {
    if (each->used) continue;
    spare = each;
    if (each->bytes >= bytes && each->memory && (!best || each->bytes < best->bytes)) best = each;
  }
  if (!best && spare) {
    free(spare->memory);
    spare->bytes = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    spare->memory = aligned_alloc(ALIGNMENT, spare->bytes);
    best = spare;
  }
  /* A kernel with more blocks than are kept is none that TVM makes. */
  if (!best || !best->memory) return NULL;
  best->used = 1;
  return best->memory;
}

void pool_return(void *memory) {
  uint64_t room;
  const uintptr_t offset = (uintptr_t)memory - (uintptr_t)planned(&room);
  if (offset < room) {
    /* Kernels return all that a scope borrowed at its end, in any order. */
    if (offset < self->borrowed) self->borrowed = offset;
    return;
  }
  for (block *each = self->blocks; each < self->blocks + KEPT_BLOCKS; ++each)
    if (each->memory == memory) each->used = 0;
}

void pool_report(const char *text) {
  if (!atomic_exchange(&self->pool->reported, 1)) snprintf(self->pool->error, sizeof self->pool->error, "%s", text);
}

/* What follows are the functions of TVM's runtime that kernels call; calls.c has those that they call by name. */

static int parallel_launch(task_body body, void *closure, int tasks) {
  pool *pool = self->pool;
  if (self->number || pool->threads == 1 || tasks == 1) {
    task_group alone = {NULL, 1};
    return body(0, &alone, closure);
  }
  pool->body = body;
  pool->closure = closure;
  pool->tasks = tasks > 0 && tasks < pool->threads ? tasks : pool->threads;
  note_cpu(pool, 0);
  const unsigned round = atomic_load(&pool->round) + 1;
  for (int i = pool->tasks; i < pool->threads; ++i) atomic_store(&pool->workers[i].claimed, round);
  atomic_store_explicit(&pool->failed, 0, memory_order_relaxed);
  atomic_store_explicit(&pool->pending, (unsigned)pool->tasks - 1, memory_order_relaxed);
  next_round(pool);
  run_task(pool, 0);
  /* Threads that are not awake yet would only be waited for. Tasks that meet at barriers have all begun by now. */
  for (int i = 1; i < pool->tasks; ++i)
    if (claim(&pool->workers[i], round)) {
      run_task(pool, i);
      atomic_fetch_sub(&pool->pending, 1);
    }
  wait_for_workers(pool);
  return atomic_load_explicit(&pool->failed, memory_order_relaxed) ? -1 : 0;
}

static int parallel_barrier(int task, task_group *group) {
  (void)task;
  pool *pool = group->sync;
  if (group->tasks == 1) return 0;
  int passed = atomic_load(&pool->barriers);
  if (atomic_fetch_add(&pool->arrived, 1) == group->tasks - 1) {
    atomic_store(&pool->arrived, 0);
    atomic_fetch_add(&pool->barriers, 1);
    return 0;
  }
  while (atomic_load(&pool->barriers) == passed) sched_yield();
  return 0;
}

static void *alloc_workspace(int device, int device_id, uint64_t bytes, int code, int bits) {
  (void)device, (void)device_id, (void)code, (void)bits;
  return pool_borrow(bytes);
}

static int free_workspace(int device, int device_id, void *memory) {
  (void)device, (void)device_id;
  pool_return(memory);
  return 0;
}

/* The objects of kernels hold weak definitions of these pointers, all null. */
extern int (*__TVMBackendParallelLaunch)(task_body, void *, int);
extern int (*__TVMBackendParallelBarrier)(int, task_group *);
extern void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
extern int (*__TVMBackendFreeWorkspace)(int, int, void *);
extern void (*__TVMAPISetLastError)(const char *);

int (*__TVMBackendParallelLaunch)(task_body, void *, int) = parallel_launch;
int (*__TVMBackendParallelBarrier)(int, task_group *) = parallel_barrier;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = alloc_workspace;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = free_workspace;
void (*__TVMAPISetLastError)(const char *) = pool_report;

/* TVM 0.27 reports errors in parts. */
extern void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  char text[sizeof self->pool->error];
  size_t used = (size_t)snprintf(text, sizeof text, "%s: ", kind);
  for (int32_t i = 0; i < count && used < sizeof text; ++i)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s", parts[i]);
  pool_report(text);
}
