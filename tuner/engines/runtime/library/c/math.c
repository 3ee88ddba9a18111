/* Functions that kernels call, in versions that old distributions have. The linker is told to wrap these names. */
#include <features.h>

/* glibc's first versions of these names check for errors around the function itself, which doubles the time of expf;
 * the names for compilers with -ffinite-math-only lead to the function, the same one as its newest version. */
#if defined(__GLIBC__) && defined(__x86_64__)
#define FINITE_SINCE "GLIBC_2.15"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define FINITE_SINCE "GLIBC_2.17"
#endif

#ifdef FINITE_SINCE
#define CALLED(name) finite_##name
#define BIND(name) __asm__(".symver finite_" #name ",__" #name "_finite@" FINITE_SINCE)
#else
#define CALLED(name) __real_##name
#define BIND(name) _Static_assert(1, "the current version is as old as the platform")
#endif

#define WRAP_ONE(type, name)       \
  extern type CALLED(name)(type);  \
  BIND(name);                      \
  extern type __wrap_##name(type); \
  type __wrap_##name(type x) { return CALLED(name)(x); }

#define WRAP_TWO(type, name)             \
  extern type CALLED(name)(type, type);  \
  BIND(name);                            \
  extern type __wrap_##name(type, type); \
  type __wrap_##name(type x, type y) { return CALLED(name)(x, y); }

WRAP_ONE(float, expf)
WRAP_ONE(float, exp2f)
WRAP_ONE(float, logf)
WRAP_ONE(float, log2f)
WRAP_TWO(float, powf)
WRAP_ONE(double, exp)
WRAP_ONE(double, exp2)
WRAP_ONE(double, log)
WRAP_ONE(double, log2)
WRAP_TWO(double, pow)
WRAP_TWO(double, fmod)
WRAP_TWO(float, fmodf)
