// SPDX-License-Identifier: Apache-2.0
// A rank that holds the key and breaks the protocol.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "conformance/rank_segment.hpp"
#include "fabric/engine.hpp"
#include "transport/placing.hpp"

namespace gigabar::fabric {

// An engine whose messages a test writes.
class Insider {
 public:
  explicit Insider(const FabricOptions& options) : engine_(open(options)), lock_(engine_->lock()) {}

  // Connects with `rank`.
  bool meet(Rank rank) {
    auto peer = engine_->ready_peer(lock_, rank, test::kPatience);
    EXPECT_TRUE(test::is_ok(peer));
    if (peer) peer_ = *peer;
    return peer.is_ok();
  }
  // Likewise: `act` is called behind each thing that the engine does, until they are connected. It never sleeps meanwhile, since it
  // looks at the channels then.
  template <class Act>
  bool meet_while(Rank rank, const Act& act) {
    auto found = engine_->find_peer(rank);
    EXPECT_TRUE(test::is_ok(found));
    if (!found) return false;
    peer_ = *found;
    engine_->begin_to_connect(*peer_);
    for (const std::int64_t end_ns = now_ns() + 30'000'000'000; now_ns() < end_ns; std::this_thread::yield()) {
      engine_->progress();
      act();
      if (peer_->state == Peer::State::ready || peer_->state == Peer::State::lost) return true;
    }
    return false;
  }
  bool is_greeting() const { return peer_->state == Peer::State::greeting; }
  // A question for a segment, which waits for no answer.
  void ask(SegmentId id) { engine_->ask_segment(*peer_, id); }
  // As a further rail beside the first one, which does not stand yet: by the transport of that number.
  bool offer_another_rail(std::size_t transport) {
    if (peer_->rails.size() != 1 || peer_->state != Peer::State::linking) return false;
    transport::Transport& open = *engine_->transports_.at(transport);
    peer_->identity.address = Engine::part_of_address(peer_->rank_address, open.kind());
    transport::Parcel parcel;
    auto link = open.offer(peer_->identity, 0, parcel);
    EXPECT_TRUE(test::is_ok(link));
    if (!link) return false;
    Engine::add_rail(*peer_, std::move(*link), ++engine_->last_link_number_);
    ByteWriter writer;
    writer.number(static_cast<std::uint8_t>(open.kind())).number(std::uint8_t{1}).number(engine_->last_link_number_);
    writer.number(std::uint8_t{2}).string(parcel.bytes);
    EXPECT_TRUE(test::is_ok(engine_->send_frame(*peer_, kLinkOffer, writer.take(), std::move(parcel.descriptors))));
    return true;
  }
  // Until `rank` has offered its first rail, as if it had announced two of them; and as they are.
  bool await_first_of_two_rails(Rank rank) {
    auto found = engine_->find_peer(rank);
    EXPECT_TRUE(test::is_ok(found));
    if (!found) return false;
    peer_ = *found;
    return poll_until(test::kPatience, [this] {
      if (!peer_->rails.empty()) peer_->offered_rails = 2;
      return peer_->offered_rails == 2;
    });
  }
  void do_with_one_rail() {
    EXPECT_EQ(peer_->state, Peer::State::linking);
    peer_->offered_rails = 1;
    engine_->become_ready(*peer_);
  }
  std::size_t rail_count() const { return peer_->rails.size(); }
  std::size_t unsaid_count() const { return peer_->outbox.size(); }
  // Until the link has taken it, or is gone.
  void say(const Message& message, std::string_view payload = {}) {
    engine_->say(*peer_, message, std::as_bytes(std::span(payload)));
    if (peer_->outbox.size() > 256) settle();
  }
  void settle() {
    engine_->progress_until(lock_, test::kPatience, [this] { return peer_->outbox.empty() || peer_->state != Peer::State::ready; });
  }
  // On the channel, where segments and links are agreed on.
  void say_frame(std::uint16_t type, std::string body) {
    EXPECT_TRUE(test::is_ok(engine_->send_frame(*peer_, static_cast<FrameType>(type), std::move(body))));
  }
  // As say(), without a look at what the peer asks meanwhile.
  void say_and_hear_nothing(const Message& message, std::string_view payload) {
    engine_->say(*peer_, message, std::as_bytes(std::span(payload)));
    for (const std::int64_t end_ns = now_ns() + 20'000'000'000; !engine_->flush_outbox(*peer_) && now_ns() < end_ns;) ::usleep(50);
  }
  std::uint16_t epoch_of(SegmentId id) {
    const auto remote = engine_->remote_segment(lock_, *peer_, id, test::kPatience);
    EXPECT_TRUE(test::is_ok(remote));
    return remote ? (*remote)->epoch : std::uint16_t{0};
  }
  // Whether the peer gives a key of its segment.
  bool may_use(SegmentId id) {
    const auto remote = engine_->remote_segment(lock_, *peer_, id, test::kPatience);
    return remote.is_ok();
  }
  // The number of the peer's operation that offers a message to this rank.
  std::uint64_t request_of_peer() {
    const auto offered = [this] {
      return std::find_if(engine_->unexpected_.begin(), engine_->unexpected_.end(),
                          [](const Unexpected& one) { return one.request.has_value(); });
    };
    EXPECT_TRUE(engine_->progress_until(lock_, test::kPatience, [&] { return offered() != engine_->unexpected_.end(); }));
    return offered() == engine_->unexpected_.end() ? 0 : *offered()->request;
  }
  void register_segment(SegmentId id, void* address, std::size_t bytes) {
    EXPECT_TRUE(test::is_ok(engine_->register_segment(id, address, bytes)));
  }
  void serve_until_known(SegmentId id) {
    EXPECT_TRUE(
        engine_->progress_until(lock_, test::kPatience, [&] { return engine_->segments_[id]->known_by.contains(peer_->rank); }));
  }
  // Its key then says that there are no words, and gives no reason.
  void drop_notifications(SegmentId id) { engine_->segments_[id]->notifications.reset(); }
  void disable(SegmentId id) { engine_->segments_[id]->is_enabled = false; }
  // Its key then says that no transport has one, and gives no reason.
  void drop_regions(SegmentId id) {
    for (auto& region : engine_->segments_[id]->regions) region.reset();
  }
  // As an operation under way does.
  void use(SegmentId id) {
    const auto remote = engine_->remote_segment(lock_, *peer_, id, test::kPatience);
    ASSERT_TRUE(test::is_ok(remote));
    used_ = *remote;
    ++used_->users;
  }
  void leave() { engine_->release(*peer_, used_); }
  // Whether the peer wants a key back that is not given.
  bool is_asked_for_a_key() {
    const bool is_asked = engine_->progress_until(lock_, test::kPatience, [this] { return !peer_->revoked.empty(); });
    engine_->progress_until(lock_, Timeout::of(std::chrono::milliseconds(100)), [this] { return peer_->revoked.empty(); });
    return is_asked && !peer_->revoked.empty();
  }
  // As one that says later that it has forgotten it. Over tcp or ucx.
  void keep_key(SegmentId id) {
    const auto remote = engine_->remote_segment(lock_, *peer_, id, test::kPatience);
    ASSERT_TRUE(test::is_ok(remote));
    kept_ = std::make_unique<transport::PlacedRemoteRegion>(
        static_cast<const transport::PlacedRemoteRegion&>(*(*remote)->region).key());
  }
  // Writes with that key.
  void write_with_it(SegmentId from, std::uint64_t bytes) {
    Op& op = engine_->make_op(OpKind::write, 0, peer_, true);
    op.outstanding = 1;
    const auto& region = engine_->segments_[from]->regions[static_cast<std::size_t>(peer_->transport->kind())];
    EXPECT_EQ(peer_->rails.front().link->post_write(*region, 0, *kept_, 0, bytes, reinterpret_cast<std::uint64_t>(&op)),
              transport::Posted::ok);
  }
  // When the peer wants it.
  bool give_key_back(SegmentId id) {
    return engine_->progress_until(lock_, test::kPatience, [&] { return !peer_->segments.contains(id) && peer_->revoked.empty(); });
  }
  // Answers until the peer has sent a message. (Not so many messages of the engine: a peer that goes to sleep says so in one.)
  void serve_until_sent() {
    EXPECT_TRUE(engine_->progress_until(lock_, test::kPatience, [this] { return !engine_->unexpected_.empty(); }));
    settle();
  }
  std::uint64_t slot_bytes() { return engine_->limits(*peer_).chunk_bytes; }
  void drop_requests() { engine_->unexpected_.clear(); }
  // What an atomic of the peer's segment is answered with.
  Status change(Message message, std::size_t payload_bytes) {
    constexpr std::uint64_t kRequest = 77;
    message.type = MessageType::atomic;
    engine_->atomics_[kRequest] = {};
    engine_->atomics_[kRequest].asked.remote.rank = peer_->rank;
    std::string payload(sizeof kRequest + 1, '\0');
    std::memcpy(payload.data(), &kRequest, sizeof kRequest);
    say(message, std::string_view(payload).substr(0, payload_bytes));
    EXPECT_TRUE(engine_->progress_until(lock_, test::kPatience, [&] { return engine_->atomics_[kRequest].is_done; }));
    return engine_->atomics_[kRequest].status;
  }
  // What the peer answers when it cannot write the bytes that `get` asks for into this rank's segment.
  Status refusal_of_read(Message get, SegmentId into) {
    Op& op = engine_->make_op(OpKind::read, 0, peer_, true);
    op.outstanding = 1;
    peer_->by_id[op.id] = &op;
    get.type = MessageType::get;
    get.a = op.id;
    ByteWriter writer;
    say(get, writer.number(into).number(std::uint64_t{0}).number(std::uint32_t{0}).number(std::uint64_t{4096}).take());
    EXPECT_TRUE(engine_->progress_until(lock_, test::kPatience, [&] { return op.error.has_value(); }));
    const Status status = op.error ? op.error->status() : Status::ok;
    peer_->by_id.erase(op.id);
    engine_->give_back(op);
    return status;
  }
  void forget_refusal(QueueId queue) { engine_->queues_[queue].error.reset(); }
  // What the peer refused.
  bool is_refused(QueueId queue) {
    return engine_->progress_until(lock_, test::kPatience, [&] { return engine_->queues_[queue].error.has_value(); });
  }
  void expect_refusals(QueueId queue) {
    peer_->refusable_queues = static_cast<std::uint16_t>(peer_->refusable_queues | 1U << queue);
  }
  // What the peer says of this operation is heard, and nothing comes of it.
  void leave_unanswered(std::uint64_t operation) { peer_->by_id[operation] = &engine_->make_op(OpKind::receive, 0, peer_, true); }
  // On the channel.
  void send_frame(FrameType type, std::string body) { static_cast<void>(engine_->send_frame(*peer_, type, std::move(body))); }
  std::uint64_t slot_bytes() const { return engine_->limits(*peer_).chunk_bytes; }
  // The number of the peer's staged write, for which this rank itself grants no slot.
  std::uint64_t staged_write_of_peer() {
    peer_->in_slots.assign(engine_->limits(*peer_).chunk_count, true);
    EXPECT_TRUE(engine_->progress_until(lock_, test::kPatience, [this] { return !peer_->incoming.empty(); }));
    return peer_->incoming.empty() ? 0 : peer_->incoming.begin()->first;
  }
  // Everything that the peer has sent is in place, and it hears this rank.
  bool is_heard() { return test::is_ok(engine_->flush(lock_, peer_->rank, test::kPatience)); }

  // What comes from the peer waits, as behind the mark of a rail that is late.
  void wait_for_a_rail() {
    peer_->stalled_fence = 99;
    peer_->stalled_marks = 1;
  }
  void hear_from_the_rail() {
    ++peer_->marks[99];
    engine_->pass_fences(*peer_);
  }
  std::size_t held_bytes() const { return peer_->held_bytes; }
  template <class IsDone>
  bool poll_until(const Timeout& timeout, IsDone&& is_done) {
    return engine_->progress_until(lock_, timeout, is_done);
  }
  // Whether a key is taken for a segment of the peer that operations use.
  bool takes_a_key_of(SegmentId own, unsigned users) {
    RemoteState remote;
    remote.users = users;
    ByteWriter writer;
    auto descriptors = engine_->describe_segment(*peer_, *engine_->find_segment(own), writer);
    const std::string key = writer.take();
    ByteReader reader(key);
    return engine_->learn_segment(*peer_, remote, reader, std::move(descriptors)) && remote.know == RemoteState::Know::known;
  }
  // How many decisions are remembered when peers give so many reasons of their own.
  std::size_t decide(SegmentId own, std::size_t count) {
    for (std::size_t reason = 0; reason < count; ++reason) {
      RemoteState remote;
      remote.bytes = 1 << 20;
      remote.why_not = "reason " + std::to_string(reason);
      EXPECT_TRUE(test::is_ok(
          engine_->choose(*peer_, transport::Direction::write, *engine_->find_segment(own), remote, 1 << 20, PathPolicy{}, false)));
    }
    return engine_->choices_.size();
  }
  // A message of this rank's own needs a number for its buffer when none is left.
  Result<void> register_one_buffer_too_many(void* address, std::size_t bytes) {
    for (SegmentId id = kFirstAnonymous; id < kEndAnonymous; ++id) engine_->segments_[id];
    Op op;
    op.buffer = address;
    op.bytes = bytes;
    engine_->use_buffer(op);
    engine_->segments_.erase(engine_->segments_.lower_bound(kFirstAnonymous), engine_->segments_.end());
    return op.error ? Result<void>(*op.error) : Result<void>();
  }
  // Says more than the peer, which is not heard meanwhile, may leave untaken.
  void say_too_much(const Message& message) {
    for (std::size_t count = 0; count < 2 * kMaxOutbox && engine_->failures_.empty(); ++count) engine_->say(*peer_, message);
  }
  // As one that has connected and not said who it is.
  void forget_greeting() { peer_->has_greeted = false; }
  std::string why_lost() { return wait_until_lost() ? peer_->why->message() : "it is not lost"; }
  // Loses `rank` while a copy is under way on the memory of one of this rank's operations, until `has_ended`.
  void lose_beside_a_copy(Rank rank, QueueId queue, const bool& has_ended) {
    class Copying final : public transport::Link {
     public:
      explicit Copying(const bool& ended) : Link("copying", transport::LinkState::ready), has_ended_(ended) {}
      std::uint64_t memory_bytes() const noexcept override { return 0; }
      transport::Posted post_message(const transport::Header&, std::span<const std::byte>) override {
        return transport::Posted::full;
      }
      transport::Reach reach(transport::Direction, const transport::Region&, const transport::RemoteRegion&) const override {
        return {};
      }
      std::string why_no_word(transport::WordKind, const transport::RemoteRegion&) const override { return "it is no memory"; }
      transport::Posted post_word(transport::WordKind, const transport::RemoteRegion&, std::size_t, std::uint32_t) override {
        return transport::Posted::full;
      }
      Result<void> complete(transport::Parcel) override { return {}; }
      bool stop() override { return has_ended_; }

     private:
      transport::Posted post_transfer(transport::Direction, const transport::Transfer&) override { return transport::Posted::full; }

      const bool& has_ended_;
    };
    auto found = engine_->find_peer(rank);
    ASSERT_TRUE(test::is_ok(found));
    peer_ = *found;
    Op& op = engine_->make_op(OpKind::write, queue, peer_, false);
    op.outstanding = 1;
    op.is_posted = true;
    peer_->rails.push_back({std::make_unique<Copying>(has_ended)});
    engine_->retire(*peer_, make_error(Status::peer_lost, "test", "a rank", "it is gone", {}));
    EXPECT_EQ(peer_->state, Peer::State::lost);
  }
  Result<void> wait(QueueId queue, const Timeout& timeout) { return engine_->wait(lock_, queue, timeout); }
  Result<void> forget() { return engine_->forget(lock_, peer_->rank); }
  Result<Operation> post_receive(Rank from) { return engine_->post_recv(from, 0, 0, nullptr, 0, {}); }
  Result<Received> wait_message(Operation operation, const Timeout& timeout) {
    return engine_->wait_message(lock_, operation, timeout);
  }
  bool wait_until_lost() {
    return engine_->progress_until(lock_, test::kPatience, [this] { return peer_->state == Peer::State::lost; });
  }

 private:
  static std::unique_ptr<Engine> open(const FabricOptions& options) {
    auto opened = Engine::open(options);
    EXPECT_TRUE(test::is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }

  std::unique_ptr<Engine> engine_;
  Engine::Lock lock_;
  Peer* peer_ = nullptr;
  RemoteState* used_ = nullptr;
  std::unique_ptr<transport::RemoteRegion> kept_;
};

}  // namespace gigabar::fabric

namespace gigabar::test {

using fabric::Insider;
using fabric::Message;
using fabric::MessageType;

inline Message of_type(MessageType type) {
  Message message;
  message.type = type;
  return message;
}

template <class Number>
void append(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

inline void say_some_reads(Insider& insider, std::size_t count) {
  Message get = of_type(MessageType::get);
  get.segment = kTarget;
  get.epoch = insider.epoch_of(kTarget);
  get.c = 8;
  std::string payload;
  append(payload, SegmentId{77});
  append(payload, std::uint64_t{0});
  payload += std::string(4, '\0');
  append(payload, std::uint64_t{4096});
  for (get.a = 1; get.a <= count; ++get.a) insider.say_and_hear_nothing(get, payload);
}

inline constexpr std::size_t kRendezvousBytes = 1 << 20;  // more than travels inside a message

// 70000 would be more than all ranks together may leave, were they one.
inline void say_parts(Insider& insider) {
  Message part = of_type(MessageType::collective);
  for (part.a = 1; part.a <= 70'000; ++part.a) insider.say(part);
}

inline void ask_for_a_staged_write(Insider& insider, std::uint64_t bytes, std::uint32_t chunk_bytes) {
  EXPECT_TRUE(insider.may_use(fabric::kStagingSegment));
  Message open = of_type(MessageType::stage_open);
  open.segment = kTarget;
  open.epoch = insider.epoch_of(kTarget);
  open.a = 1;
  open.c = bytes;
  std::string payload;
  append(payload, chunk_bytes);
  append(payload, std::uint64_t{1});
  insider.say(open, payload);
}
inline void open_a_staged_write(Insider& insider, std::uint64_t bytes) { ask_for_a_staged_write(insider, bytes, 2048); }

// Rank 0 and, as soon as it has said "up", an insider of that body as rank 1, until that says `word`. False: one of them did not.
inline bool start_beside_insider(RankJob& job, const std::string& body, const std::string& word) {
  job.set_body(1, body);
  job.start(0);
  if (!job.hear(0, "up")) return false;
  job.start(1);
  return job.hear(1, word);
}

// Until `rank` is lost; why.
inline std::string why_lost(const Fabric& fabric, Rank rank) {
  for (const std::int64_t end_ns = now_ns() + 30'000'000'000; now_ns() < end_ns;) {
    for (const PeerState& peer : fabric.peers())
      if (peer.rank == rank && peer.is_broken) return peer.why;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return "nothing in 30 s";
}

}  // namespace gigabar::test
