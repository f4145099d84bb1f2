// Host memory runs out at every single allocation of the library, in turn: the call answers out_of_memory or throws std::bad_alloc,
// holds nothing, and works the next time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <new>

#include "support/expect_log.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace {

// Allocations of this thread that still succeed; negative: all.
thread_local long left_until_failure = -1;
thread_local bool has_failed = false;
bool (*is_inside_the_machine)() = nullptr;

bool fails_now() {
  if (left_until_failure < 0 || (is_inside_the_machine != nullptr && is_inside_the_machine())) return false;
  if (left_until_failure-- > 0) return false;
  has_failed = true;
  left_until_failure = -1;
  return true;
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (fails_now()) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return fails_now() ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
}
// Not inlined: the compiler would see free() of what operator new gave and warn.
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace gigabar {
namespace {

using test::FakeSession;
using test::MappingSession;
using test::pointer;

constexpr std::size_t kBlock = std::size_t{2} << 20;

class AllocationFailureSession : public MappingSession {
 public:
  AllocationFailureSession() { is_inside_the_machine = symbol<fake::InsideFunction>(fake::kInsideSymbol); }
};

// Runs `call` again and again, each time with one more allocation that succeeds, until none fails. Answers how many runs failed.
unsigned fail_each_allocation(const std::function<Status()>& call, const std::function<void()>& check) {
  unsigned failures = 0;
  for (long allowed = 0; allowed < 5000; ++allowed) {
    has_failed = false;
    left_until_failure = allowed;
    Status status = Status::ok;
    try {
      status = call();
    } catch (const std::bad_alloc&) {
      status = Status::out_of_memory;
    }
    left_until_failure = -1;
    if (!has_failed) {
      EXPECT_EQ(status, Status::ok) << "with all its memory it works";
      return failures;
    }
    ++failures;
    check();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "when allocation " << allowed << " failed";
      return failures;
    }
  }
  ADD_FAILURE() << "it never succeeded";
  return failures;
}

void expect_nothing_held() {
  trim_mapping_cache(0);
  const fake::Counts now = FakeSession::counts();
  EXPECT_EQ(now.windows, 0u);
  EXPECT_EQ(now.rm_memory_objects, 0u);
  EXPECT_EQ(now.rm_mappings, 0u);
  EXPECT_EQ(now.device_descriptors, 0u);
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
  // From nothing, with the driver and the device to be opened and proved on the way.
  const unsigned failures =
      fail_each_allocation([&] { return map(pointer(address), kBlock, options).status(); }, expect_nothing_held);
  EXPECT_GT(failures, 10u);
  // And once more, with everything opened.
  trim_mapping_cache(0);
  EXPECT_GT(fail_each_allocation([&] { return map(pointer(address), kBlock, options).status(); }, expect_nothing_held), 5u);
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

}  // namespace
}  // namespace gigabar
