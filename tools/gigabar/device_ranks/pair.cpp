// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "cuda/runtime.hpp"
#include "device_ranks/round_plan.hpp"
#include "gigabar/topology.hpp"
#include "ranks/fabric_failure.hpp"
#include "ranks/start.hpp"
#include "ranks/words.hpp"

namespace gigabar::tool::device_ranks {
namespace {

using ranks::require_of_fabric;
using ranks::take_from_fabric;

// A day: what --timeout takes at most, and short enough for sums of it.
constexpr std::int64_t kLongestNs = std::int64_t{86400} * 1'000'000'000;

// Of two GPUs of this host, by what joins them; their addresses come from the ranks' cards.
std::string link_between(const Json& first, const Json& second) {
  constexpr const char* kUnknown = "direct";
  const auto one = PciAddress::parse(ranks::text_of(first, "pci"));
  const auto other = PciAddress::parse(ranks::text_of(second, "pci"));
  if (!one || !other) return kUnknown;
  if (*one == *other) return "same GPU";
  const auto topology = discover_topology(Machine::here());
  if (!topology) return kUnknown;
  const auto find = [&](const PciAddress& address) {
    const auto found =
        std::find_if(topology->gpus.begin(), topology->gpus.end(), [&](const Gpu& gpu) { return gpu.address == address; });
    return static_cast<int>(found - topology->gpus.begin());
  };
  const Route route = route_between(*topology, {Endpoint::Kind::gpu, find(*one)}, {Endpoint::Kind::gpu, find(*other)});
  if (route.relation == Relation::unknown) return kUnknown;
  return route.relation == Relation::nvlink ? "nvlink" : "pcie";
}

std::string path_between(const std::vector<Json>& cards) {
  if (std::any_of(cards.begin(), cards.end(), ranks::is_stand_in_card)) return "cpu";
  return link_between(cards[0].value("device", Json()), cards[1].value("device", Json()));
}

}  // namespace

Pair::Pair(std::string_view command, const FabricOptions& options, Timeout timeout, const Invocation& invocation,
           const std::string& json_path)
    : fabric_(ranks::open_fabric(options, json_path)), timeout_(timeout), command_(command) {
  if (rank() != 0) return;
  report_ = std::make_unique<Report>(command, invocation, json_path);
  report_->set_line_prefix("# ");
}

void Pair::join() {
  ranks::follow_cpus(fabric_);
  // Nobody refuses and leaves before all have come.
  ranks::await_ranks(fabric_, timeout_);
  const Rank count = fabric_.rank_count();
  if (count != 2) {
    refuse_usage(fmt::format("the job has {}, and {} is for exactly 2; start 2", counted(count, "rank"), command_));
  }
  const std::vector<DeviceInfo> found = tool::take(devices());
  const auto own = std::find_if(found.begin(), found.end(), [&](const DeviceInfo& each) { return each.index == fabric_.device(); });
  if (own == found.end()) fail(fmt::format("device {}: this process has {}", fabric_.device(), counted(found.size(), "device")));
  device_ = *own;
  if (device_.is_stand_in) return;
  const Availability runtime = use_cuda_runtime(device_.index);
  if (!runtime.is_ok())
    fail(fmt::format("kernels of device {}: {} ({}); {}", device_.index, runtime.reason, name_of(runtime.code), runtime.remedy));
}

void Pair::agree(std::uint64_t digest) { ranks::require_agreement(fabric_, digest, timeout_); }

void Pair::open(std::uint64_t bytes, std::uint32_t notification_count, const QueueOptions& queues) {
  queues_ = queues;
  memory_.emplace(tool::take(DeviceMemory::allocate(device_.index, bytes)));
  require_of_fabric(fabric_.register_segment(kDataSegment, memory_->address(), bytes));
  require_of_fabric(fabric_.connect(partner(), timeout_));
  DeviceSessionOptions options;
  options.segment_count = kDataSegment + 1;
  options.notification_count = notification_count;
  options.timeout = timeout_;
  if (queues.count != 0) {
    options.queues = QueueUse::always;
    options.queue_count = queues.count;
    options.proxy_thread_count = queues.proxy_count;
    options.engine = queues.engine;
    options.hca_port = queues.hca_port;
  }
  session_.emplace(take_from_fabric(DeviceSession::open(fabric_, options)));
  introduce();
}

DeviceReach Pair::require_reach() const {
  const DeviceReach reach = take_from_fabric(session_->reach(partner(), kDataSegment));
  const bool is_reached = queues_.count == 0 ? reach.is_direct : reach.has_queue;
  if (!is_reached) fail(fmt::format("kernels of rank {} do not reach rank {}'s memory: {}", rank(), partner(), reach.reason));
  return reach;
}

void Pair::tell_queues() {
  if (queues_.count == 0) return;
  const DeviceReach reach = require_reach();
  const std::string_view engine = name_of(reach.engine);
  path_ = reach.engine == QueueEngine::software_hca ? "softhca" : engine;
  report_->print("# {} to the partner, executed by: {}", counted(queues_.count, "queue"), engine);
  if (reach.engine == QueueEngine::software_hca) report_->print(" of {}", counted(queues_.proxy_count, "proxy thread"));
  report_->print("; {}{}\n", reach.is_mapped ? "up to 28 bytes are stored through a mapping of the CPU; " : "", reach.reason);
  report_->document()["queues"] = {{"count", queues_.count},
                                   {"proxy_threads", queues_.proxy_count},
                                   {"engine", engine},
                                   {"is_mapped", reach.is_mapped},
                                   {"reason", reach.reason}};
}

void Pair::introduce() {
  require_reach();
  const std::vector<std::string> texts =
      ranks::gather(fabric_, ranks::dump(ranks::rank_card(fabric_, device_)), ranks::kMaxCardBytes, timeout_);
  if (!report_) return;
  const std::vector<Json> cards = ranks::read_cards(texts);
  path_ = path_between(cards);
  report_->set_device(device_);
  for (std::size_t i = 0; i < cards.size(); ++i) report_->print("# {}\n", ranks::introduction(i, cards[i]));
  ranks::tell_settings(*report_, fabric_);
  tell_queues();
  Json& document = report_->document();
  document["ranks"] = cards;
  document["path"] = path_;
}

void Pair::close() {
  require_of_fabric(fabric_.barrier({}, patience()));
  require_of_fabric(session_->close(patience()));
  session_.reset();
  require_of_fabric(fabric_.deregister_segment(kDataSegment, timeout_));
  require_of_fabric(fabric_.close(timeout_));
  if (report_) report_->write();
}

void Pair::send(std::uint64_t from_offset, std::uint64_t to_offset, std::uint64_t bytes, NotificationId id, std::uint32_t value) {
  constexpr QueueId kQueue = 0;
  PostOptions post;
  post.queue = kQueue;
  take_from_fabric(fabric_.write_notify({kDataSegment, from_offset}, {partner(), kDataSegment, to_offset}, bytes, id, value, post));
  require_of_fabric(fabric_.wait(kQueue, timeout_));
}

void Pair::take(NotificationId id, std::uint32_t value) {
  take_from_fabric(fabric_.notification_wait(kDataSegment, id, 1, timeout_));
  const std::uint32_t found = take_from_fabric(fabric_.notification_reset(kDataSegment, id));
  if (found != value) fail(fmt::format("wrong data: notification {} is {}, expected {}", id, found, value));
}

Timeout Pair::patience() const noexcept {
  constexpr std::int64_t kMinNs = 2'000'000'000;  // to start kernels on a machine that does other work
  return Timeout::of(std::chrono::nanoseconds(3 * std::min(timeout_.ns(), kLongestNs) + kMinNs));
}

std::uint64_t Pair::kernel_timeout_ns() const noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(timeout_.ns(), 1));
}

}  // namespace gigabar::tool::device_ranks
