// SPDX-License-Identifier: Apache-2.0
// Device memory between local ranks, on a fake libcuda: IPC handles, exported descriptors, copy engines, and drivers that refuse.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/errors.hpp"
#include "fakes/paths.hpp"
#include "gigabar/memory.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "transport/local/device_copier.hpp"
#include "transport/local/wire.hpp"
#include "unit/transport/local/pair.hpp"

namespace gigabar::transport {
namespace {

using namespace test;
using gigabar::test::FakeSession;
using gigabar::test::pattern;

constexpr std::int64_t kSomebodyElse = 1;

MemoryRange range_of(const DeviceMemory& memory) {
  return {memory.address(), memory.bytes(), MemoryKind::device, memory.device(), -1, 0};
}
CUdeviceptr address_of(const MemoryRange& range) { return reinterpret_cast<CUdeviceptr>(range.address); }

// Content of a range, whatever it is; the fake's device memory cannot be touched by the CPU.
void put(const MemoryRange& range, const std::vector<unsigned char>& content) {
  if (range.kind == MemoryKind::host_pageable || range.kind == MemoryKind::host_pinned) {
    std::memcpy(range.address, content.data(), content.size());
  } else {
    FakeSession::write(address_of(range), content.data(), content.size());
  }
}
std::vector<unsigned char> got(const MemoryRange& range) {
  if (range.kind != MemoryKind::host_pageable && range.kind != MemoryKind::host_pinned)
    return FakeSession::read(address_of(range), range.bytes);
  const auto* const first = static_cast<const unsigned char*>(range.address);
  return {first, first + range.bytes};
}

struct Regions {
  Regions(Pair& pair, const MemoryRange& local_range, const MemoryRange& remote_range)
      : local(must(pair.transports[0]->register_memory(local_range))),
        shown(must(pair.transports[1]->register_memory(remote_range))),
        remote(pair.shown(1, *shown)) {}
  std::unique_ptr<Region> local;
  std::unique_ptr<Region> shown;
  std::unique_ptr<RemoteRegion> remote;
};

void expect_moves(Pair& pair, const MemoryRange& local_range, const MemoryRange& remote_range, std::string_view how) {
  const Regions regions(pair, local_range, remote_range);
  EXPECT_EQ(regions.shown->how(), how);
  const Reach reach = pair.links[0]->reach(Direction::write, *regions.local, *regions.remote);
  ASSERT_TRUE(reach.can) << reach.reason;
  EXPECT_EQ(reach.path, TransferPath::p2p);
  const std::size_t bytes = std::min(local_range.bytes, remote_range.bytes) - 64;
  const auto sent = pattern(local_range.bytes, 3);
  put(local_range, sent);
  put(remote_range, std::vector<unsigned char>(remote_range.bytes, 0x22));
  const std::size_t messages = pair.sinks[1].messages.size();
  pair.sinks[0].dones.clear();
  ASSERT_EQ(pair.links[0]->post_write(*regions.local, 5, *regions.remote, 33, bytes, 1), Posted::ok);
  ASSERT_EQ(pair.links[0]->post_message(header_of(1), {}), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.sinks[1].messages.size() > messages; }));
  const auto arrived = got(remote_range);
  EXPECT_TRUE(std::equal(sent.begin() + 5, sent.begin() + 5 + static_cast<std::ptrdiff_t>(bytes), arrived.begin() + 33));
  EXPECT_EQ(arrived[32], 0x22);
  EXPECT_EQ(arrived[33 + bytes], 0x22);
  put(local_range, std::vector<unsigned char>(local_range.bytes, 0x11));
  ASSERT_EQ(pair.links[0]->post_read(*regions.local, 7, *regions.remote, 33, bytes, 2), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.sinks[0].dones.size() == 2; }));
  const auto back = got(local_range);
  EXPECT_TRUE(std::equal(sent.begin() + 5, sent.begin() + 5 + static_cast<std::ptrdiff_t>(bytes), back.begin() + 7));
  EXPECT_EQ(back[6], 0x11);
  EXPECT_EQ(back[7 + bytes], 0x11);
  for (const auto& [cookie, status] : pair.sinks[0].dones) EXPECT_EQ(status, Status::ok) << cookie;
}

// A machine with two GPUs and memory on both.
struct TwoGpus {
  TwoGpus() {
    session.machine().gpu_count = 2;
    session.start();
  }
  void allocate(std::size_t bytes = 3'000'000) {
    first.emplace(must(DeviceMemory::allocate(0, bytes)));
    second.emplace(must(DeviceMemory::allocate(1, bytes)));
  }
  FakeSession session;
  std::optional<DeviceMemory> first;
  std::optional<DeviceMemory> second;
};

ISOLATED_TEST(LocalCuda, IpcMemoryOfBothGpusIsReached) {
  TwoGpus machine;
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  expect_moves(pair, range_of(*machine.first), range_of(*machine.second), "cuda_ipc");
  expect_moves(pair, range_of(*machine.second), range_of(*machine.first), "cuda_ipc");
}

ISOLATED_TEST(LocalCuda, OneGpuServesBothRanks) {
  TwoGpus machine;
  machine.allocate(100'000);  // small ones share a block
  const auto third = must(DeviceMemory::allocate(0, 100'000));
  Pair pair(kSomebodyElse, 0);
  expect_moves(pair, range_of(*machine.first), range_of(third), "cuda_ipc");
}

ISOLATED_TEST(LocalCuda, RegionsOfOneAllocationShareItsOpening) {
  TwoGpus machine;
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  MemoryRange part = range_of(*machine.second);
  part.bytes = 1'000'000;
  MemoryRange other = part;
  other.address = static_cast<std::byte*>(other.address) + 1'500'000;
  const Regions one(pair, range_of(*machine.first), part);
  EXPECT_TRUE(pair.links[0]->reach(Direction::write, *one.local, *one.remote).can);
  expect_moves(pair, range_of(*machine.first), other, "cuda_ipc");
  EXPECT_TRUE(pair.links[0]->reach(Direction::write, *one.local, *one.remote).can);
}

ISOLATED_TEST(LocalCuda, HostMemoryOnEitherSideIsPinnedAndReached) {
  TwoGpus machine;
  machine.allocate();
  std::vector<std::byte> host(2'000'000);
  const SharedMemory shared(1'000'000);
  {
    Pair pair(kSomebodyElse, 0);
    expect_moves(pair, plain_range(host), range_of(*machine.second), "cuda_ipc");
    expect_moves(pair, range_of(*machine.first), shared.range(), "memfd");
  }
  EXPECT_TRUE(shared.are_guards_whole());
  EXPECT_EQ(FakeSession::counts().host_registrations, 0U);
  EXPECT_EQ(FakeSession::counts().host_allocations, 0U);
  EXPECT_EQ(FakeSession::counts().streams, 0U);
}

ISOLATED_TEST(LocalCuda, VmmMemoryIsImported) {
  TwoGpus machine;
  machine.allocate();
  constexpr std::size_t kBytes = 4 << 20;
  const CUdeviceptr vmm = FakeSession::allocate_vmm(1, kBytes, true);
  {
    Pair pair(kSomebodyElse, 0);
    expect_moves(pair, range_of(*machine.first), {reinterpret_cast<void*>(vmm), kBytes, MemoryKind::device_vmm, 1, -1, 0},
                 "cuda_vmm");
  }
  FakeSession::free_vmm(vmm, kBytes);
}

ISOLATED_TEST(LocalCuda, TwoRanksOfOneProcessUsePlainAddresses) {
  TwoGpus machine;
  machine.allocate();
  Pair pair;
  expect_moves(pair, range_of(*machine.first), range_of(*machine.second), "cuda_ipc");
  std::vector<std::byte> host(1'000'000);
  expect_moves(pair, plain_range(host), range_of(*machine.second), "cuda_ipc");
  expect_moves(pair, range_of(*machine.second), plain_range(host), "process_vm");
}

// Its host memory is shared with nobody, so a write to it is not for copy engines. What it writes itself is, as a read may be.
ISOLATED_TEST(LocalCuda, ThePeerAnswersOutOfItsOwnHostMemory) {
  TwoGpus machine;
  machine.allocate();
  std::vector<std::byte> host(1'000'000);
  Pair pair(kSomebodyElse, 0);
  const Regions regions(pair, range_of(*machine.first), plain_range(host));
  EXPECT_EQ(regions.shown->how(), "process_vm");
  EXPECT_FALSE(pair.links[0]->reach(Direction::write, *regions.local, *regions.remote).can);
  EXPECT_FALSE(pair.links[0]->reach(Direction::read, *regions.local, *regions.remote).can);
  const Reach answer = pair.links[0]->reach(Direction::answer, *regions.local, *regions.remote);
  EXPECT_TRUE(answer.can) << answer.reason;
  EXPECT_EQ(answer.path, TransferPath::p2p);
}

std::string refusal(Pair& pair, const MemoryRange& local_range, const MemoryRange& remote_range) {
  const Regions regions(pair, local_range, remote_range);
  const Reach reach = pair.links[0]->reach(Direction::write, *regions.local, *regions.remote);
  EXPECT_FALSE(reach.can);
  EXPECT_EQ(reach.path, TransferPath::none);
  pair.sinks[0].dones.clear();
  EXPECT_EQ(pair.links[0]->post_write(*regions.local, 0, *regions.remote, 0, 8, 1), Posted::ok);
  pair.poll();
  EXPECT_EQ(pair.sinks[0].dones.at(0).second, Status::not_supported);
  EXPECT_EQ(pair.links[0]->state(), LinkState::ready);
  return reach.reason;
}

ISOLATED_TEST(LocalCuda, WhatCannotBeReachedSaysWhy) {
  TwoGpus machine;
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  constexpr std::size_t kBytes = 4 << 20;
  const CUdeviceptr vmm = FakeSession::allocate_vmm(1, kBytes, false);
  EXPECT_NE(refusal(pair, range_of(*machine.first), {reinterpret_cast<void*>(vmm), kBytes, MemoryKind::device_vmm, 1, -1, 0})
                .find("was not made with a handle type"),
            std::string::npos);
  FakeSession::free_vmm(vmm, kBytes);
  CUdeviceptr pool = 0;
  ASSERT_EQ(CUDA(cuMemAllocAsync)(&pool, kBytes, nullptr), CUDA_SUCCESS);
  EXPECT_NE(refusal(pair, range_of(*machine.first), {reinterpret_cast<void*>(pool), kBytes, MemoryKind::device_pool, 0, -1, 0})
                .find("memory of a pool"),
            std::string::npos);
  ASSERT_EQ(CUDA(cuMemFreeAsync)(pool, nullptr), CUDA_SUCCESS);
  std::vector<std::byte> managed(4096);
  MemoryRange range = plain_range(managed);
  range.kind = MemoryKind::managed;
  EXPECT_NE(refusal(pair, range_of(*machine.first), range).find("managed"), std::string::npos);
  MemoryRange beyond = range_of(*machine.second);
  beyond.bytes += 100'000'000;
  EXPECT_NE(refusal(pair, range_of(*machine.first), beyond).find("several allocations"), std::string::npos);
  std::vector<std::byte> host(4096);  // not shared: its owner is another process
  EXPECT_FALSE(refusal(pair, range_of(*machine.first), plain_range(host)).empty());
}

// What was made exportable is opened to the other device where it lies.
ISOLATED_TEST(LocalCuda, VmmMemoryOfThisProcess) {
  TwoGpus machine;
  machine.allocate();
  constexpr std::size_t kBytes = 4 << 20;
  Pair pair;
  for (const bool is_exportable : {true, false}) {
    const CUdeviceptr vmm = FakeSession::allocate_vmm(1, kBytes, is_exportable);
    const MemoryRange range{reinterpret_cast<void*>(vmm), kBytes, MemoryKind::device_vmm, 1, -1, 0};
    if (is_exportable) {
      expect_moves(pair, range_of(*machine.first), range, "cuda_vmm");
    } else {
      EXPECT_NE(refusal(pair, range_of(*machine.first), range).find("open to its own device only"), std::string::npos);
    }
    FakeSession::free_vmm(vmm, kBytes);
  }
}

ISOLATED_TEST(LocalCuda, WithoutPeerAccessItIsNoReach) {
  TwoGpus machine;
  machine.session.machine().has_peer_access = false;
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  EXPECT_NE(refusal(pair, range_of(*machine.first), range_of(*machine.second)).find("has no peer access to device 1"),
            std::string::npos);
  Pair here;
  EXPECT_NE(refusal(here, range_of(*machine.first), range_of(*machine.second)).find("has no peer access to device 1"),
            std::string::npos);
}

// --- Atomics of kernels over the link to the other GPU --------------------------------------------------------------------------

// Why kernels of GPU 0 have no atomics on memory of GPU 1; empty: they have. `key_uuid`: what the key says of the owner instead.
std::string why_no_atomics(Pair& pair, const TwoGpus& machine, const char* key_uuid = nullptr, int device = 0) {
  const auto shown = must(pair.transports[1]->register_memory(range_of(*machine.second)));
  Parcel parcel = must(shown->key(pair.peers[1]));
  if (key_uuid != nullptr) {
    local::KeyBytes key;
    EXPECT_TRUE(local::read_front(parcel.bytes, key));
    key.uuid = {};
    std::strncpy(key.uuid.data(), key_uuid, key.uuid.size() - 1);
    parcel.bytes = local::bytes_of(key);
  }
  const auto remote = must(pair.transports[0]->open_region(pair.peers[0], std::move(parcel)));
  return must(remote->map(device)).why_no_atomics;
}

ISOLATED_TEST(LocalCuda, AtomicsAreThereWhereTheDriverSaysSo) {
  TwoGpus machine;
  machine.allocate();
  for (const std::int64_t process : {kSomebodyElse, std::int64_t{::getpid()}}) {
    Pair pair(process, 0);
    machine.session.machine().has_peer_atomics = true;
    EXPECT_EQ(why_no_atomics(pair, machine), "");
    machine.session.machine().has_peer_atomics = false;
    const std::string why = why_no_atomics(pair, machine);
    EXPECT_NE(why.find("device 0 has no native atomics on memory of device 1"), std::string::npos) << why;
    EXPECT_NE(why.find("CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED"), std::string::npos) << why;
    EXPECT_EQ(why_no_atomics(pair, machine, nullptr, 1), "") << "the GPU that has the memory needs no link";
  }
}

#if GIGABAR_HAS_NVML
// CUDA's word counts while it gives one; NVML, which says otherwise here, is asked when it does not.
ISOLATED_TEST(LocalCuda, NvmlIsAskedForAtomicsThatCudaDoesNotTellOf) {
  TwoGpus machine;
  const gigabar::test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", gigabar::test::kFakeNvmlLibrary);
  machine.allocate();  // opens it
  const std::string first = machine.session.machine().gpus[0].pci_address, second = machine.session.machine().gpus[1].pci_address;
  const auto told = [&](const char* peers) { return first + " peers=" + peers + "; " + second + "; 0000:99:00.0"; };
  constexpr const char* kHidden = "GPU-of-0000:99:00.0";
  Pair pair(kSomebodyElse, 0);
  {
    const gigabar::test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", told("0,0,1").c_str());
    EXPECT_EQ(why_no_atomics(pair, machine), "") << "CUDA says that they are there";
    const std::string why = why_no_atomics(pair, machine, kHidden);
    EXPECT_NE(why.find("hidden GPU GPU-of-0000:99:00.0"), std::string::npos) << why;
    EXPECT_NE(why.find("NVML (chipset_not_supported)"), std::string::npos) << why;
    machine.session.plant(fake::Call::cuda, "cuDeviceGetP2PAttribute", CUDA_ERROR_UNKNOWN);
    EXPECT_NE(why_no_atomics(pair, machine).find("NVML (chipset_not_supported)"), std::string::npos);
  }
  {
    const gigabar::test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", told("0,0,0").c_str());
    EXPECT_EQ(why_no_atomics(pair, machine), "") << "CUDA fails, NVML says that they are there";
    EXPECT_EQ(why_no_atomics(pair, machine, kHidden), "");
    EXPECT_NE(why_no_atomics(pair, machine, "GPU-of-nobody").find("CUDA and NVML do not say"), std::string::npos);
  }
  for (const char* const no_answer : {"0,0,6", "0,0,77"}) {  // NVML_P2P_STATUS_UNKNOWN, and a status of a newer NVML
    const gigabar::test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", told(no_answer).c_str());
    EXPECT_NE(why_no_atomics(pair, machine).find("CUDA and NVML do not say"), std::string::npos) << no_answer;
  }
}
#endif

ISOLATED_TEST(LocalCuda, AnOldDriverThatTellsNothingHasNoAtomics) {
  TwoGpus machine;
  std::strncpy(machine.session.machine().hidden_symbol, "cuDeviceGetP2PAttribute",
               sizeof machine.session.machine().hidden_symbol - 1);
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  EXPECT_NE(why_no_atomics(pair, machine).find("CUDA and NVML do not say"), std::string::npos);
}

ISOLATED_TEST(LocalCuda, ADriverThatOpensNothingIsNoReach) {
  TwoGpus machine;
  machine.allocate();
  for (const char* const call : {"cuIpcOpenMemHandle", "cuStreamCreate", "cuMemHostAlloc"}) {
    machine.session.plant(fake::Call::cuda, call, CUDA_ERROR_UNKNOWN);
    Pair pair(kSomebodyElse, 0);
    const Regions regions(pair, range_of(*machine.first), range_of(*machine.second));
    const Reach reach = pair.links[0]->reach(Direction::write, *regions.local, *regions.remote);
    EXPECT_FALSE(reach.can);
    EXPECT_NE(reach.reason.find("CUDA_ERROR_UNKNOWN"), std::string::npos) << call << ": " << reach.reason;
    machine.session.remove_faults();
  }
  machine.session.plant(fake::Call::cuda, "cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY);
  Pair pair(kSomebodyElse, 0);
  std::vector<std::byte> host(4096);
  EXPECT_NE(refusal(pair, plain_range(host), range_of(*machine.second)).find("could not be pinned"), std::string::npos);
}

ISOLATED_TEST(LocalCuda, AKeyCannotReachBeyondWhatWasOpened) {
  TwoGpus machine;
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  const auto local = must(pair.transports[0]->register_memory(range_of(*machine.first)));
  const auto shown = must(pair.transports[1]->register_memory(range_of(*machine.second)));
  Parcel parcel = must(shown->key(pair.peers[1]));
  local::KeyBytes key;
  ASSERT_TRUE(local::read_front(parcel.bytes, key));
  key.offset_bytes = std::uint64_t{1} << 40;
  key.allocation_bytes = std::uint64_t{1} << 41;
  parcel.bytes = local::bytes_of(key);
  const auto remote = must(pair.transports[0]->open_region(pair.peers[0], std::move(parcel)));
  const Reach reach = pair.links[0]->reach(Direction::write, *local, *remote);
  EXPECT_FALSE(reach.can);
  EXPECT_NE(reach.reason.find("smaller than the key says"), std::string::npos) << reach.reason;
  key.ipc.fill(0x12345678);
  Parcel wrong;
  wrong.bytes = local::bytes_of(key);
  const auto nothing = must(pair.transports[0]->open_region(pair.peers[0], std::move(wrong)));
  EXPECT_FALSE(pair.links[0]->reach(Direction::write, *local, *nothing).can);
}

// Before anything is opened by it.
ISOLATED_TEST(LocalCuda, AKeyThatContradictsItselfIsMalformed) {
  TwoGpus machine;
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  const auto shown = must(pair.transports[1]->register_memory(range_of(*machine.second)));
  const Parcel good = must(shown->key(pair.peers[1]));
  const auto open_with = [&](void (*change)(local::KeyBytes&)) {
    local::KeyBytes key;
    EXPECT_TRUE(local::read_front(good.bytes, key));
    change(key);
    Parcel parcel;
    parcel.bytes = local::bytes_of(key);
    return pair.transports[0]->open_region(pair.peers[0], std::move(parcel));
  };
  EXPECT_TRUE(open_with([](local::KeyBytes&) {}).is_ok());
  void (*const changes[])(local::KeyBytes&) = {
      [](local::KeyBytes& key) { key.allocation_bytes = key.offset_bytes + key.bytes - 1; },
      [](local::KeyBytes& key) { key.offset_bytes = key.allocation_bytes + 1; },
      [](local::KeyBytes& key) { key.offset_bytes = key.allocation_bytes - key.bytes + 1; },
      [](local::KeyBytes& key) { key.offset_bytes = key.address + 1, key.allocation_bytes = std::uint64_t{1} << 62; },
      [](local::KeyBytes& key) { key.allocation_bytes = ~std::uint64_t{0}; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    const auto opened = open_with(changes[i]);
    ASSERT_EQ(opened.status(), Status::bad_file) << i;
    EXPECT_NE(opened.error().message().find("names memory beyond its allocation"), std::string::npos) << opened.error().message();
  }
}

ISOLATED_TEST(LocalCuda, AHostileDescriptorIsNoAllocation) {
  TwoGpus machine;
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  const auto local = must(pair.transports[0]->register_memory(range_of(*machine.first)));
  local::KeyBytes key;
  key.form = local::KeyForm::vmm;
  key.kind = static_cast<std::uint32_t>(MemoryKind::device_vmm);
  key.address = 1 << 20;
  key.bytes = key.allocation_bytes = 4 << 20;
  Parcel parcel;
  parcel.bytes = local::bytes_of(key);
  parcel.descriptors.emplace_back(::memfd_create("no allocation", MFD_CLOEXEC));
  const auto remote = must(pair.transports[0]->open_region(pair.peers[0], std::move(parcel)));
  EXPECT_NE(pair.links[0]->reach(Direction::write, *local, *remote).reason.find("import"), std::string::npos);
}

// The end of copies is seen by events where the driver cannot write a word from a stream.
ISOLATED_TEST(LocalCuda, EventsStandInForWrittenWords) {
  TwoGpus machine;
  machine.allocate();
  machine.session.plant(fake::Call::cuda, "cuStreamWriteValue32", CUDA_ERROR_NOT_SUPPORTED);
  Pair pair(kSomebodyElse, 0);
  for (int turn = 0; turn < 5; ++turn) expect_moves(pair, range_of(*machine.first), range_of(*machine.second), "cuda_ipc");
}

ISOLATED_TEST(LocalCuda, AnOldDriverHasNoSuchFunctionAndStillCopies) {
  TwoGpus machine;
  std::snprintf(machine.session.machine().hidden_symbol, sizeof machine.session.machine().hidden_symbol, "cuStreamWriteValue32");
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  expect_moves(pair, range_of(*machine.first), range_of(*machine.second), "cuda_ipc");
}

namespace {

void expect_a_failing_copy_breaks_the_link(TwoGpus& machine, const char* call, Posted message) {
  Pair pair(kSomebodyElse, 0);
  const Regions regions(pair, range_of(*machine.first), range_of(*machine.second));
  const Reach reach = pair.links[0]->reach(Direction::write, *regions.local, *regions.remote);
  ASSERT_TRUE(reach.can) << reach.reason;
  machine.session.plant(fake::Call::cuda, call, CUDA_ERROR_ILLEGAL_ADDRESS);
  for (std::uint64_t cookie = 1; cookie <= 3; ++cookie) {
    pair.links[0]->post_write(*regions.local, 0, *regions.remote, 0, 4096, cookie);
  }
  EXPECT_EQ(pair.links[0]->post_message(header_of(1), {}), message);
  EXPECT_TRUE(pair.poll_until([&] { return pair.sinks[0].broken_count == 1; }));
  EXPECT_NE(pair.sinks[0].why.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << pair.sinks[0].why;
  EXPECT_FALSE(pair.sinks[0].dones.empty());
  for (const auto& [cookie, status] : pair.sinks[0].dones) EXPECT_EQ(status, Status::device_error) << cookie;
  EXPECT_TRUE(pair.sinks[1].messages.empty()) << "a message overtook a write that failed";
  EXPECT_EQ(pair.sinks[1].broken_count, 0);
  machine.session.remove_faults();
}

}  // namespace

ISOLATED_TEST(LocalCuda, ACopyThatDoesNotStartBreaksTheLinkAfterItsDone) {
  TwoGpus machine;
  machine.allocate();
  expect_a_failing_copy_breaks_the_link(machine, "cuMemcpyDtoDAsync", Posted::broken);
}

// From here on the copy may be under way for ever: what it works on stays open.
ISOLATED_TEST(LocalCuda, ACopyWhoseEndCannotBeMarkedBreaksTheLinkAfterItsDone) {
  TwoGpus machine;
  machine.allocate();
  machine.session.expect_kept_memory();
  expect_a_failing_copy_breaks_the_link(machine, "cuStreamWriteValue32", Posted::broken);
}

ISOLATED_TEST(LocalCuda, ACopyThatFailsLaterBreaksTheLinkAfterItsDone) {
  TwoGpus machine;
  machine.allocate();
  machine.session.expect_kept_memory();
  expect_a_failing_copy_breaks_the_link(machine, "cuStreamQuery", Posted::ok);
}

ISOLATED_TEST(LocalCuda, ALinkThatGoesWaitsForItsCopies) {
  TwoGpus machine;
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  const auto sent = pattern(machine.first->bytes(), 5);
  put(range_of(*machine.first), sent);
  const Regions regions(pair, range_of(*machine.first), range_of(*machine.second));
  for (std::uint64_t cookie = 0; cookie < 20; ++cookie)
    ASSERT_EQ(pair.links[0]->post_write(*regions.local, 0, *regions.remote, 0, sent.size(), cookie), Posted::ok);
  pair.links[0].reset();
  EXPECT_EQ(got(range_of(*machine.second)), sent);
}

ISOLATED_TEST(LocalCuda, NumbersOfCopiesWrap) {
  TwoGpus machine;
  machine.allocate(8192);
  for (const bool has_events : {false, true}) {
    if (has_events) machine.session.plant(fake::Call::cuda, "cuStreamWriteValue32", CUDA_ERROR_NOT_SUPPORTED);
    local::CopierOptions options;
    options.first_number = UINT32_MAX - 3;
    const auto copier = must(local::DeviceCopier::open(0, std::move(options)));
    const auto sent = pattern(8192, 9);
    put(range_of(*machine.first), sent);
    std::vector<local::CopyTicket> tickets;
    for (std::size_t copy = 0; copy < 64; ++copy) {
      tickets.push_back(must(copier->copy(CopyWay::between_devices, address_of(range_of(*machine.second)) + copy * 128,
                                          address_of(range_of(*machine.first)) + copy * 128, 128)));
    }
    const Deadline deadline = Deadline::after_ns(kLongNs);
    for (const local::CopyTicket ticket : tickets) {
      while (copier->look(ticket) != local::CopyState::finished && !deadline.has_passed()) copier->check();
    }
    EXPECT_TRUE(copier->is_idle());
    EXPECT_EQ(got(range_of(*machine.second)), sent);
    for (const local::CopyTicket ticket : tickets) EXPECT_EQ(copier->look(ticket), local::CopyState::finished);
  }
}

// What the persistent copy kernel does with its requests is said by the test; it copies nothing itself.
class ScriptedCopier final : public local::PersistentCopyKernel {
 public:
  struct Script {
    bool is_there = true;
    std::vector<std::uint32_t> asked;
    std::vector<State> states;  // by request; running where none is said
    unsigned noted = 0;
    std::optional<Error> lost;
  };
  explicit ScriptedCopier(Script& script) : script_(script) {}

  std::optional<std::uint32_t> post(std::uintptr_t, std::uintptr_t, std::uint64_t) override {
    if (!script_.is_there) return std::nullopt;
    script_.asked.push_back(static_cast<std::uint32_t>(script_.asked.size()));
    return script_.asked.back();
  }
  void note_copy() override { ++script_.noted; }
  State look(std::uint32_t number) override { return number < script_.states.size() ? script_.states[number] : State::running; }
  Result<void> check() override { return script_.lost ? Result<void>(*script_.lost) : Result<void>(); }

 private:
  Script& script_;
};

class LocalCudaKernel {
 public:
  static constexpr std::size_t kBytes = 8192;
  LocalCudaKernel() {
    machine.allocate(kBytes);
    local::CopierOptions options;
    options.most_kernel_bytes = 4096;
    options.kernel = std::make_unique<ScriptedCopier>(script);
    copier = must(local::DeviceCopier::open(0, std::move(options)));
    put(range_of(*machine.first), sent);
  }
  local::CopyTicket copy(std::size_t at, std::size_t bytes, std::size_t skew = 0) const {
    return must(copier->copy(CopyWay::between_devices, address_of(range_of(*machine.second)) + at,
                             address_of(range_of(*machine.first)) + at + skew, bytes));
  }
  local::CopyState wait(local::CopyTicket ticket) const {
    const Deadline deadline = Deadline::after_ns(kLongNs);
    local::CopyState state = copier->look(ticket);
    while (state == local::CopyState::running && !deadline.has_passed()) {
      copier->check();
      state = copier->look(ticket);
    }
    return state;
  }

  TwoGpus machine;
  ScriptedCopier::Script script;
  std::unique_ptr<local::DeviceCopier> copier;
  const std::vector<unsigned char> sent = pattern(kBytes, 11);
};

ISOLATED_TEST(LocalCuda, OnlyCopiesThatFitAreAskedOfTheKernel) {
  LocalCudaKernel test;
  EXPECT_EQ(test.copy(0, 4096).stream, local::kPersistentKernel);
  EXPECT_EQ(test.script.noted, 0U);
  EXPECT_NE(test.copy(0, 4097).stream, local::kPersistentKernel);
  EXPECT_NE(test.copy(0, 64, 8).stream, local::kPersistentKernel) << "not aligned to each other";
  EXPECT_EQ(test.script.noted, 0U) << "no other copy tells of more to come";
  test.script.is_there = false;
  EXPECT_NE(test.copy(0, 64).stream, local::kPersistentKernel);
  EXPECT_EQ(test.script.noted, 1U);
  test.script.states = {local::PersistentCopyKernel::State::finished};
}

ISOLATED_TEST(LocalCuda, WhatTheKernelLeavesUndoneTheEngineDoes) {
  LocalCudaKernel test;
  const local::CopyTicket done = test.copy(0, 4096);
  const local::CopyTicket undone = test.copy(4096, 4096);
  EXPECT_EQ(test.copier->look(undone), local::CopyState::running);
  EXPECT_FALSE(test.copier->is_idle());
  put(range_of(*test.machine.second), std::vector<unsigned char>(4096));
  test.script.states = {local::PersistentCopyKernel::State::finished, local::PersistentCopyKernel::State::abandoned};
  EXPECT_EQ(test.wait(done), local::CopyState::finished);
  EXPECT_EQ(test.wait(undone), local::CopyState::finished);
  EXPECT_TRUE(test.copier->is_idle());
  const auto placed = got(range_of(*test.machine.second));
  EXPECT_TRUE(std::equal(placed.begin() + 4096, placed.end(), test.sent.begin() + 4096));
  EXPECT_EQ(test.copier->look(undone), local::CopyState::finished) << "asked once more";
}

ISOLATED_TEST(LocalCuda, ALostKernelFailsWhatWasAskedOfIt) {
  LocalCudaKernel test;
  const local::CopyTicket ticket = test.copy(0, 64);
  test.script.lost = make_error(Status::device_error, "copy", "copy kernel", "the device is lost", {});
  EXPECT_EQ(test.wait(ticket), local::CopyState::failed);
  EXPECT_EQ(test.copier->failure().status(), Status::device_error);
  EXPECT_FALSE(test.copier->copy(CopyWay::between_devices, 0, 0, 16));
}

}  // namespace
}  // namespace gigabar::transport
