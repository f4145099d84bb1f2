// SPDX-License-Identifier: Apache-2.0
// map() on a real GPU: every kind of memory, what is refused, what is shared, what outlives a free, and a planted wrong device.
#include <cuda.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "driver/rm/abi.hpp"
#include "driver/system_calls.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "gpu/gpu_fixture.hpp"
#include "support/expect_log.hpp"
#include "support/isolated.hpp"

namespace gigabar::test {
namespace {

class MappingTest : public GpuTest {
 protected:
  void TearDown() override { trim_mapping_cache(0); }
};

// Both directions at the first, the last and a middle word of the range.
void expect_shows(const Mapping& mapping, const void* device_address, std::size_t bytes) {
  for (const std::size_t offset : {std::size_t{0}, bytes / 2 / 8 * 8, bytes - 8}) {
    const auto* place = static_cast<const std::byte*>(device_address) + offset;
    const std::uint64_t stored = 0x1122334455667788u + offset;
    ASSERT_TRUE(copy_to(mapping, offset, &stored, sizeof stored));
    EXPECT_EQ(peek(place), stored) << "offset " << offset;
    poke(const_cast<std::byte*>(place), ~stored);
    std::uint64_t loaded = 0;
    ASSERT_TRUE(copy_from(mapping, offset, &loaded, sizeof loaded));
    EXPECT_EQ(loaded, ~stored) << "offset " << offset;
  }
}

// Tells in `seen` that the word was set, or (2) that the time was over first.
__global__ void await_word(const volatile std::uint64_t* word, std::uint64_t* seen, std::uint64_t most_ns) {
  const std::uint64_t begin_ns = device::now_ns();
  while (*word == 0 && device::now_ns() - begin_ns < most_ns) {
  }
  *seen = *word != 0 ? 1 : 2;
}

// The kernel waits for a store through the mapping.
ISOLATED_TEST(FirstMapping, WaitsForNoKernel) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU";
  const CudaBuffer words(2 * sizeof(std::uint64_t));
  poke(words.at(0), 0);
  poke(words.at(8), 0);
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  await_word<<<1, 1, 0, stream>>>(reinterpret_cast<std::uint64_t*>(words.at(0)), reinterpret_cast<std::uint64_t*>(words.at(8)),
                                  5'000'000'000);
  ASSERT_CUDA(cudaGetLastError());
  const auto mapping = map(words.address(), words.bytes());
  ASSERT_TRUE(mapping) << mapping.error().message();
  const std::uint64_t set = 1;
  ASSERT_TRUE(copy_to(*mapping, 0, &set, sizeof set));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(peek(words.at(8)), 1u);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(MappingTest, MapsCudaMalloc) {
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{4096}, std::size_t{65536}, std::size_t{3} << 20, std::size_t{256} << 20}) {
    const CudaBuffer buffer(bytes);
    const auto mapping = map(buffer.address(), bytes);
    ASSERT_TRUE(mapping) << mapping.error().message();
    EXPECT_FALSE(mapping->is_stand_in());
    EXPECT_EQ(mapping->device(), 0);
    expect_shows(*mapping, buffer.address(), bytes);
  }
}

TEST_F(MappingTest, SmallPieceOfALargeAllocation) {
  const std::size_t bytes = std::size_t{1} << 30;
  const CudaBuffer buffer(bytes);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{2} << 20, (std::size_t{700} << 20) + 24, bytes - 4096}) {
    const auto mapping = map(buffer.at(offset), 4096);
    ASSERT_TRUE(mapping) << mapping.error().message();
    expect_shows(*mapping, buffer.at(offset), 4096);
  }
}

TEST_F(MappingTest, SmallAllocationsShareOneWindow) {
  const CudaBuffer a(4096), b(4096);
  const auto first = map(a.address(), 4096);
  const auto second = map(b.address(), 4096);
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_TRUE(second) << second.error().message();
  // Neighbours in one 2 MiB block keep their distance on the CPU side exactly when they share its window.
  const auto block = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) >> 21; };
  ASSERT_EQ(block(a.address()), block(b.address())) << "the driver did not put them into one block";
  EXPECT_EQ(second->address() - first->address(), b.at(0) - a.at(0));
  expect_shows(*first, a.address(), 4096);
  expect_shows(*second, b.address(), 4096);
}

TEST_F(MappingTest, MapsExportableVmm) {
  const auto memory = DeviceMemory::allocate(0, std::size_t{4} << 20, DeviceAllocator::vmm);
  ASSERT_TRUE(memory) << memory.error().message();
  const auto info = describe(memory->address());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->kind, MemoryKind::device_vmm);
  const auto mapping = map(memory->address(), memory->bytes());
  ASSERT_TRUE(mapping) << mapping.error().message();
  expect_shows(*mapping, memory->address(), memory->bytes());
}

TEST_F(MappingTest, RefusesWhatItCannotMapWithAReason) {
  void* pool = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&pool, 65536, nullptr));
  ASSERT_CUDA(cudaDeviceSynchronize());
  const auto from_pool = map(pool, 65536);
  ASSERT_FALSE(from_pool);
  EXPECT_EQ(from_pool.status(), Status::not_supported) << from_pool.error().message();
  EXPECT_NE(from_pool.error().message().find("pool"), std::string::npos) << from_pool.error().message();
  cudaFreeAsync(pool, nullptr);

  std::vector<char> pageable(4096);
  const auto from_host = map(pageable.data(), 4096);
  EXPECT_EQ(from_host.status(), Status::not_supported);

  const CudaBuffer buffer(4096);
  EXPECT_EQ(map(buffer.address(), 1 << 20).status(), Status::out_of_range);
  EXPECT_EQ(map(nullptr, 1).status(), Status::invalid_argument);
  EXPECT_EQ(map(buffer.address(), 0).status(), Status::invalid_argument);
  EXPECT_EQ(map(reinterpret_cast<void*>(std::uintptr_t{0x123400000000}), 64).status(), Status::invalid_argument);
}

TEST_F(MappingTest, RefusesVmmWithoutADescriptor) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  const auto get = [&](const char* name) {
    EXPECT_EQ(cudaSuccess, cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found)) << name;
    return entry;
  };
  ASSERT_CUDA(cudaFree(nullptr));
  const auto create = reinterpret_cast<decltype(&cuMemCreate)>(get("cuMemCreate"));
  const auto reserve = reinterpret_cast<decltype(&cuMemAddressReserve)>(get("cuMemAddressReserve"));
  const auto map_memory = reinterpret_cast<decltype(&cuMemMap)>(get("cuMemMap"));
  const auto set_access = reinterpret_cast<decltype(&cuMemSetAccess)>(get("cuMemSetAccess"));
  const auto unmap_memory = reinterpret_cast<decltype(&cuMemUnmap)>(get("cuMemUnmap"));
  const auto free_address = reinterpret_cast<decltype(&cuMemAddressFree)>(get("cuMemAddressFree"));
  const auto release = reinterpret_cast<decltype(&cuMemRelease)>(get("cuMemRelease"));
  const std::size_t bytes = std::size_t{2} << 20;
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address = 0;
  ASSERT_EQ(create(&handle, bytes, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(reserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(map_memory(address, bytes, 0, handle, 0), CUDA_SUCCESS);
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_EQ(set_access(address, bytes, &access, 1), CUDA_SUCCESS);
  const auto mapping = map(reinterpret_cast<void*>(address), bytes);
  EXPECT_EQ(mapping.status(), Status::not_supported);
  if (!mapping) {
    EXPECT_NE(mapping.error().message().find("POSIX descriptor"), std::string::npos) << mapping.error().message();
  }
  unmap_memory(address, bytes);
  free_address(address, bytes);
  release(handle);
}

TEST_F(MappingTest, FreedMemoryStaysSafeAndIsNeverServedAgain) {
  auto buffer = std::make_unique<CudaBuffer>(std::size_t{8} << 20);
  void* const address = buffer->address();
  auto mapping = map(address, 4096);
  ASSERT_TRUE(mapping) << mapping.error().message();
  const auto before = describe(address);
  const std::uint64_t stale = 0xdead;
  ASSERT_TRUE(copy_to(*mapping, 0, &stale, 8));
  buffer.reset();
  std::uint64_t read = 0;
  ASSERT_TRUE(copy_from(*mapping, 0, &read, 8));  // no signal
  EXPECT_EQ(read, stale);

  const CudaBuffer again(std::size_t{8} << 20);
  const auto after = describe(again.address());
  ASSERT_TRUE(before && after);
  if (again.address() != address) GTEST_SKIP() << "the driver did not use the address again";
  EXPECT_NE(before->buffer_id, after->buffer_id);
  poke(again.address(), 0x11fe);
  const auto fresh = map(again.address(), 4096);
  ASSERT_TRUE(fresh) << fresh.error().message();
  ASSERT_TRUE(copy_from(*fresh, 0, &read, 8));
  EXPECT_EQ(read, 0x11feu);
  ASSERT_TRUE(copy_from(*mapping, 0, &read, 8));
  EXPECT_EQ(read, stale);
}

TEST_F(MappingTest, MemoryReturnsToTheGpuWhenMappingsGo) {
  std::size_t before = 0, held = 0, after = 0, total = 0;
  ASSERT_CUDA(cudaFree(nullptr));
  {
    const CudaBuffer warm(64);
    ASSERT_TRUE(map(warm.address(), 64));
  }
  trim_mapping_cache(0);
  ASSERT_CUDA(cudaMemGetInfo(&before, &total));
  {
    auto buffer = std::make_unique<CudaBuffer>(std::size_t{1} << 30);
    const auto mapping = map(buffer->address(), 4096);
    ASSERT_TRUE(mapping);
    buffer.reset();
    ASSERT_CUDA(cudaMemGetInfo(&held, &total));
  }
  trim_mapping_cache(0);
  ASSERT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_LE(held + (std::size_t{1} << 30), before + (std::size_t{64} << 20)) << "the mapping did not keep the memory";
  EXPECT_GE(after + (std::size_t{64} << 20), before) << "memory was leaked";
}

TEST_F(MappingTest, LeavesStreamCaptureAlone) {
  const CudaBuffer buffer(65536);
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const auto mapping = map(buffer.address(), 65536);
  EXPECT_TRUE(mapping) << (mapping ? "" : mapping.error().message());
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

// How long both take: gigabar apiperf.
TEST_F(MappingTest, OnlyTheFirstMapOfABufferMakesAWindow) {
  for (int i = 0; i < 64; ++i) {
    const CudaBuffer buffer(65536);
    trim_mapping_cache(0);
    const auto mapping = map(buffer.address(), 65536);
    ASSERT_TRUE(mapping);
    EXPECT_FALSE(mapping->report().came_from_cache);
    for (int k = 0; k < 8; ++k) {
      const auto again = map(buffer.address(), 65536);
      ASSERT_TRUE(again && again->report().came_from_cache);
    }
  }
}

// Faults planted between the library and the driver; or, where nothing is replaced, a record of what the library asked for last.
struct Plant {
  bool is_replacing = false;
  std::uint32_t instance = 0;  // of every device object
  int minor = 0;               // of every /dev/nvidia<minor>
  bool lies_about_id = false;  // the device object says that it is the GPU that was asked for
  std::uint32_t gpu_id = 0;
  int instance_count = 0;
} plant;

const SystemCalls& planting_calls() {
  static const SystemCalls calls = [] {
    SystemCalls table = kernel_system_calls();
    table.open = [](const char* path, int flags) {
      const bool is_device = std::string_view(path).starts_with("/dev/nvidia") && std::isdigit(path[11]) != 0;
      if (is_device && !plant.is_replacing) plant.minor = std::atoi(path + 11);
      return kernel_system_calls().open(is_device ? ("/dev/nvidia" + std::to_string(plant.minor)).c_str() : path, flags);
    };
    table.ioctl = [](int descriptor, unsigned long request, void* argument) {
      if (request == rm::escape_request(rm::kAlloc, sizeof(rm::Alloc))) {
        auto* alloc = static_cast<rm::Alloc*>(argument);
        if (alloc->object_class == rm::kClassDevice) {
          std::uint32_t& instance = reinterpret_cast<rm::DeviceParameters*>(alloc->parameters)->device_instance;
          (plant.is_replacing ? instance : plant.instance) = plant.is_replacing ? plant.instance : instance;
          ++plant.instance_count;
        }
      }
      const int result = kernel_system_calls().ioctl(descriptor, request, argument);
      if (request == rm::escape_request(rm::kControl, sizeof(rm::Control)) && plant.lies_about_id) {
        auto* control = static_cast<rm::Control*>(argument);
        if (control->command == rm::kGetGpuId) *reinterpret_cast<std::uint32_t*>(control->parameters) = plant.gpu_id;
      }
      return result;
    };
    return table;
  }();
  return calls;
}

// Run by the test below in a process of its own, in which no device is open and proved yet.
TEST_F(GpuTest, MapsUnderAPlant) {
  const char* order = std::getenv("GIGABAR_TEST_PLANT");  // "<device>" or "<device> <instance> <minor> <lies>"
  if (order == nullptr) GTEST_SKIP() << "run by AWrongDeviceIsNeverMapped";
  int device = 0, instance = 0, lies = 0;
  const int count = std::sscanf(order, "%d %d %d %d", &device, &instance, &plant.minor, &lies);
  ASSERT_TRUE(count == 1 || count == 4);
  ASSERT_CUDA(cudaSetDevice(device));
  const CudaBuffer buffer(65536);
  const auto info = describe(buffer.address());
  ASSERT_TRUE(info && info->pci);
  plant.is_replacing = count == 4;
  plant.gpu_id = info->pci->domain << 16 | std::uint32_t{info->pci->bus} << 8 | info->pci->device;
  plant.instance = static_cast<std::uint32_t>(instance);
  plant.lies_about_id = lies != 0;
  replace_system_calls(&planting_calls());
  const auto mapping = map(buffer.address(), 65536);
  ASSERT_GT(plant.instance_count, 0) << "the plant was not reached";
  if (!mapping) {
    std::printf("RESULT refused %s: %s\n", std::string(name_of(mapping.status())).c_str(), mapping.error().message().c_str());
    return;
  }
  poke(buffer.address(), 0xabc0);
  std::uint64_t seen = 0;
  ASSERT_TRUE(copy_from(*mapping, 0, &seen, 8));
  std::printf("RESULT %s %u %d\n", seen == 0xabc0 ? "right" : "WRONG", plant.instance, plant.minor);
}

std::string run_under_plant(const std::string& plant_order) {
  const std::string command = "GIGABAR_TEST_PLANT='" + plant_order + "' timeout 60 /proc/" + std::to_string(getpid()) +
                              "/exe --gtest_filter=GpuTest.MapsUnderAPlant 2>&1";
  std::string result = "no result";
  FILE* output = popen(command.c_str(), "r");
  char line[4096];
  while (output != nullptr && std::fgets(line, sizeof line, output) != nullptr) {
    if (std::strncmp(line, "RESULT ", 7) == 0) result = line + 7;
  }
  if (output != nullptr) pclose(output);
  return result;
}

// Whatever instance and minor of two GPUs the library is led to, it maps its own GPU's memory or refuses; only one pair is the
// GPU's own.
TEST_F(GpuTest, AWrongDeviceIsNeverMapped) {
  if (device_count_ < 2) GTEST_SKIP() << "needs two GPUs";
  std::array<unsigned, 2> instances{};
  std::array<int, 2> minors{};
  for (const int device : {0, 1}) {
    const std::string own = run_under_plant(std::to_string(device));
    ASSERT_EQ(std::sscanf(own.c_str(), "right %u %d", &instances[device], &minors[device]), 2) << own;
  }
  for (const int device : {0, 1}) {
    for (const int lies : {0, 1}) {
      int right = 0, refused = 0;
      for (int pair = 0; pair < 4; ++pair) {
        const std::string order = std::to_string(device) + " " + std::to_string(instances[pair / 2]) + " " +
                                  std::to_string(minors[pair % 2]) + " " + std::to_string(lies);
        const std::string result = run_under_plant(order);
        std::printf("device instance minor lies = %s: %.110s\n", order.c_str(), result.c_str());
        right += result.starts_with("right");
        refused += result.starts_with("refused");
      }
      EXPECT_EQ(right, 1);
      EXPECT_EQ(refused, 3);
    }
  }
}

}  // namespace
}  // namespace gigabar::test
