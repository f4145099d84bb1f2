// SPDX-License-Identifier: Apache-2.0
#include "gaspi/process.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace gigabar::gaspi {
namespace {

// "rank 3" or "rank 3 ...": of the object of an error.
std::optional<Rank> rank_of(const Error& error) {
  const std::string& object = error.record().object;
  constexpr std::string_view kWord = "rank ";
  if (!object.starts_with(kWord)) return std::nullopt;
  Rank rank = 0;
  const auto [end, code] = std::from_chars(object.data() + kWord.size(), object.data() + object.size(), rank);
  return code == std::errc() ? std::optional(rank) : std::nullopt;
}

}  // namespace

Process::Process() : config{} {
  config.logger = 1;
  config.sn_port = 12121;
  config.sn_timeout = 30000;
  config.dev_config.network_type = GASPI_ETHERNET;
  config.dev_config.params.ib = {-1, 0, 1};
  config.dev_config.params.tcp.port = 19000;
  config.network = GASPI_ETHERNET;
  config.queue_size_max = kQueueDepth;
  config.queue_num = 8;
  config.group_max = 32;
  config.segment_max = kSegments;
  config.transfer_size_max = kMaxTransferBytes;
  config.notification_num = kNotifications;
  config.passive_queue_size_max = kQueueDepth;
  config.passive_transfer_size_max = kMaxPassiveBytes;
  config.allreduce_buf_size = kAllreduceBytes;
  config.allreduce_elem_max = kMaxReduceElements;
  config.build_infrastructure = GASPI_TOPOLOGY_DYNAMIC;
}

Process& process() {
  static Process& all = *new Process;  // lives as long as threads that end late
  return all;
}

Timeout timeout_of(gaspi_timeout_t timeout_ms) noexcept {
  constexpr gaspi_timeout_t kMaxMs = 1'000'000'000'000;
  if (timeout_ms == GASPI_BLOCK) return Timeout::forever();
  return Timeout::of(std::chrono::milliseconds(std::min(timeout_ms, kMaxMs)));
}

void mark_lost_ranks() {
  Process& all = process();
  for (const PeerState& peer : all.fabric->peers()) {
    if (peer.is_broken && peer.rank < all.rank_count) all.peers[peer.rank].is_corrupt = true;
  }
}

gaspi_return_t code_of(const Error& error, const char* function) {
  Process& all = process();
  switch (error.status()) {
    case Status::timed_out: return GASPI_TIMEOUT;
    case Status::out_of_memory: return GASPI_ERR_MEMALLOC;
    case Status::out_of_descriptors: return GASPI_ERR_EMFILE;
    case Status::peer_lost: {
      const auto rank = rank_of(error);
      if (rank && *rank < all.peers.size()) all.peers[*rank].is_corrupt = true;
      if (all.is_ready) mark_lost_ranks();
      break;
    }
    default: break;
  }
  if (all.config.logger != 0) std::fprintf(stderr, "%s: rank %u: %s\n", function, all.rank, error.message().c_str());
  const bool is_of_device = error.status() == Status::device_error || error.status() == Status::not_supported;
  return is_of_device ? GASPI_ERR_DEVICE : GASPI_ERROR;
}

gaspi_return_t ask_for_remote(Rank rank, SegmentId segment, const Timeout& timeout, const char* function) {
  Process& all = process();
  const Remaining time(timeout);
  if (Result<void> connected = all.fabric->connect(rank, timeout); !connected) return code_of(connected.error(), function);
  const Result<RemoteSegment> remote = all.fabric->remote_segment(rank, segment, time.left());
  if (remote.status() == Status::out_of_range) return GASPI_ERR_INV_SEG;
  if (!remote) return code_of(remote.error(), function);
  all.peers[rank].segments[segment] = true;
  return GASPI_SUCCESS;
}

void forget_remote(Rank rank) {
  for (auto& is_known : process().peers[rank].segments) is_known = false;
}

gaspi_return_t code_of_post(const Error& error, Rank rank, SegmentId segment, const char* function) {
  Process& all = process();
  if (error.status() == Status::busy) return GASPI_QUEUE_FULL;
  if (error.status() == Status::peer_lost) forget_remote(rank);
  if (error.status() != Status::out_of_range) return code_of(error, function);
  // The segment is not there any more, or it is too short.
  const auto remote = all.fabric->remote_segment(rank, segment, std::chrono::seconds(1));
  if (remote.status() != Status::out_of_range) return GASPI_ERR_INV_REM_OFF;
  all.peers[rank].segments[segment] = false;
  return GASPI_ERR_INV_SEG;
}

Result<void> notify_self(SegmentId segment, NotificationId id, std::uint32_t value) {
  Process& all = process();
  constexpr auto kSecond = std::chrono::seconds(1);
  for (;;) {
    const auto posted = notify_taker(all.rank, segment, id, value, {.queue = kInternalQueue, .policy = std::nullopt});
    if (posted) break;
    if (posted.status() != Status::busy) return Error(posted.error());
    if (Result<void> waited = all.fabric->wait(kInternalQueue, kSecond); waited.status() == Status::timed_out) return waited;
  }
  Result<void> in_place = all.fabric->flush(all.rank, kSecond);
  if (in_place.status() == Status::timed_out) return {};  // it is posted, and comes later
  return in_place;
}

}  // namespace gigabar::gaspi
