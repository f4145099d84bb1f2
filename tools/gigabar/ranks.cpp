// SPDX-License-Identifier: Apache-2.0
// gigabar latency, bw, bibw, multi-lat, mbw-mr: the point-to-point tests of the OSU micro-benchmarks between the ranks of a job,
// with their options and their table, and the path that was taken at each size.
#include <fmt/format.h>

#include <barrier>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "fabric/settings.hpp"
#include "gigabar/fabric.hpp"
#include "ranks/exchange.hpp"
#include "ranks/measure.hpp"
#include "support/options.hpp"

namespace gigabar::tool {
namespace ranks {
namespace {

constexpr std::size_t kMaxSampleBytes = 9;  // of one, in CBOR

class Session : public BufferSession {
 public:
  Session(const Plan& plan, const Invocation& invocation)
      : BufferSession(command_of(plan.options.measure), plan.options, invocation,
                      [options = plan.options](Rank rank_count) { pair_count_for(options, rank_count); }),
        plan_(plan) {}

  void run() {
    join();
    pair_count_ = pair_count_for(plan_.options, fabric().rank_count());
    seat_ = seat_of(rank(), pair_count_);
    agree(digest_of(plan_));
    make_buffers(plan_, seat_.is_active ? plan_.first_place : plan_.second_place);
    meet(timeout());
    if (!seat_.is_idle) require(fabric().connect(seat_.partner, timeout()));
    if (report() != nullptr) print_titles();
    Json own = introduction_of(device_);
    own["partner"] = seat_.is_idle ? Json() : Json(seat_.partner);
    own["note"] = buffers_.front()->note();
    introduce(own);
    const SizeResult none;
    if (report() != nullptr) report()->begin_table(row_of(plan_, none, plan_.options.is_compared ? &none : nullptr));
    for (const std::uint64_t bytes : plan_.sizes) {
      if (report() != nullptr)
        report()->show_progress("{}: {}", bytes_text(bytes), counted(counts_for(plan_.options, bytes).iterations, "round"));
      do_size(bytes);
    }
    if (report() != nullptr) tell_fabric();
    leave(timeout());
  }

 private:
  void print_titles() {
    report()->print("{}", title_lines(plan_, GIGABAR_VERSION, pair_count_));
    Json& document = report()->document();
    document["units"]["*_mb_per_s"] = "10^6 bytes per second";
    document["buffers"] = fmt::format("{} {}", letter_of(plan_.first_place), letter_of(plan_.second_place));
    tell_setup();
  }

  // In so many threads at once; this one is the first of them.
  Measurement measure_in_threads(std::uint64_t bytes, const std::optional<PathPolicy>& policy) {
    const std::uint32_t count = plan_.options.thread_count;
    std::barrier<> gate(count);
    std::vector<Measurement> measured(count);
    std::vector<std::exception_ptr> failures(count);
    const auto attempt = [&](std::uint32_t thread, const auto& step) {
      try {
        step();
      } catch (...) {
        failures[thread] = std::current_exception();
        gate.arrive_and_drop();  // the others do not wait for it
      }
    };
    const auto run = [&](std::uint32_t thread) {
      attempt(thread, [&] {
        measured[thread] = Exchange(fabric(), *buffers_[thread], plan_, clock_, seat_, thread, bytes, policy).measure(gate);
      });
    };
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t thread = 1; thread < count; ++thread) attempt(thread, [&] { threads.emplace_back(run, thread); });
      run(0);
    }
    for (const std::exception_ptr& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
    return joined(std::move(measured));
  }

  SizeResult measure(std::uint64_t bytes, const std::optional<PathPolicy>& policy) {
    meet(timeout());
    const Measurement own = measure_in_threads(bytes, policy);
    const std::size_t sample_count = std::size_t{counts_for(plan_.options, bytes).iterations} * plan_.options.thread_count;
    const std::size_t most = kMaxIntroductionBytes + sample_count * kMaxSampleBytes;
    std::vector<Measurement> by_rank;
    for (const std::string& text : gather(encode(own), most, patient_timeout(plan_, bytes))) {
      auto each = decode(text);
      if (!each) fail(fmt::format("rank {} has sent something else than its measurements", by_rank.size()));
      by_rank.push_back(std::move(*each));
    }
    return report() != nullptr ? combine(plan_, bytes, pair_count_, by_rank) : SizeResult();
  }

  void do_size(std::uint64_t bytes) {
    const SizeResult result = measure(bytes, {});
    std::optional<SizeResult> other;
    if (plan_.options.is_compared) {
      // The fabric's policy without what only some machines have.
      PathPolicy policy = take(fabric::find_settings(plan_.options.fabric.options)).policy;
      policy.gdr = policy.p2p = Preference::forbid;
      other = measure(bytes, policy);
    }
    if (report() == nullptr) return;
    report()->add_row(row_of(plan_, result, other ? &*other : nullptr));
    for (const SizeResult& each : {result, other.value_or(SizeResult())})
      complain(each, fmt::format("in {} of this size", counted(each.wrong_count, "round")));
  }

  void tell_fabric() {
    const FabricStatistics statistics = fabric().statistics();
    report()->document()["peers"] = list_of(fabric().peers(), [](const PeerState& peer) -> Json {
      return {{"rank", peer.rank},
              {"transport", peer.transport ? Json(name_of(*peer.transport)) : Json()},
              {"rails", peer.rails},
              {"memory_bytes", peer.memory_bytes}};
    });
    report()->document()["fabric"] = {{"operations", statistics.operations},
                                      {"messages", statistics.messages},
                                      {"staged_operations", statistics.staged_operations},
                                      {"refused_strangers", statistics.refused_strangers}};
  }

  const Plan plan_;
  std::uint32_t pair_count_ = 1;
  Seat seat_;
};

// --- Options --------------------------------------------------------------------------------------------------------------------

constexpr std::uint64_t kMaxPairs = 2048;

void add_count_options(const Command& command, Options& options) {
  const bool is_time = is_latency(options.measure);
  add_counts(command, options, is_time ? "10000, above 8K 1000" : "100, above 8K 20",
             is_time ? "100, above 8K 10" : "10, above 8K 2");
  if (!is_time) {
    command.add_option("-W,--window-size", options.window, whole_number(1, kMaxWindow),
                       "Messages under way before an acknowledgement is awaited");
  }
  if (!is_of_pairs(options.measure)) return;
  command
      .add_option("-p,--pairs", options.pair_count, whole_number(1, kMaxPairs),
                  "Pairs at once; rank i of the first half works with rank i + pairs")
      ->default_str("half of the ranks; 1 without a launcher");
  if (is_time) return;
  command.add_option("--threads", options.thread_count, whole_number(1, kQueues),
                     "Threads of each rank, each with a queue, a segment and windows of its own");
}

void add(const Command& program, Invocation& invocation, Measure measure) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, command_of(measure), words_of(measure).description, [](const Options& chosen, Invocation& invoked) {
        const unsigned pair_count = is_of_pairs(chosen.measure) ? chosen.pair_count.value_or(1) : 1;
        run_ranks<Session>(command_of(chosen.measure), 2 * pair_count, [&] { return make_plan(chosen); }, invoked);
      });
  options.measure = measure;
  command.add_option("-d,--accelerator", options.accelerator, Value{"cuda|host"},
                     "What D means: cuda; stand-ins where there is no GPU. host: no D");
  command.add_option("buffers", options.places, "Memory of rank 0 and of rank 1: D D, H D, D H or H H (default: D D with -d cuda)")
      ->type_name("D|H")
      ->expected(0, 2);
  add_range_option(command, "-m,--message-size", options.sizes, "Sizes: doubled from MIN to MAX",
                   is_latency(options.measure) ? "0:4M" : "1:4M");
  add_count_options(command, options);
  command.add_choice("--op,--kind", options.kind, kKinds,
                     "send: messages; write: into a segment, with notifications; put: without, and the target looks at its memory "
                     "(host memory, latency); read: out of one");
  command.add_flag(
      "--shared", options.is_shared,
      "H is memory that ranks of one host store into directly (HostMemoryOptions::is_shared); without, of one process");
  command.add_flag("-c,--validation", options.is_checked, "Check all data, different ones in every round; wrong data are status 1");
  command.add_flag("--compare", options.is_compared,
                   "Also measure with gdr and p2p forbidden, and tell how many times slower that is");
  command.add_option("--plant-fault", options.fault_bytes, byte_count(1))->group("");  // proves that the check can fail
  add_job_options(command, options);
  command->footer(
      "Ranks: those of mpirun, srun, torchrun or 'gigabar run'; started alone, the command starts its own on this host. The device "
      "of a rank is its local rank modulo the devices. Lines that do not begin with '#' are data; the columns before p50 are "
      "OSU's.");
}

}  // namespace
}  // namespace ranks

void add_point_to_point(const Command& program, Invocation& invocation) {
  using enum ranks::Measure;
  for (const ranks::Measure measure : {latency, bandwidth, both_ways, many_latencies, many_bandwidths})
    ranks::add(program, invocation, measure);
}

}  // namespace gigabar::tool
