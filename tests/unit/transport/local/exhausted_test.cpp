// SPDX-License-Identifier: Apache-2.0
// The local transport in a process that has no descriptor, or no address space, left: each step says so, holds nothing, and works
// when there is some again.
#include <sys/resource.h>

#include <fstream>

#include "support/isolated.hpp"
#include "support/no_more_descriptors.hpp"
#include "unit/transport/local/pair.hpp"

namespace gigabar::transport {
namespace {

using namespace test;

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS

constexpr std::int64_t kSomebodyElse = 1;  // a process that this one is not, to which descriptors are sent

using gigabar::test::without_descriptors;

ISOLATED_TEST(LocalExhausted, NoDescriptorIsLeft) {
  EXPECT_EQ(without_descriptors([] { return open_local({}).status(); }), Status::out_of_descriptors);
  const auto one = open_one();
  const Peer peer = peer_of(*one, 1, kSomebodyElse);
  const auto offer = [&] {
    Parcel told;
    return one->offer(peer, 0, told).status();
  };
  EXPECT_EQ(without_descriptors(offer), Status::out_of_descriptors);
  // One is left, for the link's memory: the sockets find none.
  Descriptor spare(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(without_descriptors([&] {
              spare = Descriptor();
              return offer();
            }),
            Status::out_of_descriptors);
  EXPECT_EQ(offer(), Status::ok);

  const SharedMemory memory(1 << 20);
  EXPECT_EQ(without_descriptors([&] { return one->register_memory(memory.range()).status(); }), Status::out_of_descriptors);
  const auto region = must(one->register_memory(memory.range()));
  EXPECT_EQ(without_descriptors([&] { return region->key(peer).status(); }), Status::out_of_descriptors);
  EXPECT_EQ(region->key(peer).status(), Status::ok);
}

// Sanitizers take more address space than there is to limit, as they take descriptors.
template <class Body>
auto without_address_space(const Body& body) {
  constexpr rlim_t kSlackBytes = 256 << 10;  // for errors' texts
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  const rlimit tight{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kSlackBytes, before.rlim_max};
  ::setrlimit(RLIMIT_AS, &tight);
  const auto answer = body();
  ::setrlimit(RLIMIT_AS, &before);
  return answer;
}

ISOLATED_TEST(LocalExhausted, NoAddressSpaceIsLeft) {
  const auto one = open_one(), two = open_one();
  const Peer of_one = peer_of(*one, 0, kSomebodyElse), of_two = peer_of(*two, 1, kSomebodyElse);
  Parcel offer, answer;
  EXPECT_EQ(without_address_space([&] { return one->offer(of_two, 0, offer).status(); }), Status::out_of_memory);
  const auto link = must(one->offer(of_two, 0, offer));
  EXPECT_EQ(without_address_space([&] { return two->accept(of_one, std::move(offer), answer).status(); }), Status::out_of_memory);

  const SharedMemory memory(1 << 20);
  const auto region = must(one->register_memory(memory.range()));
  Parcel key = must(region->key(of_two));
  EXPECT_EQ(without_address_space([&] { return two->open_region(of_one, std::move(key)).status(); }), Status::out_of_memory);
  EXPECT_EQ(two->open_region(of_one, must(region->key(of_two))).status(), Status::ok);
}

#endif

}  // namespace
}  // namespace gigabar::transport
