/* What this CPU and this process may use. */
#ifndef TUNESMITH_CPU_H
#define TUNESMITH_CPU_H

#include <stddef.h>

/* Return whether this CPU or its operating system lacks some of the features, a list ended by NULL, that compilers emit
 * instructions for, and write their names, as many as there is room for. */
int cpu_missing(const char *const *features, char *names, size_t room);

/* Return the number of CPUs that the affinity mask and the cgroup's quota allow, at least 1. */
int cpu_allowed(void);

/* Keep the calling thread on the CPU of this position in its affinity mask, counted from 0. */
void cpu_pin(int position);

/* Tell the CPU that the calling thread waits in a loop. */
static inline void cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

#endif
