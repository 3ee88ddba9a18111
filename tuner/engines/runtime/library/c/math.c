/* Functions that kernels call, in versions that old distributions have. The linker is told to wrap these names. */
#include "compat.h"

#if defined(__GLIBC__) && defined(__x86_64__)
#define CALLED(name) old_##name
#else
#define CALLED(name) __real_##name
#endif

#define WRAP_ONE(type, name)       \
  extern type CALLED(name)(type);  \
  OLD_VERSION(old_##name, name);   \
  extern type __wrap_##name(type); \
  type __wrap_##name(type x) { return CALLED(name)(x); }

#define WRAP_TWO(type, name)             \
  extern type CALLED(name)(type, type);  \
  OLD_VERSION(old_##name, name);         \
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
