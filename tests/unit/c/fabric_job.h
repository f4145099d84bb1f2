/* SPDX-License-Identifier: Apache-2.0 */
/* A job of one rank, which is its own peer, and its segment. */
#ifndef GIGABAR_TESTS_UNIT_C_FABRIC_JOB_H
#define GIGABAR_TESTS_UNIT_C_FABRIC_JOB_H

#include "unit/c/check.h"

#define PATIENCE_NS INT64_C(20000000000)
#define SEGMENT 3

typedef struct Job {
  gigabar_fabric* fabric;
  unsigned char* memory; /* 8192 bytes of host memory, which are the segment */
} Job;

Job open_job(void);
void close_job(Job job);

#endif
