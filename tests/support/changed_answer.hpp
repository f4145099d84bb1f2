// SPDX-License-Identifier: Apache-2.0
// A kernel module that answers otherwise than the fake machine's: what a test makes of the answers of ioctls that succeeded. One at
// a time, inside a FakeSession.
#pragma once

#include <sys/ioctl.h>

#include <functional>
#include <utility>

#include "driver/system_calls.hpp"

namespace gigabar::test {

class ChangedAnswer {
 public:
  // Called with the number of the request and its argument.
  using Change = std::function<void(unsigned, void*)>;

  explicit ChangedAnswer(Change change) : calls_(system_calls()) {
    now() = {&system_calls(), std::move(change)};
    calls_.ioctl = [](int descriptor, unsigned long request, void* argument) {
      const int result = now().before->ioctl(descriptor, request, argument);
      if (result == 0) now().change(_IOC_NR(request), argument);
      return result;
    };
    replace_system_calls(&calls_);
  }
  ~ChangedAnswer() { replace_system_calls(now().before); }
  ChangedAnswer(const ChangedAnswer&) = delete;
  ChangedAnswer& operator=(const ChangedAnswer&) = delete;

 private:
  struct Now {
    const SystemCalls* before = nullptr;
    Change change;
  };
  static Now& now() {
    static Now value;
    return value;
  }

  SystemCalls calls_;
};

}  // namespace gigabar::test
