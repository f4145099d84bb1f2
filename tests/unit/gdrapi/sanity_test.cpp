// SPDX-License-Identifier: Apache-2.0
// The scenarios of `gigabar sanity` on two stand-ins.
#include <algorithm>
#include <array>
#include <string_view>

#include "scenarios/sanity/as_tests.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar::test {
namespace {

// Stand-in memory is cached, and nothing is behind PCIe.
constexpr std::array<std::string_view, 4> kWaived = {"force_pcie", "force_pcie_vmm", "data_force_pcie", "mixed_mappings"};

TEST_P(Sanity, HoldsOnStandIns) {
  run_isolated([] {
    const ScopedEnvironment stand_ins("GIGABAR_STAND_IN", "2");
    const bool is_waived = std::find(kWaived.begin(), kWaived.end(), GetParam()->name) != kWaived.end();
    const tool::Verdict verdict = judge();
    EXPECT_EQ(verdict.word, is_waived ? "waived" : "pass") << verdict.reason;
    EXPECT_EQ(verdict.reason.empty(), !is_waived) << verdict.reason;
  });
}

}  // namespace
}  // namespace gigabar::test
