// SPDX-License-Identifier: Apache-2.0
// The presets: nvbandwidth's names, and that each plan measures what its name says.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "streams/plan.hpp"

namespace gigabar {
namespace {

constexpr int kHost = StreamPlace::kHost;

bool has(const std::string& line, std::string_view part) { return line.find(part) != std::string::npos; }

StreamPreset preset_of(std::string_view name, int device_count = 3, const Transfer& defaults = {}) {
  auto preset = stream_preset(name, defaults, device_count);
  EXPECT_TRUE(preset.is_ok()) << preset.error().message();
  return preset ? std::move(preset).value() : StreamPreset();
}

const StreamCell& cell_at(const StreamPreset& preset, int row, int column, std::string_view matrix = "") {
  static const StreamCell none;
  for (const StreamCell& cell : preset.cells) {
    if (cell.row == row && cell.column == column && cell.matrix == matrix) return cell;
  }
  ADD_FAILURE() << preset.name << " has no cell " << row << "," << column << " " << matrix;
  return none;
}

// "host->gpu0 ce": the routes of one group of a cell, sorted.
std::multiset<std::string> routes(const StreamCell& cell, std::string_view group) {
  std::multiset<std::string> found;
  for (const Transfer& transfer : cell.plan.transfers) {
    EXPECT_EQ(transfer.is_background, transfer.group == "background");
    const std::string line = to_string(transfer);
    if (transfer.group == group) found.insert(line.substr(0, line.find(" bytes=")));
  }
  return found;
}
using Routes = std::multiset<std::string>;

void expect_cell(const StreamCell& cell, const Routes& measured, const Routes& background) {
  EXPECT_EQ(routes(cell, "measured"), measured);
  EXPECT_EQ(routes(cell, "background"), background);
  EXPECT_EQ(cell.plan.transfers.size(), measured.size() + background.size());
}

TEST(PresetNames, AreInTheOrderOfTheIndexes) {
  const auto names = stream_preset_names();
  ASSERT_EQ(names.size(), 35U);
  EXPECT_EQ(names[0], "host_to_device_memcpy_ce");
  EXPECT_EQ(names[3], "device_to_host_bidirectional_memcpy_ce");
  EXPECT_EQ(names[4], "device_to_device_memcpy_read_ce");
  EXPECT_EQ(names[7], "device_to_device_bidirectional_memcpy_write_ce");
  EXPECT_EQ(names[9], "all_to_host_bidirectional_memcpy_ce");
  EXPECT_EQ(names[12], "all_to_one_write_ce");
  EXPECT_EQ(names[15], "one_to_all_read_ce");
  EXPECT_EQ(names[16], "host_to_device_memcpy_sm");
  EXPECT_EQ(names[32], "host_device_latency_sm");
  EXPECT_EQ(names[33], "device_to_device_latency_sm");
  EXPECT_EQ(names[34], "device_local_copy");
  for (std::size_t i = 0; i < 16; ++i) {
    const std::string ce(names[i]);
    EXPECT_EQ(names[i + 16], ce.substr(0, ce.size() - 2) + "sm");
  }
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size());
}

TEST(Presets, AllGivePlansThatCanRun) {
  for (const std::string_view name : stream_preset_names()) {
    for (const int device_count : {2, 3, 8}) {
      const StreamPreset preset = preset_of(name, device_count);
      EXPECT_EQ(preset.name, name);
      EXPECT_FALSE(preset.description.empty());
      EXPECT_EQ(preset.waived, "");
      EXPECT_FALSE(preset.cells.empty());
      EXPECT_EQ(preset.column_count, device_count);
      EXPECT_EQ(preset.is_latency, has(preset.name, "latency"));
      for (const StreamCell& cell : preset.cells) {
        const Result<void> checked = check_plan(cell.plan, device_count);
        EXPECT_TRUE(checked.is_ok()) << name << ": " << checked.message();
        EXPECT_GE(cell.row, 0);
        EXPECT_LT(cell.row, preset.row_count);
        EXPECT_GE(cell.column, 0);
        EXPECT_LT(cell.column, preset.column_count);
        EXPECT_FALSE(routes(cell, "measured").empty()) << name;
      }
    }
  }
}

TEST(Presets, WithOneDeviceThoseBetweenDevicesAreWaived) {
  for (const std::string_view name : stream_preset_names()) {
    const StreamPreset preset = preset_of(name, 1);
    const bool is_between = has(preset.name, "device_to_device") || has(preset.name, "_one_") || has(preset.name, "one_to_all");
    EXPECT_EQ(preset.cells.empty(), is_between) << name;
    EXPECT_EQ(preset.waived, is_between ? "needs at least 2 GPUs, this machine shows 1" : "") << name;
    const StreamPreset none = preset_of(name, 0);
    EXPECT_TRUE(none.cells.empty()) << name;
    EXPECT_TRUE(has(none.waived, "this machine shows 0")) << none.waived;
    EXPECT_TRUE(has(preset_of(name, -1).waived, "this machine shows 0"));
  }
}

TEST(Presets, HostToDeviceAndBack) {
  const StreamPreset up = preset_of("host_to_device_memcpy_ce");
  EXPECT_EQ(up.row_count, 1);
  ASSERT_EQ(up.cells.size(), 3U);
  expect_cell(cell_at(up, 0, 2), {"host->gpu2 ce"}, {});
  expect_cell(cell_at(preset_of("device_to_host_memcpy_sm"), 0, 1), {"gpu1->host sm"}, {});
  expect_cell(cell_at(preset_of("host_to_device_bidirectional_memcpy_sm"), 0, 1), {"host->gpu1 sm"}, {"gpu1->host sm"});
  expect_cell(cell_at(preset_of("device_to_host_bidirectional_memcpy_ce"), 0, 1), {"gpu1->host ce"}, {"host->gpu1 ce"});
}

TEST(Presets, ReadersPullAndWritersPush) {
  const StreamPreset read = preset_of("device_to_device_memcpy_read_ce");
  EXPECT_EQ(read.row_count, 3);
  ASSERT_EQ(read.cells.size(), 6U);
  expect_cell(cell_at(read, 0, 2), {"gpu2->gpu0 ce-pull"}, {});
  EXPECT_EQ(working_device(cell_at(read, 0, 2).plan.transfers[0]), 0);
  const StreamPreset write = preset_of("device_to_device_memcpy_write_sm");
  expect_cell(cell_at(write, 0, 2), {"gpu0->gpu2 sm-push"}, {});
  EXPECT_EQ(working_device(cell_at(write, 0, 2).plan.transfers[0]), 0);
}

TEST(Presets, BothDirectionsRunInEachOfTheThreeMatrices) {
  const StreamPreset read = preset_of("device_to_device_bidirectional_memcpy_read_ce", 2);
  ASSERT_EQ(read.cells.size(), 6U);
  expect_cell(cell_at(read, 0, 1, "read1"), {"gpu1->gpu0 ce-pull"}, {"gpu0->gpu1 ce-pull"});
  expect_cell(cell_at(read, 0, 1, "read2"), {"gpu0->gpu1 ce-pull"}, {"gpu1->gpu0 ce-pull"});
  expect_cell(cell_at(read, 0, 1, "total"), {"gpu0->gpu1 ce-pull", "gpu1->gpu0 ce-pull"}, {});
  const StreamPreset write = preset_of("device_to_device_bidirectional_memcpy_write_sm", 2);
  expect_cell(cell_at(write, 1, 0, "write1"), {"gpu1->gpu0 sm-push"}, {"gpu0->gpu1 sm-push"});
  expect_cell(cell_at(write, 1, 0, "write2"), {"gpu0->gpu1 sm-push"}, {"gpu1->gpu0 sm-push"});
  expect_cell(cell_at(write, 1, 0, "total"), {"gpu0->gpu1 sm-push", "gpu1->gpu0 sm-push"}, {});
}

TEST(Presets, AllGpusAndTheHost) {
  expect_cell(cell_at(preset_of("all_to_host_memcpy_ce"), 0, 1), {"gpu1->host ce"}, {"gpu0->host ce", "gpu2->host ce"});
  expect_cell(cell_at(preset_of("host_to_all_memcpy_sm"), 0, 0), {"host->gpu0 sm"}, {"host->gpu1 sm", "host->gpu2 sm"});
  expect_cell(cell_at(preset_of("all_to_host_bidirectional_memcpy_ce"), 0, 1), {"gpu1->host ce"},
              {"gpu0->host ce", "gpu2->host ce", "host->gpu0 ce", "host->gpu1 ce", "host->gpu2 ce"});
  expect_cell(cell_at(preset_of("host_to_all_bidirectional_memcpy_ce"), 0, 1), {"host->gpu1 ce"},
              {"gpu0->host ce", "gpu1->host ce", "gpu2->host ce", "host->gpu0 ce", "host->gpu2 ce"});
  expect_cell(cell_at(preset_of("all_to_host_memcpy_ce", 1), 0, 0), {"gpu0->host ce"}, {});
}

TEST(Presets, AllToOneAndOneToAllAreSums) {
  const StreamPreset write = preset_of("all_to_one_write_ce");
  EXPECT_EQ(write.row_count, 1);
  ASSERT_EQ(write.cells.size(), 3U);
  expect_cell(cell_at(write, 0, 0), {"gpu1->gpu0 ce-push", "gpu2->gpu0 ce-push"}, {});
  expect_cell(cell_at(preset_of("all_to_one_read_sm"), 0, 0), {"gpu1->gpu0 sm-pull", "gpu2->gpu0 sm-pull"}, {});
  expect_cell(cell_at(preset_of("one_to_all_write_sm"), 0, 2), {"gpu2->gpu0 sm-push", "gpu2->gpu1 sm-push"}, {});
  expect_cell(cell_at(preset_of("one_to_all_read_ce"), 0, 2), {"gpu2->gpu0 ce-pull", "gpu2->gpu1 ce-pull"}, {});
}

TEST(Presets, LatenciesFollowPointersThrough2MiB) {
  Transfer defaults;
  defaults.bytes = 64 << 20;
  defaults.source.pages = HostPages::pageable;
  const Transfer host = cell_at(preset_of("host_device_latency_sm", 2, defaults), 0, 1).plan.transfers.at(0);
  EXPECT_EQ(host.executor, StreamExecutor::pointer_chase);
  EXPECT_TRUE(host.is_latency);
  EXPECT_EQ(host.bytes, std::size_t{2} << 20);
  EXPECT_EQ(host.source, StreamPlace{});
  EXPECT_EQ(working_device(host), 1);
  const StreamPreset devices = preset_of("device_to_device_latency_sm", 2, defaults);
  EXPECT_EQ(devices.row_count, 2);
  const Transfer device = cell_at(devices, 0, 1).plan.transfers.at(0);
  EXPECT_EQ(device.source.device, 1);
  EXPECT_EQ(working_device(device), 0);
}

TEST(Presets, LocalCopyStaysWithinEachDevice) {
  const StreamPreset local = preset_of("device_local_copy", 2);
  EXPECT_FALSE(local.is_latency);
  ASSERT_EQ(local.cells.size(), 2U);
  expect_cell(cell_at(local, 0, 1), {"gpu1->gpu1 ce"}, {});
}

TEST(Presets, TakeSizeLengthAndPagesFromTheDefaults) {
  Transfer defaults;
  defaults.bytes = 12345;
  defaults.iterations = 0;
  defaults.seconds = 1.5;
  defaults.source = {kHost, HostPages::huge, 1};
  defaults.destination = {kHost, HostPages::write_combined, StreamPlace::kAnyNode};
  defaults.may_stage = true;
  defaults.delay_seconds = 3;
  defaults.is_background = true;
  defaults.group = "mine";
  const StreamCell cell = cell_at(preset_of("host_to_device_bidirectional_memcpy_ce", 1, defaults), 0, 0);
  const Transfer& measured = cell.plan.transfers.at(0);
  EXPECT_EQ(measured.bytes, 12345U);
  EXPECT_EQ(measured.iterations, 0U);
  EXPECT_EQ(measured.seconds, 1.5);
  EXPECT_EQ(measured.source, defaults.source);
  EXPECT_EQ(measured.destination, StreamPlace{.device = 0});
  EXPECT_TRUE(measured.may_stage);
  EXPECT_EQ(measured.delay_seconds, 0);
  EXPECT_FALSE(measured.is_background);
  EXPECT_EQ(cell.plan.transfers.at(1).destination, defaults.destination);
}

TEST(Presets, AnUnknownNameNamesTheNearest) {
  const auto cause_of = [](std::string_view name) {
    const auto preset = stream_preset(name, {}, 2);
    EXPECT_EQ(preset.status(), Status::invalid_argument);
    EXPECT_TRUE(has(preset.error().record().remedy, "stream_preset_names"));
    return preset.error().record().cause;
  };
  EXPECT_TRUE(has(cause_of("host_to_device_memcpy"), "host_to_device_memcpy_ce, host_to_device_memcpy_sm"));
  EXPECT_TRUE(has(cause_of("all_to_one_wirte_ce"), "nearest are all_to_one_write_ce"));
  EXPECT_TRUE(has(cause_of("local"), "nearest are device_local_copy"));
  EXPECT_TRUE(has(cause_of("latency"), "host_device_latency_sm, device_to_device_latency_sm"));
  EXPECT_FALSE(cause_of("").empty());
  EXPECT_FALSE(cause_of(std::string(100000, 'x')).empty());
}

}  // namespace
}  // namespace gigabar
