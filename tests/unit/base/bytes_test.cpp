// SPDX-License-Identifier: Apache-2.0
// base/bytes.hpp: what processes write to each other is the same on every machine, and nothing is read that is not there.
#include "base/bytes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

namespace gigabar {
namespace {

const std::string kWritten("MAGI\x01\x02\x01\x04\x03\x02\x01\x02\0\0\0hixyz", 20);

TEST(Bytes, AreWrittenInTheirOrder) {
  ByteWriter writer("MAGI");
  writer.number(std::uint8_t{1}).number(std::uint16_t{0x0102}).number(std::uint32_t{0x01020304}).string("hi").bytes("xyz");
  EXPECT_EQ(writer.take(), kWritten);
}

TEST(Bytes, AreReadInTheirOrder) {
  ByteReader reader(kWritten);
  EXPECT_EQ(reader.bytes(4), "MAGI");
  EXPECT_EQ(reader.number<std::uint8_t>(), 1);
  EXPECT_EQ(reader.number<std::uint16_t>(), 0x0102);
  EXPECT_EQ(reader.number<std::uint32_t>(), 0x01020304U);
  EXPECT_EQ(reader.offset(), 11U);
  EXPECT_EQ(reader.string(2), "hi");
  EXPECT_FALSE(reader.is_done()) << "three are left";
  EXPECT_EQ(reader.array<3>(), (std::array<std::uint8_t, 3>{'x', 'y', 'z'}));
  EXPECT_TRUE(reader.is_ok() && reader.is_done());
}

TEST(Bytes, ThatAreMissingAreZeros) {
  ByteReader reader(std::string_view("\xff\xff\xff", 3));
  EXPECT_EQ(reader.number<std::uint32_t>(), 0U);
  EXPECT_FALSE(reader.is_ok() || reader.is_done());
  EXPECT_EQ(reader.offset(), 0U);
  EXPECT_EQ(reader.number<std::uint8_t>(), 0) << "also what would be there";
  EXPECT_EQ(reader.bytes(1), "");
  EXPECT_EQ(reader.string(9), "");
  EXPECT_EQ(reader.array<2>(), (std::array<std::uint8_t, 2>{}));
  ByteReader none("");
  EXPECT_TRUE(none.is_done());
  EXPECT_EQ(none.bytes(0), "");
  EXPECT_TRUE(none.is_ok());
}

TEST(Bytes, OfAStringAreBounded) {
  EXPECT_EQ(ByteReader(std::string_view("\x03\0\0\0abc", 7)).string(3), "abc");
  for (const std::string_view bytes : {std::string_view("\x03\0\0\0abc", 7), std::string_view("\xff\xff\xff\xff", 4)}) {
    ByteReader reader(bytes);
    EXPECT_EQ(reader.string(2), "");
    EXPECT_FALSE(reader.is_ok());
  }
  ByteReader cut(std::string_view("\x03\0\0\0ab", 6));
  EXPECT_EQ(cut.string(100), "");
  EXPECT_FALSE(cut.is_ok());
}

TEST(Bytes, ThatAreWrongEndTheReading) {
  ByteReader reader("ab");
  reader.expect(reader.number<std::uint8_t>() == 'x');
  reader.expect(true);
  EXPECT_FALSE(reader.is_ok());
  EXPECT_EQ(reader.number<std::uint8_t>(), 0);
}

}  // namespace
}  // namespace gigabar
