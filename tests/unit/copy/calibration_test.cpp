// SPDX-License-Identifier: Apache-2.0
// Calibration: the choice, the printed table, and measuring a stand-in.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "copy/measure.hpp"
#include "unit/copy/stand_in.hpp"

namespace gigabar {
namespace {

using test::has;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr auto kTo = CopyDirection::to_device;
constexpr auto kFrom = CopyDirection::from_device;

// cpu grows with the size, the engine is flat at 8 us: they meet between 4 and 16 KiB.
Calibration crossing() {
  Calibration calibration;
  calibration.points = {
      {kTo, true, 1024, {1, kInfinity, 8}}, {kTo, true, 4096, {4, kInfinity, 8}}, {kTo, true, 16384, {16, kInfinity, 8}}};
  return calibration;
}

TEST(Choose, TakesTheFastestMethodAtAMeasuredSize) {
  EXPECT_EQ(crossing().choose(kTo, true, 1024), CopyMethod::cpu);
  EXPECT_EQ(crossing().choose(kTo, true, 4096), CopyMethod::cpu);
  EXPECT_EQ(crossing().choose(kTo, true, 16384), CopyMethod::copy_engine);
}

TEST(Choose, FindsTheCrossoverBetweenMeasuredSizes) {
  // 7.5 KiB takes 7.5 us on the line between 4 KiB and 16 KiB, 9 KiB takes 9.
  EXPECT_EQ(crossing().choose(kTo, true, 7680), CopyMethod::cpu);
  EXPECT_EQ(crossing().choose(kTo, true, 9216), CopyMethod::copy_engine);
}

TEST(Choose, TreatsSizesBeyondTheTableAsItsEnds) {
  EXPECT_EQ(crossing().choose(kTo, true, 0), CopyMethod::cpu);
  EXPECT_EQ(crossing().choose(kTo, true, 1), CopyMethod::cpu);
  EXPECT_EQ(crossing().choose(kTo, true, std::size_t{1} << 40), CopyMethod::copy_engine);
  EXPECT_EQ(crossing().choose(kTo, true, ~std::size_t{0}), CopyMethod::copy_engine);
}

TEST(Choose, UsesTheCpuWhereNothingWasMeasured) {
  EXPECT_EQ(Calibration().choose(kTo, true, 1 << 20), CopyMethod::cpu);
  EXPECT_EQ(crossing().choose(kTo, false, 1 << 20), CopyMethod::cpu);
  EXPECT_EQ(crossing().choose(kFrom, true, 1 << 20), CopyMethod::cpu);
}

TEST(Choose, DoesNotUseAMethodOutsideTheSizesItWasMeasuredAt) {
  Calibration calibration;
  calibration.points = {{kFrom, false, 64, {1, kInfinity, 8}},
                        {kFrom, false, 1024, {4, kInfinity, 8}},
                        {kFrom, false, 65536, {kInfinity, kInfinity, 9}}};
  EXPECT_EQ(calibration.choose(kFrom, false, 1024), CopyMethod::cpu);
  EXPECT_EQ(calibration.choose(kFrom, false, 2048), CopyMethod::copy_engine);
}

// Several threads scatter and occupy the machine, so a little faster is not enough; the copy engine leaves the CPU free, so it
// wins a tie.
TEST(Choose, ThreadsMustWinClearlyAndTheEngineWinsATie) {
  Calibration calibration;
  calibration.points = {{kTo, true, 1024, {10, 8.1, 10.4}},
                        {kTo, true, 2048, {10, 7.9, 8.3}},
                        {kTo, true, 4096, {10, 12, 10.2}},
                        {kTo, true, 8192, {10, 7.9, 8.0}}};
  EXPECT_EQ(calibration.choose(kTo, true, 1024), CopyMethod::cpu);
  EXPECT_EQ(calibration.choose(kTo, true, 2048), CopyMethod::cpu_parallel);
  EXPECT_EQ(calibration.choose(kTo, true, 4096), CopyMethod::copy_engine);
  EXPECT_EQ(calibration.choose(kTo, true, 8192), CopyMethod::copy_engine);
}

// It occupies a part of the GPU, and only programs that allow it get it.
TEST(Choose, TheReadbackKernelMustBeAllowedAndWinByATenth) {
  Calibration calibration;
  calibration.points = {{kFrom, true, 4096, {4, kInfinity, 8, 3.7}},
                        {kFrom, true, 8192, {9, kInfinity, 8, 3}},
                        {kFrom, true, 32768, {34, kInfinity, 8, 6}},
                        {kFrom, true, 65536, {69, kInfinity, 9, 1}}};
  EXPECT_EQ(calibration.choose(kFrom, true, 4096, true), CopyMethod::cpu);
  EXPECT_EQ(calibration.choose(kFrom, true, 8192, true), CopyMethod::readback);
  EXPECT_EQ(calibration.choose(kFrom, true, 8192), CopyMethod::copy_engine);
  EXPECT_EQ(calibration.choose(kFrom, true, kMaxReadbackBytes, true), CopyMethod::readback);
  EXPECT_EQ(calibration.choose(kFrom, true, kMaxReadbackBytes + 1, true), CopyMethod::copy_engine);
  EXPECT_TRUE(has(calibration.to_text(), "copy_engine, or readback")) << calibration.to_text();
}

TEST(Defaults, StoreSmallCopiesByCpuAndLargeOnesByTheEngine) {
  const Calibration& defaults = Calibration::defaults();
  EXPECT_FALSE(defaults.is_measured);
  for (const bool is_pinned : {false, true}) {
    EXPECT_EQ(defaults.choose(kTo, is_pinned, 8), CopyMethod::cpu);
    EXPECT_EQ(defaults.choose(kTo, is_pinned, 65536), CopyMethod::cpu);
    EXPECT_EQ(defaults.choose(kTo, is_pinned, 16 << 20), CopyMethod::copy_engine);
    EXPECT_EQ(defaults.choose(kFrom, is_pinned, 8), CopyMethod::cpu);
    EXPECT_EQ(defaults.choose(kFrom, is_pinned, 4096), CopyMethod::cpu);
    EXPECT_EQ(defaults.choose(kFrom, is_pinned, 16384), CopyMethod::copy_engine);
    EXPECT_EQ(defaults.choose(kFrom, is_pinned, 1024, true), CopyMethod::cpu);
    EXPECT_EQ(defaults.choose(kFrom, is_pinned, 4096, true), CopyMethod::readback);
    EXPECT_EQ(defaults.choose(kFrom, is_pinned, 32768, true), CopyMethod::readback);
    EXPECT_EQ(defaults.choose(kTo, is_pinned, 4096, true), CopyMethod::cpu);
  }
  EXPECT_TRUE(has(defaults.to_text(), "documented defaults"));
}

TEST(Median, IsTheMiddleAndInfiniteOfNothing) {
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({5}), 5);
  EXPECT_EQ(median_of({4, 1, 3, 2}), 3) << "a time that was measured";
  EXPECT_EQ(median_of({kInfinity, 1}), kInfinity);
  EXPECT_EQ(median_of({}), kInfinity);
}

TEST(PickKernel, ChangesOnlyForFivePercent) {
  EXPECT_EQ(pick_kernel({1.00, 0.96, 1.5}, 0), 0U);
  EXPECT_EQ(pick_kernel({1.00, 0.94, 0.93}, 0), 2U);
  EXPECT_EQ(pick_kernel({1.00, 0.50, 0.50}, 1), 1U);
  EXPECT_EQ(pick_kernel({0.9, kInfinity}, 1), 0U);
  EXPECT_EQ(pick_kernel({kInfinity, kInfinity}, 1), 1U);
}

TEST(Measure, MeasuresAStandInWithinItsBudget) {
  // On a busy machine, or under a sanitizer, the first budget may be too short for one pass, which is an answer too.
  auto measured = Result<Calibration>(Calibration());
  for (const double budget : {2.0, 30.0}) {
    const auto begin = std::chrono::steady_clock::now();
    measured = Calibration::measure(0, budget);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LT(seconds, budget + 20);  // making 48 MiB ready comes on top
    if (measured.status() != Status::timed_out) break;
  }
  ASSERT_TRUE(measured.is_ok()) << measured.error().message();
  const Calibration& calibration = measured.value();
  EXPECT_TRUE(calibration.is_measured);
  EXPECT_TRUE(has(calibration.device_name, "stand-in"));
  EXPECT_TRUE(calibration.device_uuid.empty());
  EXPECT_EQ(calibration.date.size(), std::string("2026-01-01T00:00:00Z").size());
  EXPECT_GE(calibration.thread_count, 1U);
  EXPECT_LE(calibration.thread_count, 8U);
  EXPECT_EQ(calibration.points.size(), 2U * 2U * 25U);
  for (const CalibrationPoint& point : calibration.points) {
    EXPECT_TRUE(std::isfinite(point.median_us[static_cast<std::size_t>(CopyMethod::copy_engine)])) << point.bytes;
    for (const double us : point.median_us) EXPECT_GT(us, 0);
  }
  const std::string table = calibration.to_text();
  EXPECT_TRUE(has(table, "16 MiB")) << table;
  EXPECT_TRUE(has(table, "from_device")) << table;
  EXPECT_TRUE(has(table, "stand-in")) << table;
}

// A copy that delivers other bytes must not become a calibration: planted are kernels that leave a long copy's last byte out.
TEST(Measure, RefusesCopiesThatDeliverOtherBytes) {
  auto& active = detail::active_kernels(MappingType::cached);
  const StoreKernel store =
      active.store[13].exchange([](void* to, const void* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes - 1); });
  EXPECT_EQ(Calibration::measure(0, 2.0).status(), Status::verification_failed);
  active.store[13] = store;
  const LoadKernel load =
      active.load[13].exchange([](void* to, const void* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes - 1); });
  const auto refused = Calibration::measure(0, 2.0);
  active.load[13] = load;
  EXPECT_EQ(refused.status(), Status::verification_failed);
  EXPECT_TRUE(has(refused.error().message(), "from_device of 4096 bytes")) << refused.error().message();
}

TEST(Measure, RefusesBadBudgetsAndDevices) {
  for (const double budget : {0.0, 0.49, 600.1, -1.0, std::nan(""), kInfinity}) {
    EXPECT_EQ(Calibration::measure(0, budget).status(), Status::invalid_argument) << budget;
  }
  EXPECT_EQ(Calibration::measure(99).status(), Status::invalid_argument);
  EXPECT_EQ(Calibration::measure(-1).status(), Status::invalid_argument);
  EXPECT_TRUE(has(Calibration::measure(64).error().message(), "only devices below 64"));
}

}  // namespace
}  // namespace gigabar
