// SPDX-License-Identifier: Apache-2.0
// The C interface as a C program uses it: the cases are C11, this file runs them over two stand-ins.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "support/scoped_environment.hpp"
#include "unit/c/check.h"
#include "unit/c/thread.h"

void report_failure(const char* file, int line, const char* what) { ADD_FAILURE_AT(file, line) << what; }

void check_refusal(const char* file, int line, const char* call, gigabar_status expected, gigabar_status got, const char* object) {
  gigabar_error error = {};
  error.struct_size = sizeof error;
  error.field_mask = GIGABAR_ERROR_ALL;
  gigabar_last_error(&error);
  const bool is_named = got == GIGABAR_OK || std::strstr(error.message, object) != nullptr;
  if (got == expected && is_named && (got == GIGABAR_OK || error.status == got)) return;
  ADD_FAILURE_AT(file, line) << call << ": " << gigabar_status_name(got) << ", not " << gigabar_status_name(expected) << ", of "
                             << object << "; the record: " << gigabar_last_error_message();
}

void run_in_thread(void (*body)(void)) { std::thread(body).join(); }

namespace {

class CInterface : public testing::Test {
 private:
  const gigabar::test::ScopedEnvironment stand_ins_{"GIGABAR_STAND_IN", "2"};
  const gigabar::test::ScopedEnvironment transports_{"GIGABAR_TRANSPORTS", "local"};
};

#define CASE(name) \
  TEST_F(CInterface, name) { case_##name(); }
#include "unit/c/cases.h"
#ifdef GIGABAR_TEST_FABRIC
#include "unit/c/fabric_cases.h"
#endif
#undef CASE

}  // namespace
