/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GIGABAR_TESTS_UNIT_C_THREAD_H
#define GIGABAR_TESTS_UNIT_C_THREAD_H

#ifdef __cplusplus
extern "C" {
#endif

/* Runs `body` in a thread of its own, and returns when it has ended. */
void run_in_thread(void (*body)(void));

#ifdef __cplusplus
}
#endif

#endif
