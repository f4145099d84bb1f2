/* SPDX-License-Identifier: Apache-2.0 */
/* What the C tests of the C interface say to GoogleTest. */
#ifndef GIGABAR_TESTS_UNIT_C_CHECK_H
#define GIGABAR_TESTS_UNIT_C_CHECK_H

#include <gigabar.h>

#ifdef __cplusplus
extern "C" {
#endif

void report_failure(const char* file, int line, const char* what);

/* The call has failed with `expected`, and the record of this thread names `object`. */
void check_refusal(const char* file, int line, const char* call, gigabar_status expected, gigabar_status got, const char* object);

#define CHECK(condition) ((condition) ? (void)0 : report_failure(__FILE__, __LINE__, #condition))
#define CHECK_OK(call) ((call) == GIGABAR_OK ? (void)0 : report_failure(__FILE__, __LINE__, gigabar_last_error_message()))
#define CHECK_REFUSED(expected, object, call) check_refusal(__FILE__, __LINE__, #call, expected, call, object)

#define CASE(name) void case_##name(void);
#include "unit/c/cases.h"
#include "unit/c/fabric_cases.h"
#undef CASE

#ifdef __cplusplus
}
#endif

#endif
