// SPDX-License-Identifier: Apache-2.0
// Windows over memory of another process: here this one's, named as a peer's key names it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <tuple>
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
  expect_shows(*first, small + 100, 4000, 0x5a);
  const auto second = open_peer_window(named(large), {large + kBlock, 4096});
  ASSERT_TRUE(second) << second.error().message();
  expect_shows(*second, large + kBlock, 4096, 0xa5);
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
  expect_shows(*window, vmm + 4096, 8192, 0x3c);
  FakeSession::free_vmm(vmm, 2 * kBlock);
}

ISOLATED_TEST(PeerWindow, AnIdentityThatDoesNotFitIsRefused) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  const auto expect_refused = [&](const PeerMemory& wrong, const std::string& part) {
    const auto window = open_peer_window(wrong, {address, 64});
    ASSERT_FALSE(window) << part;
    EXPECT_EQ(window.status(), Status::not_supported) << window.error().message();
    EXPECT_NE(window.error().message().find("its IPC identity " + part), std::string::npos) << window.error().message();
  };
  for (const auto& [word, value, part] :
       {std::tuple{8, (*named(address).identity)[8] ^ 1, "names GPU"}, std::tuple{6, 1U, "says a block of 4096 bytes"},
        std::tuple{7, UINT32_MAX, "says a block of"}, std::tuple{12, 0U, "holds no handles"},
        std::tuple{13, 0U, "holds no handles"}}) {
    PeerMemory wrong = named(address);
    (*wrong.identity)[static_cast<std::size_t>(word)] = value;
    expect_refused(wrong, part);
  }
  PeerMemory too_long = named(address);
  too_long.memory.length_bytes = std::size_t{1} << 40;
  expect_refused(too_long, "says 5");
  // Its block ends before it.
  too_long.memory.length_bytes = 64 * kBlock;
  (*too_long.identity)[4] = static_cast<std::uint32_t>(too_long.memory.length_bytes);
  expect_refused(too_long, "says a block of");
  FakeSession::free(address);
}

// The status and the sentence of what is in the way.
ISOLATED_TEST(PeerWindow, WhereTheResourceManagerCannotBeUsed) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  const PeerMemory peer = named(address);
  session.plant(fake::Call::open, "/dev/nvidiactl", EACCES);
  const auto refused = open_peer_window(peer, {address, 64});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::unavailable) << refused.error().message();
  EXPECT_NE(refused.error().message().find("cannot open: Permission denied"), std::string::npos) << refused.error().message();
  session.remove_faults();
  EXPECT_TRUE(open_peer_window(peer, {address, 64}));
  FakeSession::free(address);
}

ISOLATED_TEST(PeerWindow, OnlyByTheBackendThatCan) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  const PeerMemory peer = named(address);
  ::setenv("GIGABAR_MAPPING", "gdrdrv", 1);
  const auto refused = open_peer_window(peer, {address, 64});
  EXPECT_EQ(refused.status(), Status::not_supported);
  EXPECT_NE(refused.message().find("memory of another process is mapped by the rm backend only"), std::string::npos)
      << refused.message();
  ::setenv("GIGABAR_MAPPING", "rm", 1);
  EXPECT_TRUE(open_peer_window(peer, {address, 64}));
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
