/* Old versions of glibc's symbols, so that libraries also load on Linux distributions from 2014 (glibc 2.17).
 * Static programs have one version. */
#ifndef TUNESMITH_COMPAT_H
#define TUNESMITH_COMPAT_H

#include <features.h>

#if defined(__GLIBC__) && defined(__x86_64__) && !defined(TUNESMITH_STATIC)
#define OLD_VERSION(alias, name) __asm__(".symver " #alias "," #name "@GLIBC_2.2.5")
#elif defined(__GLIBC__) && defined(__aarch64__) && !defined(TUNESMITH_STATIC)
#define OLD_VERSION(alias, name) __asm__(".symver " #alias "," #name "@GLIBC_2.17")
#else
#define OLD_VERSION(alias, name) _Static_assert(1, "the current version is as old as the platform")
#endif

#endif
