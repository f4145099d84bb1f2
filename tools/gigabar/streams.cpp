// SPDX-License-Identifier: Apache-2.0
// gigabar streams: many transfers at once, between GPUs and between GPUs and the host, with CUts' command lines, transfers in
// words, nvbandwidth's matrices, and sweeps over sizes.
#include "streams/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "commands.hpp"
#include "support/option_checks.hpp"

namespace gigabar::tool {
namespace {

using streams::Argument;
using streams::Format;
using streams::Options;

// FROM:TO[:FACTOR] into the sizes. Returns what is wrong with it.
std::string read_sweep(const std::string& text, std::vector<std::size_t>& sizes) {
  const std::size_t first = std::min(text.find(':'), text.size());
  const std::size_t second = std::min(text.find(':', first + 1), text.size());
  if (first == text.size()) return fmt::format("'{}' has no second size; write FROM:TO[:FACTOR], as in 64K:1G or 1M:1G:4", text);
  const auto from = parse_size(text.substr(0, first));
  const auto to = parse_size(text.substr(first + 1, second - first - 1));
  const auto factor = second == text.size() ? 2 : parse_size(text.substr(second + 1));
  if (!from || !to) return fmt::format("'{}' needs two sizes: bytes, or numbers with K, M or G (powers of 1024)", text);
  if (*from == 0 || *from > *to) return fmt::format("'{}': the first size is above 0 and not larger than the second", text);
  if (!factor || *factor < 2) return fmt::format("'{}': the factor is a whole number from 2", text);
  sizes.clear();
  for (std::size_t bytes = *from; bytes <= *to; bytes *= *factor) {
    sizes.push_back(bytes);
    if (bytes > std::numeric_limits<std::size_t>::max() / *factor) break;
  }
  return {};
}

// An option that adds transfers: read at once, so that they keep the order of the command line.
Option add_argument(const Command& command, Options& options, const std::string& names, Argument::Kind kind,
                    const std::string& description) {
  return command
      .add_option_function(
          names, [&options, kind](const std::string& text) { options.arguments.push_back({kind, text}); }, description)
      ->trigger_on_parse()
      ->group("Transfers (each may be repeated; they are numbered in this order)");
}

void add_transfer_options(const Command& command, Options& options) {
  using Kind = Argument::Kind;
  add_argument(command, options, "-d,--dtoh", Kind::device_to_host, "GPU to host")->check(whole_number(0, 1023))->type_name("ID");
  add_argument(command, options, "-h,--htod", Kind::host_to_device, "Host to GPU")->check(whole_number(0, 1023))->type_name("ID");
  add_argument(command, options, "-p,--dtod", Kind::device_to_device, "GPU to GPU; the destination comes first, and reads")
      ->type_name("DST,SRC");
  add_argument(command, options, "-t,--transfer", Kind::text, "In words, as 'gpu0->host:1 ce bytes=64M', several with ';'")
      ->type_name("WORDS");
  add_argument(command, options, "-f,--file", Kind::file,
               "A file with a transfer on each line, '#' before comments; '-': standard input")
      ->type_name("FILE");
  command
      .add_option("--preset", options.presets, Value{"NAME"},
                  "One of nvbandwidth's test cases, run cell by cell; 'list' lists them")
      ->allow_extra_args(false)
      ->group("Instead of transfers");
  command.add_flag("--list-presets", options.lists_presets, "List the presets")->group("Instead of transfers");
}

void add_default_options(const Command& command, Options& options) {
  std::vector<Named<HostPages>> pages;
  for (const HostPages one : {HostPages::pinned, HostPages::pageable, HostPages::write_combined, HostPages::huge}) {
    pages.push_back({one, name_of(one)});
  }
  const std::string group = "What transfers do that do not say it themselves";
  command
      .add_option("-s,--size", options.bytes, byte_count(1, std::uint64_t{1} << 50),
                  "Bytes of one copy (default: 1G; presets: 512M)")
      ->group(group);
  Option iterations = command.add_option("-i,--iter,--iterations", options.iterations, whole_number(1, std::uint64_t{1} << 40),
                                         "Copies of each transfer (default: 100; presets: 16)");
  iterations->group(group);
  command.add_option("--seconds", options.seconds, seconds(86400), "Copy for this long instead of --iter times")
      ->excludes(iterations)
      ->group(group);
  command
      .add_option("--executor", options.executor, Value{"NAME"},
                  "Who moves the bytes: ce, sm or cpu, with -push, -pull, :BLOCKS or :THREADS (default: ce)")
      ->group(group);
  command.add_choice("--pages", options.pages, pages, "Host memory: pinned (default), pageable, wc or huge")
      ->type_name("KIND")
      ->default_str("")
      ->group(group);
  command.add_flag("!-n,!--no-numa-affinity", options.is_near, "Host memory where the system puts it, not on the GPU's NUMA node")
      ->group(group);
  command.add_flag("--stage", options.may_stage, "Let the driver stage copies between GPUs without peer access through the host")
      ->group(group);
}

void add_run_options(const Command& command, Options& options) {
  command
      .add_option_function(
          "--sweep", [](const std::string&) {}, "Run all for each size FROM, FROM*FACTOR, ... up to TO (default: factor 2)")
      ->check([&options](std::string& text) { return read_sweep(text, options.sweep_sizes); })
      ->type_name("FROM:TO[:FACTOR]");
  command.add_option("--repeats", options.repeat_count, whole_number(1, 1000), "Whole runs, over which medians are taken");
  command.add_flag("!--no-verify", options.is_verified, "Do not compare what arrived");
  command.add_option("--timeout", options.timeout_seconds, seconds(604800),
                     "Of one repeat: one that takes longer is ended (default: 300, and the seconds that were asked for)");
  command.add_flag("--dry-run", options.is_dry_run, "Print the transfers as lines for --file, and run nothing");
  command.add_option("--devices", options.device_count, whole_number(1, 1024), "Devices that a dry run assumes");
  command.add_option("--expect", options.expected_ratio, number_above_0(1.5, "RATIO"),
                     "Fail when a transfer has less than this of its link's rate, as in 0.8");
  command.add_flag("--plain", options.times_plain_copies,
                   "Also time plain cudaMemcpyAsync, alone, over the same kind of memory, for copies between a GPU and the host");
  command.add_option("--link", options.link_gb_per_s, number_above_0(1e6, "GB_PER_S"),
                     "Rate of links that the machine does not tell, for --expect");
}

void add_output_options(const Command& command, Options& options) {
  constexpr std::array<Named<Format>, 4> kFormats = {
      {{Format::table, "table"}, {Format::cuts, "cuts"}, {Format::json, "json"}, {Format::csv, "csv"}}};
  command
      .add_choice("--format", options.format, kFormats,
                  "table (default), cuts (the lines of CUts), json, or csv (a line for each repeat)")
      ->type_name("NAME")
      ->default_str("");
  add_json_option(command, options.json_path);
}

}  // namespace

void add_streams(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "streams",
      "Many transfers at once, GPU-GPU and GPU-host: rates together and alone, against their links, data verified",
      [](Options& chosen, const Invocation& invoked) {
        if (std::erase(chosen.presets, "list") > 0) chosen.lists_presets = true;
        streams::run(chosen, invoked);
      });
  command->set_version_flag("-V,--version", "gigabar " GIGABAR_VERSION);
  command->add_help_flag("--usage", "As --help");
  command->set_help_flag("-?,--help", "Print this help (-h is CUts' host to GPU)");
  add_transfer_options(command, options);
  add_default_options(command, options);
  add_run_options(command, options);
  add_output_options(command, options);
  command->footer(
      "In words: ENDS [EXECUTOR] [KEY=VALUE | WORD]...\n"
      "  ENDS      PLACE->PLACE; PLACE is gpuN, gpu[A,B], gpu[A..B], gpu*, or host, host:NODE, host:any\n"
      "  EXECUTOR  ce, ce-push, ce-pull, sm, sm-push, sm-pull, cpu, flag, chase; sm:BLOCKS, cpu:THREADS\n"
      "  KEY       bytes (K, M, G), iterations, seconds, delay, pages, group, count\n"
      "  WORD      background, latency, stage\n"
      "\n"
      "Exit status: 0 done; 1 a transfer failed, or its data was wrong; 2 the command line cannot be followed;\n"
      "3 a transfer is below --expect (not those in the background, latencies, and links of unknown rate, which are\n"
      "told); 130 interrupted by SIGINT or SIGTERM, after what was measured until then was printed.");
}

}  // namespace gigabar::tool
