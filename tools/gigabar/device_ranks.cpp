// SPDX-License-Identifier: Apache-2.0
// gigabar device-latency, device-bw, device-rate: what kernels of one GPU reach by themselves at the other rank's, timed in the
// kernel; pingpong, matvec: beside it the same driven by the CPU.
#include <memory>

#include "commands.hpp"
#include "device_ranks/command.hpp"
#include "device_ranks/matvec.hpp"
#include "device_ranks/pingpong.hpp"
#include "support/option_checks.hpp"

namespace gigabar::tool {
namespace {

using device_ranks::GridOptions;
using device_ranks::kMaxBlocks;
using device_ranks::kMaxBlockThreads;
using device_ranks::kMaxProxies;
using device_ranks::kMaxQueues;
using device_ranks::kMaxWindow;
using device_ranks::MatvecOptions;
using device_ranks::Measure;
using device_ranks::Op;
using device_ranks::Options;
using device_ranks::PingpongOptions;
using device_ranks::QueueOptions;
using device_ranks::ScopeKind;

constexpr const char* kFooter =
    "Ranks: the two of mpirun, srun, torchrun or 'gigabar run'; started alone, the command starts its own on this host. The device "
    "of a rank is its local rank modulo the devices; without a GPU threads of the CPU play the kernels. Lines that do not "
    "begin with '#' are data.";

constexpr const char* kTimeoutHelp =
    "Of one wait, and of all that is done at one size, not of the whole run: what takes longer ends the run";
constexpr const char* kThreadsByScope = "512 of a block, 32 of a warp, 1 of a thread";

const char* usual_scope(Measure measure) noexcept {
  switch (measure) {
    case Measure::latency: return "block where messages have a size, else thread";
    case Measure::bandwidth: return "block";
    case Measure::rate: return "thread";
  }
  return "";
}

void add_scope(const Command& command, GridOptions& options, const char* usual) {
  static const std::map<std::string, std::optional<ScopeKind>> scopes = {
      {"thread", ScopeKind::thread}, {"warp", ScopeKind::warp}, {"block", ScopeKind::block}};
  command
      .add_option_function(
          "--scope", [](const std::string&) {},
          "Who calls: one thread, a warp, a block, each with the same number's at the partner")
      ->check(choice(scopes, options.scope))
      ->type_name("thread|warp|block")
      ->default_str(usual);
}

void add_threads(const Command& command, GridOptions& options, const char* usual) {
  command.add_option("--threads", options.thread_count, "Threads of a block")
      ->check(whole_number(1, kMaxBlockThreads))
      ->type_name("N")
      ->default_str(usual);
}

void add_blocks(const Command& command, GridOptions& options, const char* usual) {
  command.add_option("--blocks", options.block_count, "Blocks of the kernel, each with its own part and its own notifications")
      ->check(whole_number(1, kMaxBlocks))
      ->type_name("N")
      ->default_str(usual);
}

void add_queues(const Command& command, QueueOptions& options) {
  command
      .add_option("--queues", options.count,
                  "Work requests in so many queues to the partner, executed by --engine, in place of loads and stores")
      ->check(whole_number(0, kMaxQueues))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--proxies", options.proxy_count, "Threads of the CPU by which a software HCA executes the queues' work requests")
      ->check(whole_number(1, kMaxProxies))
      ->type_name("N")
      ->capture_default_str();
  std::map<std::string, QueueEngine> engines;
  std::string names;
  for (const QueueEngine engine :
       {QueueEngine::automatic, QueueEngine::hca, QueueEngine::hca_cpu_doorbell, QueueEngine::software_hca}) {
    engines.emplace(name_of(engine), engine);
    names += (names.empty() ? "" : "|") + std::string(name_of(engine));
  }
  command
      .add_option_function(
          "--engine", [](const std::string&) {},
          "What executes the queues: an mlx5 adapter that kernels or the CPU ring (never run on hardware), or the CPU")
      ->check(choice(engines, options.engine))
      ->type_name(names)
      ->default_str(std::string(name_of(options.engine)));
  command
      .add_option("--hca", options.hca_port,
                  "Port of the adapter of --engine hca, as in \"mlx5_0/1\" (default: the nearest that is usable)")
      ->type_name("PORT");
}

void add_op(const Command& command, Options& options) {
  std::map<std::string, Op> ops;
  std::string names;
  for (const Op op : ops_of(options.measure)) {
    ops.emplace(name_of(op), op);
    names += (names.empty() ? "" : "|") + std::string(name_of(op));
  }
  options.op = ops_of(options.measure).front();
  command.add_option_function(
             "--op", [](const std::string&) {}, "What the kernel does")
      ->check(choice(ops, options.op))
      ->type_name(names)
      ->default_str(std::string(name_of(options.op)));
}

void add_sizes(const Command& command, std::string& sizes, const char* usual) {
  command.add_option("-m,--message-size", sizes, "Sizes: doubled from MIN to MAX, MIN a multiple of 4")
      ->type_name("[MIN:]MAX")
      ->default_str(usual);
}

void add_fault(const Command& command, std::optional<std::uint64_t>& bytes) {
  command.add_option("--plant-fault", bytes)->transform(byte_count(0))->group("");  // proves that the check can fail
}

void add_counts(const Command& command, Options& options) {
  const bool is_latency = options.measure == Measure::latency;
  add_sizes(command, options.sizes, options.measure == Measure::rate ? "8:8" : "4:64M");
  command.add_option("-i,--iterations", options.iteration_count, "Timed rounds per size")
      ->check(whole_number(1, 100000000))
      ->type_name("N")
      ->default_str(is_latency ? "10000, above 8K 1000, above 1M 100" : "100, above 8K 20");
  command.add_option("-x,--warmup", options.warm_up_count, "Untimed rounds before the timed ones")
      ->check(whole_number(0, 100000000))
      ->type_name("N")
      ->default_str(is_latency ? "1000, above 8K 100, above 1M 10" : "10, above 8K 2");
  if (is_latency) return;
  command.add_option("-W,--window-size", options.window, "Messages of a unit before it waits for the answer")
      ->check(whole_number(1, kMaxWindow))
      ->type_name("N")
      ->capture_default_str();
}

void add_checks(const Command& command, Options& options) {
  command.add_flag("-c,--validation", options.is_checked,
                   "Check all data in the kernels, different ones in every round; times then contain it. Wrong data are status 1");
  add_fault(command, options.fault_bytes);
  add_json_option(command, options.json_path);
}

void add_measure(const Command& program, Invocation& invocation, Measure measure, const char* description) {
  auto options = std::make_shared<Options>();
  options->measure = measure;
  const Command command = program.add_subcommand(std::string(command_of(measure)), description);
  add_op(command, *options);
  add_scope(command, options->grid, usual_scope(measure));
  add_threads(command, options->grid, kThreadsByScope);
  if (measure != Measure::latency) add_blocks(command, options->grid, measure == Measure::bandwidth ? "64" : "1");
  add_queues(command, options->queues);
  add_counts(command, *options);
  add_checks(command, *options);
  ranks::add_fabric_options(command, options->fabric, kTimeoutHelp);
  command->footer(kFooter);
  command->callback([options, &invocation] { run_command(*options, invocation); });
}

}  // namespace

void add_device_latency(const Command& program, Invocation& invocation) {
  add_measure(program, invocation, Measure::latency, "Latency between kernels of two ranks, by size");
}

void add_device_bw(const Command& program, Invocation& invocation) {
  add_measure(program, invocation, Measure::bandwidth,
              "Bandwidth of a kernel's own writes to or reads from the other rank, by size");
}

void add_device_rate(const Command& program, Invocation& invocation) {
  add_measure(program, invocation, Measure::rate, "Small messages per second that kernels send to the other rank");
}

void add_pingpong(const Command& program, Invocation& invocation) {
  auto options = std::make_shared<PingpongOptions>();
  const Command command =
      program.add_subcommand("pingpong", "Messages sent by the kernels that compute them, beside the same sent by the CPU");
  add_scope(command, options->grid, "block");
  add_threads(command, options->grid, kThreadsByScope);
  add_blocks(command, options->grid, "16");
  add_sizes(command, options->sizes, "4K:4M");
  command->add_option("--work-us", options->work_us, "Microseconds that each unit computes for, each turn")
      ->check(whole_number(0, 1000000))
      ->type_name("US")
      ->capture_default_str();
  command->add_option("-i,--iterations", options->iteration_count, "Timed rounds per size")
      ->check(whole_number(1, 1000000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("-x,--warmup", options->warm_up_count, "Untimed rounds before the timed ones")
      ->check(whole_number(0, 1000000))
      ->type_name("N")
      ->capture_default_str();
  add_fault(command, options->fault_bytes);
  add_json_option(command, options->json_path);
  ranks::add_fabric_options(command, options->fabric, kTimeoutHelp);
  command->footer(kFooter);
  command->callback([options, &invocation] { run_pingpong(*options, invocation); });
}

void add_matvec(const Command& program, Invocation& invocation) {
  auto options = std::make_shared<MatvecOptions>();
  const Command command =
      program.add_subcommand("matvec", "Vectors streamed to a kernel that multiplies them, beside one kernel per batch");
  add_threads(command, options->grid, "512");
  add_blocks(command, options->grid, "16");
  command->add_option("--vector-size", options->sizes, "Elements of a vector: doubled from MIN to MAX, MIN a multiple of 4")
      ->type_name("[MIN:]MAX")
      ->default_str("32:128");
  command->add_option("-m", options->sizes)->group("");  // its old name
  command->add_option("-b,--batch", options->batches, "Vectors of a block in a batch: doubled from MIN to MAX")
      ->type_name("[MIN:]MAX")
      ->default_str("1:32");
  command->add_option("-i,--iterations", options->batch_count, "Batches; all but the first are timed")
      ->check(whole_number(2, 1000000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--under-way", options->slot_count, "Batches that are sent before the first's products are awaited")
      ->check(whole_number(1, 64))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--plant-fault", options->plants_fault)->group("");  // proves that the check can fail
  add_json_option(command, options->json_path);
  ranks::add_fabric_options(command, options->fabric, kTimeoutHelp);
  command->footer(kFooter);
  command->callback([options, &invocation] { run_matvec(*options, invocation); });
}

}  // namespace gigabar::tool
