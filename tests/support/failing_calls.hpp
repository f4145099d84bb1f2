// SPDX-License-Identifier: Apache-2.0
// Calls of the C library that fail. A program that is to have them is linked with failing_calls.cpp, which stands in front of the
// C library's functions of the names listed there.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gigabar/status.hpp"

namespace gigabar::test {

// The first call of `function` after `skip` others, on any thread, fails once with `error`. One at a time.
class FailingCall {
 public:
  FailingCall(const char* function, int error, int skip = 0) noexcept;
  ~FailingCall();
  FailingCall(const FailingCall&) = delete;
  FailingCall& operator=(const FailingCall&) = delete;
  bool has_failed() const noexcept;
};

// `body` with each call of `function` that it makes failing, one after another, until none is left: the messages of its errors,
// one per line. Where nothing failed, `body` has to work.
template <class Body>
std::string errors_of_each(const char* function, int error, const Body& body) {
  std::string messages;
  for (int skip = 0; skip < 10'000; ++skip) {
    const FailingCall failing(function, error, skip);
    const Result<void> result = body();
    if (!failing.has_failed()) {
      EXPECT_TRUE(result) << function << ": " << result.message();
      return messages;
    }
    if (!result) messages += result.message() + "\n";
  }
  ADD_FAILURE() << function << " never stopped";
  return messages;
}

}  // namespace gigabar::test
