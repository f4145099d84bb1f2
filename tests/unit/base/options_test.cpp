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
}

TEST(ParseBytes, RefusesZeroOverflowAndOtherText) {
  for (const char* bad :
       {"", "0", "0K", "K", "KK", "1KB", "1 K", "-1K", "1T", "4611686018427387905", "4294967297G", "18446744073709551615G"}) {
    EXPECT_FALSE(parse_bytes(bad)) << "'" << bad << "'";
  }
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
