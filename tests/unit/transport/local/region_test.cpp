// SPDX-License-Identifier: Apache-2.0
// Memory that a local peer may reach: keys, the way there, copies, and keys that lie.
#include <fcntl.h>
#include <sys/eventfd.h>

#include "gigabar/memory.hpp"
#include "support/scoped_environment.hpp"
#include "transport/local/link.hpp"
#include "transport/local/wire.hpp"
#include "unit/transport/local/pair.hpp"

namespace gigabar::transport {
namespace {

using namespace test;

constexpr std::int64_t kSomebodyElse = 1;  // a process that this one is not; keys with descriptors do not need its memory

MemoryRange stand_in_range(const DeviceMemory& memory) {
  return {memory.address(), memory.bytes(), MemoryKind::stand_in, memory.device(), -1, 0};
}

// Writes from rank 0 to rank 1 and reads it back elsewhere, at offsets that fit nothing; checks every byte around.
void expect_moves(Pair& pair, const MemoryRange& local_range, const MemoryRange& remote_range, TransferPath path) {
  const auto local = must(pair.transports[0]->register_memory(local_range));
  const auto shown = must(pair.transports[1]->register_memory(remote_range));
  const auto remote = pair.shown(1, *shown);
  ASSERT_EQ(remote->bytes(), remote_range.bytes);
  for (const Direction direction : {Direction::write, Direction::read}) {
    const Reach reach = pair.links[0]->reach(direction, *local, *remote);
    EXPECT_TRUE(reach.can) << reach.reason;
    EXPECT_EQ(reach.path, path);
    EXPECT_FALSE(reach.reason.empty());
  }
  auto* const here = static_cast<std::byte*>(local_range.address);
  auto* const there = static_cast<std::byte*>(remote_range.address);
  const std::size_t most = std::min(local_range.bytes, remote_range.bytes) - 100;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, std::size_t{100'001}, most}) {
    const auto sent = pattern_of(bytes, bytes);
    std::memset(here, 0x11, local_range.bytes);
    std::memset(there, 0x22, remote_range.bytes);
    std::memcpy(here + 13, sent.data(), bytes);
    ASSERT_EQ(pair.links[0]->post_write(*local, 13, *remote, 29, bytes, bytes), Posted::ok);
    ASSERT_EQ(pair.links[0]->post_message(header_of(bytes), {}), Posted::ok);
    const std::size_t before = pair.sinks[1].messages.size();
    ASSERT_TRUE(pair.poll_until([&] { return pair.sinks[1].messages.size() > before; }));
    EXPECT_EQ(std::memcmp(there + 29, sent.data(), bytes), 0) << bytes;
    EXPECT_EQ(there[28], std::byte{0x22});
    EXPECT_EQ(there[29 + bytes], std::byte{0x22});
    std::memset(here, 0x11, local_range.bytes);
    const std::size_t dones = pair.sinks[0].dones.size();
    ASSERT_EQ(pair.links[0]->post_read(*local, 61, *remote, 29, bytes, bytes + 1), Posted::ok);
    ASSERT_TRUE(
        pair.poll_until([&] { return pair.sinks[0].dones.size() > dones && pair.sinks[0].dones.back().first == bytes + 1; }));
    EXPECT_EQ(std::memcmp(here + 61, sent.data(), bytes), 0) << bytes;
    EXPECT_EQ(here[60], std::byte{0x11});
    EXPECT_EQ(here[61 + bytes], std::byte{0x11});
  }
  for (const auto& [cookie, status] : pair.sinks[0].dones) EXPECT_EQ(status, Status::ok) << cookie;
  EXPECT_EQ(pair.sinks[0].dones.size(), 10U) << "one for each write and read";
}

TEST(LocalRegion, PlainMemoryOfTheSameProcessIsCopied) {
  Pair pair;
  std::vector<std::byte> local(3'000'000);
  std::vector<std::byte> remote(2'500'000);
  expect_moves(pair, plain_range(local), plain_range(remote), TransferPath::host);
}

TEST(LocalRegion, AKeyOfAnotherHostIsRefused) {
  Pair pair;
  std::vector<std::byte> memory(4096);
  const auto region = must(pair.transports[1]->register_memory(plain_range(memory)));
  Peer far = pair.peers[0];
  far.is_same_host = false;
  const auto opened = pair.transports[0]->open_region(far, must(region->key(pair.peers[1])));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.status(), Status::bad_file);
  EXPECT_NE(opened.error().message().find("comes from another host"), std::string::npos) << opened.error().message();
}

TEST(LocalRegion, PagesOfASealedFileAreMapped) {
  Pair pair(kSomebodyElse);
  std::vector<std::byte> local(3'000'000);
  const SharedMemory remote(2'500'000);
  expect_moves(pair, plain_range(local), remote.range(), TransferPath::host);
  EXPECT_TRUE(remote.are_guards_whole());
  EXPECT_NE(::fcntl(remote.file(), F_GET_SEALS) & F_SEAL_SHRINK, 0);
}

// A load beyond its new end would end who maps it.
TEST(LocalRegion, AFileThatCanShrinkIsRefused) {
  Pair pair(kSomebodyElse);
  const SharedMemory memory(1000), unsealed(1000, 0);
  EXPECT_EQ(pair.transports[1]->register_memory(unsealed.range()).status(), Status::bad_file);
  const auto region = must(pair.transports[1]->register_memory(memory.range()));
  Parcel key = must(region->key(pair.peers[1]));
  key.descriptors[0] = Descriptor(::dup(unsealed.file()));
  EXPECT_EQ(pair.transports[0]->open_region(pair.peers[0], std::move(key)).status(), Status::bad_file);
}

TEST(LocalRegion, StandInDevicesReachEachOther) {
  const gigabar::test::ScopedEnvironment two("GIGABAR_STAND_IN", "2");
  const auto first = must(DeviceMemory::allocate(0, 3'000'000));
  const auto second = must(DeviceMemory::allocate(1, 2'500'000));
  for (const std::int64_t process : {std::int64_t{::getpid()}, kSomebodyElse}) {
    Pair pair(process);
    expect_moves(pair, stand_in_range(first), stand_in_range(second), TransferPath::p2p);
    std::vector<std::byte> host(1'000'000);
    Pair other(process);
    expect_moves(other, plain_range(host), stand_in_range(second), TransferPath::p2p);
  }
}

TEST(LocalRegion, APartOfAnAllocationIsShownInItsPlace) {
  const gigabar::test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  Pair pair(kSomebodyElse);
  const auto device = must(DeviceMemory::allocate(0, 1'000'000));
  MemoryRange range = stand_in_range(device);
  range.address = static_cast<std::byte*>(range.address) + 300'001;
  range.bytes = 400'000;
  std::vector<std::byte> host(500'000);
  expect_moves(pair, plain_range(host), range, TransferPath::p2p);
  range.bytes = 700'000;
  EXPECT_EQ(pair.transports[0]->register_memory(range).status(), Status::invalid_argument);
}

TEST(LocalRegion, WhatIsNoMemoryIsNotRegistered) {
  const auto one = open_one();
  std::vector<std::byte> memory(100);
  MemoryRange range = plain_range(memory);
  range.bytes = 0;
  EXPECT_EQ(one->register_memory(range).status(), Status::invalid_argument);
  range = {nullptr, 100, MemoryKind::host_pageable, -1, -1, 0};
  EXPECT_EQ(one->register_memory(range).status(), Status::invalid_argument);
  range = {memory.data(), SIZE_MAX - 10, MemoryKind::host_pageable, -1, -1, 0};
  EXPECT_EQ(one->register_memory(range).status(), Status::invalid_argument);
  range = {memory.data(), 100, MemoryKind::device, -1, -1, 0};
  EXPECT_EQ(one->register_memory(range).status(), Status::invalid_argument);
  const SharedMemory shared(1000);
  range = shared.range();
  range.descriptor_offset_bytes = std::uint64_t{1} << 40;
  EXPECT_EQ(one->register_memory(range).status(), Status::bad_file);
  const Descriptor no_file(::eventfd(0, EFD_CLOEXEC));
  range.descriptor = no_file.get();
  EXPECT_EQ(one->register_memory(range).status(), Status::bad_file);
}

TEST(LocalRegion, RangesOutsideAreAnsweredAndNothingMoves) {
  Pair pair(kSomebodyElse);
  std::vector<std::byte> memory(1000, std::byte{1});
  const SharedMemory target(2000);
  std::memset(target.data(), 2, target.bytes());
  const auto local = must(pair.transports[0]->register_memory(plain_range(memory)));
  const auto shown = must(pair.transports[1]->register_memory(target.range()));
  const auto remote = pair.shown(1, *shown);
  struct Wish {
    std::uint64_t local, remote, bytes;
  };
  std::uint64_t cookie = 0;
  for (const Wish& wish : {Wish{0, 0, 1001}, Wish{1000, 0, 1}, Wish{UINT64_MAX, 0, 2}, Wish{0, 2000, 1}, Wish{0, 1999, 2},
                           Wish{0, UINT64_MAX - 1, 3}, Wish{0, 0, 0}, Wish{0, 0, UINT64_MAX}}) {
    EXPECT_EQ(pair.links[0]->post_write(*local, wish.local, *remote, wish.remote, wish.bytes, ++cookie), Posted::ok);
    EXPECT_EQ(pair.links[0]->post_read(*local, wish.local, *remote, wish.remote, wish.bytes, ++cookie), Posted::ok);
  }
  pair.poll();
  ASSERT_EQ(pair.sinks[0].dones.size(), cookie);
  for (std::uint64_t i = 0; i < cookie; ++i) {
    EXPECT_EQ(pair.sinks[0].dones[i].first, i + 1);
    EXPECT_EQ(pair.sinks[0].dones[i].second, Status::out_of_range);
  }
  EXPECT_EQ(pair.links[0]->state(), LinkState::ready);
  EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{1}; }));
  EXPECT_TRUE(std::all_of(target.data(), target.data() + target.bytes(), [](std::byte b) { return b == std::byte{2}; }));
  EXPECT_TRUE(target.are_guards_whole());
}

TEST(LocalRegion, OnlySoManyAreUnderWay) {
  Pair pair;
  std::vector<std::byte> from(4096);
  std::vector<std::byte> to(4096);
  const auto local = must(pair.transports[0]->register_memory(plain_range(from)));
  const auto shown = must(pair.transports[1]->register_memory(plain_range(to)));
  const auto remote = pair.shown(1, *shown);
  std::uint32_t posted = 0;
  while (pair.links[0]->post_write(*local, 0, *remote, 0, 8, posted) == Posted::ok) ++posted;
  EXPECT_EQ(posted, local::kMaxPostedWrites);
  pair.poll();
  EXPECT_EQ(pair.sinks[0].dones.size(), posted);
  EXPECT_EQ(pair.links[0]->post_write(*local, 0, *remote, 0, 8, 1), Posted::ok);
}

// A message behind a large write waits for it; the ones behind it wait too.
TEST(LocalRegion, MessagesStayBehindLargeWrites) {
  Pair pair(kSomebodyElse);
  std::vector<std::byte> memory = pattern_of(20'000'000, 3);
  const SharedMemory target(memory.size());
  const auto local = must(pair.transports[0]->register_memory(plain_range(memory)));
  const auto shown = must(pair.transports[1]->register_memory(target.range()));
  const auto remote = pair.shown(1, *shown);
  pair.sinks[1].on_message = [&](Link&, const Header& header, std::span<const std::byte>) {
    pair.sinks[1].messages.push_back({number_of(header), {}});
    if (number_of(header) > 0) return;
    EXPECT_EQ(std::memcmp(target.data(), memory.data(), memory.size()), 0);
  };
  ASSERT_EQ(pair.links[0]->post_write(*local, 0, *remote, 0, memory.size(), 1), Posted::ok);
  for (std::uint64_t number = 0; number < 500; ++number)
    ASSERT_EQ(pair.links[0]->post_message(header_of(number), pattern_of(100, number)), Posted::ok);
  std::uint64_t kept = 500;
  while (pair.links[0]->post_message(header_of(kept), {}) == Posted::ok) ++kept;
  EXPECT_GE(kept, 1000U);
  EXPECT_FALSE(pair.transports[0]->arm());
  pair.poll();
  EXPECT_TRUE(pair.sinks[1].messages.empty());
  ASSERT_TRUE(pair.poll_until([&] { return pair.sinks[1].messages.size() == kept; }));
  for (std::uint64_t number = 0; number < kept; ++number) EXPECT_EQ(pair.sinks[1].messages[number].number, number);
  EXPECT_TRUE(target.are_guards_whole());
}

TEST(LocalRegion, WhatIsBrokenGivesEveryCookieBackFirst) {
  Pair pair(kSomebodyElse);
  std::vector<std::byte> memory(20'000'000);
  const SharedMemory target(memory.size());
  const auto local = must(pair.transports[0]->register_memory(plain_range(memory)));
  const auto shown = must(pair.transports[1]->register_memory(target.range()));
  const auto remote = pair.shown(1, *shown);
  for (std::uint64_t cookie = 0; cookie < 3; ++cookie)
    ASSERT_EQ(pair.links[0]->post_write(*local, 0, *remote, 0, memory.size(), cookie), Posted::ok);
  ASSERT_EQ(pair.links[0]->post_message(header_of(1), {}), Posted::ok);
  EXPECT_EQ(pair.links[0]->post_message(header_of(1), pattern_of(1 << 20, 1)), Posted::broken);
  EXPECT_EQ(pair.links[0]->post_write(*local, 0, *remote, 0, 8, 7), Posted::broken);
  pair.poll();
  pair.poll();
  EXPECT_EQ(pair.sinks[0].dones.size(), 3U);
  for (const auto& [cookie, status] : pair.sinks[0].dones) EXPECT_EQ(status, Status::invalid_argument);
  EXPECT_EQ(pair.sinks[0].broken_count, 1);
  EXPECT_TRUE(pair.sinks[1].messages.empty());
}

TEST(LocalRegion, ADeregisteredRegionOfTheSameProcessIsNotTouched) {
  Pair pair;
  std::vector<std::byte> from(64, std::byte{1});
  std::vector<std::byte> to(64, std::byte{2});
  const auto local = must(pair.transports[0]->register_memory(plain_range(from)));
  auto shown = must(pair.transports[1]->register_memory(plain_range(to)));
  const auto remote = pair.shown(1, *shown);
  shown.reset();
  ASSERT_EQ(pair.links[0]->post_write(*local, 0, *remote, 0, 64, 1), Posted::ok);
  pair.poll();
  EXPECT_EQ(pair.sinks[0].dones.at(0).second, Status::out_of_range);
  EXPECT_EQ(to[0], std::byte{2});
}

// --- Keys that lie ---------------------------------------------------------------------------------------------------------------

TEST(LocalKey, TruncatedAndSpoiledOnesAreRefused) {
  Pair pair(kSomebodyElse);
  const SharedMemory memory(10'000);
  const auto region = must(pair.transports[1]->register_memory(memory.range()));
  const auto open = [&](const std::function<void(Parcel&, local::KeyBytes&)>& spoil) {
    Parcel key = must(region->key(pair.peers[1]));
    local::KeyBytes told;
    EXPECT_TRUE(local::read_front(key.bytes, told));
    spoil(key, told);
    if (key.bytes.size() == sizeof told) key.bytes = local::bytes_of(told);
    return pair.transports[0]->open_region(pair.peers[0], std::move(key)).status();
  };
  using Key = local::KeyBytes;
  EXPECT_EQ(open([](Parcel&, Key&) {}), Status::ok);
  for (std::size_t bytes = 0; bytes < sizeof(Key); ++bytes)
    EXPECT_EQ(open([bytes](Parcel& parcel, Key&) { parcel.bytes.resize(bytes); }), Status::bad_file);
  EXPECT_EQ(open([](Parcel& parcel, Key&) { parcel.bytes += "x"; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.magic ^= 1; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.form = static_cast<local::KeyForm>(5); }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.kind = 77; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.kind = static_cast<std::uint32_t>(MemoryKind::device); }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.bytes = 0; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.bytes = 1 << 20; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.bytes = UINT64_MAX; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.bytes = PTRDIFF_MAX; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.address = UINT64_MAX - 5; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.address = 0; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.offset_bytes = UINT64_MAX - 5; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.offset_bytes = std::uint64_t{1} << 50; }), Status::bad_file);
  EXPECT_EQ(open([](Parcel&, Key& key) { key.uuid.fill('x'); }), Status::bad_file);
  EXPECT_EQ(open([](Parcel& parcel, Key&) { parcel.descriptors.clear(); }), Status::bad_file);
  EXPECT_EQ(open([](Parcel& parcel, Key&) { parcel.descriptors.emplace_back(::eventfd(0, EFD_CLOEXEC)); }), Status::bad_file);
  EXPECT_EQ(open([](Parcel& parcel, Key&) { parcel.descriptors[0] = Descriptor(); }), Status::bad_file);
  EXPECT_EQ(open([](Parcel& parcel, Key&) { parcel.descriptors[0] = Descriptor(::eventfd(0, EFD_CLOEXEC)); }), Status::bad_file);
  EXPECT_EQ(open([&](Parcel& parcel, Key&) {
              const std::string path = "/proc/self/fd/" + std::to_string(memory.file());
              parcel.descriptors[0] = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
            }),
            Status::bad_file);
}

TEST(LocalKey, OfThisProcessHasToNameARegisteredRegion) {
  Pair pair;
  std::vector<std::byte> memory(1000);
  const auto region = must(pair.transports[1]->register_memory(plain_range(memory)));
  const auto open = [&](const std::function<void(local::KeyBytes&)>& spoil) {
    Parcel parcel = must(region->key(pair.peers[1]));
    local::KeyBytes key;
    EXPECT_TRUE(local::read_front(parcel.bytes, key));
    spoil(key);
    parcel.bytes = local::bytes_of(key);
    return pair.transports[0]->open_region(pair.peers[0], std::move(parcel)).status();
  };
  using Key = local::KeyBytes;
  EXPECT_EQ(open([](Key&) {}), Status::ok);
  EXPECT_EQ(open([](Key& key) { key.bytes += 1; }), Status::bad_file);
  EXPECT_EQ(open([](Key& key) { key.address -= 1; }), Status::bad_file);
  EXPECT_EQ(open([](Key& key) { key.region_id += 1; }), Status::bad_file);
  EXPECT_EQ(open([](Key& key) { key.kind = static_cast<std::uint32_t>(MemoryKind::stand_in); }), Status::bad_file);
}

TEST(LocalKey, AReasonIsShownWithoutItsControlCharacters) {
  Pair pair(kSomebodyElse);
  std::vector<std::byte> memory(1000);
  const auto local = must(pair.transports[0]->register_memory(plain_range(memory)));
  local::KeyBytes key;
  key.address = 4096;
  key.bytes = 4096;
  key.kind = static_cast<std::uint32_t>(MemoryKind::device_pool);
  Parcel parcel;
  parcel.bytes = local::bytes_of(key) + "a pool\n\x1b[2J";
  const auto remote = must(pair.transports[0]->open_region(pair.peers[0], std::move(parcel)));
  const Reach reach = pair.links[0]->reach(Direction::write, *local, *remote);
  EXPECT_FALSE(reach.can);
  EXPECT_EQ(reach.reason, "the peer says: a pool??[2J");
  ASSERT_EQ(pair.links[0]->post_write(*local, 0, *remote, 0, 8, 1), Posted::ok);
  pair.poll();
  EXPECT_EQ(pair.sinks[0].dones.at(0).second, Status::not_supported);
  parcel.bytes = local::bytes_of(key) + std::string(10'000, 'x');
  EXPECT_EQ(pair.transports[0]->open_region(pair.peers[0], std::move(parcel)).status(), Status::bad_file);
}

TEST(LocalKey, OfAProcessThatDoesNotHoldTheNonceIsNoReach) {
  Pair pair(::getppid());  // lives, and has other memory at that place, or none
  std::vector<std::byte> memory(1000);
  const auto local = must(pair.transports[0]->register_memory(plain_range(memory)));
  const auto shown = must(pair.transports[1]->register_memory(plain_range(memory)));
  const auto remote = pair.shown(1, *shown);
  const Reach reach = pair.links[0]->reach(Direction::write, *local, *remote);
  EXPECT_FALSE(reach.can);
  EXPECT_NE(reach.reason.find("process"), std::string::npos) << reach.reason;
}

}  // namespace
}  // namespace gigabar::transport
