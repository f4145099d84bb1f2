// SPDX-License-Identifier: Apache-2.0
// Host memory runs out at every single allocation of the library, in turn: the call answers out_of_memory, holds
// nothing, and works the next time.
#include <gtest/gtest.h>

#include <array>
#include <exception>
#include <new>
#include <thread>

#include "support/expect_log.hpp"
#include "support/failing_new.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::fail_each_allocation;
using test::FakeSession;
using test::has_failed;
using test::left_until_failure;
using test::MappingSession;
using test::pointer;

constexpr std::size_t kBlock = std::size_t{2} << 20;

class AllocationFailureSession : public MappingSession {
 public:
  AllocationFailureSession() { test::is_inside_another = symbol<fake::InsideFunction>(fake::kInsideSymbol); }
};

void expect_nothing_held() {
  trim_mapping_cache(0);
  const fake::Counts now = FakeSession::counts();
  EXPECT_EQ(now.windows, 0u);
  EXPECT_EQ(now.rm_memory_objects, 0u);
  EXPECT_EQ(now.rm_mappings, 0u);
  EXPECT_LE(now.device_descriptors, now.rm_clients);
  EXPECT_EQ(now.dma_bufs + now.exports, 0u);
  EXPECT_EQ(now.gdrdrv_pins, 0u);
  EXPECT_LE(now.device_allocations, 1u) << "only the test's own";
  EXPECT_LE(now.rm_clients, 1u);
  EXPECT_LE(now.rm_devices, 1u);
}

void expect_map_survives(MappingBackend backend, bool is_vmm) {
  AllocationFailureSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = is_vmm ? FakeSession::allocate_vmm(0, kBlock, true) : FakeSession::allocate(kBlock);
  MapOptions options;
  options.backend = backend;
  // A file of the machine that cannot be read for want of memory may make a backend unavailable, as without the file.
  const auto is_allowed = [](Status status) { return status == Status::unavailable; };
  // From nothing, with the driver and the device to be opened and proved on the way.
  const unsigned failures =
      fail_each_allocation([&] { return map(pointer(address), kBlock, options).status(); }, expect_nothing_held, is_allowed);
  EXPECT_GT(failures, 10u);
  // And once more, with everything opened.
  trim_mapping_cache(0);
  EXPECT_GT(fail_each_allocation([&] { return map(pointer(address), kBlock, options).status(); }, expect_nothing_held, is_allowed),
            5u);
  trim_mapping_cache(0);
  if (is_vmm) {
    FakeSession::free_vmm(address, kBlock);
  } else {
    FakeSession::free(address);
  }
}

ISOLATED_TEST(AllocationFailure, MapByRm) { expect_map_survives(MappingBackend::rm, false); }
ISOLATED_TEST(AllocationFailure, MapByRmOfVmmMemory) { expect_map_survives(MappingBackend::rm, true); }
ISOLATED_TEST(AllocationFailure, MapByGdrdrv) { expect_map_survives(MappingBackend::gdrdrv, false); }
ISOLATED_TEST(AllocationFailure, MapByDmabuf) { expect_map_survives(MappingBackend::dmabuf, false); }

ISOLATED_TEST(AllocationFailure, DeviceMemory) {
  for (const DeviceAllocator allocator : {DeviceAllocator::cuda_malloc, DeviceAllocator::vmm}) {
    AllocationFailureSession session;
    session.start();
    const unsigned failures = fail_each_allocation([&] { return DeviceMemory::allocate(0, kBlock, allocator).status(); },
                                                   [] { EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], 0u); });
    EXPECT_GT(failures, 0u);
  }
}

ISOLATED_TEST(AllocationFailure, HostMemory) {
  AllocationFailureSession session;
  session.start();
  const unsigned failures = fail_each_allocation([] { return HostMemory::allocate(kBlock).status(); },
                                                 [] { EXPECT_EQ(FakeSession::counts().host_registrations, 0u); });
  EXPECT_GT(failures, 0u);
}

ISOLATED_TEST(AllocationFailure, DescribeAndDevices) {
  AllocationFailureSession session;
  session.start();
  int local = 0;
  EXPECT_GT(fail_each_allocation([&] { return describe(&local).status(); }, [] {}), 0u);  // the drivers are opened on the way
  EXPECT_GT(fail_each_allocation([] { return devices().status(); }, [] {}), 0u);
  EXPECT_GT(fail_each_allocation([] { return mapping_backends(0).status(); }, expect_nothing_held), 0u);
}

// The control: without a failing allocation the counter never strikes.
TEST(AllocationFailureControl, TheCounterStrikesWhenItIsTold) {
  left_until_failure = 2;
  has_failed = false;
  unsigned succeeded = 0, failed = 0;
  for (int i = 0; i < 4; ++i) {
    try {
      ::operator delete(::operator new(8));  // called by name: the compiler may not leave them out
      ++succeeded;
    } catch (const std::bad_alloc&) {
      ++failed;
    }
  }
  EXPECT_TRUE(has_failed);
  EXPECT_EQ(succeeded, 3u) << "the third fails, once";
  EXPECT_EQ(failed, 1u);
}

// Another one: each path strikes once, however many allocations are made on it.
TEST(AllocationFailureControl, EachPathStrikesOnce) {
  std::array<unsigned, 3> failed{};
  const auto allocate = [](unsigned times) {
    for (unsigned i = 0; i < times; ++i) ::operator delete(::operator new(8));
  };
  const auto call = [&] {
    unsigned step = 0;
    try {
      allocate(1000);
      step = 1;
      allocate(1000);
      step = 2;
      std::exception_ptr thrown;
      std::thread other([&] {
        try {
          allocate(1000);
        } catch (...) {
          thrown = std::current_exception();
        }
      });
      other.join();
      if (thrown) std::rethrow_exception(thrown);
      return Status::ok;
    } catch (const std::bad_alloc&) {
      ++failed[step];
      return Status::out_of_memory;
    }
  };
  const unsigned of_this_thread = fail_each_allocation(call, [] {}, {}, test::Failing::each_path);
  EXPECT_EQ(failed[0], 1u);
  EXPECT_EQ(failed[1], 1u);
  EXPECT_GE(failed[2], 1u) << "the thread's own";
  const unsigned of_all = fail_each_allocation(call, [] {}, {}, test::Failing::each_path_of_all_threads);
  EXPECT_EQ(of_all, of_this_thread + 1) << "and one that it makes";
  EXPECT_EQ(failed[0], 2u);
  EXPECT_EQ(failed[1], 2u);
}

}  // namespace
}  // namespace gigabar
