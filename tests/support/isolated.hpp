// Tests that need a process of their own: what the library opens on first use is then opened by this test, with this test's
// machine.
#pragma once

#include <gtest/gtest.h>

namespace gigabar::test {

// Runs `body` in a forked child and fails when an assertion failed there, when it logged a warning or error that it did not take
// with take_log(), when it died, or when it took longer than `limit_s`. The caller must have one thread and must not have used a
// driver.
void run_isolated(void (*body)(), unsigned limit_s = 50);

}  // namespace gigabar::test

// TEST() whose body runs in a forked child.
#define ISOLATED_TEST(suite, name)                                          \
  static void suite##_##name##_body();                                      \
  TEST(suite, name) { gigabar::test::run_isolated(suite##_##name##_body); } \
  static void suite##_##name##_body()
