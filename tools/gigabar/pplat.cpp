// SPDX-License-Identifier: Apache-2.0
// gigabar pplat: a flag from the CPU to a running kernel and back, or the other way round; with data, when asked, that the receiver
// checks. Or a message whose lines carry their own numbers, by a KernelRing. The kernels are cuda/pplat_units.hpp; on a stand-in a
// CPU thread plays them.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "base/counted.hpp"
#include "base/remaining.hpp"
#include "base/undo.hpp"
#include "commands.hpp"
#include "cuda/pplat_units.hpp"
#include "cuda/runtime.hpp"
#include "device_ranks/run_on_cpu.hpp"
#include "gigabar/kernel_ring.hpp"
#include "gigabar/memory.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/workbench.hpp"

namespace gigabar::tool {
namespace {

enum class Location { device_memory, host_memory };
enum class By { flag, message };

struct Options : DeviceOptions {
  std::uint32_t iteration_count = 1000;
  std::uint32_t warm_up_count = 100;
  double timeout_seconds = 10;
  std::size_t data_bytes = 0;
  std::uint32_t block_count = 8;
  std::uint32_t thread_count = 1024;
  int mode = 0;
  By by = By::flag;
  Location device_flag = Location::device_memory;  // -G: what the kernel polls
  Location host_flag = Location::host_memory;      // -C: what the CPU polls
  Location data = Location::device_memory;

  std::uint32_t rounds() const noexcept { return warm_up_count + iteration_count; }
  std::uint64_t timeout_ns() const noexcept { return static_cast<std::uint64_t>(timeout_seconds * 1e9); }
};

constexpr std::array<Named<Location>, 2> kLocations = {{{Location::device_memory, "gpumem"}, {Location::host_memory, "hostmem"}}};
constexpr std::array<Named<By>, 2> kWays = {{{By::flag, "flag"}, {By::message, "message"}}};
std::string_view name_of(Location location) { return name_in(kLocations, location); }

// Memory that the CPU reaches by a Mapping and the GPU by an address of its own, wherever it lies.
class Place {
 public:
  Place(Location location, std::size_t bytes, const DeviceOptions& options, const DeviceInfo& device) {
    if (location == Location::device_memory) {
      device_memory_.emplace(take(DeviceMemory::allocate(options.device, bytes, options.allocator)));
      mapping_.emplace(map_for(*device_memory_, options));
    } else {
      host_memory_.emplace(take(HostMemory::allocate(bytes, {.numa_node = device.numa_node, .pages = HostPages::pinned})));
      mapping_.emplace(take(map(host_memory_->address(), bytes)));
    }
    const std::vector<std::byte> zeros(bytes);
    require(copy_to(*mapping_, 0, zeros.data(), bytes));
  }

  const Mapping& mapping() const noexcept { return *mapping_; }
  template <class Word>
  Word* device_pointer() const noexcept {
    return reinterpret_cast<Word*>(mapping_->device_address());
  }
  // Whether all words from the start, as many as `buffer` holds, are `value`. A cached place is read where it lies, another one
  // through the mapping.
  bool all_words_are(std::uint32_t value, std::span<std::uint32_t> buffer) const {
    if (mapping_->type() == MappingType::cached) {
      const std::span words(reinterpret_cast<std::uint32_t*>(mapping_->address()), buffer.size());
      return std::ranges::all_of(words, [=](auto& word) { return std::atomic_ref(word).load(std::memory_order_acquire) == value; });
    }
    if (!copy_from(*mapping_, 0, buffer.data(), buffer.size_bytes())) return false;
    return std::ranges::all_of(buffer, [=](std::uint32_t word) { return word == value; });
  }

 private:
  std::optional<DeviceMemory> device_memory_;
  std::optional<HostMemory> host_memory_;
  std::optional<Mapping> mapping_;
};

// On a stand-in a thread of the CPU plays the kernel, as one block. The last copy of what is returned waits for it.
template <class Body>
device_ranks::AwaitKernel play_kernel(const Body& body) {
  auto played = std::async(std::launch::async, [body] { return device_ranks::run_reporting(device_ranks::Grid{}, body); }).share();
  return [played]() -> Result<device_ranks::KernelRun> { return played.get(); };
}

// --- By flags -------------------------------------------------------------------------------------------------------------------

class Game {
 public:
  Game(const Options& options, const DeviceInfo& device, const SampleClock& clock)
      : options_(options), device_(device), clock_(clock) {}

  // The rounds after the warm-up.
  Summary play(Report& report) {
    report.set_mapping(device_flag_.mapping());
    report.show_progress("{} between the CPU and the kernel", counted(options_.rounds(), "round trip"));
    deadline_ns_ = monotonic_ns() + options_.timeout_ns();
    const device_ranks::AwaitKernel await_kernel = take(start());
    std::vector<std::uint64_t> ticks = options_.mode == 0 ? start_rounds() : answer_rounds();
    if (!stopped_because_.empty()) store_flag(kStopFlag);
    device_ranks::KernelRun run = take(await_kernel());
    judge(run.ends);
    if (options_.mode == 0) return summarize(ticks, clock_.ns_per_tick());
    // The kernel's clock counts cycles; %globaltimer around all rounds says how long one is.
    return summarize(std::span(run.samples).subspan(options_.warm_up_count), ns_per_tick(run.ends.front()));
  }

 private:
  Result<device_ranks::AwaitKernel> start() {
    const FlagPlan plan{.rounds = options_.rounds(),
                        .data_bytes = options_.data_bytes,
                        .block_count = block_count_,
                        .device_starts = options_.mode == 1,
                        .timeout_ns = options_.timeout_ns(),
                        .device_flag = device_flag_.device_pointer<std::uint32_t>(),
                        .host_flags = host_flags_.device_pointer<std::uint32_t>(),
                        .data = data_.device_pointer<std::uint64_t>()};
    if (!device_.is_stand_in) return start_flags(options_.device, plan, options_.thread_count);
    return play_kernel(FlagBody{plan});
  }

  void store_flag(std::uint32_t value) { require(copy_to(device_flag_.mapping(), 0, &value, sizeof value)); }

  // False when the deadline passed first. The clock is read at every 256th poll; on a stand-in the other thread may need this CPU.
  bool await_answers(std::uint32_t round) {
    for (std::uint32_t poll = 1; !host_flags_.all_words_are(round, flags_); ++poll) {
      if (device_.is_stand_in && poll % 64 == 0) sched_yield();
      if (poll % 256 == 0 && monotonic_ns() > deadline_ns_) {
        stopped_because_ = fmt::format("no answer to round {} within {} s", round, options_.timeout_seconds);
        return false;
      }
    }
    return true;
  }

  // Mode 0: data and flag leave the CPU, every block answers. Two copies of one thread become visible in call order.
  std::vector<std::uint64_t> start_rounds() {
    std::vector<std::uint64_t> ticks;
    ticks.reserve(options_.rounds());
    for (std::uint32_t round = 1; round <= options_.rounds(); ++round) {
      for (std::size_t i = 0; i < words_.size(); ++i) words_[i] = flag_word(round, i);
      const std::uint64_t start = clock_.now();
      if (!words_.empty()) require(copy_to(data_.mapping(), 0, words_.data(), options_.data_bytes));
      store_flag(round);
      if (!await_answers(round)) break;
      const std::uint64_t elapsed = clock_.now() - start;
      if (round > options_.warm_up_count) ticks.push_back(elapsed);
    }
    return ticks;
  }

  // Mode 1: the kernel starts each round and takes the time. The data is fetched before the answer and compared after it, so that
  // the comparison is not in the time.
  std::vector<std::uint64_t> answer_rounds() {
    std::vector<std::uint64_t> found(words_.size());
    for (std::uint32_t round = 1; round <= options_.rounds(); ++round) {
      if (!await_answers(round)) break;
      if (!found.empty()) require(copy_from(data_.mapping(), 0, found.data(), options_.data_bytes));
      store_flag(round);
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (found[i] == flag_word(round, i)) continue;
        stopped_because_ = wrong_data(round, i * 8, found[i]);
        return {};
      }
    }
    return {};
  }

  static std::string wrong_data(std::uint32_t round, std::uint64_t offset_bytes, std::uint64_t found) {
    return fmt::format("wrong data in round {} at offset {}: expected 0x{:016x}, found 0x{:016x}", round, offset_bytes,
                       flag_word(round, offset_bytes / 8), found);
  }

  void judge(const std::vector<device_ranks::UnitEnd>& ends) const {
    const std::string label(stand_in_label(device_.is_stand_in));
    const std::string done = counted(ends.front().rounds_done, "round");
    for (const device_ranks::UnitEnd& end : ends) {
      if (end.wrong_count != 0)
        fail(wrong_data(end.wrong_place.round, end.wrong_place.offset_bytes, end.wrong_found) + " (seen by the kernel)" + label);
    }
    if (!stopped_because_.empty())
      fail(fmt::format("{}{}; the kernel had done {}; a longer -u gives it more time", stopped_because_, label, done));
    const bool is_late = std::any_of(ends.begin(), ends.end(), [](const auto& end) { return end.status == Status::timed_out; });
    if (is_late) fail(fmt::format("the kernel gave up after {} at its deadline{}; a longer -u gives it more time", done, label));
  }

  const Options& options_;
  const DeviceInfo& device_;
  const SampleClock& clock_;
  const std::uint32_t block_count_ = device_.is_stand_in ? 1 : options_.block_count;  // that answer
  const Place device_flag_{options_.device_flag, sizeof(std::uint32_t), options_, device_};
  const Place host_flags_{options_.host_flag, block_count_ * sizeof(std::uint32_t), options_, device_};
  const Place data_{options_.data, std::max<std::size_t>(options_.data_bytes, 8), options_, device_};
  std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(options_.data_bytes / 8);
  std::vector<std::uint32_t> flags_ = std::vector<std::uint32_t>(block_count_);
  std::uint64_t deadline_ns_ = 0;
  std::string stopped_because_;
};

// --- By messages: the CPU calls a kernel that stays -----------------------------------------------------------------------------

using Words = std::vector<std::uint32_t>;

constexpr std::size_t kMaxGameBytes = std::size_t{1} << 27;  // of a message; a ring holds eight

// Threads that a kernel's scope needs for a message: one for each line, so that all lines are loaded at once. On an H200 128
// threads answer 768 bytes, which are 97 lines, in 2.1 us, 96 threads in 2.2.
std::uint32_t threads_for(std::size_t data_bytes, std::uint32_t most) {
  constexpr std::size_t kWarp = device_ranks::kWarpThreads;
  const std::size_t warps = data_bytes / sizeof(std::uint64_t) / kWarp + 1;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(std::min(most, device_ranks::kMaxBlockThreads) / kWarp, 1, warps) *
                                    kWarp);
}

// Both halves of the ring hold the message twice.
std::uint32_t ring_bytes_for(std::size_t data_bytes) {
  constexpr std::size_t kMinBytes = 65536;
  return static_cast<std::uint32_t>(std::max(kMinBytes, std::bit_ceil(8 * data_bytes)));
}

void check_answer(const Words& sent, const Words& answer, std::uint64_t bytes, std::uint32_t round) {
  if (bytes != sent.size() * sizeof(std::uint32_t)) {
    fail(fmt::format("wrong answer in round {}: {} instead of {}", round, counted(bytes, "byte"),
                     sent.size() * sizeof(std::uint32_t)));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (answer[i] == sent[i] + 1) continue;
    fail(fmt::format("wrong answer in round {} at offset {}: expected 0x{:08x}, found 0x{:08x}", round, i * sizeof(std::uint32_t),
                     sent[i] + 1, answer[i]));
  }
}

// Every word of every answer is checked, outside the time.
Summary play_by_messages(const Options& options, const DeviceInfo& device, const SampleClock& clock, Report& report) {
  const Place place(Location::device_memory, sizeof(std::uint64_t), options, device);  // the ring is mapped as this is
  report.set_mapping(place.mapping());
  report.show_progress("{} to the kernel", counted(options.rounds(), "call"));
  const std::size_t data_bytes = options.data_bytes;
  KernelRing ring = take(KernelRing::open(device.index, {.ring_bytes = ring_bytes_for(data_bytes)}));
  CallPlan plan{
      .rounds = options.rounds(), .timeout_ns = options.timeout_ns(), .from_cpu = ring.from_cpu(), .to_cpu = ring.to_cpu()};
  const device_ranks::AwaitKernel await_kernel =
      device.is_stand_in ? play_kernel(CallBody{plan}) : take(start_calls(device.index, plan, options.thread_count));
  const Remaining time{std::chrono::nanoseconds(plan.timeout_ns)};
  Words sent(data_bytes / sizeof(std::uint32_t)), answer(sent.size());
  std::vector<std::uint64_t> ticks;
  ticks.reserve(plan.rounds);
  {
    const Undo stop([&ring] { ring.stop(); });  // tells the kernel to end, whatever happens
    for (std::uint32_t round = 1; round <= plan.rounds; ++round) {
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = device_ranks::data_word(0, round, 0, i);
      const Timeout left = time.left();
      const std::uint64_t start = clock.now();
      const Result<std::uint64_t> bytes = ring.call(sent.data(), data_bytes, answer.data(), data_bytes, left);
      const std::uint64_t elapsed = clock.now() - start;
      if (!bytes) {
        fail(fmt::format("no answer to round {} within {} s{}: {}; a longer -u gives it more time", round, options.timeout_seconds,
                         stand_in_label(device.is_stand_in), bytes.error().message()));
      }
      check_answer(sent, answer, *bytes, round);
      if (round > options.warm_up_count) ticks.push_back(elapsed);
    }
  }
  static_cast<void>(take(await_kernel()));
  return summarize(ticks, clock.ns_per_tick());
}

// --- The command ----------------------------------------------------------------------------------------------------------------

void settle(Options& options, const DeviceInfo& device) {
  if (options.data_bytes % 8 != 0)
    refuse_usage(fmt::format("-s {}: the data must be a multiple of 8 bytes; round it up", options.data_bytes));
  if (options.by == By::message) {
    if (options.mode == 1) refuse_usage("-m 1 with --by message: it is the CPU that calls; leave -m out");
    if (options.data_bytes > kMaxGameBytes)
      refuse_usage(fmt::format("-s {}: a message here has at most {}", options.data_bytes, counted(kMaxGameBytes, "byte")));
    options.block_count = 1;
    options.thread_count = threads_for(options.data_bytes, options.thread_count);
    options.device_flag = options.data = Location::device_memory;
    options.host_flag = Location::host_memory;
  } else if (options.data_bytes == 0) {
    options.block_count = options.thread_count = 1;  // nothing to share out
  }
  if (device.is_stand_in) return;
  const Availability runtime = use_cuda_runtime(device.index);
  if (!runtime.is_ok())
    fail(fmt::format("the flag kernel cannot run: {}: {}; {}", name_of(runtime.code), runtime.reason, runtime.remedy));
}

std::string shape_of(const Options& options) {
  const std::string data = counted(options.data_bytes, "byte");
  if (options.by == By::message)
    return fmt::format("message of {}, answered by {} with as many", data, counted(options.thread_count, "thread"));
  if (options.data_bytes == 0) return "flag only";
  return fmt::format("flag behind {} of checked data, {} of {}", data, counted(options.block_count, "block"),
                     counted(options.thread_count, "thread"));
}

void run_pplat(Options options, const Invocation& invocation) {
  bind_processor(options);
  Report report("pplat", invocation, options.json_path);
  const DeviceInfo device = select_device(options);
  report.set_device(device);
  settle(options, device);
  const SampleClock clock = SampleClock::calibrate();
  report.set_clock(clock);
  if (device.is_stand_in) report.note("stand-in: a CPU thread plays the kernel");
  const Summary summary =
      options.by == By::flag ? Game(options, device, clock).play(report) : play_by_messages(options, device, clock, report);
  report.heading(fmt::format("round trip {}, microseconds: {}", options.mode == 0 ? "CPU to GPU to CPU" : "GPU to CPU to GPU",
                             shape_of(options)));
  if (options.by == By::flag) {
    report.print("flag polled by the GPU in {}, by the CPU in {}, data in {}\n", name_of(options.device_flag),
                 name_of(options.host_flag), name_of(options.data));
  }
  report.print("p50 {:.3f}   p99 {:.3f}   min {:.3f}   max {:.3f}   ({})\n", summary.p50_us, summary.p99_us, summary.min_us,
               summary.max_us, counted(summary.sample_count, "sample"));
  Row result;
  result.add("measure", "round_trip").add("by", name_in(kWays, options.by)).add("starts", options.mode == 0 ? "cpu" : "gpu");
  result.merge(to_json(summary)).add("data_bytes", options.data_bytes).add("data_checked", options.data_bytes != 0);
  result.add("blocks", options.block_count).add("threads", options.thread_count).add("gpu_flag", name_of(options.device_flag));
  result.add("cpu_flag", name_of(options.host_flag)).add("data", name_of(options.data));
  report.add_result(result.document());
  report.write();
}

}  // namespace

void add_pplat(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "pplat", "Round trip of a flag or a message between the CPU and a running kernel", run_pplat);
  add_device_options(command, options);
  command->add_option("-t,--iterations", options.iteration_count, whole_number(1, 10000000), "Timed rounds");
  command->add_option("--warmup,--warm-up", options.warm_up_count, whole_number(0, 1000000),
                      "Untimed rounds before the timed ones");
  command->add_option("-u,--timeout", options.timeout_seconds, seconds(600), "Of all rounds together: after it both sides give up");
  command->add_option("-s,--size", options.data_bytes, byte_count(0, std::uint64_t{1} << 30),
                      "Bytes of data ahead of each flag, a multiple of 8; 0: the flag only");
  command->add_option("-B,--blocks", options.block_count, whole_number(1, 65535),
                      "Blocks of the kernel, with data; each answers with a flag of its own");
  command->add_option("-T,--threads", options.thread_count, whole_number(1, 1024), "Threads per block, with data");
  command->add_option("-m,--mode", options.mode, whole_number(0, 1, "0|1"), "Who starts and takes the time: 0 the CPU, 1 the GPU");
  command->add_choice(
      "--by", options.by, kWays,
      "What goes there and back: flags, or messages, whose lines carry their own numbers, to a kernel that is called");
  command->add_choice("-G,--gpu-flag", options.device_flag, kLocations, "Where the flag is that the GPU polls");
  command->add_choice("-C,--cpu-flag", options.host_flag, kLocations, "Where the flags are that the CPU polls");
  command->add_choice("-D,--data", options.data, kLocations, "Where the data is");
}

}  // namespace gigabar::tool
