// SPDX-License-Identifier: Apache-2.0
// Opening and closing, and what a fabric works with on this machine: the device, the transports, and the CPUs and memory beside
// them.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <map>
#include <system_error>
#include <utility>

#include "base/bell.hpp"
#include "base/blocked_signals.hpp"
#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/start_thread.hpp"
#include "fabric/engine.hpp"
#include "fabric/job/addresses.hpp"
#include "fabric/tuning.hpp"
#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "platform/cpu_set.hpp"
#include "platform/numa.hpp"
#include "transport/local/open.hpp"
#include "transport/tcp/open.hpp"
#include "transport/ucx/open.hpp"
#include "transport/verbs/open.hpp"

namespace gigabar::fabric {
namespace {

Result<std::unique_ptr<transport::Transport>> open_one(TransportKind kind, const transport::TransportOptions& options) {
  switch (kind) {
    case TransportKind::local: return transport::open_local(options);
    case TransportKind::verbs: return transport::open_verbs(options);
    case TransportKind::tcp: return transport::open_tcp(options);
    case TransportKind::ucx: break;
  }
  // UCX starts a thread of its own, which has the signals blocked that the thread that opens UCX has, and runs where that may run,
  // which is not to be where the program's do.
  const BlockedSignals blocked;
  if (options.cpus.empty()) return transport::open_ucx(options);
  std::future<Result<std::unique_ptr<transport::Transport>>> opened;
  try {
    opened = std::async(std::launch::async, [&] {
      settle_this_thread("gigabar-open", options.cpus);
      return transport::open_ucx(options);
    });
  } catch (const std::system_error& error) {
    return cannot_start_thread("open UCX", "thread that opens it", error.code().value());
  }
  return opened.get();
}

constexpr const char* kTrustVariable = "GIGABAR_UCX_TRUST_NETWORK";
constexpr const char* kDevicesVariable = "UCX_NET_DEVICES";
constexpr const char* kTcpInterfacesVariable = "GIGABAR_TCP_INTERFACES";
constexpr const char* kNotNeeded = "it was not opened, since local serves the ranks of one host; GIGABAR_TRANSPORTS=";

// Where UCX may listen, when its user trusts who gets there, and TCP: at loopback for a job of one host, else at the job's network;
// TCP at the job's addresses, and at no other one of their interfaces.
Result<std::string> where_to_listen(TransportKind kind, const Job& job, bool is_ucx_trusted) {
  const bool is_ucx = kind == TransportKind::ucx;
  if (is_ucx && !is_ucx_trusted) {
    return make_error(
        Status::no_permission, "open UCX", "network",
        text("UCX asks nobody for the job's key: whoever reaches its ports writes anywhere in this process. Where all ",
             job.is_on_one_host ? "users of this host are" : "who reach the job's network are", " trusted, ", kTrustVariable,
             "=1 at every rank allows it"));
  }
  auto named = environment(is_ucx ? kDevicesVariable : kTcpInterfacesVariable);
  if (named && !named->empty()) return std::move(*named);
  if (job.is_on_one_host) return std::string("lo");
  return is_ucx ? outer_interfaces(job) : outer_address_list(job);
}

}  // namespace

Result<void> Engine::choose_device() {
  device_ = settings_.device;
  const auto found = devices();
  if (!found || found->empty()) return {};
  if (device_ >= static_cast<int>(found->size())) {
    return make_error(Status::invalid_argument, "fabric open", text("device ", device_),
                      text("this process has ", counted(found->size(), "device")), "give a number below that");
  }
  if (device_ < 0) device_ = static_cast<int>(job_.local_rank.value_or(0) % found->size());
  if (settings_.device < 0) settings_.show("device", std::to_string(device_));
  const DeviceInfo& device = (*found)[static_cast<std::size_t>(device_)];
  if (!device.is_stand_in) gpu_ = Neighbour{text("device ", device_), device.numa_node};
  return {};
}

// `verbs`: null where it cannot be used.
void Engine::choose_cpus(const transport::Transport* verbs) {
  std::optional<Neighbour> neighbour = gpu_;
  if (!neighbour && verbs != nullptr) {
    const std::string& rail = verbs->rails().front();
    neighbour = Neighbour{text("rail ", rail), numa_node_of_rdma_device(rail.substr(0, rail.find('/')))};
  }
  placement_ = resolve_placement(settings_.cpus, neighbour);
  settings_.show("cpus", placement_.why);
}

Result<void> Engine::open_transports() {
  transport::TransportOptions options = settings_.of_transports;
  options.near_device = device_;
  options.local_rank = job_.local_rank.value_or(0);
  options.connect_deadline_ns = std::min<std::int64_t>(settings_.connect_timeout_ns, 30'000'000'000);
  if (settings_.rail_policy == RailPolicy::fixed && !options.rails.empty()) {
    options.rails = {options.rails[options.local_rank % options.rails.size()]};
  }
  struct Opened {
    std::unique_ptr<transport::Transport> transport;
    std::string why_not;
  };
  std::map<TransportKind, Opened> opened;
  const auto open = [&](TransportKind kind) -> Opened {
    if (std::ranges::find(settings_.transports, kind) == settings_.transports.end()) return {};
    // Nobody opens a foreign library, or a port, that no peer can need.
    if (kind != TransportKind::local && opened[TransportKind::local].transport != nullptr && job_.is_on_one_host)
      return {nullptr, text(kNotNeeded, name_of(kind), " has it opened")};
    if (kind == TransportKind::ucx || kind == TransportKind::tcp) {
      auto where = where_to_listen(kind, job_, settings_.ucx_trust_network);
      if (!where) return {nullptr, where.error().record().cause};
      (kind == TransportKind::ucx ? options.ucx_devices : options.tcp_interfaces) = std::move(*where);
    }
    auto transport = open_one(kind, options);
    return transport ? Opened{std::move(*transport), {}} : Opened{nullptr, transport.error().record().cause};
  };
  opened[TransportKind::local] = open(TransportKind::local);
  // Then verbs, whose rails may say where the threads of UCX belong.
  opened[TransportKind::verbs] = open(TransportKind::verbs);
  choose_cpus(opened[TransportKind::verbs].transport.get());
  options.cpus = placement_.cpus;
  opened[TransportKind::tcp] = open(TransportKind::tcp);
  opened[TransportKind::ucx] = open(TransportKind::ucx);
  for (const TransportKind kind : settings_.transports) {
    Opened& one = opened[kind];
    if (one.transport) transports_.push_back(std::move(one.transport));
    const std::string why_not = std::exchange(one.why_not, {});
    if (!why_not.empty()) why_no_transport_ += text(why_no_transport_.empty() ? "" : "; ", name_of(kind), ": ", why_not);
  }
  if (!transports_.empty()) return {};
  return make_error(Status::unavailable, "fabric open", "transports", text("none can be used: ", why_no_transport_),
                    "allow others with GIGABAR_TRANSPORTS, or remove the causes");
}

void Engine::take_tuned_limits() {
  RailsInUse in_use;
  for (const auto& transport : transports_) {
    std::vector<std::string>& rails = in_use[transport->kind()];
    if (transport->kind() == TransportKind::verbs) rails = transport->rails();
    rails.resize(std::min<std::size_t>(rails.size(), std::max(settings_.of_transports.rail_count, 1U)));
  }
  apply_tuning(settings_, device_, in_use);
}

Result<std::unique_ptr<Engine>> Engine::open(const FabricOptions& options) {
  std::unique_ptr<Engine> engine(new Engine());
  if (Result<void> started = engine->start(options); !started) return std::move(started).error();
  return engine;
}

Result<void> Engine::start(const FabricOptions& options) {
  generation_ = gigabar::detail::process_generation();
  auto settings = find_settings(options);
  if (!settings) return std::move(settings).error();
  settings_ = std::move(*settings);
  auto job = find_job(options);
  if (!job) return std::move(job).error();
  job_ = std::move(*job);
  const std::int64_t deadline_ns = now_ns() + settings_.connect_timeout_ns;
  if (Result<void> chosen = choose_device(); !chosen) return chosen;
  if (Result<void> opened = open_transports(); !opened) return opened;
  take_tuned_limits();
  has_plain_words_ =
      std::ranges::none_of(transports_, [](const auto& transport) { return transport->kind() == TransportKind::verbs; });
  auto wireup = Wireup::open(job_);
  if (!wireup) return std::move(wireup).error();
  wireup_ = std::move(*wireup);
  auto directory = open_directory(job_, deadline_ns);
  if (!directory) return std::move(directory).error();
  directory_ = std::move(*directory);
  rank_address_ = make_rank_address();
  if (Result<void> published = directory_->publish(rank_address_); !published) return published;

  records_.resize(kRecords);
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = open_event();
  call_ = open_event();
  if (!epoll_.is_open() || !wake_.is_open() || !call_.is_open()) {
    const int code = errno;
    return make_error(status_of_errno(code), "fabric open", "epoll", "no descriptor to sleep on", "raise the limit of open files",
                      errno_code(code));
  }
  const auto watch = [&](int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    if (descriptor >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event);
  };
  watch(wake_.get());
  watch(wireup_->wake_descriptor());
  watch(directory_->wake_descriptor());
  for (const auto& transport : transports_) watch(transport->wake_descriptor());
  is_open_ = true;
  if (!settings_.progress_thread || job_.rank_count <= 1) return {};
  return start_thread(thread_, "fabric open", "progress_thread", [this] { run_thread(); });
}

Engine::~Engine() {
  if (belongs_to_this_process()) {
    {
      const Lock guard = lock();
      is_stopping_ = true;
      wake_sleeper();
      stop_sleeping();
    }
    if (thread_.joinable()) thread_.join();
    // Links at once: nobody polls any more, so none is ended from inside itself.
    for (auto& [rank, peer] : peers_) {
      close_targets(*peer);
      for (const Rail& rail : peer->rails) rail.link->owner = nullptr;
      if (peer->self_end) peer->self_end->owner = nullptr;
      peer->rails.clear();
      peer->self_end.reset();
    }
    copy_streams_.clear();  // which waits for copies from and to the peers' staging memory
  } else if (thread_.joinable()) {
    thread_.detach();  // it runs in the parent
  }
  // Links, and what holds memory of the transports, go before them.
  retired_links_.clear();
  recent_peer_ = nullptr;
  recent_segment_ = nullptr;
  mapped_segments_.clear();
  peers_.clear();
  segments_.clear();
  transports_.clear();
}

std::string Engine::make_rank_address() const {
  ByteWriter writer;
  writer.number(kEngineVersion).string(wireup_->rank_address()).number(static_cast<std::uint8_t>(transports_.size()));
  for (const auto& transport : transports_) {
    writer.number(static_cast<std::uint8_t>(transport->kind())).string(transport->address());
  }
  std::string rank_address = writer.take();
  const std::size_t room = kMaxRankAddressBytes - std::min(kMaxRankAddressBytes, rank_address.size() + sizeof(std::uint32_t));
  return rank_address + ByteWriter().string(std::string_view(why_no_transport_).substr(0, std::min(kMaxReasonBytes, room))).take();
}

FabricStatistics Engine::statistics() const {
  FabricStatistics statistics = statistics_;
  for (const Queue& queue : queues_) {
    const std::lock_guard guard(queue.mutex);
    statistics.operations += queue.store_count;
  }
  statistics.refused_strangers = wireup_->refusals().total() + (directory_ ? directory_->refused_count() : 0);
  for (const auto& transport : transports_) statistics.refused_strangers += transport->refused_count();
  return statistics;
}

std::vector<PeerState> Engine::peers() const {
  std::vector<PeerState> states;
  for (const auto& [rank, peer] : peers_) {
    PeerState state;
    state.rank = rank;
    state.is_connected = peer->state == Peer::State::ready;
    state.is_broken = peer->state == Peer::State::lost;
    state.is_same_host = peer->identity.is_same_host;
    if (peer->why) state.why = peer->why->message();
    if (peer->transport != nullptr) state.transport = peer->transport->kind();
    state.memory_bytes = sizeof(Peer) + (peer->is_self ? 0 : wireup_->memory_bytes(rank));
    for (const Rail& rail : peer->rails) {
      state.rails.push_back(rail.link->rail());
      state.memory_bytes += rail.link->memory_bytes();
    }
    if (peer->self_end) state.memory_bytes += peer->self_end->memory_bytes();
    if (peer->staging_in) state.memory_bytes += peer->staging_in->memory.bytes();
    if (peer->staging_out) state.memory_bytes += peer->staging_out->memory.bytes();
    states.push_back(std::move(state));
  }
  return states;
}

}  // namespace gigabar::fabric
