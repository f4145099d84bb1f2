// SPDX-License-Identifier: Apache-2.0
// The same functions through a write-combined mapping, of the fake GPU machine: stream kernels, the copy engine, a calibration that
// chooses kernels, and its file named after the GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "copy/kernels/kernels.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using Sizes = std::initializer_list<std::size_t>;

using test::FakeSession;
using test::MappingSession;
using test::must_map;
using test::pattern;
using test::ScopedEnvironment;

ISOLATED_TEST(WriteCombined, CopiesAtEveryOffset) {
  MappingSession session;
  session.start();
  const CUdeviceptr memory = FakeSession::allocate(4096);
  {
    const Mapping mapping = must_map(memory, 4096);
    ASSERT_EQ(mapping.type(), MappingType::write_combined);
    const auto before = pattern(4096, 1);
    const auto sent = pattern(600, 2);
    for (const std::size_t bytes : Sizes{1, 8, 33, 64, 200, 511}) {
      for (std::size_t offset = 0; offset < 70; offset += 3) {
        FakeSession::write(memory, before.data(), before.size());
        ASSERT_TRUE(copy_to(mapping, offset, sent.data() + 1, bytes));
        auto expected = before;
        std::copy_n(sent.begin() + 1, bytes, expected.begin() + static_cast<std::ptrdiff_t>(offset));
        ASSERT_EQ(FakeSession::read(memory, 4096), expected) << bytes << " at " << offset;
        std::vector<unsigned char> received(bytes);
        ASSERT_TRUE(copy_from(mapping, offset, received.data(), bytes));
        ASSERT_TRUE(std::equal(received.begin(), received.end(), sent.begin() + 1)) << bytes << " at " << offset;
      }
    }
    ASSERT_TRUE(fill(mapping, 5, std::byte{0x42}, 4000));
    const auto filled = FakeSession::read(memory, 4096);
    EXPECT_EQ(std::count(filled.begin() + 5, filled.begin() + 4005, 0x42), 4000);
    ASSERT_TRUE(publish(mapping, 100, sent.data(), sent.size(), 2048, std::uint64_t{7}));
    EXPECT_EQ(FakeSession::read(memory + 2048, 1)[0], 7);
    EXPECT_EQ(copy_to(mapping, 4000, sent.data(), 97).status(), Status::out_of_range);
  }
  FakeSession::free(memory);
}

ISOLATED_TEST(WriteCombined, EveryMethodCopiesAndTheDefaultsChooseAmongThem) {
  MappingSession session;
  session.start();
  const ScopedEnvironment none("GIGABAR_CALIBRATION", "/nonexistent/calibration.json");
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const CUdeviceptr memory = FakeSession::allocate(kBytes);
  {
    const Mapping mapping = must_map(memory, kBytes);
    unsigned seed = 1;
    for (const std::optional<CopyMethod> required :
         {std::optional<CopyMethod>(), std::optional(CopyMethod::cpu), std::optional(CopyMethod::cpu_parallel),
          std::optional(CopyMethod::copy_engine)}) {
      for (const std::size_t bytes : Sizes{std::size_t{8}, std::size_t{5000}, kBytes - 3}) {
        const auto sent = pattern(bytes, ++seed);
        const auto to = copy({mapping, 3}, sent.data(), bytes, required);
        ASSERT_TRUE(to.is_ok()) << to.error().message();
        EXPECT_EQ(FakeSession::read(memory + 3, bytes), sent) << name_of(*to);
        std::vector<unsigned char> received(bytes);
        const auto from = copy(received.data(), {mapping, 3}, bytes, required);
        ASSERT_TRUE(from.is_ok()) << from.error().message();
        EXPECT_EQ(received, sent) << name_of(*from);
        const CopyMethod expected = required.value_or(bytes == kBytes - 3 ? CopyMethod::copy_engine : CopyMethod::cpu);
        EXPECT_EQ(*to, expected) << bytes;
        if (bytes == 5000 && !required) continue;  // near the crossover of reads
        EXPECT_EQ(*from, expected) << bytes;
      }
    }
    EXPECT_FALSE(calibration_in_use(0).is_measured);
    EXPECT_EQ(calibration_in_use(0).points.size(), Calibration::defaults().points.size());
  }
  FakeSession::free(memory);
}

ISOLATED_TEST(WriteCombined, ReportsAFailingCopyEngine) {
  MappingSession session;
  session.start();
  const CUdeviceptr memory = FakeSession::allocate(4096);
  {
    const Mapping mapping = must_map(memory, 4096);
    std::array<std::byte, 64> host{};
    session.plant(fake::Call::cuda, "", 999);
    const auto refused = copy({mapping, 0}, host.data(), host.size(), CopyMethod::copy_engine);
    EXPECT_EQ(refused.status(), Status::device_error);
    const auto through_cpu = copy({mapping, 0}, host.data(), host.size(), CopyMethod::cpu);
    EXPECT_TRUE(through_cpu.is_ok());
    session.remove_faults();
  }
  FakeSession::free(memory);
}

ISOLATED_TEST(WriteCombined, MeasuresKernelsAndMethods) {
  MappingSession session;
  session.start();
  const ScopedEnvironment none("GIGABAR_CALIBRATION", nullptr);
  const ScopedEnvironment cache("XDG_CACHE_HOME", session.folder().c_str());
  auto measured = Result<Calibration>(Calibration());
  for (const double budget : {2.0, 30.0}) {  // a busy machine may need the longer one
    measured = Calibration::measure(0, budget);
    if (measured.status() != Status::timed_out) break;
  }
  ASSERT_TRUE(measured.is_ok()) << measured.error().message();
  const auto known = devices();
  ASSERT_TRUE(known.is_ok());
  EXPECT_EQ(measured->device_uuid, known.value()[0].uuid);
  EXPECT_FALSE(measured->device_uuid.empty());
  EXPECT_EQ(measured->points.size(), 100u);
  for (const auto* names : {&measured->store_kernel, &measured->load_kernel}) {
    for (const std::string& name : *names) EXPECT_TRUE(name.empty() || kernels::find_supported_kernel(name) != nullptr) << name;
  }
  const std::string path = Calibration::default_path(0);
  EXPECT_EQ(path, session.folder() + "/gigabar/calibration-" + measured->device_uuid + ".json");
  ASSERT_TRUE(measured->save(path));
  EXPECT_TRUE(calibration_in_use(0).is_measured);  // found where it was saved
  ASSERT_TRUE(use_calibration(0, *measured));
  trim_mapping_cache(0);
}

ISOLATED_TEST(WriteCombined, ReportsAnEngineThatFailsWhileMeasuring) {
  MappingSession session;
  session.start();
  session.plant(fake::Call::cuda, "cuMemcpyDtoHAsync", 999, fake::kForEver, 200);
  auto status = Status::timed_out;
  for (const double budget : {2.0, 30.0}) {  // a busy machine may need the longer one to get there
    if (status == Status::timed_out) status = Calibration::measure(0, budget).status();
  }
  EXPECT_EQ(status, Status::device_error);
  session.remove_faults();
  trim_mapping_cache(0);
}

}  // namespace
}  // namespace gigabar
