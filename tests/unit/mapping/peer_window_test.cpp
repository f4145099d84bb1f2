// SPDX-License-Identifier: Apache-2.0
// Windows over memory of another process: here this one's, named as a peer's key names it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "base/descriptor.hpp"
#include "mapping/backend.hpp"
#include "support/in_child.hpp"
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

DeviceProof own_proof() {
  auto proof = proof_of(0);
  if (!proof) throw std::runtime_error(proof.error().message());
  return **proof;
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
  const auto first = open_peer_window(named(small), own_proof(), {small + 100, 4000});
  ASSERT_TRUE(first) << first.error().message();
  expect_shows(*first, small + 100, 4000, 0x5a);
  const auto second = open_peer_window(named(large), own_proof(), {large + kBlock, 4096});
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
  const auto window = open_peer_window(peer, own_proof(), {vmm + 4096, 8192});
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
    const auto window = open_peer_window(wrong, own_proof(), {address, 64});
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

// The status and the sentence of what is in the way of a process that has no context of the GPU.
ISOLATED_TEST(PeerWindow, WhereTheResourceManagerCannotBeUsed) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  const PeerMemory peer = named(address);
  const DeviceProof proof = own_proof();
  const auto is_opened = [&] { return open_peer_window(peer, proof, {address, 64}).is_ok() ? 0 : 1; };
  for (const char* file : {"/dev/nvidiactl", "/dev/nvidia0"}) {
    session.plant(fake::Call::open, file, EACCES);
    const auto is_refused = [&] {
      const auto refused = open_peer_window(peer, proof, {address, 64});
      const bool is_told = refused.message().find(file) != std::string::npos &&
                           refused.message().find("cannot open: Permission denied") != std::string::npos;
      return refused.status() == Status::no_permission && is_told ? 0 : 1;
    };
    EXPECT_TRUE(test::run_in_child(is_refused).is_exit(0)) << file;
    session.remove_faults();
    EXPECT_TRUE(test::run_in_child(is_opened).is_exit(0)) << file;
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
  const auto refused = open_peer_window(peer, own_proof(), {address, 64});
  EXPECT_EQ(refused.status(), Status::not_supported);
  EXPECT_NE(refused.message().find("memory of another process is mapped by the rm backend only"), std::string::npos)
      << refused.message();
  ::setenv("GIGABAR_MAPPING", "rm", 1);
  EXPECT_TRUE(open_peer_window(peer, own_proof(), {address, 64}));
  FakeSession::free(address);
}

// No function of CUDA works in a forked child: it is like a process that has no context of the GPU, and does not see it.
ISOLATED_TEST(PeerWindow, AnotherProcessNeedsNoContext) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(3 * kBlock), vmm = FakeSession::allocate_vmm(0, 2 * kBlock, true);
  const DeviceProof proof = own_proof();
  PeerMemory first = named(address), second = named(vmm);
  const Descriptor exported(*cuda_runtime()->export_descriptor(vmm));
  second.descriptor = exported.get();
  const auto store = [&] {
    const std::uint64_t copies = FakeSession::counts().total_copies_to;
    const auto window = open_peer_window(first, proof, {address + kBlock, 64}), other = open_peer_window(second, proof, {vmm, 64});
    if (!window || !other) return 1;
    std::memset(window->at(address + kBlock), 0x5a, 64);
    std::memset(other->at(vmm), 0xa5, 64);
    if (FakeSession::counts().total_copies_to != copies) return 3;
    return cuda_runtime()->describe(address).is_ok() ? 2 : 0;
  };
  EXPECT_TRUE(test::run_in_child(store).is_exit(0));
  EXPECT_EQ(FakeSession::read(address + kBlock, 64), std::vector<unsigned char>(64, 0x5a));
  EXPECT_EQ(FakeSession::read(vmm, 64), std::vector<unsigned char>(64, 0xa5));
  FakeSession::free_vmm(vmm, 2 * kBlock);
  FakeSession::free(address);
}

// The status, and the windows that are left.
void expect_refused(const PeerMemory& peer, const DeviceProof& proof, Status status, const std::string& part) {
  const std::uint32_t windows = FakeSession::counts().windows;
  const auto refused = open_peer_window(peer, proof, {peer.memory.base, 64});
  ASSERT_FALSE(refused) << part;
  EXPECT_EQ(refused.status(), status) << refused.error().message();
  EXPECT_NE(refused.error().message().find(part), std::string::npos) << refused.error().message();
  EXPECT_EQ(FakeSession::counts().windows, windows);
}

ISOLATED_TEST(PeerWindow, AProofThatDoesNotHoldIsRefused) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  const PeerMemory peer = named(address);
  const DeviceProof good = own_proof();
  const auto with = [&](void (*change)(DeviceProof&)) {
    DeviceProof proof = good;
    change(proof);
    return proof;
  };
  constexpr const char* kNotThere = "a number that its owner wrote is not there";
  expect_refused(peer, {}, Status::not_supported, "does not say which GPU it is on");
  expect_refused(peer, with([](DeviceProof& proof) { proof.bytes = 4095; }), Status::not_supported, "does not say which GPU");
  expect_refused(peer, with([](DeviceProof& proof) { proof.pci = {'x'}; }), Status::not_supported, "does not say which GPU");
  expect_refused(peer, with([](DeviceProof& proof) { proof.pci.fill('1'); }), Status::not_supported, "does not say which GPU");
  expect_refused(peer, with([](DeviceProof& proof) { proof.pci[5] = '7'; }), Status::unavailable, "no device file is known");
  expect_refused(peer, with([](DeviceProof& proof) { ++proof.nonces[0]; }), Status::verification_failed, kNotThere);
  expect_refused(peer, with([](DeviceProof& proof) { ++proof.nonces[1]; }), Status::verification_failed, kNotThere);
  expect_refused(peer, with([](DeviceProof& proof) { proof.bytes = kBlock; }), Status::verification_failed, kNotThere);
  expect_refused(peer, with([](DeviceProof& proof) { proof.bytes = std::uint64_t{1} << 60; }), Status::not_supported,
                 "IPC identity");
  expect_refused(peer, with([](DeviceProof& proof) { proof.identity[8] ^= 1; }), Status::not_supported, "names GPU");
  EXPECT_TRUE(open_peer_window(peer, good, {address, 64}));
  // From now on the GPU is known, whoever's memory it was that showed it.
  EXPECT_TRUE(open_peer_window(peer, with([](DeviceProof& proof) { ++proof.nonces[0]; }), {address, 64}));
  FakeSession::free(address);
}

// The window is made, of memory of another GPU.
ISOLATED_TEST(PeerWindow, AWindowOfOtherMemoryIsSeen) {
  MappingSession session;
  session.machine().gpu_count = 2;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  const PeerMemory peer = named(address);
  const DeviceProof proof = own_proof();
  fake::Gpu& told = session.machine().gpus[0];
  told.told_instance = 1;
  session.machine().gpus[1].told_gpu_id = told.gpu_id;
  session.tree().write(std::string("proc/driver/nvidia/gpus/") + told.pci_address + "/information", "Device Minor: \t 1\n");
  const auto is_seen = [&] {
    const fake::Counts before = FakeSession::counts();
    const auto refused = open_peer_window(peer, proof, {peer.memory.base, 64});
    const bool is_told = refused.message().find("the GPU of another process") != std::string::npos;
    if (refused.status() != Status::verification_failed || !is_told) return 1;
    if (FakeSession::counts().windows != before.windows) return 2;
    return FakeSession::counts().total_mmaps > before.total_mmaps ? 0 : 3;
  };
  EXPECT_TRUE(test::run_in_child(is_seen).is_exit(0));
  FakeSession::free(address);
}

// The larger block has no room: the small one does.
ISOLATED_TEST(PeerWindow, AFullGpuHasASmallerProof) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  session.plant(fake::Call::cuda, "cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY, fake::kForEver, 1);
  const DeviceProof proof = own_proof();
  EXPECT_EQ(proof.bytes, 4096U);
  EXPECT_TRUE(open_peer_window(named(address), proof, {address, 64}));
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
