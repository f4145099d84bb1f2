/* SPDX-License-Identifier: Apache-2.0 */
/* What the test asks of the C program. */
#ifndef GIGABAR_TESTS_GDRAPI_CONSUMER_H
#define GIGABAR_TESTS_GDRAPI_CONSUMER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens, pins, maps, copies `bytes` to `d_ptr` and back, closes. Returns 0, or the line that did not hold. */
int consumer_flow(unsigned long d_ptr, size_t bytes, const unsigned char* source, unsigned char* back);

/* sizeof(gdr_info_t) as C sees it. */
size_t consumer_info_bytes(void);

#ifdef __cplusplus
}
#endif

#endif
