// SPDX-License-Identifier: Apache-2.0
// What the two sides of a rank's process call things.
#pragma once

namespace gigabar::test {

inline constexpr const char* kBodyVariable = "GIGABAR_TEST_BODY";
inline constexpr const char* kRankVariable = "GIGABAR_TEST_RANK";  // RANK may be unset by a test
inline constexpr const char* kSetupVariable = "GIGABAR_TEST_SETUP";
inline constexpr const char* kControlVariable = "GIGABAR_TEST_CONTROL";

// On the control socket, beside the words of bodies.
inline constexpr const char* kMeet = "meet";
inline constexpr const char* kMet = "met";
inline constexpr const char* kGone = "another rank ended before";

}  // namespace gigabar::test
