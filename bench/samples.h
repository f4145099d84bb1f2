/* SPDX-License-Identifier: Apache-2.0 */
/* Times and their median, for the C programs of this folder. */
#ifndef GIGABAR_BENCH_SAMPLES_H
#define GIGABAR_BENCH_SAMPLES_H

#include <stdlib.h>
#include <time.h>

static inline double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static inline int compare_samples(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Sorts them: the least is the first one afterwards. */
static inline double median_of(double* samples, size_t count) {
  qsort(samples, count, sizeof *samples, compare_samples);
  return samples[count / 2];
}

#endif
