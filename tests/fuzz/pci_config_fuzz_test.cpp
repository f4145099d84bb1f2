// SPDX-License-Identifier: Apache-2.0
// Config spaces at random: nothing is read beyond their end, and lists that loop end.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/mutator.hpp"
#include "platform/pci_config.hpp"

namespace gigabar {
namespace {

using test::for_a_while;
using test::Mutator;

// Capability lists of both kinds, with links that are near the truth.
std::string config_space(Mutator& mutator) {
  std::string config(mutator.once_in(3) ? std::size_t{256} : std::size_t{4096}, '\0');
  const auto put = [&config](std::size_t at, std::size_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes && at + i < config.size(); ++i) config[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
  };
  put(0x00, mutator.below(1U << 16U), 2);
  put(0x06, 0x10, 2);
  put(0x0e, mutator.below(3), 1);
  std::size_t at = 0x40;
  put(0x34, at, 1);
  for (std::size_t left = mutator.below(12); left > 0; --left) {
    const std::size_t next = mutator.once_in(6) ? mutator.below(256) : 0x40 + 4 * mutator.below(48);
    put(at, (mutator.once_in(2) ? 0x10 : mutator.below(32)) | next << 8U, 2);
    put(at + 2, mutator.below(1U << 16U), 2);
    at = next;
  }
  at = 0x100;
  for (std::size_t left = mutator.below(40); left > 0; --left) {
    const std::size_t next = mutator.once_in(6) ? mutator.below(4096) : 0x100 + 4 * mutator.below(960);
    put(at, mutator.below(0x30) | 1U << 16U | next << 20U, 4);
    put(at + 4, mutator.below(1U << 31U), 4);
    at = next;
  }
  return mutator.once_in(3) ? mutator.changed(config) : config;
}

TEST(PciConfigFuzz, StaysInside) {
  std::size_t found = 0;
  for_a_while([&](Mutator& mutator) {
    std::string config = config_space(mutator);
    if (mutator.once_in(4)) config.resize(mutator.below(config.size() + 1));
    // Memory of exactly that size, so that sanitizers see the first byte behind it.
    const std::vector<char> exact(config.begin(), config.end());
    const auto parsed = PciConfig::parse({exact.data(), exact.size()});
    EXPECT_EQ(parsed.has_value(), config.size() >= 64);
    if (!parsed) return;
    EXPECT_EQ(parsed->bytes, std::min(config.size(), std::size_t{4096}));
    EXPECT_FALSE(parsed->express && (parsed->express.is_hidden || config.size() < 0x54));
    EXPECT_FALSE(parsed->acs && (parsed->acs.is_hidden || config.size() < 0x108));
    EXPECT_FALSE(parsed->ats && (parsed->ats.is_hidden || config.size() < 0x108));
    EXPECT_TRUE(!parsed->acs || !acs_text(parsed->acs->control).empty());
    found += parsed->express ? 1U : 0U;
    found += parsed->acs ? 1U : 0U;
  });
  EXPECT_GT(found, 0U) << "nothing was ever parsed";
}

}  // namespace
}  // namespace gigabar
