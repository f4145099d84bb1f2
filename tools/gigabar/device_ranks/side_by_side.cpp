// SPDX-License-Identifier: Apache-2.0
// What kernels send, beside the same sent by the CPU when a kernel has ended.
// gigabar pingpong: a message that each rank computes from round to round.
// gigabar matvec: vectors stream from one rank to the other, which multiplies them by a matrix and streams the products back; by a
// kernel that stays, and by one kernel for each batch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "base/counted.hpp"
#include "base/rounding.hpp"
#include "commands.hpp"
#include "cuda/runtime.hpp"
#include "device_ranks/pair.hpp"
#include "device_ranks/side_by_side_units.hpp"
#include "device_ranks/unit.hpp"
#include "support/clock.hpp"
#include "support/options.hpp"

namespace gigabar::tool {
namespace device_ranks {
namespace {

constexpr std::uint32_t kUsualBlocks = 16;

// By the kernel, or by the CPU.
struct Variant {
  Summary summary;        // of pingpong's rounds
  double elapsed_us = 0;  // of matvec: of all batches but the first
  Complaint complaint;
};

class SideBySide : public Pair {
 protected:
  using Pair::Pair;

  // One of the two ways, from when both ranks are ready for it. run(variant) returns what is wrong here.
  template <class Run>
  Variant measure(const std::string& progress, const Run& run) {
    if (report() != nullptr) report()->show_progress("{}", progress);
    meet();
    Variant variant;
    variant.complaint = gather_complaints(run(variant));
    return variant;
  }
  // Behind the columns of the row.
  void tell(Row& row, double ratio, const Variant& by_kernel, const Variant& by_cpu) {
    const std::uint64_t wrong_count = by_kernel.complaint.wrong_count + by_cpu.complaint.wrong_count;
    row.add("ratio", ratio, "Ratio", "{:.2f}").show("Validation", verdict_of(wrong_count));
    report()->add_row(row.add("path", path(), "Path", "{:<}").add("wrong_count", wrong_count));
    for (const Variant* variant : {&by_kernel, &by_cpu}) complain(variant->complaint);
  }

  Grid grid_;
};

// --- pingpong -------------------------------------------------------------------------------------------------------------------

constexpr NotificationId kTurnNotification = 0;  // of the fabric, for what the CPU sends

struct PingpongOptions : ranks::JobOptions {
  std::string sizes;                         // -m, as typed
  std::vector<std::uint64_t> message_bytes;  // settled
  GridOptions grid;
  std::uint64_t work_us = 0;
  std::uint32_t iteration_count = 200;
  std::uint32_t warm_up_count = 20;
  std::optional<std::uint64_t> fault_bytes;
};

PingpongOptions settled_pingpong(PingpongOptions options) {
  const RangeRule sizes{.usual = {4096, std::uint64_t{4} << 20}, .unit = kWordBytes, .most = kMaxBytes};
  options.message_bytes = sizes_of(settle_range("-m", options.sizes, sizes));
  options.fabric.options = ranks::fabric_options(options.fabric);
  return options;
}

class PingpongSession : public SideBySide {
 public:
  PingpongSession(const PingpongOptions& options, const Invocation& invocation)
      : SideBySide("pingpong", options, invocation), options_(options), clock_(SampleClock::calibrate()) {}

  void run() {
    join_pair();
    grid_ = make_grid(options_.grid, ScopeKind::block, kUsualBlocks, device().is_stand_in);
    agree("pingpong", options_.message_bytes.front(), options_.message_bytes.back(), name_of(grid_.scope), grid_.block_count,
          grid_.threads_per_block, grid_.threads_per_unit, options_.work_us, round_count(),
          options_.fault_bytes.value_or(~std::uint64_t{0}));
    require_room_for_samples(round_count(), grid_);
    add_rings(session_options_, std::min(part_of(options_.message_bytes.back(), grid_), kMessageLimitBytes), 1, grid_.unit_count());
    open(2 * receive_offset(options_.message_bytes.back()), grid_.unit_count());
    if (report() != nullptr) print_titles(*report());
    for (const std::uint64_t bytes : options_.message_bytes) do_size(bytes);
    close();
  }

 private:
  static std::uint64_t receive_offset(std::uint64_t bytes) noexcept { return round_up(bytes, kPage); }
  std::uint32_t round_count() const noexcept { return options_.warm_up_count + options_.iteration_count; }

  void print_titles(Report& report) {
    report.print("# a round: both ranks compute for {} us, send and check; {}\n", options_.work_us, grid_text(grid_));
    report.print(
        "# kernel: each {} sends its part at once, up to {} as a message. CPU: sends all of it when the kernel has ended\n",
        name_of(grid_.scope), bytes_text(kMessageLimitBytes));
    report.set_clock(clock_);
  }

  TurnPlan plan_of(std::uint64_t bytes) const {
    TurnPlan plan{pair_plan()};
    plan.is_active = rank() == 0;
    plan.round_count = round_count();
    plan.message_bytes = bytes;
    plan.part_stride_bytes = part_of(bytes, grid_);
    plan.receive_offset_bytes = receive_offset(bytes);
    plan.work_ns = options_.work_us * 1000;
    plan.plants_fault = options_.fault_bytes == bytes;
    return plan;
  }

  void do_size(std::uint64_t bytes) {
    const TurnPlan plan = plan_of(bytes);
    TurnPlan kernel_plan = plan;
    kernel_plan.uses_messages = are_for_messages(session_options_, plan.part_stride_bytes, 1);
    const std::string rounds = fmt::format("{}: {} of ", bytes_text(bytes), counted(plan.round_count, "round"));
    const Variant by_kernel = measure(rounds + "kernels", [&](Variant& variant) { return send_by_kernel(kernel_plan, variant); });
    const auto kernel = tool::take(open_repeated<OneTurnBody>(device(), grid_));
    const Variant by_cpu = measure(rounds + "CPUs", [&](Variant& variant) { return send_by_cpu(kernel, plan, variant); });
    if (report() != nullptr) tell(kernel_plan, by_kernel, by_cpu);
  }

  // --- By the kernel -------------------------------------------------------------------------------------------------------------

  Complaint send_by_kernel(const TurnPlan& plan, Variant& variant) {
    const KernelRun run = tool::take(run_turns(device(), plan, grid_));
    if (plan.is_active) variant.summary = summarize_turns(run);
    return judge("pingpong of kernels", plan.message_bytes, plan.round_count, run.ends);
  }

  // A round is as long as its slowest unit's.
  Summary summarize_turns(const KernelRun& run) const {
    std::vector<std::uint64_t> rounds_ps(options_.iteration_count);
    for (std::size_t unit = 0; unit < run.ends.size(); ++unit) {
      if (run.ends[unit].elapsed_ticks == 0) continue;
      const double ps_per_tick = ns_per_tick(run.ends[unit]) / kNsPerPs;
      const std::uint64_t* const samples = run.samples.data() + unit * round_count() + options_.warm_up_count;
      for (std::size_t i = 0; i < rounds_ps.size(); ++i) {
        rounds_ps[i] = std::max(rounds_ps[i], static_cast<std::uint64_t>(static_cast<double>(samples[i]) * ps_per_tick));
      }
    }
    return summarize(rounds_ps, kNsPerPs);
  }

  // --- By the CPU ----------------------------------------------------------------------------------------------------------------

  Complaint send_by_cpu(const RepeatedKernel<OneTurnBody>& kernel, const TurnPlan& plan, Variant& variant) {
    constexpr std::string_view kWhat = "pingpong of CPUs";
    const auto send_turn = [&](std::uint32_t round) {
      send(0, plan.receive_offset_bytes, plan.message_bytes, kTurnNotification, round + 1);
    };
    std::vector<std::uint64_t> samples;
    const std::uint64_t begin_ns = monotonic_ns();
    for (std::uint32_t round = 0; round < plan.round_count; ++round) {
      const std::uint64_t before = clock_.now();
      if (plan.is_active) {
        require(kernel.run({.plan = plan, .checked_round = round == 0 ? kNoRound : round - 1, .computed_round = round}));
        send_turn(round);
        take(kTurnNotification, round + 1);
      } else {
        take(kTurnNotification, round + 1);
        require(kernel.run({.plan = plan, .checked_round = round, .computed_round = round}));
        send_turn(round);
      }
      const std::uint64_t ticks = clock_.now() - before;
      if (round >= options_.warm_up_count) samples.push_back(ticks);
      if (monotonic_ns() - begin_ns > plan.timeout_ns) {
        fail(fmt::format("{} with {}: timed_out in round {}; take fewer rounds (-i) or a longer --timeout", kWhat,
                         counted(plan.message_bytes, "byte"), round));
      }
    }
    if (plan.is_active) {
      require(kernel.run({.plan = plan, .checked_round = plan.round_count - 1}));
      variant.summary = summarize(samples, clock_.ns_per_tick());
    }
    return judge(kWhat, plan.message_bytes, plan.round_count, tool::take(kernel.read()).ends);
  }

  // --- Results -------------------------------------------------------------------------------------------------------------------

  void tell(const TurnPlan& plan, const Variant& by_kernel, const Variant& by_cpu) {
    const Summary& kernel = by_kernel.summary;
    const Summary& cpu = by_cpu.summary;
    Row row;
    row.add("measure", "pingpong").add("bytes", plan.message_bytes, "# Size", "{:<}").add("iterations", options_.iteration_count);
    row.add("warm_up", options_.warm_up_count).add("work_us", options_.work_us).add("scope", name_of(grid_.scope));
    row.add("threads", grid_.threads_per_block).add("blocks", grid_.block_count);
    row.add("kernel_way", plan.uses_messages ? "messages" : "writes");
    row.add("kernel", to_json(kernel)).add("cpu", to_json(cpu));
    row.show("kernel p50 (us)", kernel.p50_us, "{:.2f}").show("kernel p99 (us)", kernel.p99_us, "{:.2f}");
    row.show("CPU p50 (us)", cpu.p50_us, "{:.2f}").show("CPU p99 (us)", cpu.p99_us, "{:.2f}");
    SideBySide::tell(row, kernel.p50_us > 0 ? cpu.p50_us / kernel.p50_us : 0.0, by_kernel, by_cpu);
  }

  const PingpongOptions options_;
  const SampleClock clock_;
};

// --- matvec ---------------------------------------------------------------------------------------------------------------------

constexpr Rank kMultiplier = 0;
constexpr std::uint64_t kMaxElements = 240, kMaxBatch = 4096;  // 240: the largest matrix in a block of an H200
constexpr std::uint64_t kMaxSegmentBytes = std::uint64_t{2} << 30;

struct MatvecOptions : ranks::JobOptions {
  std::string sizes;                                       // -m, as typed: elements of a vector
  std::string batches;                                     // -b, as typed: vectors of a block in a batch
  std::vector<std::uint64_t> element_counts, batch_sizes;  // settled
  GridOptions grid;
  std::uint32_t batch_count = 200;
  std::uint32_t slot_count = 4;
  bool plants_fault = false;
};

MatvecOptions settled_matvec(MatvecOptions options) {
  constexpr std::uint64_t kElementsUnit = 4;  // whole loads of 16 bytes
  const RangeRule elements{.usual = {32, 128}, .unit = kElementsUnit, .most = kMaxElements};
  const RangeRule batches{.usual = {1, 32}, .unit = 1, .most = kMaxBatch};
  options.element_counts = sizes_of(settle_range("--vector-size", options.sizes, elements));
  options.batch_sizes = sizes_of(settle_range("-b", options.batches, batches));
  options.fabric.options = ranks::fabric_options(options.fabric);
  return options;
}

class MatvecSession : public SideBySide {
 public:
  MatvecSession(const MatvecOptions& options, const Invocation& invocation)
      : SideBySide("matvec", options, invocation), options_(options) {}

  void run() {
    join_pair();
    grid_ = make_grid(options_.grid, ScopeKind::block, kUsualBlocks, device().is_stand_in);
    agree("matvec", options_.element_counts.front(), options_.element_counts.back(), options_.batch_sizes.front(),
          options_.batch_sizes.back(), grid_.block_count, grid_.threads_per_block, options_.batch_count, options_.slot_count,
          options_.plants_fault);
    const MatvecPlan largest = layout_of(options_.element_counts.back(), options_.batch_sizes.back());
    const std::uint64_t bytes = round_up(largest.matrix_offset() + largest.matrix_values() * sizeof(float), kPage);
    if (bytes > kMaxSegmentBytes) {
      refuse_usage(
          fmt::format("-i {}: all products together are {}, and at most {} are kept; take fewer batches, vectors or blocks",
                      options_.batch_count, counted(bytes, "byte"), kMaxSegmentBytes));
    }
    add_rings(session_options_, std::min(largest.part_bytes(), kMessageLimitBytes), options_.slot_count, grid_.unit_count());
    open(bytes, grid_.unit_count() * options_.slot_count);
    if (report() != nullptr) print_titles(*report());
    for (const std::uint64_t elements : options_.element_counts) {
      for (const std::uint64_t batch : options_.batch_sizes) do_size(elements, batch);
    }
    close();
  }

 private:
  bool is_multiplier() const noexcept { return rank() == kMultiplier; }

  void print_titles(Report& report) {
    report.print("# rank 1 streams {} batches of vectors, {} under way; rank 0 multiplies them; {}\n", options_.batch_count,
                 options_.slot_count, grid_text(grid_));
    report.print("# kernel: one that stays, with its matrix. CPU: one launch and one write for each batch\n");
    report.document()["units"]["*vectors_per_s"] = "vectors multiplied per second";
  }

  MatvecPlan layout_of(std::uint64_t elements, std::uint64_t batch) const {
    MatvecPlan plan;
    plan.elements = static_cast<std::uint32_t>(elements);
    plan.vectors = static_cast<std::uint32_t>(batch);
    plan.unit_count = grid_.unit_count();
    plan.batch_count = options_.batch_count;
    plan.slot_count = options_.slot_count;
    plan.source_count = 2 * options_.slot_count + 1;  // no slot gets the same vectors twice running
    return plan;
  }

  void do_size(std::uint64_t elements, std::uint64_t batch) {
    MatvecPlan plan = layout_of(elements, batch);
    static_cast<PairPlan&>(plan) = pair_plan();
    plan.uses_messages = are_for_messages(session_options_, plan.part_bytes(), plan.slot_count);
    const auto kernels = tool::take(open_repeated<MatvecBody>(device(), grid_, plan.fast_bytes()));
    const auto measure_batches = [&](const char* who, const auto& stream) {
      require(kernels.run({plan, MatvecTask::fill}));
      return measure(fmt::format("{} elements: {} of {}", elements, counted(plan.batch_count, "batch", "batches"), who),
                     [&](Variant& variant) {
                       variant.elapsed_us = stream();
                       return is_multiplier() ? Complaint() : check_products(who, plan);
                     });
    };
    const Variant by_kernel = measure_batches("kernels", [&] { return stream_by_kernel(kernels, plan); });
    const Variant by_cpu = measure_batches("CPUs", [&] { return stream_by_cpu(kernels, plan); });
    if (report() != nullptr) tell(plan, by_kernel, by_cpu);
  }

  // --- By the kernel -------------------------------------------------------------------------------------------------------------

  double stream_by_kernel(const RepeatedKernel<MatvecBody>& kernels, const MatvecPlan& plan) {
    require(kernels.run({plan, MatvecTask::stream}));
    const std::vector<UnitEnd> ends = tool::take(kernels.read()).ends;
    const Complaint complaint = judge("matvec of kernels", plan.batch_bytes(), plan.batch_count, ends);
    if (complaint.wrong_count != 0) fail("wrong data: " + complaint.first_wrong);
    return static_cast<double>(std::ranges::max(ends, {}, &UnitEnd::elapsed_ns).elapsed_ns) / 1000.0;
  }

  // --- By the CPU ----------------------------------------------------------------------------------------------------------------

  double stream_by_cpu(const RepeatedKernel<MatvecBody>& kernels, const MatvecPlan& plan) {
    const auto send_batch = [&](std::uint64_t from, std::uint64_t to, std::uint32_t batch) {
      send(from, to, plan.batch_bytes(), plan.slot_of(batch), batch + 1);
    };
    const auto take_batch = [&](std::uint32_t batch) { take(plan.slot_of(batch), batch + 1); };
    std::uint64_t first_done_ns = 0;
    const std::uint64_t begin_ns = monotonic_ns();
    for (std::uint32_t batch = 0; batch < plan.batch_count; ++batch) {
      if (is_multiplier()) {
        take_batch(batch);
        require(kernels.run({plan, MatvecTask::multiply, batch}));
        send_batch(plan.product_offset(batch), plan.product_offset(batch), batch);
      } else {
        if (batch >= plan.slot_count) take_batch(batch - plan.slot_count);
        send_batch(plan.source_offset(batch), plan.slot_offset(batch), batch);
      }
      if (batch == 0) first_done_ns = monotonic_ns();
      if (monotonic_ns() - begin_ns > plan.timeout_ns) {
        fail(fmt::format("matvec of CPUs: timed_out in batch {}; take fewer batches (-i) or a longer --timeout", batch));
      }
    }
    const double elapsed_us = static_cast<double>(monotonic_ns() - first_done_ns) / 1000.0;
    if (is_multiplier()) return elapsed_us;
    const std::uint32_t under_way = std::min(plan.batch_count, plan.slot_count);
    for (std::uint32_t last = plan.batch_count - under_way; last < plan.batch_count; ++last) take_batch(last);
    return elapsed_us;
  }

  // --- Results -------------------------------------------------------------------------------------------------------------------

  // In double precision, from the same numbers. A kernel's sum of n products is off by at most n roundings of a sum below n.
  Complaint check_products(const char* who, const MatvecPlan& plan) const {
    const std::uint64_t elements = plan.elements;
    const std::uint64_t values = plan.batch_bytes() / sizeof(float);
    const double tolerance = static_cast<double>(elements) * static_cast<double>(elements) * 0x1p-24;
    const std::vector<double> expected = reference(plan);
    std::vector<float> found(values);
    Complaint complaint;
    for (std::uint32_t batch = 0; batch < plan.batch_count; ++batch) {
      const std::byte* const products = static_cast<const std::byte*>(address()) + plan.product_offset(batch);
      if (device().is_stand_in) {
        std::memcpy(found.data(), products, plan.batch_bytes());
      } else if (!cuda_memcpy(found.data(), products, plan.batch_bytes())) {
        fail("read products: " + cuda_error());
      }
      if (options_.plants_fault && batch + 1 == plan.batch_count) found[values / 2] += 1.0F;
      const double* const right = expected.data() + batch % plan.source_count * values;
      for (std::uint64_t i = 0; i < values; ++i) {
        if (std::abs(found[i] - right[i]) <= tolerance) continue;
        if (complaint.wrong_count++ != 0) continue;
        complaint.first_wrong = fmt::format("matvec of {}, {} elements, batch {}, vector {}, row {}: expected {}, found {}", who,
                                            elements, batch, i / elements, i % elements, right[i], found[i]);
      }
    }
    return complaint;
  }

  static std::vector<double> reference(const MatvecPlan& plan) {
    const std::uint64_t elements = plan.elements;
    const std::uint64_t values = plan.batch_bytes() / sizeof(float);
    std::vector<double> matrix(plan.matrix_values());
    for (std::uint64_t i = 0; i < matrix.size(); ++i) {
      matrix[i] = matrix_value(static_cast<std::uint32_t>(i / elements), static_cast<std::uint32_t>(i % elements));
    }
    std::vector<double> vector(elements), products(values * plan.source_count);
    for (std::uint64_t first = 0; first < products.size(); first += elements) {
      const auto source = static_cast<std::uint32_t>(first / values);
      for (std::uint64_t i = 0; i < elements; ++i) vector[i] = vector_value(source, first % values + i);
      for (std::uint64_t row = 0; row < elements; ++row) {
        products[first + row] = std::inner_product(vector.begin(), vector.end(), matrix.data() + row * elements, 0.0);
      }
    }
    return products;
  }

  double vectors_per_s(const MatvecPlan& plan, const Variant& variant) const {
    const double vectors = static_cast<double>(plan.vectors) * plan.unit_count * (plan.batch_count - 1);
    return variant.elapsed_us > 0 ? vectors * 1e6 / variant.elapsed_us : 0.0;
  }

  void tell(const MatvecPlan& plan, const Variant& by_kernel, const Variant& by_cpu) {
    const double kernel = vectors_per_s(plan, by_kernel);
    const double cpu = vectors_per_s(plan, by_cpu);
    Row row;
    row.add("measure", "matvec").add("elements", plan.elements, "# Elements", "{:<}");
    row.add("batch_vectors", plan.vectors * plan.unit_count, "vectors/batch").add("batches", plan.batch_count);
    row.add("batches_under_way", plan.slot_count).add("threads", grid_.threads_per_block).add("blocks", grid_.block_count);
    row.add("kernel_way", plan.uses_messages ? "messages" : "writes");
    row.add("kernel_vectors_per_s", kernel, "kernel (vectors/s)", "{:.0f}")
        .add("cpu_vectors_per_s", cpu, "CPU (vectors/s)", "{:.0f}");
    SideBySide::tell(row, cpu > 0 ? kernel / cpu : 0.0, by_kernel, by_cpu);
  }

  const MatvecOptions options_;
};

}  // namespace
}  // namespace device_ranks

void add_pingpong(const Command& program, Invocation& invocation) {
  using namespace device_ranks;  // the command's own  NOLINT(google-build-using-namespace)
  const auto [command, options] = ranks::add_pair_command<PingpongSession, PingpongOptions>(
      program, invocation, "pingpong", "Messages sent by the kernels that compute them, beside the same sent by the CPU",
      settled_pingpong);
  add_grid_options(command, options.grid, "block", "16");
  add_sizes(command, options.sizes, "4K:4M");
  command->add_option("--work-us", options.work_us, whole_number(0, 1000000, "US"),
                      "Microseconds that each unit computes for, each turn");
  command->add_option("-i,--iterations", options.iteration_count, whole_number(1, 1000000), "Timed rounds per size");
  command->add_option("-x,--warmup", options.warm_up_count, whole_number(0, 1000000), "Untimed rounds before the timed ones");
  command->add_option("--plant-fault", options.fault_bytes, byte_count(0))->group("");  // proves that the check can fail
  add_pair_options(command, options);
}

void add_matvec(const Command& program, Invocation& invocation) {
  using namespace device_ranks;  // the command's own  NOLINT(google-build-using-namespace)
  const auto [command, options] = ranks::add_pair_command<MatvecSession, MatvecOptions>(
      program, invocation, "matvec", "Vectors streamed to a kernel that multiplies them, beside one kernel per batch",
      settled_matvec);
  add_grid_options(command, options.grid, nullptr, "16");
  add_range_option(command, "--vector-size", options.sizes, "Elements of a vector: doubled from MIN to MAX, MIN a multiple of 4",
                   "32:128");
  command->add_option("-m", options.sizes)->group("");  // its old name
  add_range_option(command, "-b,--batch", options.batches, "Vectors of a block in a batch: doubled from MIN to MAX", "1:32");
  command->add_option("-i,--iterations", options.batch_count, whole_number(2, 1000000), "Batches; all but the first are timed");
  command->add_option("--under-way", options.slot_count, whole_number(1, 64),
                      "Batches that are sent before the first's products are awaited");
  command->add_flag("--plant-fault", options.plants_fault)->group("");  // proves that the check can fail
  add_pair_options(command, options);
}

}  // namespace gigabar::tool
