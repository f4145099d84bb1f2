// SPDX-License-Identifier: Apache-2.0
// The scenarios of `gigabar sanity` as tests of a program: each on device 0, in a process of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "scenarios/sanity/scenario.hpp"
#include "support/failure.hpp"
#include "support/isolated.hpp"

namespace gigabar::test {

class Sanity : public testing::TestWithParam<const tool::Scenario*> {
 protected:
  static DeviceInfo first_device() { return tool::take(devices()).at(0); }
  // For run_isolated().
  static tool::Verdict judge() {
    if (const char* const socket = std::getenv(kSocket)) {
      tool::run_peer(std::atoi(socket), first_device());
      return {"pass", ""};
    }
    return tool::judge(*GetParam(), tool::Context(first_device(), peer_words));
  }

 private:
  static constexpr const char* kSocket = "GIGABAR_TEST_SOCKET";
  // The same test once more, which sees the socket.
  static std::vector<std::string> peer_words(int socket, int) {
    ::setenv(kSocket, std::to_string(socket).c_str(), 1);
    const testing::TestInfo& info = *testing::UnitTest::GetInstance()->current_test_info();
    return {"peer", std::string("--gtest_filter=") + info.test_suite_name() + "." + info.name()};
  }
};

inline std::vector<const tool::Scenario*> all_scenarios() {
  std::vector<const tool::Scenario*> all;
  for (const tool::Scenario& scenario : tool::scenarios()) all.push_back(&scenario);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Scenario, Sanity, testing::ValuesIn(all_scenarios()),
                         [](const auto& scenario) { return std::string(scenario.param->name); });

}  // namespace gigabar::test
