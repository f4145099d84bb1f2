// SPDX-License-Identifier: Apache-2.0
// Links over UCX do what all of their kind do.
#include <gtest/gtest.h>

#include "unit/transport/placing/link_suite.hpp"
#include "unit/transport/placing/mapped_suite.hpp"
#include "unit/transport/ucx/pair.hpp"

namespace gigabar::transport::pairs {
namespace {

struct Ucx {
  using Pair = ucx::test::Pair;
  static constexpr const char* kName = "UCX";
  static constexpr const char* kRail = "tcp/";
  static constexpr std::uint64_t kSmallMessages = 100'000, kOrderedWrites = 2'000, kTurns = 20'000, kMaxUnread = 1'000;
  static constexpr std::size_t kPiece = 120U << 10, kMaxBytes = std::size_t{64} << 20;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Ucx, PlacedLinks, testing::Types<Ucx>);
INSTANTIATE_TYPED_TEST_SUITE_P(Ucx, MappedLinks, testing::Types<Ucx>);

}  // namespace
}  // namespace gigabar::transport::pairs
