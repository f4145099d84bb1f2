// SPDX-License-Identifier: Apache-2.0
// Opening and closing.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/event.hpp"
#include "base/start_thread.hpp"
#include "fabric/engine.hpp"
#include "gigabar/mapping.hpp"

namespace gigabar::fabric {

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
    for (auto& [rank, peer] : peers_) end_links(*peer);
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
  statistics.operations += store_count();
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
