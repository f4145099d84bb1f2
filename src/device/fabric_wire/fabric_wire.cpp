// SPDX-License-Identifier: Apache-2.0
#include "device/fabric_wire/fabric_wire.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/quietly.hpp"
#include "base/ranges.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device/handle.hpp"

namespace gigabar::soft_hca {
namespace {

constexpr Timeout kSettlePatience = Timeout::of(std::chrono::milliseconds(5));  // of one look; more of them follow
constexpr std::uint32_t kIdlePollsPerMove = 32;
constexpr std::uint32_t kIdlePollsBeforeSettling = 4096;
constexpr std::size_t kPostsBeforeWait = kQueueDepth / 2;

bool is_atomic(Opcode opcode) { return opcode == Opcode::fetch_add || opcode == Opcode::compare_swap; }

// What others poll for: all before it must be in place.
bool is_word(const WireOperation& operation) {
  const bool has_size = operation.bytes == sizeof(std::uint32_t) || operation.bytes == sizeof(std::uint64_t);
  return operation.opcode == Opcode::rdma_write && has_size && operation.remote_address % operation.bytes == 0;
}

// In pieces that are aligned where they go, each by one store: as uncached memory wants it, which is right for any.
void store_in_pieces(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto& kernels = gigabar::detail::active_kernels(MappingType::uncached);
  kernels.store[gigabar::detail::size_class(bytes)].load(std::memory_order_relaxed)(to, from, bytes);
}

SegmentId segment_of(const WireOperation& operation) { return static_cast<SegmentId>(operation.remote_key & (kMaxSegments - 1)); }

bool is_bulk(const WireOperation& operation) { return !is_word(operation) && !is_atomic(operation.opcode); }

Syndrome syndrome_of(Status status) {
  switch (status) {
    case Status::ok: return Syndrome::none;
    case Status::invalid_argument:
    case Status::out_of_range: return Syndrome::remote_access;
    case Status::timed_out:
    case Status::peer_lost: return Syndrome::retries_exceeded;
    default: return Syndrome::remote_operation;
  }
}

}  // namespace

std::optional<LocalPlace> FabricWire::find_local(const WireOperation& operation) const {
  for (const FabricRange& range : options_.local) {
    const auto offset = static_cast<std::uint64_t>(operation.local - range.cpu);  // wraps below the start, and is too large then
    if (fits(offset, operation.bytes, range.bytes)) return LocalPlace{range.segment, offset};
  }
  return std::nullopt;
}

std::byte* FabricWire::find_mapped(const WireOperation& operation) const {
  for (const FabricRange& range : options_.remote) {
    if (range.segment != segment_of(operation)) continue;
    return fits(operation.remote_address, operation.bytes, range.bytes) ? range.cpu + operation.remote_address : nullptr;
  }
  return nullptr;
}

bool FabricWire::begin(const WireOperation& operation) {
  idle_polls_ = 0;
  if (items_.size() == kMaxUnderWay) return false;
  Item* added = nullptr;
  quietly([&] { added = &items_.emplace_back(); });
  if (added == nullptr) return false;
  Item& item = *added;
  item.operation = operation;
  if (!is_atomic(operation.opcode)) item.local = find_local(operation);
  if (is_broken_)
    end(item, Syndrome::flushed);
  else if (item.is_inline() ? operation.bytes > kMaxOrderedBytes : !item.local && !is_atomic(operation.opcode))
    end(item, Syndrome::local_protection);
  else if (operation.remote_key >> 10 != options_.peer ||
           (item.is_for_cpu() && !(item.is_inline() && operation.bytes == sizeof(std::uint32_t))))
    end(item, Syndrome::remote_access);
  const bool has_begun = item.ended || start(item);
  if (!has_begun) items_.pop_back();
  return has_begun;
}

void FabricWire::end(Item& item, Syndrome syndrome) {
  item.ended = syndrome;
  is_broken_ = is_broken_ || syndrome != Syndrome::none;
}

bool FabricWire::start(Item& item) {
  // What came inside its request goes behind all that was posted before, and needs nobody's end.
  if (item.is_inline()) {
    if (item.is_for_cpu()) await_direct_stores();
    if (!store_directly(item.operation)) return post(item);
    end(item, Syndrome::none);
    return true;
  }
  if (!have_earlier_ended(item)) return false;
  await_direct_stores();
  const bool is_bulk_write = is_bulk(item.operation) && item.operation.opcode == Opcode::rdma_write;
  if (!is_bulk_write && has_unsettled_writes_ && !settle(item)) return item.ended.has_value();
  if (!is_atomic(item.operation.opcode)) return post(item);
  change_word(item);
  return true;
}

// Whether the write is in place by stores of this thread. Behind writes of the fabric it has to go the fabric's way.
bool FabricWire::store_directly(const WireOperation& write) {
  if (has_unsettled_writes_) return false;
  std::byte* const to = find_mapped(write);
  if (to == nullptr) return false;
  if (is_word(write)) drain();
  store_in_pieces(to, write.local, static_cast<std::size_t>(write.bytes));
  is_drained_ = false;
  last_direct_store_ = to;
  return true;
}

bool FabricWire::place(const WireOperation& write) {
  idle_polls_ = 0;
  if (is_broken_ || !items_.empty() || write.remote_key >> 10 != options_.peer) return false;
  return store_directly(write);
}

// The stores before are on their way, out of buffers that combine writes, in front of those that follow.
void FabricWire::drain() {
  if (!is_drained_) gigabar::detail::fence_stores();
  is_drained_ = true;
}

// Loads come back behind the stores that went the same way before them (PCI Express: a read pushes posted writes).
void FabricWire::await_direct_stores() {
  if (last_direct_store_ == nullptr) return;
  drain();
  [[maybe_unused]] const std::byte seen = *last_direct_store_;
  last_direct_store_ = nullptr;
}

// Whether no operation is under way that the item must not overtake: bulk of its own direction it may.
bool FabricWire::have_earlier_ended(const Item& item) {
  for (Item& earlier : items_) {
    if (&earlier == &item) return true;
    const bool may_overtake =
        is_bulk(item.operation) && is_bulk(earlier.operation) && item.operation.opcode == earlier.operation.opcode;
    if (may_overtake) continue;
    look_at(earlier);
    if (!earlier.ended) return false;
  }
  return true;
}

// Whether all writes before are in place. Of a peer that is lost the fabric tells; one that others write to may take its time.
bool FabricWire::settle(Item& item) {
  const Result<void> settled = fabric_->flush(options_.peer, kSettlePatience);
  if (settled.status() == Status::timed_out) return false;
  has_unsettled_writes_ = false;
  if (!settled) end(item, syndrome_of(settled.status()));
  return settled.is_ok();
}

Result<Operation> FabricWire::post_to_fabric(const Item& item) {
  const PostOptions options{.queue = options_.queue, .policy = std::nullopt};
  const WireOperation& operation = item.operation;
  const RemotePlace remote{options_.peer, segment_of(operation), operation.remote_address};
  if (item.is_for_cpu()) {
    std::uint32_t value = 0;
    std::memcpy(&value, operation.local, sizeof value);
    const std::uint64_t id = (operation.remote_address - kCpuNotificationsAt) / sizeof(device::Notification);
    return fabric_->notify(options_.peer, remote.segment, static_cast<NotificationId>(std::min<std::uint64_t>(id, kNotifications)),
                           value, options);
  }
  if (item.is_inline()) return fabric_->write_in_order(operation.local, remote, operation.bytes, options);
  const bool is_write = operation.opcode == Opcode::rdma_write;
  return is_write ? fabric_->write(*item.local, remote, operation.bytes, options)
                  : fabric_->read(*item.local, remote, operation.bytes, options);
}

bool FabricWire::post(Item& item) {
  if (posted_since_wait_ >= kPostsBeforeWait) static_cast<void>(empty_fabric_queue());
  const Result<Operation> posted = post_to_fabric(item);
  if (posted) {
    ++posted_since_wait_;
    item.posted = *posted;
    // Its bytes were copied: it is over here, as it is for an HCA that has sent them.
    if (item.is_inline()) end(item, Syndrome::none);
    has_unsettled_writes_ = has_unsettled_writes_ || item.operation.opcode == Opcode::rdma_write;
  } else if (posted.status() == Status::busy) {
    static_cast<void>(empty_fabric_queue());
    return false;
  } else {
    end(item, syndrome_of(posted.status()));
  }
  return true;
}

void FabricWire::change_word(Item& item) {
  const WireOperation& operation = item.operation;
  const RemotePlace place{options_.peer, segment_of(operation), operation.remote_address};
  const Result<std::uint64_t> before =
      operation.opcode == Opcode::fetch_add
          ? fabric_->fetch_add(place, operation.swap_or_add, options_.patience)
          : fabric_->compare_swap(place, operation.compare, operation.swap_or_add, options_.patience);
  if (before) std::memcpy(operation.local, &*before, sizeof *before);
  end(item, syndrome_of(before.status()));
}

void FabricWire::look_at(Item& item) {
  if (item.ended) return;
  const Result<OperationReport> report = fabric_->report(item.posted);
  if (report.status() == Status::out_of_range) {
    const Result<void> waited = empty_fabric_queue();
    if (waited.status() != Status::timed_out) end(item, waited ? Syndrome::none : Syndrome::bad_response);
  } else if (!report) {
    end(item, Syndrome::bad_response);
  } else if (report->is_done) {
    end(item, syndrome_of(report->status));
  }
}

// The fabric counts operations until their queue was waited for, and keeps reports of its last ones alone. Failures were told by
// their reports. Errors: timed_out (some are under way), and those of the first that failed.
Result<void> FabricWire::empty_fabric_queue() {
  Result<void> waited = fabric_->wait(options_.queue, Timeout::test());
  if (waited.status() != Status::timed_out) posted_since_wait_ = 0;
  return waited;
}

std::optional<Syndrome> FabricWire::poll() {
  // Of all that was begun since the last look.
  drain();
  if (items_.empty()) return std::nullopt;
  Item& oldest = items_.front();
  if (!oldest.ended) {
    static_cast<void>(fabric_->progress().is_ok());  // a fabric that is closed tells so by the reports
    look_at(oldest);
  }
  const std::optional<Syndrome> ended = oldest.ended;
  if (ended) items_.pop_front();
  return ended;
}

void FabricWire::idle() {
  drain();
  ++idle_polls_;
  // Which takes longer than a look at a doorbell.
  if (options_.moves_fabric && idle_polls_ % kIdlePollsPerMove == 0) static_cast<void>(fabric_->progress().is_ok());
  // So that small writes find their short way again, once nothing was asked for a while: it takes a round trip to the peer.
  if (!has_unsettled_writes_ || options_.remote.empty() || is_broken_ || idle_polls_ % kIdlePollsBeforeSettling != 0) return;
  if (fabric_->flush(options_.peer, kSettlePatience)) has_unsettled_writes_ = false;
}

}  // namespace gigabar::soft_hca
