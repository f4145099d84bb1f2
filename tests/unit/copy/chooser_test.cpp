// SPDX-License-Identifier: Apache-2.0
// Which method copy() uses, where that comes from, and when it is refused.
#include "copy/chooser.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "copy/kernels/kernels.hpp"
#include "support/expect_log.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"
#include "unit/copy/stand_in.hpp"

namespace gigabar {
namespace {

using test::has;
using test::mapped_stand_in;
using test::MappedStandIn;
using test::pattern;
using test::ScopedEnvironment;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// cpu below 4 KiB, several threads below 64 KiB, then the engine; from the device the engine at 512 bytes already for pinned
// memory.
Calibration three_ways() {
  Calibration calibration;
  calibration.is_measured = true;
  calibration.thread_count = 2;
  for (const bool is_pinned : {false, true}) {
    calibration.points.push_back({CopyDirection::to_device, is_pinned, 1024, {1, 5, 9}});
    calibration.points.push_back({CopyDirection::to_device, is_pinned, 4096, {9, 5, 9}});
    calibration.points.push_back({CopyDirection::to_device, is_pinned, 16384, {20, 8, 9}});
    calibration.points.push_back({CopyDirection::to_device, is_pinned, 65536, {90, 50, 9}});
  }
  calibration.points.push_back({CopyDirection::from_device, false, 512, {1, kInfinity, 9}});
  calibration.points.push_back({CopyDirection::from_device, true, 512, {9, kInfinity, 1}});
  return calibration;
}

// Each test has devices to itself: the ones of other tests may have a calibration in use.
class Chooser : public testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(use_calibration(0, Calibration())); }
};

CopyMethod method_of(const MethodTable& table, CopyDirection direction, bool is_pinned, std::size_t bytes) {
  const auto [pageable, pinned] = table.methods(direction, bytes);
  return is_pinned ? pinned : pageable;
}

// What the table answers for every power of two, worked out by hand from the times above and from the documented ones.
struct Ranges {
  std::size_t cpu_up_to;       // the last power of two that the CPU copies; 0: none
  std::size_t parallel_up_to;  // the last one that several threads copy; beyond it the copy engine does
};
constexpr std::size_t kAll = ~std::size_t{0};

TEST(MethodTable, AnswersForEveryPowerOfTwo) {
  constexpr auto kTo = CopyDirection::to_device, kFrom = CopyDirection::from_device;
  const struct {
    const char* name;
    Calibration calibration;
    CopyDirection direction;
    bool is_pinned;
    Ranges expected;
  } kCases[] = {
      {"three ways", three_ways(), kTo, false, {2048, 16384}},
      {"three ways", three_ways(), kTo, true, {2048, 16384}},
      {"three ways", three_ways(), kFrom, false, {kAll, kAll}},
      {"three ways", three_ways(), kFrom, true, {0, 0}},
      {"documented", Calibration::defaults(), kTo, false, {262144, 262144}},
      {"documented", Calibration::defaults(), kTo, true, {262144, 262144}},
      {"documented", Calibration::defaults(), kFrom, false, {4096, 4096}},
      {"documented", Calibration::defaults(), kFrom, true, {4096, 4096}},
      {"nothing measured", Calibration(), kTo, true, {kAll, kAll}},
      {"nothing measured", Calibration(), kFrom, false, {kAll, kAll}},
  };
  for (const auto& one : kCases) {
    const MethodTable table(one.calibration);
    const auto expected = [&](std::size_t bytes) {
      return one.expected.cpu_up_to != 0 && bytes <= one.expected.cpu_up_to ? CopyMethod::cpu
             : bytes <= one.expected.parallel_up_to                         ? CopyMethod::cpu_parallel
                                                                            : CopyMethod::copy_engine;
    };
    for (std::size_t bytes = 1; bytes <= std::size_t{1} << 40; bytes *= 2) {
      EXPECT_EQ(name_of(method_of(table, one.direction, one.is_pinned, bytes)), name_of(expected(bytes)))
          << one.name << " " << name_of(one.direction) << (one.is_pinned ? " pinned " : " pageable ") << bytes;
    }
    EXPECT_EQ(method_of(table, one.direction, one.is_pinned, 0), expected(1)) << one.name;
    EXPECT_EQ(method_of(table, one.direction, one.is_pinned, kAll), expected(std::size_t{1} << 40)) << one.name;
  }
}

TEST(MethodTable, KnowsBelowWhichSizeNobodyNeedsToChoose) {
  const MethodTable three(three_ways());
  const std::size_t below = three.cpu_below_bytes(CopyDirection::to_device);
  EXPECT_GT(below, 1024u);
  EXPECT_LE(below, 4096u);
  for (std::size_t bytes = 0; bytes < below; ++bytes) {
    ASSERT_EQ(method_of(three, CopyDirection::to_device, true, bytes), CopyMethod::cpu) << bytes;
    ASSERT_EQ(method_of(three, CopyDirection::to_device, false, bytes), CopyMethod::cpu) << bytes;
  }
  EXPECT_NE(method_of(three, CopyDirection::to_device, true, below), CopyMethod::cpu);
  EXPECT_EQ(three.cpu_below_bytes(CopyDirection::from_device), 0u) << "pinned memory is the engine's at every size";
  EXPECT_EQ(MethodTable(Calibration()).cpu_below_bytes(CopyDirection::to_device), ~std::size_t{0});
}

TEST(MethodTable, HasTheReadbackKernelApart) {
  const MethodTable table(Calibration::defaults());
  for (const std::size_t bytes : {4096U, 5000U, 32768U}) {
    EXPECT_EQ(table.methods(CopyDirection::from_device, bytes, true).pinned, CopyMethod::readback) << bytes;
    EXPECT_NE(table.methods(CopyDirection::from_device, bytes).pinned, CopyMethod::readback) << bytes;
    EXPECT_EQ(table.methods(CopyDirection::to_device, bytes, true).pinned, CopyMethod::cpu) << bytes;
  }
  EXPECT_EQ(table.methods(CopyDirection::from_device, 65536, true).pinned, CopyMethod::copy_engine);
  EXPECT_LT(table.cpu_below_bytes(CopyDirection::from_device, true), table.cpu_below_bytes(CopyDirection::from_device));
  EXPECT_GT(table.cpu_below_bytes(CopyDirection::from_device, true), 1024U);
}

// Between cell boundaries a size is treated as one at most an eighth smaller.
TEST(MethodTable, IsNeverFurtherOffThanOneCell) {
  const Calibration calibration = Calibration::defaults();
  const MethodTable table(calibration);
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t bytes = 1 + (random() >> (20 + random() % 43));
    const CopyMethod chosen = table.methods(CopyDirection::from_device, bytes).pinned;
    const std::size_t earliest = bytes - bytes / 9;
    EXPECT_TRUE(chosen == calibration.choose(CopyDirection::from_device, true, bytes) ||
                chosen == calibration.choose(CopyDirection::from_device, true, earliest))
        << bytes;
  }
}

TEST_F(Chooser, CopyFollowsTheCalibrationInUse) {
  const MappedStandIn device = mapped_stand_in(131072);
  const auto sent = pattern(131072);
  ASSERT_TRUE(use_calibration(0, three_ways()));
  EXPECT_EQ(copy({device.mapping, 0}, sent.data(), 1024).value(), CopyMethod::cpu);
  EXPECT_EQ(copy({device.mapping, 0}, sent.data(), 8192).value(), CopyMethod::cpu_parallel);
  EXPECT_EQ(copy({device.mapping, 0}, sent.data(), 131072).value(), CopyMethod::copy_engine);
  EXPECT_EQ(device.content(), sent);
  ASSERT_TRUE(use_calibration(0, Calibration()));
  EXPECT_EQ(copy({device.mapping, 0}, sent.data(), 131072).value(), CopyMethod::cpu);
}

TEST_F(Chooser, CopyAsksWhetherHostMemoryIsPinned) {
  const MappedStandIn device = mapped_stand_in(4096);
  ASSERT_TRUE(use_calibration(0, three_ways()));
  std::vector<std::byte> pageable(8192);
  EXPECT_EQ(copy(pageable.data(), {device.mapping, 0}, 512).value(), CopyMethod::cpu);
  auto pinned = HostMemory::allocate(4096);
  ASSERT_TRUE(pinned.is_ok()) << pinned.error().message();
  const bool is_known_as_pinned = describe(pinned->address())->kind != MemoryKind::host_pageable;
  EXPECT_EQ(copy(pinned->address(), {device.mapping, 0}, 512).value(),
            is_known_as_pinned ? CopyMethod::copy_engine : CopyMethod::cpu);
}

TEST_F(Chooser, KeepsDevicesApart) {
  const MappedStandIn first = mapped_stand_in(131072, {}, 0);
  const MappedStandIn second = mapped_stand_in(131072, {}, 1);
  const auto sent = pattern(131072);
  ASSERT_TRUE(use_calibration(0, three_ways()));
  ASSERT_TRUE(use_calibration(1, Calibration()));
  EXPECT_EQ(copy({first.mapping, 0}, sent.data(), 131072).value(), CopyMethod::copy_engine);
  EXPECT_EQ(copy({second.mapping, 0}, sent.data(), 131072).value(), CopyMethod::cpu);
  EXPECT_EQ(calibration_in_use(0).points.size(), three_ways().points.size());
  EXPECT_TRUE(calibration_in_use(1).points.empty());
}

TEST_F(Chooser, RefusesACalibrationThatCannotBeUsedAndKeepsTheOldOne) {
  ASSERT_TRUE(use_calibration(0, three_ways()));
  Calibration bad = three_ways();
  bad.thread_count = 1;
  bad.store_kernel[5] = "mmx";
  const Result<void> unknown = use_calibration(0, bad);
  EXPECT_EQ(unknown.status(), Status::invalid_argument);
  EXPECT_TRUE(has(unknown.message(), "store_kernel[5]") && has(unknown.message(), "mmx")) << unknown.message();
  bad = three_ways();
  for (const unsigned count : {0U, 65U}) {
    bad.thread_count = count;
    EXPECT_EQ(use_calibration(0, bad).status(), Status::invalid_argument) << count;
  }
  constexpr struct {
    int device;
    const char* cause;
  } kRefused[] = {
      {-1, "there are 5 devices"}, {5, "there are 5 devices"}, {64, "only devices below 64"}, {1000, "only devices below 64"}};
  for (const auto& [device, cause] : kRefused) {
    const Result<void> refused = use_calibration(device, three_ways());
    EXPECT_EQ(refused.status(), Status::invalid_argument);
    EXPECT_TRUE(has(refused.message(), cause)) << refused.message();
  }
  EXPECT_EQ(calibration_in_use(0).thread_count, 2U);
  EXPECT_EQ(calibration_in_use(0).points.size(), three_ways().points.size());
}

TEST_F(Chooser, UsesTheKernelsThatTheCalibrationNames) {
  Calibration named;
  named.store_kernel[4] = "generic";
  named.load_kernel[9] = "generic";
  ASSERT_TRUE(use_calibration(0, named));
  const auto& active = detail::active_kernels(MappingType::write_combined);
  const CopyKernel* generic = kernels::find_supported_kernel("generic");
  ASSERT_NE(generic, nullptr);
  ASSERT_NE(generic->store, kernels::default_store_kernel(4).store) << "named is what is used anyway";
  EXPECT_EQ(active.store[4].load(), generic->store);
  EXPECT_EQ(active.load[9].load(), generic->load);
  EXPECT_EQ(active.store[9].load(), kernels::default_store_kernel(9).store);
  ASSERT_TRUE(use_calibration(0, Calibration()));
  EXPECT_EQ(active.store[4].load(), kernels::default_store_kernel(4).store);
}

// The first copy on a device loads the file that the environment names. Each test has a device that nothing copied to before.
class StoredCalibration : public testing::Test {
 protected:
  // The method of a copy of 128 KiB to `device`.
  CopyMethod method_of_copy(int device) const {
    const ScopedEnvironment chosen("GIGABAR_CALIBRATION", path_.c_str());
    const MappedStandIn stand_in = mapped_stand_in(131072, {}, device);
    const auto sent = pattern(131072);
    const auto method = copy({stand_in.mapping, 0}, sent.data(), sent.size());
    EXPECT_TRUE(method.is_ok());
    EXPECT_EQ(stand_in.content(), sent);
    return method.is_ok() ? method.value() : CopyMethod::cpu;
  }

  const test::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/stored.json";
};

TEST_F(StoredCalibration, IsLoadedByTheFirstCopy) {
  Calibration stored = three_ways();
  stored.store_kernel[4] = "generic";
  stored.load_kernel[9] = "generic";
  ASSERT_TRUE(stored.save(path_));
  EXPECT_EQ(method_of_copy(2), CopyMethod::copy_engine);
  const auto& active = detail::active_kernels(MappingType::write_combined);
  const CopyKernel* generic = kernels::find_supported_kernel("generic");
  ASSERT_NE(generic->store, kernels::default_store_kernel(4).store) << "named is what is used anyway";
  EXPECT_EQ(active.store[4].load(), generic->store);
  EXPECT_EQ(active.load[9].load(), generic->load);
  EXPECT_EQ(active.store[9].load(), kernels::default_store_kernel(9).store);
  EXPECT_TRUE(calibration_in_use(2).is_measured);
  std::filesystem::remove(path_);
  EXPECT_EQ(method_of_copy(2), CopyMethod::copy_engine);  // loaded once
}

TEST_F(StoredCalibration, IsLeftWithAWarningWhenItIsBad) {
  std::ofstream(path_) << three_ways().to_json().substr(0, 200);
  EXPECT_EQ(method_of_copy(3), CopyMethod::cpu);
  const auto log = test::take_log();
  ASSERT_EQ(log.size(), 1U);
  EXPECT_TRUE(has(log[0], path_)) << log[0];
  EXPECT_EQ(method_of_copy(3), CopyMethod::cpu);  // said once
}

TEST_F(StoredCalibration, IsLeftWithAWarningWhenThisCpuLacksAKernel) {
  Calibration of_another_machine = three_ways();
  of_another_machine.store_kernel[8] = kernels::find_supported_kernel("neon") == nullptr ? "neon" : "avx512";
  ASSERT_TRUE(of_another_machine.save(path_));
  EXPECT_EQ(method_of_copy(4), CopyMethod::cpu);
  const auto log = test::take_log();
  ASSERT_EQ(log.size(), 1U);
  EXPECT_TRUE(has(log[0], "store_kernel[8]")) << log[0];
}

TEST(DefaultPath, FollowsTheEnvironment) {
  {
    const ScopedEnvironment chosen("GIGABAR_CALIBRATION", "/some/file.json");
    EXPECT_EQ(Calibration::default_path(0), "/some/file.json");
  }
  const ScopedEnvironment unset("GIGABAR_CALIBRATION", nullptr);
  {
    const ScopedEnvironment cache("XDG_CACHE_HOME", "/cache");
    EXPECT_EQ(Calibration::default_path(0), "/cache/gigabar/calibration-stand-in.json");
    EXPECT_EQ(Calibration::default_path(99), "");
  }
  {
    const ScopedEnvironment cache("XDG_CACHE_HOME", "relative");  // the standard says: to be ignored
    const ScopedEnvironment home("HOME", "/home/somebody");
    EXPECT_EQ(Calibration::default_path(0), "/home/somebody/.cache/gigabar/calibration-stand-in.json");
  }
  const ScopedEnvironment cache("XDG_CACHE_HOME", nullptr);
  const ScopedEnvironment home("HOME", nullptr);
  EXPECT_EQ(Calibration::default_path(0), "");
}

}  // namespace
}  // namespace gigabar
