// SPDX-License-Identifier: Apache-2.0
// Configuration space from bytes: platform/pci_config.hpp. Every register is set by hand, at the place the specification gives it.
#include "platform/pci_config.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "unit/platform/config_space.hpp"

namespace gigabar {
namespace {

using test::ConfigSpace;

PciConfig parsed(const std::string& bytes) {
  const auto config = PciConfig::parse(bytes);
  EXPECT_TRUE(config);
  return config.value_or(PciConfig{});
}

TEST(PciConfig, HeaderAndHowMuchOfItThereIs) {
  ConfigSpace space(0x15b3, 0x1021);
  EXPECT_FALSE(PciConfig::parse(""));
  EXPECT_FALSE(PciConfig::parse(space.bytes(63)));
  const PciConfig header = parsed(space.bytes(64));
  EXPECT_EQ(header.bytes, 64U);
  EXPECT_FALSE(header.is_gone);
  EXPECT_EQ(parsed(space.bytes() + "beyond").bytes, 4096U);
}

TEST(PciConfig, ExpressCapability) {
  ConfigSpace space;
  space.capability(0x40, 0x01, 0x50).capability(0x50, 0x05, 0x60).capability(0x60, 0x10);
  space.word(0x62, 0x0062);  // a downstream port, version 2
  space.word(0x68, 0x5950);  // reads of 4096, no snoop, extended tags, payload of 512, relaxed ordering
  const PciConfig config = parsed(space.bytes());
  ASSERT_TRUE(config.express);
  EXPECT_FALSE(config.express.is_absent());
  EXPECT_EQ(config.express->payload_bytes, 512U);
  EXPECT_EQ(config.express->most_read_request_bytes, 4096U);
  EXPECT_TRUE(config.express->has_relaxed_ordering);
}

TEST(PciConfig, ClearedBitsAndReservedSizes) {
  ConfigSpace space;
  space.express(0, 0x70c0);
  const PciConfig config = parsed(space.bytes());
  ASSERT_TRUE(config.express);
  EXPECT_FALSE(config.express->payload_bytes) << "6 is reserved";
  EXPECT_FALSE(config.express->most_read_request_bytes) << "7 is reserved";
  EXPECT_FALSE(config.express->has_relaxed_ordering);
}

TEST(PciConfig, ExtendedCapabilities) {
  ConfigSpace space;
  space.express(6).extended(0x100, 0x0001, 0x148).extended(0x148, 0x000d, 0x200).extended(0x200, 0x000f);
  space.word(0x14c, 0x005f).word(0x14e, 0x001d).word(0x206, 0x8000);
  const PciConfig config = parsed(space.bytes());
  ASSERT_TRUE(config.acs);
  ASSERT_TRUE(config.ats);
  EXPECT_EQ(config.acs->can, 0x5f);
  EXPECT_EQ(config.acs->control, 0x1d);
  EXPECT_TRUE(config.acs->redirects());
  EXPECT_TRUE(config.ats->is_enabled);
  space.word(0x14e, 0x0051).word(0x206, 0x7fff);
  EXPECT_FALSE(parsed(space.bytes()).acs->redirects()) << "validation, upstream forwarding and translated traffic do not redirect";
  EXPECT_FALSE(parsed(space.bytes()).ats->is_enabled);
}

TEST(PciConfig, HiddenIsNotAbsent) {
  ConfigSpace space;
  space.express(6).acs(0x1d);
  const PciConfig header = parsed(space.bytes(64));
  EXPECT_TRUE(header.express.is_hidden);
  EXPECT_TRUE(header.acs.is_hidden);
  EXPECT_FALSE(header.acs.is_absent());
  const PciConfig ordinary = parsed(space.bytes(256));
  EXPECT_TRUE(ordinary.express);
  EXPECT_TRUE(ordinary.acs.is_hidden) << "a PCIe device has an extended space, which nobody read";
  const PciConfig all = parsed(space.bytes());
  EXPECT_TRUE(all.acs);
  EXPECT_TRUE(all.ats.is_absent());
}

TEST(PciConfig, ADeviceOfOldPciHasNoneOfThem) {
  const PciConfig bare = parsed(ConfigSpace().bytes(64));
  EXPECT_TRUE(bare.express.is_absent()) << "the header says that there is no list";
  EXPECT_TRUE(bare.acs.is_absent());
  ConfigSpace space;
  space.capability(0x40, 0x01);
  const PciConfig old = parsed(space.bytes(256));
  EXPECT_TRUE(old.express.is_absent());
  EXPECT_TRUE(old.acs.is_absent());
  EXPECT_TRUE(old.ats.is_absent());
}

TEST(PciConfig, NoExtendedCapabilitiesAtAll) {
  ConfigSpace space;
  space.express();
  EXPECT_TRUE(parsed(space.bytes()).acs.is_absent()) << "an empty header ends the list";
  space.double_word(0x100, 0xffffffff);
  EXPECT_TRUE(parsed(space.bytes()).acs.is_hidden) << "ones are no answer";
}

TEST(PciConfig, ADeviceThatIsGone) {
  const PciConfig config = parsed(std::string(4096, '\xff'));
  EXPECT_TRUE(config.is_gone);
  EXPECT_TRUE(config.express.is_hidden);
  EXPECT_TRUE(config.acs.is_hidden);
}

TEST(PciConfig, ListsThatLoopEnd) {
  ConfigSpace space;
  space.capability(0x40, 0x01, 0x50).capability(0x50, 0x05, 0x40);
  EXPECT_TRUE(parsed(space.bytes()).express.is_hidden) << "a damaged list does not prove absence";
  ConfigSpace self;
  self.capability(0x40, 0x01, 0x40);
  EXPECT_TRUE(parsed(self.bytes()).express.is_hidden);
  ConfigSpace extended;
  extended.express().extended(0x100, 0x0001, 0x200).extended(0x200, 0x0002, 0x100);
  const PciConfig config = parsed(extended.bytes());
  EXPECT_TRUE(config.acs.is_hidden);
}

TEST(PciConfig, PointersIntoTheHeaderOrAtTheEnd) {
  ConfigSpace space;
  space.express().extended(0x100, 0x0001, 0x0fc);
  EXPECT_TRUE(parsed(space.bytes()).acs.is_absent()) << "a pointer below 0x100 ends the extended list";
  space.extended(0x100, 0x0001, 0xffc).extended(0xffc, 0x000d);
  EXPECT_TRUE(parsed(space.bytes()).acs.is_hidden) << "its registers would lie past the end";
  ConfigSpace last;
  last.capability(0xfc, 0x10);
  EXPECT_TRUE(parsed(last.bytes(256)).express.is_hidden);
}

// Sanitizers see a read past the end: each prefix is a copy of its own.
TEST(PciConfig, EveryLengthOfEveryKindOfBytes) {
  ConfigSpace space;
  space.express(6).extended(0x100, 0x0001, 0x148).extended(0x148, 0x000d, 0xff8).extended(0xff8, 0x000f);
  std::string noise(4096, '\0');
  std::mt19937 random(7);
  for (char& byte : noise) byte = static_cast<char>(random() & 0xffU);
  noise[0] = 0x34;
  noise[6] = 0x10;
  for (std::size_t length = 0; length <= 4096; ++length) {
    for (const std::string& whole : {space.bytes(), noise}) {
      const std::string part(whole.data(), length);
      const auto config = PciConfig::parse(part);
      ASSERT_EQ(config.has_value(), length >= 64) << length;
      if (!config) continue;
      EXPECT_EQ(config->bytes, length);
      EXPECT_FALSE(config->express && config->express.is_hidden);
      EXPECT_FALSE(config->acs && config->acs.is_hidden);
    }
    const auto config = PciConfig::parse(space.bytes(length));
    if (!config) continue;
    EXPECT_EQ(static_cast<bool>(config->acs), length >= 0x150) << length;
    EXPECT_FALSE(config->acs.is_absent()) << length;
    EXPECT_EQ(static_cast<bool>(config->ats), length >= 4096) << length;
  }
}

TEST(PciConfig, NoiseNeverHangs) {
  std::mt19937 random(11);
  std::string noise(4096, '\0');
  for (int round = 0; round < 2000; ++round) {
    for (char& byte : noise) byte = static_cast<char>(random() & 0xffU);
    noise[6] = static_cast<char>(noise[6] | 0x10);
    EXPECT_TRUE(PciConfig::parse(noise));
  }
}

TEST(PciConfig, Names) {
  EXPECT_EQ(acs_text(0x1d), "SV RR CR UF");
  EXPECT_EQ(acs_text(0x60), "EC DT");
  EXPECT_EQ(acs_text(0xff80), "none");
}

}  // namespace
}  // namespace gigabar
