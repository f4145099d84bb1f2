// SPDX-License-Identifier: Apache-2.0
// Windows over memory of another process: here this one's, named as a peer's key names it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/descriptor.hpp"
#include "mapping/backend.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::FakeSession;
using test::MappingSession;

constexpr std::size_t kBlock = std::size_t{2} << 20;

PeerMemory named(CUdeviceptr address) {
  PeerMemory peer;
  peer.memory = *describe(reinterpret_cast<void*>(address));
  if (peer.memory.kind == MemoryKind::device) peer.identity = *cuda_runtime()->ipc_identity(peer.memory);
  return peer;
}

void expect_shows(const Window& window, CUdeviceptr address, std::size_t bytes, unsigned char value) {
  std::vector<unsigned char> before = FakeSession::read(address - 64, 64);
  ASSERT_TRUE(window.covers(address, bytes));
  std::memset(window.at(address), value, bytes);
  EXPECT_EQ(FakeSession::read(address, bytes), std::vector<unsigned char>(bytes, value));
  EXPECT_EQ(FakeSession::read(address - 64, 64), before) << "nothing else was touched";
}

ISOLATED_TEST(PeerWindow, OfCudaMallocMemory) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr before = FakeSession::allocate(700);
  const CUdeviceptr small = FakeSession::allocate(5000), large = FakeSession::allocate(2 * kBlock + 4097);
  const auto first = open_peer_window(named(small), {small + 100, 4000});
  ASSERT_TRUE(first) << first.error().message();
  expect_shows(**first, small + 100, 4000, 0x5a);
  const auto second = open_peer_window(named(large), {large + kBlock, 4096});
  ASSERT_TRUE(second) << second.error().message();
  expect_shows(**second, large + kBlock, 4096, 0xa5);
  for (const CUdeviceptr address : {before, small, large}) FakeSession::free(address);
}

ISOLATED_TEST(PeerWindow, OfAnExportedDescriptor) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr vmm = FakeSession::allocate_vmm(0, 2 * kBlock, true);
  PeerMemory peer = named(vmm);
  const Descriptor exported(*cuda_runtime()->export_descriptor(vmm));
  peer.descriptor = exported.get();
  const auto window = open_peer_window(peer, {vmm + 4096, 8192});
  ASSERT_TRUE(window) << window.error().message();
  expect_shows(**window, vmm + 4096, 8192, 0x3c);
  FakeSession::free_vmm(vmm, 2 * kBlock);
}

ISOLATED_TEST(PeerWindow, AnIdentityThatDoesNotFitIsRefused) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  PeerMemory of_another_gpu = named(address), too_long = named(address), no_handles = named(address);
  (*of_another_gpu.identity)[8] ^= 1;
  too_long.memory.length_bytes = std::size_t{1} << 40;
  (*no_handles.identity)[13] = 0;
  for (const PeerMemory* wrong : {&of_another_gpu, &too_long, &no_handles}) {
    const auto window = open_peer_window(*wrong, {address, 64});
    EXPECT_EQ(window.status(), Status::not_supported);
  }
  FakeSession::free(address);
}

ISOLATED_TEST(PeerWindow, OnlyByTheBackendThatCan) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  const PeerMemory peer = named(address);
  ::setenv("GIGABAR_MAPPING", "gdrdrv", 1);
  EXPECT_EQ(open_peer_window(peer, {address, 64}).status(), Status::not_supported);
  ::setenv("GIGABAR_MAPPING", "rm", 1);
  EXPECT_TRUE(open_peer_window(peer, {address, 64}));
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
