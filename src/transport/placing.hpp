// SPDX-License-Identifier: Apache-2.0
// What the transports share whose target's CPU places all bytes (tcp and ucx): keys, regions, what of this process their peers
// reach (host memory, and to write to GPU memory that the CPU has mapped), and what of a link does not depend on how bytes travel.
//
// Every access is looked up, so that taking a region or a key back needs no more than forgetting it.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gigabar/mapping.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport {

inline constexpr unsigned kMaxTransfers = 64;                            // writes and reads of a link under way
inline constexpr std::uint64_t kTransferBytes = std::uint64_t{1} << 30;  // of each
inline constexpr std::size_t kMaxLanes = 8;                              // threads of a transport that place data

// Never 0. Errors: unavailable (the kernel gave no random bytes).
Result<std::uint64_t> random_number();
// Of what a peer told, "the peer's region key" for example.
Error malformed(const char* what, const char* cause);

// --- Keys -----------------------------------------------------------------------------------------------------------------------

struct RegionKey {
  std::uint32_t region = 0;  // its number at its owner
  std::uint64_t guard = 0;   // random, of this region and this peer, to be repeated in each access
  std::uint64_t bytes = 0;
  bool is_mapped = false;  // a GPU's: to be written to, not to be read from
};
std::string encode(const RegionKey& key);
// Errors: bad_file.
Result<RegionKey> decode_region_key(std::string_view bytes);

// Why a peer ends a link.
enum class Farewell : std::uint32_t {
  closed = 0,       // it destroyed its link
  bad_access = 1,   // an access that it does not allow
  bad_message = 2,  // a message or frame that breaks the protocol
  own_failure = 3   // something failed there
};
std::string_view sentence_of(Farewell reason) noexcept;

// --- What peers reach ------------------------------------------------------------------------------------------------------------

struct Guard {
  Rank rank = 0;  // whose key it is of
  std::uint64_t number = 0;
};

// A place within a region of this process, as a peer names it, or (without a guard) as this process does.
struct Place {
  std::uint32_t region = 0;
  std::uint64_t offset = 0;
  std::optional<Guard> guard;
};

enum class Placed : std::uint8_t {
  ok,
  not_allowed,
  failed  // the GPU's memory could not be written to
};

// Registered memory, by number. The thread that has the transport changes it; lanes place data at the same time.
class Home {
 public:
  struct Entry {
    std::byte* address = nullptr;
    std::uint64_t bytes = 0;
    std::optional<Mapping> mapping;  // of a GPU's memory, which is only written to, through it
    std::unordered_map<Rank, std::uint64_t> guards;
  };

  // `transport`: its name, for errors; a constant.
  explicit Home(std::string_view transport) noexcept;
  std::string_view transport() const noexcept { return transport_; }
  // False in a forked child, which has none of the threads, no right to the connections, and a mutex that may be held for ever.
  bool is_of_this_process() const noexcept { return process_ == ::getpid(); }

  // --- For the thread that has the transport ---
  std::uint32_t add_region(Entry entry);
  // Afterwards no lane writes to it: waits for one that does, which is no longer than one piece takes to be copied.
  void remove_region(std::uint32_t number) noexcept;
  // The peer's guard of the region. Errors: as random_number().
  Result<std::uint64_t> guard_of(std::uint32_t number, Rank rank);
  // Afterwards nothing of the peer lands there with the guard that it has. Waits as remove_region().
  void forget_guard(std::uint32_t number, Rank rank) noexcept;

  // Whether all of `bytes` there may be written to.
  bool is_allowed(const Place& place, std::uint64_t bytes) const { return find(place, bytes) != nullptr; }
  // The memory there; null when any of it is not allowed, or is a GPU's.
  std::byte* memory(const Place& place, std::uint64_t bytes) const;
  Placed copy_to(const Place& place, std::span<const std::byte> data) const;

  // --- For lanes ---
  // That a lane uses what it has found: the count is odd meanwhile.
  struct alignas(64) Use {
    std::atomic<std::uint64_t> count{0};
    void lock() noexcept { count.fetch_add(1, std::memory_order_relaxed); }
    void unlock() noexcept { count.fetch_add(1, std::memory_order_release); }
  };
  // Host memory, which stays for as long as this.
  struct Held {
    bool is_allowed = false;
    std::byte* memory = nullptr;  // none: it is not allowed, or it is a GPU's, for copy_to()
    std::unique_lock<Use> use;
  };
  Held hold(unsigned lane, const Place& place, std::uint64_t bytes);
  Placed copy_to(unsigned lane, const Place& place, std::span<const std::byte> data);

 private:
  const Entry* find(const Place& place, std::uint64_t bytes) const;
  // For who has forgotten something under the mutex: afterwards no lane uses what it found before.
  void wait_for_lanes() const noexcept;

  const std::string_view transport_;
  const pid_t process_;
  mutable std::mutex mutex_;  // for changes, and for what lanes look up
  std::unordered_map<std::uint32_t, Entry> regions_;
  std::uint32_t next_region_ = 1;
  std::array<Use, kMaxLanes> uses_;
};

// --- Regions ---------------------------------------------------------------------------------------------------------------------

class PlacedRegion final : public Region {
 public:
  // Errors: invalid_argument (null, zero bytes), not_supported (GPU memory that cannot be mapped, with the mapping's reason).
  static Result<std::unique_ptr<Region>> make(std::shared_ptr<Home> home, const MemoryRange& range);
  ~PlacedRegion() override { home_->remove_region(number_); }

  Result<Parcel> key(const Peer& peer) const override;
  void take_back_key(Rank rank) noexcept override { home_->forget_guard(number_, rank); }

  // As this process names it.
  Place at(std::uint64_t offset) const noexcept { return {number_, offset, {}}; }
  // A GPU's: peers write to it, and nothing is read from it.
  bool is_mapped() const noexcept { return is_mapped_; }

 private:
  PlacedRegion(std::shared_ptr<Home> home, const MemoryRange& range, std::optional<Mapping> mapping);

  std::shared_ptr<Home> home_;
  bool is_mapped_;
  std::uint32_t number_ = 0;
};

class PlacedRemoteRegion final : public RemoteRegion {
 public:
  explicit PlacedRemoteRegion(const RegionKey& key) : key_(key) {}
  std::size_t bytes() const noexcept override { return key_.bytes; }
  const RegionKey& key() const noexcept { return key_; }

 private:
  RegionKey key_;
};

// --- Links and transports -------------------------------------------------------------------------------------------------------

// What a message counts that waits: its bytes and the record that keeps them.
constexpr std::uint64_t units_of(std::size_t payload_bytes) { return payload_bytes + 256; }

class PlacedLink;

class PlacedTransport : public Transport {
 public:
  Result<std::unique_ptr<Region>> register_memory(const MemoryRange& range) final { return PlacedRegion::make(home_, range); }
  Result<std::unique_ptr<RemoteRegion>> open_region(const Peer& peer, Parcel key) final;
  std::string why_no_words() const final;

  // --- For the links ---
  const std::shared_ptr<Home>& home() const noexcept { return home_; }
  bool is_of_this_process() const noexcept { return home_->is_of_this_process(); }
  std::int64_t connect_deadline_ns() const noexcept { return connect_deadline_ns_; }
  // The link has something to tell or to do: its attend() is called in the next poll().
  void attend_to(PlacedLink& link) noexcept;

 protected:
  // `name`: a constant.
  PlacedTransport(TransportKind kind, std::string_view name, std::vector<std::string> rails = {})
      : Transport(kind, std::move(rails)), home_(std::make_shared<Home>(name)) {}
  bool attend(Sink& sink);

  const std::shared_ptr<Home> home_;
  std::int64_t connect_deadline_ns_ = 0;
  std::vector<PlacedLink*> attended_;  // who adds a link reserves its place
};

// `local` and `remote` are of the two classes above.
class PlacedLink : public Link {
 public:
  Posted post_message(const Header& header, std::span<const std::byte> payload) final;
  Reach reach(Direction direction, const Region& local, const RemoteRegion& remote) const final;
  std::string why_no_word(WordKind, const RemoteRegion&) const final { return hub_.why_no_words(); }
  Posted post_word(WordKind, const RemoteRegion&, std::size_t, std::uint32_t) final { return Posted::full; }

  // --- For the transport ---
  // What is to be told or done without an event. True when something happened.
  virtual bool attend(Sink& sink) = 0;
  // Breaks the link because of what the peer sent.
  void refuse(std::string_view why, Farewell reason = Farewell::bad_message);

 protected:
  // Of the peer's memory into ours.
  struct Read {
    std::uint64_t cookie = 0;
    Place to;
    std::uint64_t bytes = 0;
    std::uint64_t missing_bytes = 0;
  };

  // `rail`: what it is called until it is known.
  PlacedLink(PlacedTransport& transport, Rank rank, std::size_t payload_bytes, std::string_view rail);

  // Posts that the link's state and the limits allow. begin() counts in transfers_, once the transfer is sure to end.
  virtual bool can_post() const noexcept { return state_ == LinkState::ready; }
  virtual Posted send_message(const Header& header, std::span<const std::byte> payload) = 0;
  virtual void begin(Direction direction, const Place& here, const RegionKey& there, const Transfer& transfer) = 0;
  // Of the peer's answers.
  std::uint32_t add_read(const Place& to, const Transfer& transfer);
  // What a write or an answer is sent from. Null: it was taken back, and the link broke.
  const std::byte* memory_to_send(const Place& from, std::uint64_t bytes, bool is_answer);
  // Whether the peer may have that, and has `waiting_count` answers before it; else it is refused.
  bool may_read(const Place& from, std::uint64_t bytes, std::size_t waiting_count);

  // What is told in attend().
  void become_ready();
  void finish(std::uint64_t cookie, Result<void> outcome);
  bool tell_ready(Sink& sink);
  // Everything that was posted ends before the link does: writes are given up before.
  void give_up(std::uint64_t cookie) { finish(cookie, about_this(*error_)); }
  void tell_end(Sink& sink);

  void fail(Error error, std::optional<Farewell> farewell = {}) noexcept;
  // `farewell`: what the peer is to hear. The link is not broken yet.
  virtual void begin_to_break(std::optional<Farewell> farewell) noexcept = 0;
  void lost(std::string cause, std::string remedy = {}, NativeCode native = {});
  void refuse_write();
  // The memory of a "write" or "read" went during it.
  void fail_as_taken_back(const char* operation);
  void fail_to_place();
  void fail_to_connect(const char* cause, const char* remedy);
  std::string object() const { return text("rank ", rank_, " over ", rail_); }
  Error about_this(const Error& error) const;

  PlacedTransport& hub_;
  const Rank rank_;
  const std::int64_t connect_until_ns_;
  bool is_ready_told_ = false;  // to the sink, which hears that before any message
  std::map<std::uint32_t, Read> reads_;
  unsigned transfers_ = 0;      // writes and reads that have not ended
  std::optional<Error> error_;  // why it broke, until it is told

 private:
  Posted post_transfer(Direction direction, const Transfer& transfer) final;

  std::uint32_t next_read_ = 1;
  bool is_ready_due_ = false;  // to be told
};

}  // namespace gigabar::transport
