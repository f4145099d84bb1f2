// SPDX-License-Identifier: Apache-2.0
// Names of addresses: text and back.
#include <gtest/gtest.h>

#include <string>

#include "gigabar/types.hpp"

namespace gigabar {
namespace {

TEST(PciAddress, WritesTheKernelsForm) {
  EXPECT_EQ((PciAddress{0, 0x3b, 0, 0}.to_string()), "0000:3b:00.0");
  EXPECT_EQ((PciAddress{0x10000, 0xff, 0x1f, 7}.to_string()), "10000:ff:1f.7");
}

TEST(PciAddress, ReadsWithAndWithoutDomainInEitherCase) {
  EXPECT_EQ(PciAddress::parse("0000:3b:00.0"), (PciAddress{0, 0x3b, 0, 0}));
  EXPECT_EQ(PciAddress::parse("00000001:AF:1F.7"), (PciAddress{1, 0xaf, 0x1f, 7}));
  EXPECT_EQ(PciAddress::parse("3b:00.1"), (PciAddress{0, 0x3b, 0, 1}));
}

TEST(PciAddress, ReadsWhatItWrote) {
  for (const PciAddress& address : {PciAddress{0, 0, 0, 0}, PciAddress{0xfffe, 0x80, 0x10, 3}, PciAddress{0x12345, 1, 2, 3}}) {
    EXPECT_EQ(PciAddress::parse(address.to_string()), address);
  }
}

TEST(PciAddress, RefusesOtherText) {
  for (const char* bad :
       {"", ":", ".", "0000:3b:00", "3b.0", "0000:3b:00.8", "0000:3b:20.0", "0000:100:00.0", "0000:3g:00.0", "0000:3b:00.0 ",
        " 0000:3b:00.0", "0000:3b:00.", "0000::00.0", "x:0000:3b:00.0", "100000000:3b:00.0", "-1:3b:00.0", "0x0:3b:00.0"}) {
    EXPECT_FALSE(PciAddress::parse(bad)) << "'" << bad << "'";
  }
}

}  // namespace
}  // namespace gigabar
