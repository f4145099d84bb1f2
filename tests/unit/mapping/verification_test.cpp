// SPDX-License-Identifier: Apache-2.0
// No window is handed out that shows other memory: lies are planted at each place where a real machine could mislead.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::expect_shows_memory;
using test::FakeSession;
using test::MappingSession;
using test::must_map;
using test::pointer;
using test::require;

constexpr std::size_t kBlock = std::size_t{2} << 20;

void expect_caught(const Result<Mapping>& mapping) {
  ASSERT_FALSE(mapping);
  EXPECT_EQ(name_of(mapping.status()), "verification_failed") << mapping.error().message();
  EXPECT_FALSE(mapping.error().record().remedy.empty());
  const fake::Counts counts = FakeSession::counts();
  EXPECT_EQ(counts.windows, 0u) << "it was undone";
  EXPECT_EQ(counts.rm_mappings, 0u);
  EXPECT_EQ(counts.dma_bufs, 0u);
}

// Control 0x202 names the other GPU's instance; the device object's own id tells.
ISOLATED_TEST(PlantedLies, WrongInstance) {
  MappingSession session;
  session.machine().gpu_count = 2;
  session.machine().gpus[0].told_instance = 1;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto refused = map(pointer(address), kBlock);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("instance"), std::string::npos) << refused.error().message();
  EXPECT_EQ(FakeSession::counts().total_rm_dups, 0u) << "before anything was duplicated";
  FakeSession::free(address);
  const auto other = DeviceMemory::allocate(1, kBlock);
  EXPECT_TRUE(map(other->address(), kBlock)) << "the honest GPU works";
}

// The device object lies as well; then the kernel refuses the minor that does not belong to it.
ISOLATED_TEST(PlantedLies, WrongInstanceAndAGpuIdThatLies) {
  MappingSession session;
  session.machine().gpu_count = 2;
  session.machine().gpus[0].told_instance = 1;
  session.machine().gpus[1].told_gpu_id = session.machine().gpus[0].gpu_id;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto refused = map(pointer(address), kBlock);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("0x1f"), std::string::npos) << refused.error().message();
  EXPECT_GT(FakeSession::counts().total_rm_dups, 0u) << "it went as far as that";
  EXPECT_EQ(FakeSession::counts().windows, 0u);
  FakeSession::free(address);
}

// Everything lies in the same direction: the mapping is made, of the other GPU's memory, and only its content tells.
ISOLATED_TEST(PlantedLies, AConsistentLieIsSeenInTheMemory) {
  MappingSession session;
  session.machine().gpu_count = 2;
  session.machine().gpus[0].told_instance = 1;
  session.machine().gpus[0].told_proc_minor = 1;
  session.machine().gpus[1].told_gpu_id = session.machine().gpus[0].gpu_id;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  expect_caught(map(pointer(address), kBlock));
  EXPECT_GT(FakeSession::counts().total_mmaps, 0u) << "a window was made";
  FakeSession::free(address);
}

ISOLATED_TEST(PlantedLies, AnRmWindowOfOtherMemory) {
  MappingSession session;
  session.machine().is_rm_window_wrong = true;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  expect_caught(map(pointer(address), kBlock));
  session.machine().is_rm_window_wrong = false;
  expect_shows_memory(must_map(address, kBlock), 1);
  FakeSession::free(address);
}

ISOLATED_TEST(PlantedLies, ADmaBufThatShowsOtherMemory) {
  MappingSession session;
  session.have_all_backends();
  session.machine().is_dma_buf_mmap_shifted = true;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  expect_caught(map(pointer(address), kBlock, require(MappingBackend::dmabuf)));
  expect_caught(map(pointer(address), kBlock));
  session.machine().is_dma_buf_mmap_shifted = false;
  expect_shows_memory(must_map(address, kBlock, require(MappingBackend::dmabuf)), 1);
  FakeSession::free(address);
}

// The device was proved while the machine was honest; the caller's own window is compared all the same.
ISOLATED_TEST(PlantedLies, AfterTheDeviceWasProved) {
  MappingSession session;
  session.start();
  const CUdeviceptr first = FakeSession::allocate(kBlock);
  must_map(first, kBlock);
  const CUdeviceptr second = FakeSession::allocate(2 * kBlock);
  const auto content = test::pattern(2 * kBlock, 1);
  FakeSession::write(second, content.data(), content.size());
  session.machine().is_rm_window_wrong = true;
  const auto refused = map(pointer(second), 2 * kBlock);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::verification_failed);
  EXPECT_EQ(FakeSession::read(second, 2 * kBlock), content) << "nothing was written";
  session.machine().is_rm_window_wrong = false;
  EXPECT_TRUE(map(pointer(second), 2 * kBlock));
  FakeSession::free(first);
  FakeSession::free(second);
}

// It shows the right memory, so that only a store through it tells.
ISOLATED_TEST(PlantedLies, AWindowThatDropsStores) {
  MappingSession session;
  session.machine().are_window_stores_lost = true;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto refused = map(pointer(address), kBlock);
  expect_caught(refused);
  EXPECT_NE(refused.error().message().find("a nonce written through it is not in the memory"), std::string::npos)
      << refused.error().message();
  session.machine().are_window_stores_lost = false;
  expect_shows_memory(must_map(address, kBlock), 1);
  FakeSession::free(address);
}

// Memory that is zero everywhere agrees with other zeroed memory: only a nonce tells them apart.
ISOLATED_TEST(PlantedLies, ZeroedMemoryNeedsANonce) {
  MappingSession session;
  session.start();
  const CUdeviceptr first = FakeSession::allocate(kBlock);
  must_map(first, kBlock);
  const CUdeviceptr zeroed = FakeSession::allocate(kBlock);
  session.machine().is_rm_window_wrong = true;
  MapOptions nonce;
  nonce.verification = Verification::nonce;
  const auto refused = map(pointer(zeroed), kBlock, nonce);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::verification_failed);
  EXPECT_EQ(FakeSession::read(zeroed, kBlock), std::vector<unsigned char>(kBlock)) << "restored";
  session.machine().is_rm_window_wrong = false;
  expect_shows_memory(must_map(zeroed, kBlock, nonce), 1);
  FakeSession::free(first);
  FakeSession::free(zeroed);
}

// A nonce leaves the memory as it was, whatever byte it is full of and however small the range is.
ISOLATED_TEST(Verification, RestoresTheMemory) {
  MappingSession session;
  session.start();
  MapOptions nonce;
  nonce.verification = Verification::nonce;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{17}, std::size_t{4096}, kBlock}) {
    for (const unsigned char value : std::initializer_list<unsigned char>{0x00, 0xff, 0x5a}) {
      const CUdeviceptr address = FakeSession::allocate(bytes);
      const std::vector<unsigned char> content(bytes, value);
      FakeSession::write(address, content.data(), bytes);
      must_map(address, bytes, nonce);
      EXPECT_EQ(FakeSession::read(address, bytes), content) << bytes;
      FakeSession::free(address);
      trim_mapping_cache(0);
    }
  }
}

// Each look asks for three places. The GPU stores into the memory while seven looks are taken, and not during the eighth.
ISOLATED_TEST(Verification, MemoryThatTheGpuWritesToIsLookedAtAgain) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  must_map(address, kBlock);  // the device is proved
  trim_mapping_cache(0);
  session.machine().passing_stores = 7 * 3;
  expect_shows_memory(must_map(address, kBlock), 1);
  EXPECT_EQ(session.machine().passing_stores, 0u);
  trim_mapping_cache(0);
  session.machine().passing_stores = fake::kForEver;
  const auto refused = map(pointer(address), kBlock);
  session.machine().passing_stores = 0;
  expect_caught(refused);
  FakeSession::free(address);
}

ISOLATED_TEST(Verification, CompareWritesNothing) {
  MappingSession session;
  session.start();
  const CUdeviceptr first = FakeSession::allocate(kBlock);
  must_map(first, 1);  // the device is proved
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const std::uint64_t writes = FakeSession::counts().total_copies_to;
  must_map(address, kBlock);
  EXPECT_EQ(FakeSession::counts().total_copies_to, writes);
  EXPECT_GT(FakeSession::counts().total_copies_from, 0u);
  FakeSession::free(first);
  FakeSession::free(address);
}

ISOLATED_TEST(Verification, ADeviceIsProvedOncePerBackend) {
  MappingSession session;
  session.start();
  const CUdeviceptr first = FakeSession::allocate(kBlock);
  const CUdeviceptr second = FakeSession::allocate(kBlock);
  must_map(first, kBlock);
  const std::uint64_t after_first = FakeSession::counts().total_rm_maps;
  EXPECT_GT(after_first, 1u) << "with memory of the library's own";
  must_map(second, kBlock);
  EXPECT_EQ(FakeSession::counts().total_rm_maps, after_first + 1);
  FakeSession::free(first);
  FakeSession::free(second);
}

ISOLATED_TEST(Verification, ACopyEngineThatFailsIsADeviceError) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  must_map(address, kBlock);
  trim_mapping_cache(0);
  session.plant(fake::Call::cuda, "cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto refused = map(pointer(address), kBlock);
  EXPECT_EQ(refused.status(), Status::device_error);
  EXPECT_EQ(FakeSession::counts().windows, 0u) << "not handed out unverified";
  session.remove_faults();
  EXPECT_TRUE(map(pointer(address), kBlock));
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
