// SPDX-License-Identifier: Apache-2.0
// How documents are written.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "support/failure.hpp"
#include "support/options.hpp"
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

TEST(Row, IsOneLineOfTheTableAndOneObjectOfTheDocument) {
  Row row;
  row.add("bytes", std::uint64_t{64}, "# Size", "{:<8}").add("window", 3);
  row.show("p50 (us)", 1.25, "{:>10.1f}").add("path", "local", "Path", "{:<}").merge({{"samples", 7}});
  EXPECT_EQ(row.table_text(), "# Size      p50 (us)  Path\n64               1.2  local\n");
  EXPECT_EQ(row.document().dump(), R"({"bytes":64,"window":3,"path":"local","samples":7})");
}

TEST(SettleRange, RefusesWhatTheRuleDoesNotAllow) {
  const RangeRule rule{.usual = {4, 64}, .unit = 4, .most = 1024};
  EXPECT_EQ(settle_range("-m", "", rule).most_bytes, 64U);
  EXPECT_EQ(settle_range("-m", "8:1K", rule).least_bytes, 8U);
  EXPECT_EQ(settle_range("-m", "0:8", {.usual = {0, 8}}).least_bytes, 0U);
  for (const char* const text : {"6:12", "0:8", "8:4", "2K", "x"}) {
    try {
      settle_range("-m", text, rule);
      ADD_FAILURE() << text;
    } catch (const CommandFailure& failure) {
      const std::string message = failure.what();
      EXPECT_EQ(failure.exit_status(), kExitBadUsage);
      EXPECT_NE(message.find(std::string("-m ") + text + ": "), std::string::npos) << message;
      EXPECT_NE(message.find("a multiple of 4, and not above MAX, at most 1024, as in 4:64"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace gigabar::tool
