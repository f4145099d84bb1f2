// SPDX-License-Identifier: Apache-2.0
// Tests that need a process of their own: what the library opens on first use is then opened by this test, with this test's
// machine.
#pragma once

#include <gtest/gtest.h>

namespace gigabar::test {

// Starts this program anew with the running test only, and runs `body` there. Fails when the test failed there (an assertion, an
// unexpected log line, a crash), or took longer than `limit_s`. A new process and not a fork of this one: sanitizers keep threads
// and tables that a fork breaks.
void run_isolated(void (*body)(), unsigned limit_s = 50);

}  // namespace gigabar::test

// TEST() whose body runs in a process of its own.
#define ISOLATED_TEST(suite, name)                                          \
  static void suite##_##name##_body();                                      \
  TEST(suite, name) { gigabar::test::run_isolated(suite##_##name##_body); } \
  static void suite##_##name##_body()
