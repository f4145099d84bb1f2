// SPDX-License-Identifier: Apache-2.0
// Device memory between local ranks, on a fake libcuda: IPC handles, exported descriptors, copy engines, and drivers that refuse.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "base/errors.hpp"
#include "fakes/paths.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "transport/local/device_copier.hpp"
#include "transport/local/wire.hpp"
#include "unit/transport/local/cuda_pair.hpp"

namespace gigabar::transport {
namespace {

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
  ASSERT_TRUE(proof_of(0) && proof_of(1));  // which is kept
  const gigabar::fake::Counts before = FakeSession::counts();
  {
    Pair pair(kSomebodyElse, 0);
    expect_moves(pair, plain_range(host), range_of(*machine.second), "cuda_ipc");
    expect_moves(pair, range_of(*machine.first), shared.range(), "memfd");
  }
  EXPECT_TRUE(shared.are_guards_whole());
  EXPECT_EQ(FakeSession::counts().host_registrations, before.host_registrations);
  EXPECT_EQ(FakeSession::counts().host_allocations, before.host_allocations);
  EXPECT_EQ(FakeSession::counts().streams, before.streams);
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

// Whether bytes of all sizes can be stored, and lie where they belong, alone.
void expect_stores(Pair& pair, const MemoryRange& from, const MemoryRange& to) {
  const Regions regions(pair, from, to);
  const auto store = [&](std::span<const unsigned char> bytes, std::size_t at) {
    return pair.links[0]->post_copied_write(std::as_bytes(bytes), *regions.remote, at, false);
  };
  EXPECT_FALSE(pair.links[0]->can_store(*regions.remote)) << "nobody has asked for it";
  ASSERT_TRUE(pair.links[0]->open_for_stores(*regions.remote));
  EXPECT_TRUE(pair.links[0]->can_store(*regions.remote));
  std::vector<unsigned char> expected(to.bytes, 0x22);
  put(to, expected);
  for (const std::size_t bytes :
       {1U, 2U, 3U, 4U, 7U, 8U, 15U, 16U, 17U, 63U, 64U, 65U, 127U, 255U, 1000U, 2048U, 4097U, 8192U, 65536U}) {
    for (const std::size_t at : {0U, 1U, 5U, 33U, 64U, 4095U}) {
      const auto sent = pattern(bytes, static_cast<unsigned>(bytes + at));
      ASSERT_EQ(store(sent, at), Posted::ok);
      std::ranges::copy(sent, expected.begin() + static_cast<std::ptrdiff_t>(at));
      ASSERT_EQ(got(to), expected) << bytes << " at " << at;
    }
  }
  EXPECT_EQ(store(pattern(64, 1), to.bytes - 63), Posted::full);
  EXPECT_EQ(store(pattern(65537, 1), 0), Posted::full);
  EXPECT_EQ(got(to), expected);
}

ISOLATED_TEST(LocalCuda, FewBytesAreStoredIntoMemoryOfAnotherProcess) {
  TwoGpus machine;
  machine.allocate(300'000);
  constexpr std::size_t kBytes = 4 << 20;
  const CUdeviceptr vmm = FakeSession::allocate_vmm(1, kBytes, true);
  {
    Pair pair(kSomebodyElse, 0);
    expect_stores(pair, range_of(*machine.first), range_of(*machine.second));
    expect_stores(pair, range_of(*machine.first), {reinterpret_cast<void*>(vmm), 100'000, MemoryKind::device_vmm, 1, -1, 0});
  }
  FakeSession::free_vmm(vmm, kBytes);
}

bool is_opened(Pair& pair, const MemoryRange& from, const MemoryRange& to) {
  const Regions regions(pair, from, to);
  return pair.links[0]->open_for_stores(*regions.remote) && pair.links[0]->can_store(*regions.remote);
}

ISOLATED_TEST(LocalCuda, StoresAreForMemoryThatTheCpuMayMap) {
  TwoGpus machine;
  machine.allocate(300'000);
  std::vector<std::byte> host(100'000);
  MemoryRange managed = plain_range(host);
  managed.kind = MemoryKind::managed;
  {
    Pair pair(kSomebodyElse, 0);
    EXPECT_FALSE(is_opened(pair, range_of(*machine.first), managed));
    EXPECT_FALSE(is_opened(pair, range_of(*machine.first), plain_range(host))) << "its pages are not shared";
  }
  Pair pair;
  EXPECT_FALSE(is_opened(pair, range_of(*machine.first), range_of(*machine.second))) << "of this process";
  EXPECT_TRUE(is_opened(pair, range_of(*machine.first), plain_range(host))) << "of this process";
}

// Of a key of the second GPU's memory, changed on its way.
bool is_opened_by_a_key(Pair& pair, const TwoGpus& machine, void (*change)(local::KeyBytes&)) {
  const auto shown = must(pair.transports[1]->register_memory(range_of(*machine.second)));
  Parcel parcel = must(shown->key(pair.peers[1]));
  local::KeyBytes key;
  EXPECT_TRUE(local::read_front(parcel.bytes, key));
  change(key);
  parcel.bytes = local::bytes_of(key);
  const auto remote = must(pair.transports[0]->open_region(pair.peers[0], std::move(parcel)));
  return pair.links[0]->open_for_stores(*remote);
}

ISOLATED_TEST(LocalCuda, StoresNeedNotSeeTheGpuButItsProof) {
  TwoGpus machine;
  machine.allocate(300'000);
  Pair pair(kSomebodyElse, 0);
  EXPECT_FALSE(is_opened_by_a_key(pair, machine, [](local::KeyBytes& key) { key.proof = {}; }));
  EXPECT_FALSE(is_opened_by_a_key(pair, machine, [](local::KeyBytes& key) { ++key.proof.nonces[1]; }));
  EXPECT_TRUE(is_opened_by_a_key(pair, machine, [](local::KeyBytes& key) { key.uuid = {'?'}; }));
}

// The owner gives back what it can do without; not the proof of memory that peers may still open.
ISOLATED_TEST(LocalCuda, TheProofStaysWithItsMemory) {
  TwoGpus machine;
  machine.allocate(300'000);
  Pair pair(kSomebodyElse, 0);
  const auto used_bytes = [] { return FakeSession::counts().memory_used_bytes[1]; };
  {
    const Regions regions(pair, range_of(*machine.first), range_of(*machine.second));
    const std::uint64_t before = used_bytes();
    trim_mapping_cache(0);
    EXPECT_EQ(used_bytes(), before);
    EXPECT_TRUE(pair.links[0]->open_for_stores(*regions.remote));
  }
  const std::uint64_t before = used_bytes();
  trim_mapping_cache(0);
  EXPECT_LT(used_bytes(), before);
}

// Its owner has no room for a proof: nothing is stored, and copies go on.
ISOLATED_TEST(LocalCuda, AGpuWithoutAProofIsStillReached) {
  TwoGpus machine;
  machine.allocate(300'000);
  machine.session.plant(fake::Call::cuda, "cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  Pair pair(kSomebodyElse, 0);
  EXPECT_FALSE(is_opened(pair, range_of(*machine.first), range_of(*machine.second)));
  expect_moves(pair, range_of(*machine.first), range_of(*machine.second), "cuda_ipc");
}

// A window is of the whole allocation where that is small: this one's segment is not what counts. NVML tells no size here.
ISOLATED_TEST(LocalCuda, WindowsForStoresHaveAShareOfBar1) {
  TwoGpus machine;
  constexpr std::size_t kShareBytes = 4 << 20;  // 1/64 of 256 MiB
  const auto first = must(DeviceMemory::allocate(0, 100'000));
  const auto large = must(DeviceMemory::allocate(1, std::size_t{60} << 20));
  const auto whole = must(DeviceMemory::allocate(1, kShareBytes)), other = must(DeviceMemory::allocate(1, kShareBytes / 2));
  Pair pair(kSomebodyElse, 0);
  MemoryRange part = range_of(large);
  part.bytes = 4096;
  EXPECT_FALSE(is_opened(pair, range_of(first), part));
  {
    const Regions regions(pair, range_of(first), range_of(whole));
    EXPECT_TRUE(pair.links[0]->open_for_stores(*regions.remote));
    EXPECT_FALSE(is_opened(pair, range_of(first), range_of(other))) << "the first has all of it";
  }
  EXPECT_TRUE(is_opened(pair, range_of(first), range_of(other)));
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

// Who asks is told at once, and nothing is told of a link that was stopped.
ISOLATED_TEST(LocalCuda, ALinkThatIsStoppedSaysWhetherItsCopiesHaveEnded) {
  TwoGpus machine;
  machine.allocate();
  Pair pair(kSomebodyElse, 0);
  const auto sent = pattern(machine.first->bytes(), 5);
  put(range_of(*machine.first), sent);
  const Regions regions(pair, range_of(*machine.first), range_of(*machine.second));
  machine.session.plant(fake::Call::cuda, "cuStreamQuery", CUDA_ERROR_NOT_READY);  // copies stand still
  for (std::uint64_t cookie = 0; cookie < 3; ++cookie)
    ASSERT_EQ(pair.links[0]->post_write(*regions.local, 0, *regions.remote, 0, sent.size(), cookie), Posted::ok);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_FALSE(pair.links[0]->stop());
    pair.poll();
  }
  machine.session.remove_faults();
  bool has_ended = false;
  for (const Deadline deadline = Deadline::after_ns(kLongNs); !has_ended && !deadline.has_passed();)
    has_ended = pair.links[0]->stop();
  EXPECT_TRUE(has_ended);
  EXPECT_TRUE(pair.sinks[0].dones.empty());
  EXPECT_EQ(pair.sinks[0].broken_count, 0);
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

}  // namespace
}  // namespace gigabar::transport
