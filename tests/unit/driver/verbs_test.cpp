// SPDX-License-Identifier: Apache-2.0
// libibverbs.so.1 at run time: driver/verbs/verbs.hpp.
#include "driver/verbs/verbs.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "fakes/paths.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

constexpr std::size_t kBytes = 65536;

std::int64_t soon() { return now_ns() + 2'000'000'000; }

// The fake's contexts, domains, regions, queues and pairs that exist.
int alive() {
  void* const library = ::dlopen(test::kFakeVerbsLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return -1;
  const auto count = reinterpret_cast<int (*)()>(::dlsym(library, "gigabar_fake_verbs_alive"));
  ::dlclose(library);
  return count != nullptr ? count() : -1;
}

// The library is the fake with these devices, for the scope.
struct Machine {
  explicit Machine(const char* listed, const char* path = test::kFakeVerbsLibrary)
      : library("GIGABAR_VERBS_LIBRARY", path), devices("GIGABAR_FAKE_VERBS_DEVICES", listed) {}
  test::ScopedEnvironment library, devices;
};

// Two regions of host memory that differ everywhere.
struct Buffers {
  std::vector<unsigned char> first = std::vector<unsigned char>(kBytes), second = std::vector<unsigned char>(kBytes, 0xee);
  Buffers() { std::iota(first.begin(), first.end(), static_cast<unsigned char>(0)); }
};

ISOLATED_TEST(Verbs, ListsDevicesAndTheirPorts) {
  const Machine machine("mlx5_0 mtu=4096 mtu=1024; siw0 iwarp; mlx5_1 infiniband down");
  ASSERT_TRUE(verbs::availability().is_ok()) << verbs::availability().reason;
  EXPECT_EQ(verbs::has_dmabuf(), true);
  const auto names = verbs::device_names();
  ASSERT_TRUE(names);
  EXPECT_EQ(*names, (std::vector<std::string>{"mlx5_0", "siw0", "mlx5_1"}));
  {
    const auto device = verbs::Device::open("mlx5_0");
    ASSERT_TRUE(device) << device.error().message();
    EXPECT_EQ(device->name(), "mlx5_0");
    EXPECT_EQ(device->transport(), verbs::Transport::infiniband);
    ASSERT_EQ(device->port_count(), 2u);
    EXPECT_EQ(device->port(1)->active_mtu_bytes, 4096u);
    EXPECT_EQ(device->port(2)->active_mtu_bytes, 1024u);
    EXPECT_TRUE(device->port(1)->is_active && device->port(1)->is_ethernet);
    EXPECT_FALSE(device->port(3)) << "it has two";
    EXPECT_EQ(verbs::Device::open("siw0")->transport(), verbs::Transport::iwarp);
    const auto other = verbs::Device::open("mlx5_1");
    EXPECT_FALSE(other->port(1)->is_active || other->port(1)->is_ethernet);
    EXPECT_EQ(other->port(1)->lid, 7);
  }
  EXPECT_EQ(alive(), 0);
}

ISOLATED_TEST(Verbs, OpeningSaysWhyNot) {
  const Machine machine("mlx5_0 open=13; mlx5_1");
  const auto refused = verbs::Device::open("mlx5_0");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::no_permission);
  EXPECT_EQ(refused.error().record().native.name, "EACCES");
  const auto missing = verbs::Device::open("mlx5_7");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.status(), Status::unavailable);
  EXPECT_NE(missing.error().message().find("mlx5_7"), std::string::npos);
  EXPECT_EQ(alive(), 0);
}

ISOLATED_TEST(Verbs, RegistersMemoryAndCarriesTheErrno) {
  const Machine machine("good; poor host=12 dmabuf=524; none dmabuf=95");
  Buffers buffers;
  const Descriptor file(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  {
    const auto good = verbs::Device::open("good");
    ASSERT_TRUE(good);
    const auto region = good->register_memory(buffers.first.data(), kBytes);
    ASSERT_TRUE(region) << region.error().message();
    EXPECT_EQ(region->address(), reinterpret_cast<std::uintptr_t>(buffers.first.data()));
    EXPECT_EQ(region->bytes(), kBytes);
    const auto dma_buf = good->register_dma_buf(file.get(), kBytes, 0x7f0000200000);
    ASSERT_TRUE(dma_buf) << dma_buf.error().message();
    EXPECT_EQ(dma_buf->address(), 0x7f0000200000u);
    EXPECT_EQ(good->register_dma_buf(file.get(), kBytes, 0x7f0000200001).error().record().native.code, EINVAL);
    EXPECT_EQ(good->register_dma_buf(-1, kBytes, 0).error().record().native.code, EBADF);

    const auto poor = verbs::Device::open("poor");
    const auto refused = poor->register_memory(buffers.first.data(), kBytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status(), Status::out_of_memory);
    EXPECT_EQ(refused.error().record().native.name, "ENOMEM");
    const auto topology = poor->register_dma_buf(file.get(), kBytes, 0);
    EXPECT_EQ(topology.status(), Status::not_supported);
    EXPECT_EQ(topology.error().record().native.name, "ENOTSUPP");
    EXPECT_EQ(verbs::Device::open("none")->register_dma_buf(file.get(), kBytes, 0).status(), Status::not_supported);
    EXPECT_EQ(alive(), 2 + 2 + 2) << "two devices with their domains, two regions";
  }
  EXPECT_EQ(alive(), 0);
}

ISOLATED_TEST(Verbs, ARegionKeepsItsDeviceOpen) {
  const Machine machine("mlx5_0");
  Buffers buffers;
  {
    auto device = verbs::Device::open("mlx5_0");
    auto region = device->register_memory(buffers.first.data(), kBytes);
    ASSERT_TRUE(region);
    device = verbs::Device::open("nothing");
    EXPECT_EQ(alive(), 3);
    verbs::Region moved = std::move(*region);
    EXPECT_EQ(moved.bytes(), kBytes);
  }
  EXPECT_EQ(alive(), 0);
}

ISOLATED_TEST(Verbs, ALoopWritesAndReads) {
  for (const char* kind : {"mlx5_0 mtu=4096", "mlx5_0 infiniband"}) {
    const Machine machine(kind);
    Buffers buffers;
    const std::vector<unsigned char> sent = buffers.first;
    {
      const auto device = verbs::Device::open("mlx5_0");
      const auto first = device->register_memory(buffers.first.data(), kBytes);
      const auto second = device->register_memory(buffers.second.data(), kBytes);
      auto loop = verbs::Loop::connect(*device, 1, 3);
      ASSERT_TRUE(loop) << loop.error().message();
      const Result<void> written = loop->write(*first, *second, kBytes, 100, soon());
      ASSERT_TRUE(written) << written.message();
      EXPECT_EQ(buffers.second, sent);
      buffers.first.assign(kBytes, 0);
      ASSERT_TRUE(loop->read(*first, *second, kBytes, 1, soon()));
      EXPECT_EQ(buffers.first, sent);
      EXPECT_EQ(loop->write(*first, *second, kBytes + 1, 1, soon()).status(), Status::out_of_range);
    }
    EXPECT_EQ(alive(), 0);
  }
}

ISOLATED_TEST(Verbs, ALoopThatCannotBe) {
  const Machine machine("siw0 iwarp; lost down; tight pair=12; far connect=110; mlx5_0");
  EXPECT_EQ(verbs::Loop::connect(*verbs::Device::open("siw0"), 1, 0).status(), Status::not_supported);
  EXPECT_EQ(verbs::Loop::connect(*verbs::Device::open("lost"), 1, 0).status(), Status::unavailable);
  EXPECT_EQ(verbs::Loop::connect(*verbs::Device::open("tight"), 1, 0).error().record().native.name, "ENOMEM");
  const auto far = verbs::Loop::connect(*verbs::Device::open("far"), 1, 2);
  EXPECT_EQ(far.error().record().native.name, "ETIMEDOUT");
  EXPECT_NE(far.error().message().find("GID 2"), std::string::npos) << far.error().message();
  EXPECT_FALSE(verbs::Loop::connect(*verbs::Device::open("mlx5_0"), 1, 9)) << "it has no such GID";
  EXPECT_FALSE(verbs::Loop::connect(*verbs::Device::open("mlx5_0"), 2, 0)) << "it has no such port";
  EXPECT_EQ(alive(), 0);
}

ISOLATED_TEST(Verbs, EachCallThatFailsIsNamed) {
  const Machine machine("query query=5; domain domain=12; queue queue=12; post post=22; poll poll=5");
  Buffers buffers;
  const auto use = [&](const char* name) -> Result<void> {
    const auto device = verbs::Device::open(name);
    if (!device) return device.error();
    const auto first = device->register_memory(buffers.first.data(), kBytes);
    const auto second = device->register_memory(buffers.second.data(), kBytes);
    if (!first || !second) return Error::out_of_memory();
    auto loop = verbs::Loop::connect(*device, 1, 0);
    if (!loop) return loop.error();
    return loop->write(*first, *second, kBytes, 1, soon());
  };
  for (const auto& [name, call] :
       {std::pair{"query", "ibv_query_device"}, std::pair{"domain", "ibv_alloc_pd"}, std::pair{"queue", "ibv_create_cq"},
        std::pair{"post", "ibv_post_send"}, std::pair{"poll", "ibv_poll_cq"}}) {
    const Result<void> used = use(name);
    ASSERT_FALSE(used) << name;
    EXPECT_EQ(used.record().operation, call) << used.message();
    EXPECT_EQ(alive(), 0) << name;
  }
}

ISOLATED_TEST(Verbs, ALoopEndsAtItsDeadlineAndAtAnError) {
  const Machine machine("stuck0 stuck; broken completion=12");
  Buffers buffers;
  for (const char* name : {"stuck0", "broken"}) {
    const auto device = verbs::Device::open(name);
    const auto first = device->register_memory(buffers.first.data(), kBytes);
    const auto second = device->register_memory(buffers.second.data(), kBytes);
    auto loop = verbs::Loop::connect(*device, 1, 0);
    ASSERT_TRUE(loop);
    const std::int64_t begin_ns = now_ns();
    const Result<void> failed = loop->write(*first, *second, kBytes, 40, begin_ns + 50'000'000);
    if (name == std::string("stuck0")) {
      EXPECT_EQ(failed.status(), Status::timed_out);
      EXPECT_GE(now_ns() - begin_ns, 50'000'000);
      EXPECT_NE(failed.message().find("0 of 40"), std::string::npos) << failed.message();
    } else {
      EXPECT_EQ(failed.status(), Status::device_error);
      EXPECT_NE(failed.message().find("transport retry counter exceeded"), std::string::npos) << failed.message();
    }
    EXPECT_EQ(loop->write(*first, *second, kBytes, 1, soon()).status(), Status::device_error) << "it stays broken";
  }
}

ISOLATED_TEST(Verbs, WithoutDevicesAndWithoutAKernel) {
  const Machine machine("");
  const auto none = verbs::device_names();
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
  const test::ScopedEnvironment denies("GIGABAR_FAKE_VERBS_DENIES", "1");
  const auto refused = verbs::device_names();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().record().native.name, "ENOSYS");
  EXPECT_EQ(verbs::Device::open("mlx5_0").status(), Status::unavailable);
}

ISOLATED_TEST(Verbs, AnOldLibraryHasNoDmaBufs) {
  const Machine machine("mlx5_0", test::kFakeOldVerbsLibrary);
  ASSERT_TRUE(verbs::availability().is_ok()) << verbs::availability().reason;
  EXPECT_EQ(verbs::has_dmabuf(), false);
  const auto refused = verbs::Device::open("mlx5_0")->register_dma_buf(0, kBytes, 0);
  EXPECT_EQ(refused.status(), Status::not_supported);
  EXPECT_NE(refused.error().record().remedy.find("rdma-core"), std::string::npos);
}

ISOLATED_TEST(Verbs, MissingLibrary) {
  const Machine machine("mlx5_0", "/nonexistent/libibverbs.so.1");
  EXPECT_EQ(verbs::availability().code, AvailabilityCode::library_missing);
  EXPECT_FALSE(verbs::availability().remedy.empty());
  EXPECT_FALSE(verbs::has_dmabuf());
  EXPECT_FALSE(verbs::device_names());
  EXPECT_EQ(verbs::Device::open("mlx5_0").status(), Status::unavailable);
}

ISOLATED_TEST(Verbs, LibraryWithoutItsFunctions) {
  const Machine machine("mlx5_0", "libm.so.6");
  EXPECT_EQ(verbs::availability().code, AvailabilityCode::symbol_missing);
  EXPECT_NE(verbs::availability().reason.find("ibv_get_device_list"), std::string::npos);
}

}  // namespace
}  // namespace gigabar
