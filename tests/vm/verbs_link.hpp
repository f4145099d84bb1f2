// SPDX-License-Identifier: Apache-2.0
// What the tests of the verbs transport between two processes share: devices of the guest by their kind, "rxe" or "siw".
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "vm/two_processes.hpp"

namespace gigabar {

using test::Side;

class VerbsLink : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (::access(("/sys/class/infiniband/" + rail(0)).c_str(), F_OK) != 0) GTEST_SKIP() << "there is no RDMA device " << rail(0);
    // siw counts pinned pages against the limit, root or not.
    const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &unlimited), 0);
  }
  static std::string rail(int side) { return std::string(GetParam()) + std::to_string(side); }
  static bool is_iwarp() { return std::string(GetParam()) == "siw"; }
  static void open(Side& side, const transport::TransportOptions& options = {}) { side.open(rail(side.index()), options); }
};

}  // namespace gigabar
