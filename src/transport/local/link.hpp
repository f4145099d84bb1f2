// SPDX-License-Identifier: Apache-2.0
// A connection with a rank of this host: messages through shared memory, writes and reads by the CPU or a copy engine.
//
// Writes that are not finished when they are posted hold back the messages and words posted after them: the link keeps those and
// sends them from poll(), and arm() says no while copies are under way. The payload of a message of more than kCopiedPayloadBytes
// is shown to the sink where it lies, in memory that a peer that breaks the rules can still change: what is decided from it has to
// be read once.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "transport/local/device_copier.hpp"
#include "transport/local/link_memory.hpp"
#include "transport/local/region.hpp"
#include "transport/local/ring.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport::local {

inline constexpr std::size_t kCopiedPayloadBytes = 4096;
// The CPU copies so much per call, in less than about 100 us; the rest of a larger copy follows in later polls.
inline constexpr std::size_t kCpuSliceBytes = std::size_t{1} << 20;
inline constexpr std::uint64_t kMaxWriteBytes = std::uint64_t{256} << 20;
inline constexpr std::uint32_t kMaxPostedWrites = 256;

class LocalLink final : public Link {
 public:
  // `side`: 0 is the initiator, whose peer has still to answer.
  LocalLink(std::shared_ptr<Core> core, unsigned side, LinkMemory memory, Descriptor socket);
  // Waits for stop().
  ~LocalLink() override;

  std::uint64_t memory_bytes() const noexcept override { return sizeof *this + kLinkFileBytes / 2 + kept_bytes_; }
  Posted post_message(const Header& header, std::span<const std::byte> payload) override;
  Reach reach(Direction direction, const Region& local, const RemoteRegion& remote) const override;
  // By the CPU, where this process maps the peer's memory.
  Posted post_copied_write(std::span<const std::byte> bytes, const RemoteRegion& remote, std::uint64_t remote_offset,
                           bool is_word_next) override;
  // A store or an atomic add by the CPU behind the copies, then a count in the link's page, which the peer polls and arms by.
  std::string why_no_word(WordKind kind, const RemoteRegion& words) const override;
  Posted post_word(WordKind kind, const RemoteRegion& words, std::size_t index, std::uint32_t value) override;
  // Where this process maps the peer's memory; words: its pages, and while no copy is under way that they would have to wait for.
  bool open_for_stores(const RemoteRegion& remote) const override;
  bool can_store(const RemoteRegion& remote) const noexcept override;
  bool can_store_words(const RemoteRegion& words) const noexcept override;
  void store(std::span<const std::byte> bytes, const RemoteRegion& remote, std::uint64_t remote_offset) noexcept override;
  void store_word(WordKind kind, const RemoteRegion& words, std::size_t index, std::uint32_t value,
                  std::size_t writer) noexcept override;
  Result<void> complete(Parcel answer) override;
  // Copies by an engine end. After 10 s they are given up: what they use is then kept for ever.
  bool stop() override;

  // For the transport.
  bool poll(Sink& sink);
  bool arm();                                                                                  // false: something is pending
  void disarm() { memory_.page().sides[side_].sleeping.store(0, std::memory_order_relaxed); }  // after arm()
  void take_wake() noexcept { take_wakes(socket_); }

 private:
  // One posted write or read that is not finished.
  struct Ongoing {
    Direction direction = Direction::write;
    std::uint64_t write_number = 0;  // counted from 1; 0: a read
    std::uint64_t cookie = 0;
    DeviceCopier* copier = nullptr;  // by a copy engine
    CopyTicket ticket{};
    std::shared_ptr<void> hold = nullptr;
    const PeerRegion* remote = nullptr;  // by the CPU: what is left
    std::uint64_t remote_offset = 0;
    std::byte* local = nullptr;
    std::uint64_t bytes = 0;
  };
  struct Word {
    std::uint32_t* value = nullptr;
    std::uint32_t number = 0;
    WordKind kind = WordKind::set;
    std::shared_ptr<void> hold;
  };
  // A message, or a word.
  struct Kept {
    std::uint64_t after_write;  // goes once every write up to this one is finished
    Header header;
    std::vector<std::byte> payload;
    Word word;
  };

  Posted post_transfer(Direction direction, const Transfer& transfer) override;
  Posted post_by_cpu(Direction direction, const Transfer& transfer, const LocalRegion& local, const PeerRegion& remote);
  Posted post_by_engine(Direction direction, const Transfer& transfer, const LocalRegion& local, const PeerRegion& remote,
                        const Route& route);
  void add(Ongoing transfer);
  void finish(std::uint64_t cookie, Result<void> outcome) { dones_.push_back({cookie, std::move(outcome)}); }
  // What is over with its post.
  Posted finish_at_once(std::uint64_t cookie, Result<void> outcome) {
    finish(cookie, std::move(outcome));
    return Posted::ok;
  }
  bool is_held_back() const noexcept {
    return !kept_.empty() || (!transfers_.empty() && first_unfinished_write() <= writes_posted_);
  }
  Posted keep(const Header& header, std::span<const std::byte> payload, Word word);
  void write(WordKind kind, std::uint32_t* word, std::uint32_t value, std::size_t writer) noexcept;
  // By the peer.
  std::uint32_t words_written() const noexcept {
    std::uint32_t sum = 0;
    for (const WordControl& words : memory_.page().words[1 - side_]) sum += words.written.load(std::memory_order_acquire);
    return sum;
  }
  Posted produce(const Header& header, std::span<const std::byte> payload);
  void wake_peer(std::uint32_t what) noexcept;
  void take_wish(std::atomic<std::uint32_t>& wish, std::uint32_t what) noexcept;
  void fail(Error error);

  bool is_quiet() const noexcept;
  bool advance();
  bool advance_one(Ongoing& transfer);
  bool send_kept();
  bool tell_broken(Sink& sink);
  bool take_messages(Sink& sink);
  std::uint64_t first_unfinished_write() const noexcept;

  const std::shared_ptr<Core> core_;
  const unsigned side_;
  LinkMemory memory_;
  Descriptor socket_;
  Producer producer_;
  Consumer consumer_;
  bool has_told_ready_ = false;
  bool wants_room_ = false;       // a message was refused for want of room
  bool owes_room_ = false;        // messages were taken since the peer's wish for room was looked at
  std::optional<Error> failure_;  // until it is told
  std::int64_t failed_at_ns_ = 0;
  std::int64_t stopped_at_ns_ = 0;  // 0: it was not

  std::uint32_t seen_words_ = 0;     // of the peer, when poll() looked last
  std::uint64_t writes_posted_ = 0;  // that were not finished at once
  std::deque<Ongoing> transfers_;    // in the order in which they were posted
  std::deque<Kept> kept_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace gigabar::transport::local
