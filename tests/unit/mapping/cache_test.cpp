// SPDX-License-Identifier: Apache-2.0
// Windows are shared by the mappings of a block, kept while idle up to a limit, and never outlive the memory's identity.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "gigabar/copy.hpp"
#include "support/expect_log.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::expect_shows_memory;
using test::FakeSession;
using test::MappingSession;
using test::must_map;
using test::pointer;
using test::require;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBlock = 2 * kMiB;

// RM maps of one call, without those that prove the device.
std::uint64_t maps() { return FakeSession::counts().total_rm_maps; }

ISOLATED_TEST(SharedWindows, ManyMappingsOfAnAllocationShareOne) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(8 * kBlock);
  const Mapping first = must_map(address, 8 * kBlock);
  EXPECT_FALSE(first.report().came_from_cache);
  const std::uint64_t after_first = maps();
  std::vector<Mapping> others;
  for (std::size_t i = 0; i < 50; ++i) {
    others.push_back(must_map(address + i * 1001, 1 + i * 7));
    EXPECT_TRUE(others.back().report().came_from_cache);
    EXPECT_EQ(others.back().report().passed_over.size(), first.report().passed_over.size()) << "the reasons are told again";
    EXPECT_EQ(others.back().address(), first.address() + i * 1001);
  }
  EXPECT_EQ(maps(), after_first);
  EXPECT_EQ(FakeSession::counts().windows, 1u);
  EXPECT_EQ(mapping_cache_statistics().window_count, 1u);
  EXPECT_EQ(mapping_cache_statistics().idle_count, 0u);
  EXPECT_GE(mapping_cache_statistics().hit_count, 50u);
  FakeSession::free(address);
}

ISOLATED_TEST(SharedWindows, SmallAllocationsOfABlockShareOneWindow) {
  MappingSession session;
  session.start();
  std::vector<CUdeviceptr> memory;
  std::vector<Mapping> mappings;
  for (std::size_t i = 0; i < 20; ++i) memory.push_back(FakeSession::allocate(1000 + i));
  mappings.push_back(must_map(memory[0], 1000));
  const std::uint64_t after_first = maps();
  for (std::size_t i = 1; i < 20; ++i) mappings.push_back(must_map(memory[i], 1000 + i));
  EXPECT_EQ(maps(), after_first) << "one window for the block";
  EXPECT_EQ(FakeSession::counts().windows, 1u);
  EXPECT_EQ(FakeSession::counts().rm_memory_objects, 1u) << "and one handle";
  for (std::size_t i = 0; i < 20; ++i) expect_shows_memory(mappings[i], static_cast<unsigned>(i));
  for (const CUdeviceptr address : memory) FakeSession::free(address);
}

// Sandboxes refuse to say whether two handles are the same memory (gVisor). Each mapping has a window of its own then.
ISOLATED_TEST(SharedWindows, WithoutTheQuestionForSameMemoryEachMappingHasItsOwn) {
  constexpr std::uint32_t kControl = 0x2A, kObjectsAreDuplicates = 0xd07, kNotSupported = 0x56;
  MappingSession session;
  session.start();
  session.plant_ioctl(kControl, kObjectsAreDuplicates, 0, kNotSupported);
  std::vector<CUdeviceptr> memory;
  std::vector<Mapping> mappings;
  for (std::size_t i = 0; i < 4; ++i) {
    memory.push_back(FakeSession::allocate(1000));
    mappings.push_back(must_map(memory.back(), 1000));
  }
  EXPECT_EQ(FakeSession::counts().windows, 4u);
  for (std::size_t i = 0; i < 4; ++i) expect_shows_memory(mappings[i], static_cast<unsigned>(i));
  mappings.clear();
  for (const CUdeviceptr address : memory) FakeSession::free(address);
}

ISOLATED_TEST(SharedWindows, AMappingExposesItsRangeOnly) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const Mapping mapping = must_map(address + 100, 50);
  EXPECT_TRUE(mapping.covers(0, 50));
  EXPECT_FALSE(mapping.covers(0, 51));
  EXPECT_FALSE(mapping.covers(50, 1));
  FakeSession::free(address);
}

ISOLATED_TEST(WindowCache, AnIdleWindowIsFoundAgain) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  must_map(address, kBlock);
  const std::uint64_t after_first = maps();
  EXPECT_EQ(mapping_cache_statistics().idle_count, 1u);
  EXPECT_GE(mapping_cache_statistics().idle_bytes, kBlock);
  EXPECT_TRUE(must_map(address + 5, 7).report().came_from_cache);
  EXPECT_EQ(maps(), after_first);
  EXPECT_GE(trim_mapping_cache(0), kBlock);
  EXPECT_EQ(FakeSession::counts().windows, 0u);
  EXPECT_FALSE(must_map(address, 1).report().came_from_cache);
  FakeSession::free(address);
}

// The heart of it: the machine gives out the same address and the same RM handle again at once.
ISOLATED_TEST(WindowCache, NeverStaleAfterFreeAndReallocation) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  for (const MappingBackend backend : {MappingBackend::dmabuf, MappingBackend::gdrdrv, MappingBackend::rm}) {
    std::optional<CUdeviceptr> before;
    // The window of the last turn keeps its pages, so a stale one would show memory that nobody uses any more.
    for (unsigned turn = 0; turn < 20; ++turn) {
      const CUdeviceptr address = FakeSession::allocate(kBlock);
      ASSERT_EQ(before.value_or(address), address) << "the danger is there";
      before = address;
      const Mapping mapping = must_map(address, kBlock, require(backend));
      EXPECT_FALSE(mapping.report().came_from_cache);
      expect_shows_memory(mapping, turn);
      FakeSession::free(address);
    }
    EXPECT_GE(mapping_cache_statistics().stale_count, 19u);
    trim_mapping_cache(0);
  }
}

ISOLATED_TEST(WindowCache, NeverStaleWhileTheOldMappingLives) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const Mapping old = must_map(address, kBlock);
  std::memset(old.address(), 1, kBlock);
  FakeSession::free(address);
  ASSERT_EQ(FakeSession::allocate(kBlock), address);
  const Mapping fresh = must_map(address, kBlock);
  EXPECT_NE(fresh.address(), old.address());
  expect_shows_memory(fresh, 7);
  EXPECT_EQ(old.address()[100], std::byte{1}) << "the old pages are still there, and nobody else's";
  std::memset(old.address(), 2, kBlock);
  EXPECT_NE(FakeSession::read(address, 1)[0], 2);
  FakeSession::free(address);
}

// A block of small allocations: one is freed and its place given to another, the block stays.
ISOLATED_TEST(WindowCache, NewAllocationsInALivingBlock) {
  MappingSession session;
  session.start();
  const CUdeviceptr keeper = FakeSession::allocate(4096);
  for (unsigned turn = 0; turn < 10; ++turn) {
    const CUdeviceptr address = FakeSession::allocate(1000 + turn * 100);
    expect_shows_memory(must_map(address, 1000 + turn * 100), turn);
    FakeSession::free(address);
  }
  FakeSession::free(keeper);
}

ISOLATED_TEST(WindowCache, VmmMemoryRemapped) {
  MappingSession session;
  session.start();
  for (unsigned turn = 0; turn < 5; ++turn) {
    const CUdeviceptr address = FakeSession::allocate_vmm(0, kBlock, true);
    expect_shows_memory(must_map(address, kBlock), turn);
    FakeSession::free_vmm(address, kBlock);
  }
}

ISOLATED_TEST(WindowCache, FreedMemoryComesBackWhenTheLastMappingGoes) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4 * kBlock);
  {
    const Mapping mapping = must_map(address, kBlock);
    trim_mapping_cache(0);  // what verified the device
    FakeSession::free(address);
    mapping.address()[0] = std::byte{3};
    EXPECT_EQ(mapping.address()[0], std::byte{3}) << "access stays safe";
    EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], 4 * kBlock);
    EXPECT_EQ(map(pointer(address), 1).status(), Status::invalid_argument) << "freed memory cannot be mapped";
  }
  trim_mapping_cache(0);
  EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], 0u);
}

// Other memory may have the GPU's address by then.
ISOLATED_TEST(WindowCache, CopiesOfFreedMemoryAreTheCpus) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4 * kBlock);
  const Mapping mapping = must_map(address, 4 * kBlock);
  FakeSession::free(address);
  const CUdeviceptr other = FakeSession::allocate(4 * kBlock);
  const auto before = FakeSession::read(other, 4 * kBlock);
  const std::vector<std::byte> sent(4 * kBlock, std::byte{7});
  std::vector<std::byte> received(4 * kBlock);
  const auto to = copy({mapping, 0}, sent.data(), sent.size());
  ASSERT_TRUE(to) << to.error().message();
  EXPECT_NE(*to, CopyMethod::copy_engine);
  const auto from = copy(received.data(), {mapping, 0}, received.size());
  ASSERT_TRUE(from) << from.error().message();
  EXPECT_NE(*from, CopyMethod::copy_engine);
  EXPECT_EQ(received, sent);
  EXPECT_FALSE(copy({mapping, 0}, sent.data(), sent.size(), CopyMethod::copy_engine));
  EXPECT_EQ(FakeSession::read(other, 4 * kBlock), before);
  FakeSession::free(other);
}

ISOLATED_TEST(WindowCache, AnIdleWindowIntoMuchMemoryIsNotKept) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(32 * kBlock);  // 64 MiB; idle windows may keep 32
  const std::uint64_t used = FakeSession::counts().memory_used_bytes[0];
  must_map(address, 4096);
  EXPECT_EQ(mapping_cache_statistics().idle_count, 0u);
  const std::uint64_t verified = FakeSession::counts().memory_used_bytes[0] - used;
  FakeSession::free(address);
  EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], verified) << "freed memory is free";
}

ISOLATED_TEST(WindowCache, IdleWindowsStayUnderTheLimit) {
  const test::ScopedEnvironment limit("GIGABAR_CACHE_BYTES", "8M");
  MappingSession session;
  session.start();
  std::vector<CUdeviceptr> memory;
  for (int i = 0; i < 10; ++i) memory.push_back(FakeSession::allocate(kBlock));
  for (const CUdeviceptr address : memory) {
    must_map(address, kBlock);
    EXPECT_LE(mapping_cache_statistics().idle_bytes, 8 * kMiB);
  }
  EXPECT_EQ(FakeSession::counts().windows, 4u);
  EXPECT_TRUE(must_map(memory[9], 1).report().came_from_cache) << "the last ones are kept";
  EXPECT_TRUE(must_map(memory[6], 1).report().came_from_cache);
  EXPECT_FALSE(must_map(memory[0], 1).report().came_from_cache) << "the longest idle went first";
  for (const CUdeviceptr address : memory) FakeSession::free(address);
}

ISOLATED_TEST(WindowCache, NothingIsKeptWithALimitOfZero) {
  const test::ScopedEnvironment limit("GIGABAR_CACHE_BYTES", "0");
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  must_map(address, kBlock);
  EXPECT_EQ(FakeSession::counts().windows, 0u);
  EXPECT_EQ(mapping_cache_statistics().window_count, 0u);
  FakeSession::free(address);
}

ISOLATED_TEST(WindowCache, ANonsenseLimitIsToldAndReplacedByTheDefault) {
  const test::ScopedEnvironment limit("GIGABAR_CACHE_BYTES", "lots");
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  must_map(address, kBlock);
  EXPECT_EQ(mapping_cache_statistics().idle_count, 1u);
  const auto lines = test::take_log();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("lots"), std::string::npos) << lines[0];
  FakeSession::free(address);
}

ISOLATED_TEST(WindowCache, ForkInheritanceIsNotMixed) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  MapOptions inherit;
  inherit.inherit_on_fork = true;
  const Mapping mine = must_map(address, kBlock);
  const Mapping shared = must_map(address, kBlock, inherit);
  EXPECT_FALSE(shared.report().came_from_cache) << "a forked child would not have that window";
  EXPECT_NE(shared.address(), mine.address());
  expect_shows_memory(mine, 1);
  expect_shows_memory(shared, 2);
  EXPECT_EQ(must_map(address, kBlock).address(), mine.address()) << "each kind finds its own again";
  EXPECT_EQ(must_map(address, kBlock, inherit).address(), shared.address());
  FakeSession::free(address);
}

ISOLATED_TEST(WindowCache, LargeAllocationsHaveWindowsOfTheAskedParts) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(512 * kMiB);
  const Mapping first = must_map(address + 10 * kMiB, kMiB);
  const Mapping far = must_map(address + 400 * kMiB, kMiB);
  EXPECT_LT(FakeSession::counts().bar1_used_bytes[0], 64 * kMiB) << "not all of it";
  expect_shows_memory(first, 1);
  expect_shows_memory(far, 2);
  EXPECT_TRUE(must_map(address + 10 * kMiB + 5, 5).report().came_from_cache);
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
