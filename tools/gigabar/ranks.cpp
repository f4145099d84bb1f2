// SPDX-License-Identifier: Apache-2.0
// gigabar latency, bw, bibw, multi-lat, mbw-mr: the point-to-point tests of the OSU micro-benchmarks between the ranks of a job,
// with their options and their table, and the path that was taken at each size.
#include "commands.hpp"

#include <memory>

#include "ranks/command.hpp"
#include "ranks/plan.hpp"
#include "support/option_checks.hpp"

namespace gigabar::tool {
namespace {

using ranks::Kind;
using ranks::Measure;
using ranks::Options;

constexpr std::uint64_t kMaxPairs = 2048;

void add_buffer_options(const Command& command, Options& options) {
  command.add_option("-d,--accelerator", options.accelerator, "What D means: cuda; stand-ins where there is no GPU. host: no D")
      ->type_name("cuda|host")
      ->capture_default_str();
  command.add_option("buffers", options.places, "Memory of rank 0 and of rank 1: D D, H D, D H or H H (default: D D with -d cuda)")
      ->type_name("D|H")
      ->expected(0, 2);
  command.add_option("-m,--message-size", options.sizes, "Sizes: doubled from MIN to MAX")
      ->type_name("[MIN:]MAX")
      ->default_str(ranks::is_latency(options.measure) ? "0:4M" : "1:4M");
}

void add_count_options(const Command& command, Options& options) {
  const bool is_latency = ranks::is_latency(options.measure);
  command.add_option("-i,--iterations", options.iteration_count, "Timed rounds per size")
      ->check(whole_number(1, 100000000))
      ->type_name("N")
      ->default_str(is_latency ? "10000, above 8K 1000" : "100, above 8K 20");
  command.add_option("-x,--warmup", options.warm_up_count, "Untimed rounds before the timed ones")
      ->check(whole_number(0, 100000000))
      ->type_name("N")
      ->default_str(is_latency ? "100, above 8K 10" : "10, above 8K 2");
  if (!is_latency) {
    command.add_option("-W,--window-size", options.window, "Messages under way before an acknowledgement is awaited")
        ->check(whole_number(1, ranks::kMaxWindow))
        ->type_name("N")
        ->capture_default_str();
  }
  if (ranks::is_of_pairs(options.measure)) {
    command.add_option("-p,--pairs", options.pair_count, "Pairs at once; rank i of the first half works with rank i + pairs")
        ->check(whole_number(1, kMaxPairs))
        ->type_name("N")
        ->default_str("half of the ranks; 1 without a launcher");
  }
}

void add_ways(const Command& command, Options& options) {
  static const std::map<std::string, Kind> kinds = {
      {"send", Kind::send}, {"write", Kind::write}, {"put", Kind::put}, {"read", Kind::read}};
  command
      .add_option_function(
          "--op,--kind", [](const std::string&) {},
          "send: messages; write: into a segment, with notifications; put: without, and the target looks at its memory (host "
          "memory, latency); read: out of one")
      ->check(choice(kinds, options.kind))
      ->type_name("send|write|put|read")
      ->default_str("send");
  command.add_flag("-c,--validation", options.is_checked, "Check all data, different ones in every round; wrong data are status 1");
  command.add_flag("--compare", options.is_compared,
                   "Also measure with gdr and p2p forbidden, and tell how many times slower that is");
  command.add_option("--plant-fault", options.fault_bytes)->transform(byte_count(1))->group("");  // proves that the check can fail
  add_json_option(command, options.json_path);
}

void add_measure(const Command& program, Invocation& invocation, Measure measure, const char* description) {
  auto options = std::make_shared<Options>();
  options->measure = measure;
  const Command command = program.add_subcommand(std::string(ranks::command_of(measure)), description);
  add_buffer_options(command, *options);
  add_count_options(command, *options);
  add_ways(command, *options);
  ranks::add_fabric_options(command, options->fabric);
  command->footer(
      "Ranks: those of mpirun, srun, torchrun or 'gigabar run'; started alone, the command starts its own on this host. The device "
      "of "
      "a rank is its local rank modulo the devices. Lines that do not begin with '#' are data; the columns before p50 are OSU's.");
  command->callback([options, &invocation] { ranks::run_command(*options, invocation); });
}

}  // namespace

void add_latency(const Command& program, Invocation& invocation) {
  add_measure(program, invocation, Measure::latency, "Latency between two ranks by size, and the path taken");
}

void add_bw(const Command& program, Invocation& invocation) {
  add_measure(program, invocation, Measure::bandwidth, "Bandwidth from one rank to another by size, and the path taken");
}

void add_bibw(const Command& program, Invocation& invocation) {
  add_measure(program, invocation, Measure::both_ways, "Bandwidth between two ranks in both directions at once");
}

void add_multi_lat(const Command& program, Invocation& invocation) {
  add_measure(program, invocation, Measure::many_latencies, "Latency of several pairs of ranks at once");
}

void add_mbw_mr(const Command& program, Invocation& invocation) {
  add_measure(program, invocation, Measure::many_bandwidths, "Bandwidth and message rate of several pairs of ranks at once");
}

}  // namespace gigabar::tool
