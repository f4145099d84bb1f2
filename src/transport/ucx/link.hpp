// SPDX-License-Identifier: Apache-2.0
// One connection over UCX. Everything is an eager active message: writes are cut into pieces that the receiver copies to their
// place, from a buffer that the processor's cache still holds. UCX itself never has an address of the target's memory, so that
// forgetting a link, or a region, ends all access at once.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/ucx/transport.hpp"

namespace gigabar::transport::ucx {

class UcxLink final : public PlacedLink {
 public:
  // The number is told to the peer, which puts it into everything that it sends.
  UcxLink(UcxTransport& transport, const Peer& peer, std::uint64_t number);
  // Waits, at most 2 s, while UCX still reads local memory.
  ~UcxLink() override;

  // UCX's own buffers are of the worker, not of a link.
  std::uint64_t memory_bytes() const noexcept override { return sizeof *this + held_units_; }
  Result<void> complete(Parcel answer) override;

  // What the peer needs to connect.
  Invitation invitation() const { return {number_, transport_.piece_bytes(), transport_.worker_address()}; }
  // Connects to the worker that the peer named. Errors: as UcxTransport::connect.
  Result<void> connect(const Invitation& invitation);

  // --- For the transport ---
  bool attend(Sink& sink) override;
  // UCX is done with an operation. Called from its progress(), and from send().
  void sent(const Operation& operation, ucs_status_t status);
  // The connection broke.
  void lost_by(ucs_status_t status);
  void receive(const WireHeader& header, std::span<const std::byte> data);

 private:
  // What goes out in pieces: a write, or the answer to a read.
  struct Pieces {
    WireKind kind = WireKind::write;
    std::uint64_t cookie = 0;  // of a write
    Place from;
    Access to;  // where the pieces go, and all bytes
    std::uint64_t sent_bytes = 0;
    std::uint64_t finished_bytes = 0;  // of a write: of which UCX needs the local memory no more
  };
  // Either one.
  struct Outgoing {
    std::unique_ptr<Operation> operation;
    Pieces* write = nullptr;
  };
  struct Held {
    Header header{};
    std::vector<std::byte> payload;
  };

  // Sending.
  Posted send_message(const Header& header, std::span<const std::byte> payload) override;
  void begin(Direction direction, const Place& here, const RegionKey& there, const Transfer& transfer) override;
  // For the peer's link; send() fills in what is counted.
  std::unique_ptr<Operation> make(WireKind kind, const Access& access = {}) const;
  bool has_something_to_send() const noexcept { return !outgoing_.empty() || !answers_.empty(); }
  // True when it has sent something.
  bool pump();
  void send_piece(Pieces& pieces);
  void send(std::unique_ptr<Operation> operation);
  void send_credit();

  // Receiving.
  void take_sequenced(const WireHeader& header, std::span<const std::byte> data);
  bool place(const WireHeader& header, std::span<const std::byte> data);
  void deliver(const Header& header, std::span<const std::byte> payload);
  void take_read(const Access& asked);
  void take_answer(const Access& access, std::span<const std::byte> data);
  void take_acknowledgement(std::uint64_t units);
  void look_whether_ready();
  bool deliver_held();
  bool can_tell() const noexcept { return transport_.sink() != nullptr && is_ready_told_; }
  // Of what is before the next number only messages stay.
  bool has_deliverable() const noexcept { return !held_.empty() && held_.begin()->first < expected_; }

  // Breaking.
  void begin_to_break(std::optional<Farewell> farewell) noexcept override;
  bool finish_breaking(Sink& sink);
  std::unique_ptr<Operation> farewell(Farewell reason) const {
    return make(WireKind::bye, {.request = static_cast<std::uint32_t>(reason)});
  }
  void say_farewell(Farewell reason);

  static constexpr unsigned kMaxUnderWay = 16;  // operations of a link that UCX has, of which each holds at most a piece

  UcxTransport& transport_;
  std::uint64_t number_;
  Invitation peer_;  // with the most data of one active message of both
  Endpoint* endpoint_ = nullptr;
  bool has_heard_ = false;  // from the peer

  std::deque<Outgoing> outgoing_;  // in order: a message leaves after the writes before it
  std::list<Pieces> writes_;
  std::deque<Pieces> answers_;     // to the peer's reads
  unsigned pieces_under_way_ = 0;  // operations that UCX has and that read the caller's memory
  bool is_pumping_ = false;
  bool is_answers_turn_ = false;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t posted_units_ = 0;        // of messages
  std::uint64_t acknowledged_units_ = 0;  // by the peer

  std::uint64_t expected_ = 0;  // sequence
  // What came too early, or while nobody could be told; a write is in its place already.
  std::map<std::uint64_t, std::optional<Held>> held_;
  std::uint64_t held_units_ = 0;
  std::uint64_t consumed_units_ = 0;  // delivered
  std::uint64_t told_units_ = 0;      // of which the peer was told
  bool is_credit_under_way_ = false;

  std::optional<Farewell> farewell_;  // what the peer is to hear
  std::int64_t give_up_at_ns_ = 0;    // broken: UCX should have returned everything by then
};

}  // namespace gigabar::transport::ucx
