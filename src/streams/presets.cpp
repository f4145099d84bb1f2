// SPDX-License-Identifier: Apache-2.0
// The test cases of nvbandwidth 0.8 as plans: the same ends, the same side of work, the same traffic beside what is measured.
#include <algorithm>
#include <array>
#include <utility>

#include "base/edit_distance.hpp"
#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "streams/plan.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr int kHost = StreamPlace::kHost;
constexpr std::size_t kLatencyBytes = std::size_t{2} << 20;  // beyond a GPU's first-level cache and TLB, as nvbandwidth has it

// Adds the cells of one preset. Every function that adds them takes the side whose GPU works, which is moot with one GPU.
class CellMaker {
 public:
  CellMaker(const Transfer& defaults, StreamExecutor executor, int device_count, std::vector<StreamCell>& cells)
      : defaults_(defaults), executor_(executor), device_count_(device_count), cells_(cells) {}

  // Each GPU is measured, alone or while all other GPUs do the same; both ways: and all of them the opposite.
  template <bool kIsToHost, bool kIsAmongAll, bool kIsBothWays>
  void with_host(StreamSide side) {
    for (int gpu = 0; gpu < device_count_; ++gpu) {
      std::vector<Transfer> transfers = {kIsToHost ? measured(gpu, kHost, side) : measured(kHost, gpu, side)};
      for (const int other : kIsAmongAll ? others(gpu) : std::vector<int>()) {
        if (kIsToHost || kIsBothWays) transfers.push_back(background(other, kHost, side));
        if (!kIsToHost || kIsBothWays) transfers.push_back(background(kHost, other, side));
      }
      if (kIsBothWays) transfers.push_back(kIsToHost ? background(kHost, gpu, side) : background(gpu, kHost, side));
      add("", 0, gpu, std::move(transfers));
    }
  }
  void within_device(StreamSide side) {
    for (int gpu = 0; gpu < device_count_; ++gpu) add("", 0, gpu, {measured(gpu, gpu, side)});
  }
  // All others at once, whose figures are summed up.
  template <bool kIsToOne>
  void with_others(StreamSide side) {
    for (int gpu = 0; gpu < device_count_; ++gpu) {
      std::vector<Transfer> transfers;
      for (const int peer : others(gpu)) transfers.push_back(kIsToOne ? measured(peer, gpu, side) : measured(gpu, peer, side));
      add("", 0, gpu, std::move(transfers));
    }
  }

  // Row and column: the row's GPU reads from the column's, or writes to it.
  void device_to_device(StreamSide side) {
    for_pairs(side, [&](int from, int to) { return std::vector{measured(from, to, side)}; });
  }
  // Both directions run in each of the three matrices; which of them is measured differs.
  void device_to_device_both(StreamSide side) {
    const std::string word = side == StreamSide::destination ? "read" : "write";
    for_pairs(
        side, [&](int from, int to) { return std::vector{measured(from, to, side), background(to, from, side)}; }, word + "1");
    for_pairs(
        side, [&](int from, int to) { return std::vector{background(from, to, side), measured(to, from, side)}; }, word + "2");
    for_pairs(side, [&](int from, int to) { return std::vector{measured(from, to, side), measured(to, from, side)}; }, "total");
  }

 private:
  void add(std::string matrix, int row, int column, std::vector<Transfer> transfers) {
    StreamCell& cell = cells_.emplace_back();
    cell.matrix = std::move(matrix);
    cell.row = row;
    cell.column = column;
    cell.plan.transfers = std::move(transfers);
  }

  Transfer measured(int from, int to, StreamSide side) const {
    Transfer transfer;
    transfer.source = place(from, defaults_.source);
    transfer.destination = place(to, defaults_.destination);
    transfer.executor = executor_;
    transfer.side = side;
    if (executor_ == defaults_.executor) transfer.worker_count = defaults_.worker_count;
    transfer.bytes = defaults_.bytes;
    transfer.iterations = defaults_.iterations;
    transfer.seconds = defaults_.seconds;
    transfer.may_stage = defaults_.may_stage;
    transfer.group = "measured";
    if (executor_ == StreamExecutor::pointer_chase) make_latency(transfer);
    return transfer;
  }

  Transfer background(int from, int to, StreamSide side) const {
    Transfer transfer = measured(from, to, side);
    transfer.group = "background";
    transfer.is_background = true;
    return transfer;
  }

  // A latency is of a size and of pages that a GPU can load from, whatever the copies beside it use.
  static void make_latency(Transfer& transfer) {
    transfer.is_latency = true;
    transfer.bytes = kLatencyBytes;
    transfer.source.pages = HostPages::pinned;
  }

  static StreamPlace place(int device, const StreamPlace& defaults) {
    StreamPlace place;
    place.device = device;
    if (device != kHost) return place;
    place.pages = defaults.pages;
    place.numa_node = defaults.numa_node;
    return place;
  }

  std::vector<int> others(int gpu) const {
    std::vector<int> rest;
    for (int other = 0; other < device_count_; ++other) {
      if (other != gpu) rest.push_back(other);
    }
    return rest;
  }

  // A reader is the destination of what it moves, a writer the source.
  template <class Make>
  void for_pairs(StreamSide side, const Make& make, const std::string& matrix = {}) {
    const bool is_read = side == StreamSide::destination;
    for (int row = 0; row < device_count_; ++row) {
      for (const int column : others(row)) add(matrix, row, column, is_read ? make(column, row) : make(row, column));
    }
  }

  const Transfer& defaults_;
  StreamExecutor executor_;
  int device_count_;
  std::vector<StreamCell>& cells_;
};

struct Recipe {
  std::string_view name;
  void (CellMaker::*make)(StreamSide side);
  StreamSide side;
  bool is_between_devices;
  bool is_square;  // a row per GPU; else one row
  std::string_view description;
};

constexpr bool kToGpu = false, kToHost = true;
constexpr bool kAlone = false, kAmongAll = true;
constexpr bool kOneWay = false, kBothWays = true;
constexpr bool kFromOne = false, kToOne = true;
constexpr auto kAutomatic = StreamSide::automatic;
constexpr auto kPush = StreamSide::source;
constexpr auto kPull = StreamSide::destination;

// Those of copies first, each by the copy engine and by a kernel: with _ce and _sm behind its name.
constexpr std::size_t kCopyCount = 16, kOtherCount = 3;
constexpr std::array<Recipe, kCopyCount + kOtherCount> kRecipes = {{
    {"host_to_device_memcpy", &CellMaker::with_host<kToGpu, kAlone, kOneWay>, kAutomatic, false, false, "host -> GPU(column)"},
    {"device_to_host_memcpy", &CellMaker::with_host<kToHost, kAlone, kOneWay>, kAutomatic, false, false, "host <- GPU(column)"},
    {"host_to_device_bidirectional_memcpy", &CellMaker::with_host<kToGpu, kAlone, kBothWays>, kAutomatic, false, false,
     "host -> GPU(column), while the opposite runs"},
    {"device_to_host_bidirectional_memcpy", &CellMaker::with_host<kToHost, kAlone, kBothWays>, kAutomatic, false, false,
     "host <- GPU(column), while the opposite runs"},
    {"device_to_device_memcpy_read", &CellMaker::device_to_device, kPull, true, true, "GPU(row) <- GPU(column), pulled by the row"},
    {"device_to_device_memcpy_write", &CellMaker::device_to_device, kPush, true, true,
     "GPU(row) -> GPU(column), pushed by the row"},
    {"device_to_device_bidirectional_memcpy_read", &CellMaker::device_to_device_both, kPull, true, true,
     "GPU(row) <-> GPU(column), each pulls: read1 of the row, read2 of the column, total"},
    {"device_to_device_bidirectional_memcpy_write", &CellMaker::device_to_device_both, kPush, true, true,
     "GPU(row) <-> GPU(column), each pushes: write1 of the row, write2 of the column, total"},
    {"all_to_host_memcpy", &CellMaker::with_host<kToHost, kAmongAll, kOneWay>, kAutomatic, false, false,
     "host <- GPU(column), while all other GPUs do the same"},
    {"all_to_host_bidirectional_memcpy", &CellMaker::with_host<kToHost, kAmongAll, kBothWays>, kAutomatic, false, false,
     "host <- GPU(column), while all other GPUs do the same and all the opposite"},
    {"host_to_all_memcpy", &CellMaker::with_host<kToGpu, kAmongAll, kOneWay>, kAutomatic, false, false,
     "host -> GPU(column), while all other GPUs do the same"},
    {"host_to_all_bidirectional_memcpy", &CellMaker::with_host<kToGpu, kAmongAll, kBothWays>, kAutomatic, false, false,
     "host -> GPU(column), while all other GPUs do the same and all the opposite"},
    {"all_to_one_write", &CellMaker::with_others<kToOne>, kPush, true, false,
     "all other GPUs -> GPU(column), pushed by the others, summed up"},
    {"all_to_one_read", &CellMaker::with_others<kToOne>, kPull, true, false,
     "all other GPUs -> GPU(column), pulled by the column, summed up"},
    {"one_to_all_write", &CellMaker::with_others<kFromOne>, kPush, true, false,
     "GPU(column) -> all other GPUs, pushed by the column, summed up"},
    {"one_to_all_read", &CellMaker::with_others<kFromOne>, kPull, true, false,
     "GPU(column) -> all other GPUs, pulled by the others, summed up"},
    {"host_device_latency_sm", &CellMaker::with_host<kToGpu, kAlone, kOneWay>, kAutomatic, false, false,
     "one load by GPU(column) from host memory"},
    {"device_to_device_latency_sm", &CellMaker::device_to_device, kPull, true, true, "one load by GPU(row) from GPU(column)"},
    {"device_local_copy", &CellMaker::within_device, kAutomatic, false, false, "GPU(column) -> itself, each byte counted once"},
}};

constexpr auto kCopyNames = [] {
  std::array<std::array<char, 64>, 2 * kCopyCount> names{};  // each with a zero behind it
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto end = std::ranges::copy(kRecipes[i % kCopyCount].name, names[i].begin()).out;
    std::ranges::copy(std::string_view(i < kCopyCount ? "_ce" : "_sm"), end);
  }
  return names;
}();
// In the order of nvbandwidth's indexes.
constexpr auto kNames = [] {
  std::array<std::string_view, 2 * kCopyCount + kOtherCount> names;
  const auto others =
      std::ranges::transform(kCopyNames, names.begin(), [](const auto& name) { return std::string_view(name.data()); });
  std::transform(kRecipes.begin() + kCopyCount, kRecipes.end(), others.out, [](const Recipe& recipe) { return recipe.name; });
  return names;
}();

std::pair<const Recipe*, StreamExecutor> recipe_of(std::size_t index) {
  if (index < kCopyCount) return {&kRecipes[index], StreamExecutor::copy_engine};
  if (index < 2 * kCopyCount) return {&kRecipes[index - kCopyCount], StreamExecutor::kernel};
  const bool is_last = index + 1 == kNames.size();
  return {&kRecipes[index - kCopyCount], is_last ? StreamExecutor::copy_engine : StreamExecutor::pointer_chase};
}

std::string_view worker_text(StreamExecutor executor) {
  if (executor == StreamExecutor::copy_engine) return "copy engine";
  return executor == StreamExecutor::kernel ? "kernel" : "pointer chase";
}

std::string waived_text(int device_count, bool is_between_devices) {
  if (device_count >= (is_between_devices ? 2 : 1)) return {};
  return text("needs at least ", is_between_devices ? "2 GPUs" : "1 GPU", ", this machine shows ", std::max(device_count, 0));
}

// The three names that hold the word, or else need the fewest changes.
std::string nearest_names(std::string_view name) {
  constexpr std::size_t kMaxCompared = 64;  // longer than any name there is
  const std::string_view word = name.substr(0, kMaxCompared);
  std::vector<std::pair<std::size_t, std::string_view>> ranked;
  for (const std::string_view known : kNames) {
    const bool holds = !word.empty() && known.find(word) != std::string_view::npos;
    ranked.emplace_back(edit_distance(word, known) + (holds ? 0 : kMaxCompared), known);
  }
  std::sort(ranked.begin(), ranked.end());
  return text(ranked[0].second, ", ", ranked[1].second, ", ", ranked[2].second);
}

}  // namespace

std::span<const std::string_view> stream_preset_names() noexcept { return kNames; }

Result<StreamPreset> stream_preset(std::string_view name, const Transfer& defaults, int device_count) try {
  const Uncancelled uncancelled;
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    return make_error(Status::invalid_argument, "make preset", quoted_word(name),
                      text("no preset has this name; the nearest are ", nearest_names(name)),
                      text("stream_preset_names() lists all ", kNames.size()));
  }
  const auto [recipe, executor] = recipe_of(static_cast<std::size_t>(found - kNames.begin()));
  StreamPreset preset;
  preset.name = name;
  preset.description = text(worker_text(executor), ", ", recipe->description);
  preset.is_latency = executor == StreamExecutor::pointer_chase;
  preset.waived = waived_text(device_count, recipe->is_between_devices);
  if (!preset.waived.empty()) return preset;
  preset.row_count = recipe->is_square ? device_count : 1;
  preset.column_count = device_count;
  CellMaker maker(defaults, executor, device_count, preset.cells);
  (maker.*recipe->make)(recipe->side);
  return preset;
} catch (...) {
  return error_of_exception("stream_preset");
}

}  // namespace gigabar::inline v0
