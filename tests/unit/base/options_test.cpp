// SPDX-License-Identifier: Apache-2.0
// Numbers, sizes and the environment: base/options.hpp.
#include "base/options.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

TEST(ParseNumber, TakesWholeDecimalNumbersInRange) {
  EXPECT_EQ(parse_number("0", 0, 10), 0u);
  EXPECT_EQ(parse_number("10", 0, 10), 10u);
  EXPECT_EQ(parse_number("18446744073709551615", 0, UINT64_MAX), UINT64_MAX);
}

TEST(ParseNumber, RefusesEverythingElse) {
  for (const char* bad :
       {"", " ", "1 ", " 1", "+1", "-1", "0x10", "1.0", "1e3", "one", "11", "18446744073709551616", "99999999999999999999999"}) {
    EXPECT_FALSE(parse_number(bad, 0, 10)) << "'" << bad << "'";
  }
  EXPECT_FALSE(parse_number("0", 1, 10));
  EXPECT_FALSE(parse_number(std::string_view("5\0", 2), 0, 10));
}

TEST(ParseBytes, KnowsPowersOf1024InEitherCase) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("64k"), 65536u);
  EXPECT_EQ(parse_bytes("2M"), 2u << 20);
  EXPECT_EQ(parse_bytes("1g"), 1u << 30);
  EXPECT_EQ(parse_bytes("4611686018427387904"), std::uint64_t{1} << 62);
  EXPECT_EQ(parse_bytes("4294967296G"), std::uint64_t{1} << 62);
  for (const char* const size : {"1", "1000", "1K", "1536K", "3M", "1G", "4294967296G"})
    EXPECT_EQ(format_bytes(*parse_bytes(size)), size);
  EXPECT_EQ(format_bytes(0), "0");
}

TEST(ParseBytes, RefusesZeroOverflowAndOtherText) {
  for (const char* bad :
       {"", "0", "0K", "K", "KK", "1KB", "1 K", "-1K", "1T", "4611686018427387905", "4294967297G", "18446744073709551615G"}) {
    EXPECT_FALSE(parse_bytes(bad)) << "'" << bad << "'";
  }
}

TEST(ParseNumberList, TakesNumbersAndRangesAscendingAndOnce) {
  constexpr std::size_t kEnd = 8192;
  EXPECT_EQ(parse_number_list("0-2,8", kEnd).numbers, (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(parse_number_list("4-5,1-4,4", kEnd).numbers, (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(parse_number_list("4-5,1-4,4", kEnd).is_well_formed);
  EXPECT_TRUE(parse_number_list("", kEnd).is_well_formed);
}

TEST(ParseNumberList, LeavesOutWhatIsNoNumberAndSaysSo) {
  constexpr std::size_t kEnd = 8192;
  for (const char* bad : {",", "-", "a-b", "3-1", "-1", "0-99999999999999999999", "9000", "1-"}) {
    const NumberList parsed = parse_number_list(bad, kEnd);
    EXPECT_TRUE(parsed.numbers.empty()) << bad;
    EXPECT_FALSE(parsed.is_well_formed) << bad;
  }
  EXPECT_TRUE(parse_number_list("", kEnd).numbers.empty());
  EXPECT_EQ(parse_number_list("x,7", kEnd).numbers, std::vector<int>{7});
}

TEST(ParseNumberList, IsBoundedHoweverOftenRangesRepeat) {
  std::string repeated;
  for (int i = 0; i < 100'000; ++i) repeated += "0-8191,";
  EXPECT_EQ(parse_number_list(repeated, 8192).numbers.size(), 8192u);
}

TEST(Environment, IsReadEachTime) {
  constexpr const char* kName = "GIGABAR_TEST_VARIABLE";
  test::ScopedEnvironment unset(kName, nullptr);
  EXPECT_FALSE(environment(kName));
  {
    test::ScopedEnvironment set(kName, "");
    EXPECT_EQ(environment(kName), "");
  }
  test::ScopedEnvironment set(kName, "value");
  EXPECT_EQ(environment(kName), "value");
}

}  // namespace
}  // namespace gigabar
