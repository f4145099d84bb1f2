// SPDX-License-Identifier: Apache-2.0
// A call in a process that can open nothing more.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

// UndefinedBehaviorSanitizer, which comes with AddressSanitizer here, makes a pipe for each virtual call that it checks: nothing
// works under it without descriptors. Tests that exhaust them are left out there.
#if defined(GIGABAR_SANITIZE_ADDRESS)
#define GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS 0
#else
#define GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS 1
#endif

namespace gigabar::test {

// Calls `body` while the limit on descriptors is the lowest number that is free, and answers what it answers. Check that answer
// afterwards: sanitizers and the test runner need descriptors too.
template <class Body>
auto without_descriptors(const Body& body) {
  struct Limit {
    rlimit before{};
    Limit() {
      ::getrlimit(RLIMIT_NOFILE, &before);
      const int lowest_free = ::dup(STDIN_FILENO);
      ::close(lowest_free);
      const rlimit tight{static_cast<rlim_t>(lowest_free), before.rlim_max};
      ::setrlimit(RLIMIT_NOFILE, &tight);
    }
    ~Limit() { ::setrlimit(RLIMIT_NOFILE, &before); }
  };
  const Limit limit;
  return body();
}

}  // namespace gigabar::test
