#define _GNU_SOURCE
#include "cpu.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };

/* States of registers that the operating system must save, as in XCR0. */
enum { YMM = 0x6, ZMM = 0xe6, TILES = 0x60000, MORE = 0x80000 };

/* targets.py has the same names. */
static const struct feature {
  const char *name; /* LLVM's */
  uint32_t leaf, subleaf;
  uint8_t word, bit;
  uint32_t state;
} features[] = {
    {"sse3", 1, 0, ECX, 0, 0},
    {"ssse3", 1, 0, ECX, 9, 0},
    {"fma", 1, 0, ECX, 12, YMM},
    {"sse4.1", 1, 0, ECX, 19, 0},
    {"sse4.2", 1, 0, ECX, 20, 0},
    {"movbe", 1, 0, ECX, 22, 0},
    {"popcnt", 1, 0, ECX, 23, 0},
    {"avx", 1, 0, ECX, 28, YMM},
    {"f16c", 1, 0, ECX, 29, YMM},
    {"bmi", 7, 0, EBX, 3, 0},
    {"avx2", 7, 0, EBX, 5, YMM},
    {"bmi2", 7, 0, EBX, 8, 0},
    {"avx512f", 7, 0, EBX, 16, ZMM},
    {"avx512dq", 7, 0, EBX, 17, ZMM},
    {"avx512ifma", 7, 0, EBX, 21, ZMM},
    {"avx512cd", 7, 0, EBX, 28, ZMM},
    {"avx512bw", 7, 0, EBX, 30, ZMM},
    {"avx512vl", 7, 0, EBX, 31, ZMM},
    {"avx512vbmi", 7, 0, ECX, 1, ZMM},
    {"avx512vbmi2", 7, 0, ECX, 6, ZMM},
    {"gfni", 7, 0, ECX, 8, 0},
    {"avx512vnni", 7, 0, ECX, 11, ZMM},
    {"avx512bitalg", 7, 0, ECX, 12, ZMM},
    {"avx512vpopcntdq", 7, 0, ECX, 14, ZMM},
    {"amx-bf16", 7, 0, EDX, 22, TILES},
    {"avx512fp16", 7, 0, EDX, 23, ZMM},
    {"amx-tile", 7, 0, EDX, 24, TILES},
    {"amx-int8", 7, 0, EDX, 25, TILES},
    {"avxvnni", 7, 1, EAX, 4, YMM},
    {"avx512bf16", 7, 1, EAX, 5, ZMM},
    {"amx-fp16", 7, 1, EAX, 21, TILES},
    {"avxifma", 7, 1, EAX, 23, YMM},
    {"avxvnniint8", 7, 1, EDX, 4, YMM},
    {"avxneconvert", 7, 1, EDX, 5, YMM},
    {"amx-complex", 7, 1, EDX, 8, TILES},
    {"avxvnniint16", 7, 1, EDX, 10, YMM},
    /* The parts of APX. */
    {"ccmp", 7, 1, EDX, 21, MORE},
    {"egpr", 7, 1, EDX, 21, MORE},
    {"ndd", 7, 1, EDX, 21, MORE},
    {"nf", 7, 1, EDX, 21, MORE},
    {"ppx", 7, 1, EDX, 21, MORE},
    {"push2pop2", 7, 1, EDX, 21, MORE},
    {"zu", 7, 1, EDX, 21, MORE},
    {"amx-fp8", 0x1e, 1, EAX, 4, TILES},
    {"amx-tf32", 0x1e, 1, EAX, 6, TILES},
    {"amx-avx512", 0x1e, 1, EAX, 7, TILES},
    {"amx-movrs", 0x1e, 1, EAX, 8, TILES},
    {"lzcnt", 0x80000001, 0, ECX, 5, 0},
    {"sse4a", 0x80000001, 0, ECX, 6, 0},
    {"xop", 0x80000001, 0, ECX, 11, YMM},
    {"fma4", 0x80000001, 0, ECX, 16, YMM},
    {"tbm", 0x80000001, 0, ECX, 21, 0},
};

static uint32_t saved_states(void) {
  uint32_t words[4] = {0}, low = 0, high = 0;
  enum { OSXSAVE = 27 };
  if (!__get_cpuid(1, &words[EAX], &words[EBX], &words[ECX], &words[EDX]) || !(words[ECX] >> OSXSAVE & 1)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static int has(const struct feature *feature, uint32_t states) {
  uint32_t words[4] = {0};
  return __get_cpuid_count(feature->leaf, feature->subleaf, &words[EAX], &words[EBX], &words[ECX], &words[EDX]) &&
         (words[feature->word] >> feature->bit & 1) && (states & feature->state) == feature->state;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

/* Linux's flags, arch/arm64/include/uapi/asm/hwcap.h. targets.py has the same names. */
static const struct feature {
  const char *name; /* LLVM's */
  unsigned long word;
  int bit;
} features[] = {
    {"fp-armv8", AT_HWCAP, 0}, {"neon", AT_HWCAP, 1},       {"lse", AT_HWCAP, 8},    {"fullfp16", AT_HWCAP, 10},
    {"rdm", AT_HWCAP, 12},     {"complxnum", AT_HWCAP, 14}, {"rcpc", AT_HWCAP, 15},  {"dotprod", AT_HWCAP, 20},
    {"sve", AT_HWCAP, 22},     {"fp16fml", AT_HWCAP, 23},   {"sve2", AT_HWCAP2, 1},  {"i8mm", AT_HWCAP2, 13},
    {"bf16", AT_HWCAP2, 14},   {"cssc", AT_HWCAP2, 34},     {"mops", AT_HWCAP2, 43}, {"sve-b16b16", AT_HWCAP2, 45},
};

static uint32_t saved_states(void) { return 0; }

static int has(const struct feature *feature, uint32_t states) {
  (void)states;
  return getauxval(feature->word) >> feature->bit & 1;
}
#else
static const struct feature {
  const char *name;
} features[] = {{""}};

static uint32_t saved_states(void) { return 0; }

static int has(const struct feature *feature, uint32_t states) {
  (void)feature, (void)states;
  return 1;
}
#endif

static int is_missing(const char *name, uint32_t states) {
  for (size_t i = 0; i < sizeof features / sizeof *features; ++i)
    if (!strcmp(features[i].name, name)) return !has(&features[i], states);
  return 0;
}

int cpu_missing(const char *const *needed, char *names, size_t room) {
  const uint32_t states = saved_states();
  size_t used = 0;
  for (; *needed; ++needed)
    if (is_missing(*needed, states) && used < room)
      used += (size_t)snprintf(names + used, room - used, "%s%s", used ? ", " : "", *needed);
  return used > 0;
}

/* Before the paths of system files; tests put another folder there. */
#ifndef ROOT
#define ROOT ""
#endif

enum { PATH_SIZE = 4400, LINE_SIZE = 4200 };

/* Parse digits. Not by sscanf or strtoull: headers of glibc 2.38 and later bind these to symbols of that release. */
static uint64_t number(const char *text) {
  uint64_t value = 0;
  for (; *text >= '0' && *text <= '9'; ++text) value = value * 10 + (uint64_t)(*text - '0');
  return value;
}

/* Read the first line of a file of a cgroup; return whether there is one. */
static int read_line(const char *mount, const char *group, const char *name, char *line, int size) {
  char path[PATH_SIZE];
  snprintf(path, sizeof path, ROOT "/sys/fs/cgroup%s%s/%s", mount, group, name);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  const int is_read = fgets(line, size, file) != NULL;
  fclose(file);
  return is_read;
}

/* Return the CPUs of a cgroup's quota rounded up, or 0 without a quota, which is "max" in version 2 and -1 in 1. */
static int quota(const char *mount, const char *group) {
  char granted[64], period[64];
  const char *second = period;
  if (read_line(mount, group, "cpu.max", granted, sizeof granted)) {
    second = granted + strcspn(granted, " ");
    second += *second == ' ';
  } else if (!read_line(mount, group, "cpu.cfs_quota_us", granted, sizeof granted) ||
             !read_line(mount, group, "cpu.cfs_period_us", period, sizeof period)) {
    return 0;
  }
  const uint64_t time = number(granted), of = number(second);
  if (!time || !of) return 0;
  return time / of < CPU_SETSIZE ? (int)((time + of - 1) / of) : CPU_SETSIZE;
}

/* Return the smallest quota of a cgroup and those above it. */
static int least_quota(const char *mount, char *group) {
  int least = 0;
  for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
    *end = '\0';
    const int cpus = quota(mount, group);
    if (cpus && (!least || cpus < least)) least = cpus;
  }
  return least;
}

static int has_cpu(const char *controllers) {
  for (size_t length; *controllers; controllers += length + (controllers[length] == ',')) {
    length = strcspn(controllers, ",");
    if (length == 3 && !strncmp(controllers, "cpu", length)) return 1;
  }
  return 0;
}

/* The smallest quota of the process's cgroups. Lines are NUMBER:CONTROLLERS:GROUP, version 2 without controllers. */
static int cgroup_cpus(void) {
  char line[LINE_SIZE];
  int least = 0;
  FILE *file = fopen(ROOT "/proc/self/cgroup", "re");
  if (!file) return 0;
  while (fgets(line, sizeof line, file)) {
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (*++controllers && !has_cpu(controllers)) continue;
    const int cpus = least_quota(*controllers ? "/cpu" : "", group);
    if (cpus && (!least || cpus < least)) least = cpus;
  }
  fclose(file);
  return least;
}

int cpu_allowed(void) {
  cpu_set_t mask;
  int cpus = sched_getaffinity(0, sizeof mask, &mask) ? 1 : CPU_COUNT(&mask);
  int granted = cgroup_cpus();
  if (granted && granted < cpus) cpus = granted;
  return cpus > 0 ? cpus : 1;
}

void cpu_pin(int position) {
  cpu_set_t mask, one;
  if (sched_getaffinity(0, sizeof mask, &mask)) return;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask) || position-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}
