// SPDX-License-Identifier: Apache-2.0
// A software HCA's wire over a Fabric: to another process, of this host or another.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "device/soft_hca/wire.hpp"
#include "gigabar/fabric.hpp"

namespace gigabar::soft_hca {

// The remote key of a peer's segment; the remote address is an offset in it. Ranks below 2^22.
constexpr std::uint32_t fabric_key(Rank rank, SegmentId segment) { return rank << 10 | segment; }
static_assert(kMaxSegments <= 1U << 10);

// Behind the key of a peer's segment: its notifications that CPUs take (Fabric::notify), each where a device::Notification has its
// value. Only 4 bytes that travel inside a work request go there.
inline constexpr std::uint64_t kCpuNotificationsAt = std::uint64_t{1} << 63;

// Registered memory of this side, as this process sees it: what reads and large writes of the queue name.
struct FabricRange {
  SegmentId segment = 0;
  std::byte* cpu = nullptr;
  std::uint64_t bytes = 0;
};

struct FabricWireOptions {
  Rank peer = 0;
  std::vector<FabricRange> local;
  std::vector<FabricRange> remote;  // the peer's segments that this process maps (MappedFor::cpu), for as long as the wire lives
  QueueId queue = 0;                // of the fabric; of the wires that one thread polls
  bool moves_fabric = false;        // idle() moves the fabric on, for what peers send: one wire of a fabric is enough
  Timeout patience = Timeout::of(std::chrono::seconds(2));  // for an atomic
};

// Ordering, more exactly than Wire: payload that travelled inside its work request is placed behind every write before it
// (Fabric::write_in_order). Other writes that follow each other are under way together, and so are reads, and land in any order, as
// the fabric's do; of them, an aligned write of 4 or 8 bytes, a read or an atomic is begun when every write before it is in place
// at the peer. So a notification follows its payload, and a read sees what was written; a payload that is itself polled for its
// last byte is not served.
//
// Payload that travelled inside its work request and goes to a mapped segment is stored there at once, when no write is under way
// over the fabric; what goes over the fabric behind such stores waits for a load from there, which comes back behind them.
//
// Cost: what has to be in place first takes a round trip to the peer. During that, and during an atomic, begin() waits in the
// fabric, for at most 5 ms or `patience`. What is behind a failed operation may have landed when it was under way. Rights are the
// fabric's: a peer's segment may be written, read and changed.
class FabricWire final : public Wire {
 public:
  // `fabric` must outlive the wire.
  FabricWire(Fabric& fabric, FabricWireOptions options) : fabric_(&fabric), options_(std::move(options)) {}

  bool begin(const WireOperation& operation) override;
  bool place(const WireOperation& write) override;
  std::optional<Syndrome> poll() override;
  void idle() override;

 private:
  static constexpr std::size_t kMaxUnderWay = 64;
  struct Item {
    WireOperation operation;
    std::optional<LocalPlace> local;  // none: an atomic, or payload that came inside its request
    std::optional<Syndrome> ended;
    Operation posted{};  // until then
    bool is_inline() const { return !local && operation.opcode == Opcode::rdma_write; }
    bool is_for_cpu() const { return operation.remote_address >= kCpuNotificationsAt; }
  };
  std::optional<LocalPlace> find_local(const WireOperation& operation) const;
  // False: not yet.
  bool start(Item& item);
  bool post(Item& item);
  std::byte* find_mapped(const WireOperation& operation) const;
  bool store_directly(const WireOperation& write);
  void drain();
  void await_direct_stores();
  bool have_earlier_ended(const Item& item);
  bool settle(Item& item);
  Result<Operation> post_to_fabric(const Item& item);
  void change_word(Item& item);
  void look_at(Item& item);
  void end(Item& item, Syndrome syndrome);
  Result<void> empty_fabric_queue();

  Fabric* fabric_;
  FabricWireOptions options_;
  std::deque<Item> items_;                                 // in order of begin()
  std::size_t posted_since_wait_ = 0;                      // operations that the fabric's queue still counts
  bool has_unsettled_writes_ = false;                      // posted since everything was in place
  bool is_drained_ = true;                                 // no direct store is in a buffer that combines writes
  const volatile std::byte* last_direct_store_ = nullptr;  // null: none since a load came back behind it
  std::uint32_t idle_polls_ = 0;                           // since an operation was begun
  bool is_broken_ = false;
};

}  // namespace gigabar::soft_hca
