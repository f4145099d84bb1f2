// SPDX-License-Identifier: Apache-2.0
// Plans before they run: how transfers are named and written, and what is wrong with a plan that can be known without running it.
#include "streams/plan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/names.hpp"
#include "base/options.hpp"
#include "base/shown.hpp"
#include "base/uncancelled.hpp"
#include "platform/numa.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kMaxGroupBytes = 64;
constexpr unsigned kMaxRepeats = 1000;
constexpr std::size_t kMinChaseBytes = 4096;  // less would measure one cache line over and over
// Of one repeat: more than any machine moves in the longest time allowed, and sums of it still fit 64 bits.
constexpr std::uint64_t kMaxRepeatBytes = std::uint64_t{1} << 60;

// What is wrong with a transfer; the caller knows its number.
struct Fault {
  Status status;
  std::string cause;
  std::string remedy;
};
using MaybeFault = std::optional<Fault>;

Fault invalid(std::string cause, std::string remedy) { return {Status::invalid_argument, std::move(cause), std::move(remedy)}; }
Fault unsupported(std::string cause, std::string remedy) { return {Status::not_supported, std::move(cause), std::move(remedy)}; }

// False for NaN.
bool is_within(double value, double least, double most) { return value >= least && value <= most; }
bool is_duration(double seconds, double most) { return seconds > 0 && seconds <= most; }

// The shortest text that reads back as the same number.
std::string number_text(double value) {
  char digits[32];  // the longest is "-2.2250738585072014e-308"
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  return {digits, error == std::errc{} ? end : digits};
}

std::string place_text(const StreamPlace& place) {
  if (!place.is_host()) return text("gpu", place.device);
  if (place.numa_node == StreamPlace::kNearestNode) return "host";
  return place.numa_node == StreamPlace::kAnyNode ? "host:any" : text("host:", place.numa_node);
}

std::string executor_text(const Transfer& transfer) {
  std::string word(name_of(transfer.executor));
  const bool has_sides = transfer.executor == StreamExecutor::copy_engine || transfer.executor == StreamExecutor::kernel;
  if (has_sides && transfer.side == StreamSide::source) word += "-push";
  if (has_sides && transfer.side == StreamSide::destination) word += "-pull";
  const bool has_workers = transfer.executor == StreamExecutor::kernel || transfer.executor == StreamExecutor::cpu;
  if (has_workers && transfer.worker_count != 0) word += text(":", transfer.worker_count);
  return word;
}

// "gpu0->host ce".
std::string route_text(const Transfer& transfer) {
  return text(place_text(transfer.source), "->", place_text(transfer.destination), " ", executor_text(transfer));
}

// " pages=huge", or " pages=pageable,wc" of source and destination when both are host memory and differ; empty when pinned.
std::string pages_text(const Transfer& transfer) {
  const HostPages from = transfer.source.pages;
  const HostPages to = transfer.destination.pages;
  const bool has_two = transfer.source.is_host() && transfer.destination.is_host();
  if (has_two && from != to) return text(" pages=", name_of(from), ",", name_of(to));
  if (!transfer.source.is_host() && !transfer.destination.is_host()) return {};
  const HostPages pages = transfer.source.is_host() ? from : to;
  return pages == HostPages::pinned ? std::string() : text(" pages=", name_of(pages));
}

// How long it runs; not the default of a transfer that runs as long as others do.
std::string length_text(const Transfer& transfer) {
  if (transfer.iterations == 0 && transfer.seconds != 0) return text(" seconds=", number_text(transfer.seconds));
  if (transfer.is_background && transfer.iterations == Transfer{}.iterations) return {};
  return text(" iterations=", transfer.iterations);
}

// A flag's size is not used, so it is written only when someone set it.
bool has_bytes(const Transfer& transfer) { return transfer.executor != StreamExecutor::flag || transfer.bytes != Transfer{}.bytes; }

MaybeFault check_node(const StreamPlace& place, const std::vector<int>& nodes) {
  if (place.numa_node == StreamPlace::kNearestNode || place.numa_node == StreamPlace::kAnyNode) return {};
  if (std::find(nodes.begin(), nodes.end(), place.numa_node) != nodes.end()) return {};
  const std::string asked = text("NUMA node ", place.numa_node, ": ");
  if (place.numa_node < 0) return invalid(asked + "nodes count from 0", "-1 asks for the GPU's, -2 for the system's choice");
  if (nodes.empty()) return invalid(asked + "this machine has no NUMA", "leave the node to the system: host:any");
  return invalid(asked + "this machine's nodes with memory are " + joined(nodes), "use one of them, or host:any");
}

MaybeFault check_place(const StreamPlace& place, int device_count, const std::vector<int>& nodes) {
  if (place.is_host()) return check_node(place, nodes);
  if (place.device >= 0 && place.device < device_count) return {};
  return invalid(text("device ", place.device, ": ", devices_text(device_count)), "name devices that exist, or host memory");
}

MaybeFault check_worker_count(const Transfer& transfer) {
  if (transfer.executor == StreamExecutor::kernel && transfer.worker_count > kMaxBlocks) {
    return invalid(text(transfer.worker_count, " thread blocks, at most ", kMaxBlocks), "0 takes as many as the GPU has room for");
  }
  if (transfer.executor == StreamExecutor::cpu && transfer.worker_count > kMaxThreads) {
    return invalid(text(transfer.worker_count, " CPU threads, at most ", kMaxThreads), "0 takes what is best on most machines");
  }
  return {};
}

MaybeFault check_length(const Transfer& transfer) {
  if (!is_within(transfer.delay_seconds, 0, kMaxDelaySeconds)) {
    return invalid(text("a delay of ", number_text(transfer.delay_seconds), " s, from 0 to ", number_text(kMaxDelaySeconds)),
                   "give a delay in that range");
  }
  if (transfer.is_background) return {};
  if (transfer.iterations == 0 && !is_duration(transfer.seconds, kMaxSeconds)) {
    return invalid(text("0 iterations and ", number_text(transfer.seconds), " seconds: nothing says when it ends"),
                   text("set iterations, or seconds above 0 and up to ", number_text(kMaxSeconds)));
  }
  return {};
}

MaybeFault check_bytes(const Transfer& transfer) {
  if (transfer.executor == StreamExecutor::flag) return {};
  if (transfer.bytes == 0 || transfer.bytes > kMaxTransferBytes) {
    return invalid(text(counted(transfer.bytes, "byte"), " per copy, from 1 to ", kMaxTransferBytes), "give a size in that range");
  }
  if (!transfer.is_background && transfer.iterations > kMaxRepeatBytes / transfer.bytes) {
    return invalid(text(counted(transfer.iterations, "copy", "copies"), " of ", counted(transfer.bytes, "byte"), ", at most ",
                        kMaxRepeatBytes, " bytes in all"),
                   "set iterations to 0 and seconds to the time it may take");
  }
  return {};
}

MaybeFault check_group(const Transfer& transfer) {
  if (transfer.group.empty() || is_group_name(transfer.group)) return {};
  return invalid(text("the group's name ", quoted_word(transfer.group)),
                 text("use 1 to ", kMaxGroupBytes, " characters without spaces, ';' and '#'"));
}

bool has_device(const Transfer& transfer) { return !transfer.source.is_host() || !transfer.destination.is_host(); }
bool has_two_devices(const Transfer& transfer) { return !transfer.source.is_host() && !transfer.destination.is_host(); }
bool is_pageable(const StreamPlace& place) { return place.is_host() && place.pages == HostPages::pageable; }

MaybeFault check_gpu_reach(const Transfer& transfer) {
  if (!is_pageable(transfer.source) && !is_pageable(transfer.destination)) return {};
  return unsupported("the GPU cannot reach pageable host memory by loads and stores", "use pages=pinned, or the copy engine (ce)");
}

MaybeFault check_flag(const Transfer& transfer) {
  if (transfer.source.is_host() == transfer.destination.is_host()) {
    return unsupported("a flag goes from the host to a GPU and back, so one end has to be a GPU and the other the host",
                       "write for example host->gpu0 flag");
  }
  if (transfer.is_background) return invalid("a flag moves no data and cannot run in the background", "use chase, or a copy");
  return check_gpu_reach(transfer);
}

MaybeFault check_chase(const Transfer& transfer) {
  if (transfer.destination.is_host()) {
    return unsupported("the destination's GPU follows the pointers, and the destination is host memory",
                       "write for example host->gpu0 chase");
  }
  if (has_two_devices(transfer) && transfer.side == StreamSide::source) {
    return unsupported("the destination's GPU follows the pointers, and the source's was asked to",
                       "exchange the ends, or leave the side automatic");
  }
  if (transfer.bytes < kMinChaseBytes) {
    return invalid(text(counted(transfer.bytes, "byte"), " of pointers, at least ", kMinChaseBytes), "use bytes=2M");
  }
  return check_gpu_reach(transfer);
}

MaybeFault check_executor(const Transfer& transfer) {
  switch (transfer.executor) {
    case StreamExecutor::copy_engine:
      if (has_device(transfer)) return {};
      return unsupported("a copy engine belongs to a GPU, and both ends are host memory", "use cpu, or name a GPU");
    case StreamExecutor::kernel:
      if (has_device(transfer)) return check_gpu_reach(transfer);
      return unsupported("a kernel runs on a GPU, and both ends are host memory", "use cpu, or name a GPU");
    case StreamExecutor::cpu:
      if (!has_two_devices(transfer)) return {};
      return unsupported("CPU threads copy between the host and one GPU, and both ends are GPU memory",
                         "use ce or sm between GPUs");
    case StreamExecutor::flag: return check_flag(transfer);
    case StreamExecutor::pointer_chase: return check_chase(transfer);
  }
  return invalid(text("executor ", static_cast<unsigned>(transfer.executor), " is none"), "use an enumerator of StreamExecutor");
}

MaybeFault check_transfer(const Transfer& transfer, int device_count, const std::vector<int>& nodes) {
  if (auto fault = check_place(transfer.source, device_count, nodes)) return fault;
  if (auto fault = check_place(transfer.destination, device_count, nodes)) return fault;
  for (const auto check : {check_bytes, check_length, check_worker_count, check_group}) {
    if (auto fault = check(transfer)) return fault;
  }
  return check_executor(transfer);
}

MaybeFault check_whole(const StreamPlan& plan) {
  const auto is_background = [](const Transfer& transfer) { return transfer.is_background; };
  if (plan.transfers.empty()) return invalid("there are no transfers", "add one, for example gpu0->host ce bytes=1G");
  if (plan.repeats == 0 || plan.repeats > kMaxRepeats) {
    return invalid(text(plan.repeats, " repeats, from 1 to ", kMaxRepeats), "give a number in that range");
  }
  if (!is_duration(plan.timeout_seconds, kMaxTimeoutSeconds)) {
    return invalid(
        text("a timeout of ", number_text(plan.timeout_seconds), " s, above 0 and up to ", number_text(kMaxTimeoutSeconds)),
        "give a timeout in that range");
  }
  if (std::all_of(plan.transfers.begin(), plan.transfers.end(), is_background)) {
    return invalid("all transfers are in the background, which runs as long as another does: nothing would end them",
                   "take background away from at least one");
  }
  return {};
}

Error refuse(std::string object, Fault fault) {
  return make_error(fault.status, "check plan", std::move(object), std::move(fault.cause), std::move(fault.remedy));
}

}  // namespace

std::string_view name_of(StreamExecutor executor) noexcept {
  constexpr std::array<std::string_view, kStreamExecutorCount> kNames{"ce", "sm", "cpu", "flag", "chase"};
  return name_at(kNames, executor);
}

std::string to_string(const Transfer& transfer) try {
  std::string line = route_text(transfer);
  if (has_bytes(transfer)) line += " bytes=" + format_bytes(transfer.bytes);
  line += length_text(transfer);
  if (transfer.delay_seconds != 0) line += " delay=" + number_text(transfer.delay_seconds);
  line += pages_text(transfer);
  if (!transfer.group.empty()) line += " group=" + transfer.group;
  if (transfer.is_background) line += " background";
  if (transfer.is_latency) line += " latency";
  if (transfer.may_stage) line += " stage";
  return line;
} catch (...) {
  return {};
}

Result<void> check_plan(const StreamPlan& plan, int device_count) try {
  const Uncancelled uncancelled;
  if (auto fault = check_whole(plan))
    return refuse(text("plan of ", counted(plan.transfers.size(), "transfer")), std::move(*fault));
  const std::vector<int> nodes = numa_nodes();
  for (std::size_t index = 0; index < plan.transfers.size(); ++index) {
    if (auto fault = check_transfer(plan.transfers[index], device_count, nodes)) {
      return refuse(describe_transfer(index, plan.transfers[index]), std::move(*fault));
    }
  }
  return {};
} catch (...) {
  return error_of_exception("check_plan");
}

int working_device(const Transfer& transfer) noexcept {
  if (transfer.source.is_host()) return transfer.destination.device;
  if (transfer.destination.is_host()) return transfer.source.device;
  if (transfer.executor == StreamExecutor::pointer_chase) return transfer.destination.device;
  return transfer.side == StreamSide::source ? transfer.source.device : transfer.destination.device;
}

ErrorRecord failure_of(std::size_t index, const Transfer& transfer, ErrorRecord record) {
  const std::string object = record.object.empty() ? "" : text(", ", record.operation, " ", record.object);
  record.object = describe_transfer(index, transfer) + object;
  record.operation = "run streams";
  return record;
}

std::string describe_transfer(std::size_t index, const Transfer& transfer) {
  const std::string bytes = has_bytes(transfer) ? " bytes=" + format_bytes(transfer.bytes) : std::string();
  return text("transfer ", index, " (", route_text(transfer), bytes, ")");
}

bool moves_data(StreamExecutor executor) noexcept {
  return executor != StreamExecutor::flag && executor != StreamExecutor::pointer_chase;
}

bool is_group_name(std::string_view name) noexcept {
  const auto is_allowed = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > ' ' && byte != 0x7f && c != ';' && c != '#';
  };
  return !name.empty() && name.size() <= kMaxGroupBytes && std::all_of(name.begin(), name.end(), is_allowed);
}

std::string devices_text(int device_count) {
  if (device_count <= 0) return "this machine shows no GPUs";
  return device_count == 1 ? std::string("this machine has gpu0 only") : text("this machine has gpu0 to gpu", device_count - 1);
}

// A terminal must not act on what was read from a file.
std::string quoted_word(std::string_view word) {
  constexpr std::size_t kMaxShown = 48;
  return text('"', shown(word, kMaxShown), '"');
}

}  // namespace gigabar::inline v0
