// SPDX-License-Identifier: Apache-2.0
// How documents are written.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "support/report.hpp"

namespace gigabar::tool {
namespace {

TEST(JsonText, NumbersHaveSixDigitsAtMost) {
  const Json numbers = {0.108813, 56.569827999999994, 1234567.0, 2.0, 0.0, -1.5e-9, std::numeric_limits<double>::quiet_NaN(), 7,
                        -7};
  EXPECT_EQ(json_text(numbers),
            "[\n  0.108813,\n  56.5698,\n  1.23457e+06,\n  2.0,\n  0.0,\n  -1.5e-09,\n  null,\n  7,\n  -7\n]\n");
}

TEST(JsonText, IsReadAsWhatWasWritten) {
  Json document;
  document["text"] = "a \"quote\", a\nline, \x01";
  document["empty"] = {{"list", Json::array()}, {"object", Json::object()}, {"text", ""}};
  document["list"] = {1, {{"deep", {true, nullptr}}}};
  document["a \"key\""] = 0.25;
  EXPECT_EQ(Json::parse(json_text(document)), document);
}

TEST(JsonText, BytesThatAreNoTextAreReplaced) { EXPECT_EQ(json_text(Json("a\xff")), "\"a\xEF\xBF\xBD\"\n"); }

}  // namespace
}  // namespace gigabar::tool
