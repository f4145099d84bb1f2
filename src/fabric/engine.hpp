// SPDX-License-Identifier: Apache-2.0
// The engine behind Fabric: one lock, one state, moved on by whoever waits, and by a thread of its own while nobody does. Small
// writes to memory of the same host need only the lock of their queue: queue.hpp.
//
// An operation is posted to its peer's list of pending ones, which start in order. Bytes go by one of the methods of state.hpp;
// what must come after them (notifications, the end of a read or a message, the answer to a flush) goes down the first rail behind
// the data: the link's order, a fence over the other rails, and at the target the number of the last staged write keep it there.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/descriptor.hpp"
#include "base/fair_mutex.hpp"
#include "base/in_place.hpp"
#include "base/uncancelled.hpp"
#include "base/undo.hpp"
#include "fabric/id_table.hpp"
#include "fabric/job/job.hpp"
#include "fabric/placement.hpp"
#include "fabric/settings.hpp"
#include "fabric/state.hpp"
#include "fabric/waiting.hpp"
#include "fabric/wireup/wireup.hpp"
#include "fabric/word_readers.hpp"
#include "gigabar/fabric.hpp"
#include "memory/runtime.hpp"

namespace gigabar::fabric {

class Engine final : transport::Sink, WireupEvents, InPlace {
 public:
  static Result<std::unique_ptr<Engine>> open(const FabricOptions& options);
  ~Engine();

  using Lock = std::unique_lock<FairMutex>;
  Lock lock() { return Lock(mutex_); }
  bool belongs_to_this_process() const noexcept { return generation_ == gigabar::detail::process_generation(); }

  bool is_open() const noexcept { return is_open_.load(std::memory_order_relaxed); }

  // All of the following under the lock, unless it says otherwise.
  const Job& job() const noexcept { return job_; }
  int device() const noexcept { return device_; }
  const Settings& settings() const noexcept { return settings_; }
  const Placement& placement() const noexcept { return placement_; }
  const Limits& limits(const Peer& peer) const noexcept {
    const TransportKind kind = peer.transport != nullptr ? peer.transport->kind() : TransportKind::local;
    return settings_.limits(kind, peer.identity.is_same_host);
  }
  FabricStatistics statistics() const;
  std::vector<PeerState> peers() const;

  // Moves everything on until `is_done()` is true; false when the time is over first. Gives the lock away now and then.
  template <class IsDone>
  bool progress_until(Lock& lock, const Timeout& timeout, IsDone&& is_done) {
    if (is_done()) return true;
    Waiter waiter(*this, timeout);
    do {
      progress();
      if (is_done()) return true;
    } while (waiter.progress(lock));
    progress();
    return is_done();
  }
  // Ends connections where there is no memory to go on with them. Throws std::bad_alloc while there is none even for that.
  bool progress();
  // The program polls, not the engine's thread.
  void take_over_polling() noexcept;
  // As WordReaders says: the first and the last without the lock.
  template <class Look>
  Lock look_or_lock(SegmentId segment, const Timeout& timeout, const Look& look) {
    return word_readers_.look_or_lock(segment, timeout, mutex_, pollers_, look);
  }
  Result<LocalSegment*> open_reader(SegmentId id) {
    auto found = local_segment(id);
    if (found && has_plain_words_) word_readers_.open(id, *(*found)->notifications);
    return found;
  }
  template <class Look>
  bool look_at_words(SegmentId segment, const Look& look) noexcept {
    return word_readers_.look(segment, look).value_or(false);
  }
  // Behind a word that was seen: see Transport::flush_gpu_writes().
  Result<void> flush_gpu_writes();

  // As progress_until(), for what any rank may do. Errors: those of error_when_alone(), when no rank is left that could.
  template <class IsDone>
  Result<bool> progress_unless_alone(Lock& lock, const Timeout& timeout, const char* operation, const char* what,
                                     IsDone&& is_done) {
    if (is_done()) return true;
    Watch watch(lost_count_, silence_of_others(timeout));
    std::optional<Error> alone;
    const bool is_over = progress_until(lock, timeout, [&] {
      if (is_done()) return true;
      if (watch.is_due()) alone = error_when_alone(operation, what, watch.may_connect());
      return alone.has_value();
    });
    if (is_over) silence_ = {};
    if (alone) return std::move(*alone);
    return is_over;
  }

  // The same of a thread of the program that waits for words.
  template <class IsDone>
  Result<bool> wait_for_words(Lock& lock, const Timeout& timeout, const char* operation, IsDone&& is_done) {
    ++word_waits_;
    const Undo waited([this] { --word_waits_; });
    return progress_unless_alone(lock, timeout, operation, "raise it", is_done);
  }

  // peers.cpp
  Result<Peer*> find_peer(Rank rank);
  // A peer whose links stand. Errors: peer_lost, timed_out, unavailable.
  Result<Peer*> ready_peer(Lock& lock, Rank rank, const Timeout& timeout);
  // False: it is lost. `connects`: one that has no connection yet, and has left its address, is connected to: that shows whether
  // it is still there.
  bool can_still_speak(Rank rank, bool connects);
  // The error of a wait for anybody when every other rank is lost; nothing as long as one can still speak, and where this rank
  // speaks to itself.
  std::optional<Error> error_when_alone(const char* operation, const char* what, bool connects);
  Result<void> forget(Lock& lock, Rank rank);
  Timeout connect_timeout() const noexcept { return Timeout::of(std::chrono::nanoseconds(settings_.connect_timeout_ns)); }
  void farewell();

  // segments.cpp
  Result<void> register_segment(SegmentId id, void* address, std::size_t bytes);
  Result<LocalSegment*> local_segment(SegmentId id);
  // The program's; null: there is none.
  LocalSegment* find_segment(SegmentId id) noexcept {
    return recent_segment_ != nullptr && recent_segment_->id == id ? recent_segment_ : search_segment(id);
  }
  Result<RemoteState*> remote_segment(Lock& lock, Peer& peer, SegmentId id, const Timeout& timeout);
  Result<void*> map_segment(Lock& lock, const MappedPlace& place, const Timeout& timeout);
  Result<void> unmap_segment(const MappedPlace& place);
  Result<std::string> why_no_atomics(const MappedPlace& place) const;
  bool has_mapped_segments() const noexcept { return !mapped_segments_.empty(); }
  Result<void> quiesce(Lock& lock, SegmentId id, const Timeout& timeout);
  Result<void> enable(SegmentId id);
  Result<void> deregister(Lock& lock, SegmentId id, const Timeout& timeout);

  // choose.cpp. Among the decisions of `remote`, until further ones are made for it.
  Result<const RemoteState::Decision*> choose(Peer& peer, transport::Direction direction, const LocalSegment& local,
                                              RemoteState& remote, std::uint64_t bytes, const PathPolicy& policy,
                                              bool needs_message = true);

  // operations.cpp
  struct Transfer {
    OpKind kind = OpKind::write;
    LocalPlace local;
    RemotePlace remote;
    std::uint64_t bytes = 0;
    std::uint8_t flags = 0;
    NotificationId notification = 0;
    std::uint32_t value = 0;
    const void* ordered_bytes = nullptr;  // place: in memory of the program's, copied by post()
    bool is_between_segments() const noexcept { return kind != OpKind::notify && kind != OpKind::place; }
  };
  Result<Operation> post(Lock& lock, const Transfer& transfer, const PostOptions& options);
  Result<Operation> post_list(Lock& lock, OpKind kind, Rank rank, std::span<const ListPiece> pieces, const PostOptions& options,
                              std::optional<Transfer> notification);
  Result<void> wait(Lock& lock, QueueId queue, const Timeout& timeout);
  Result<void> flush(Lock& lock, Rank rank, const Timeout& timeout);
  Result<OperationReport> report(Operation operation) const;
  Result<Explanation> explain(Lock& lock, const Transfer& transfer, const Timeout& timeout, const PostOptions& options);
  // One thread at a time is at a queue. Waits for the others, at most for `left`, from which it takes the time it has waited;
  // false: that was too short. A call that never gives the lock away finds no other thread there, and nobody waits for it.
  bool enter_queue(Lock& lock, QueueId queue, Timeout& left) noexcept {
    Queue& entered = queues_[queue];
    return (!entered.waiting.is_overdue() && entered.try_enter()) || wait_to_enter(lock, entered, left);
  }
  void leave_queue(QueueId queue) noexcept { queues_[queue].leave(); }

  // stores.cpp, without the engine's lock
  std::optional<Operation> post_stores(const Transfer& transfer, const PostOptions& options) noexcept;
  bool wait_at_once(QueueId waited) noexcept;

  // incoming.cpp
  Result<std::uint64_t> atomic(Lock& lock, AtomicKind kind, RemotePlace remote, std::uint64_t value, std::uint64_t expected,
                               const Timeout& timeout);

  // messages.cpp
  Result<Operation> post_send(Lock& lock, Rank to, Tag tag, const void* source, std::uint64_t bytes, const PostOptions& options);
  Result<Operation> post_recv(Rank from, Tag tag, Tag mask, void* destination, std::uint64_t bytes, const PostOptions& options);
  void end_if_in_vain(Op& op, bool connects);
  bool wait_for(Lock& lock, Op& op, const Timeout& timeout);  // false: it is not over
  Result<Received> wait_message(Lock& lock, Operation operation, const Timeout& timeout);
  Result<void> cancel_recv(Operation operation);
  // Behind a wait_message() that ended with `why`. The operation is over when this returns, and the buffer the caller's: `why`
  // when the message was taken back, else what became of it. The connection is cut when its bytes are under way for a second more.
  Result<Received> leave_message(Lock& lock, Operation operation, const Timeout& timeout, Error why);

  // collectives.cpp
  Result<void> collect(Lock& lock, const Group& asked, CollectiveContext context, Collective::Kind kind, ReduceOperation operation,
                       std::string& values, const Timeout& timeout);

 private:
  // How a waiting thread waits: it polls for a while, then lets others run, then sleeps until something happens. Most waits are
  // over before they need to know the time.
  class Waiter : InPlace {
   public:
    Waiter(Engine& engine, const Timeout& timeout) noexcept;
    ~Waiter();
    bool progress(Lock& lock);

   private:
    bool is_in_crowd() const noexcept;
    bool is_to_yield(std::int64_t waited_ns) noexcept;
    const Uncancelled uncancelled_;
    Engine& engine_;
    std::int64_t timeout_ns_;
    std::int64_t deadline_ns_ = 0;
    std::int64_t last_change_ns_ = 0;
    std::uint64_t seen_changes_;  // when the time was looked at
    std::int64_t switches_ = -1;  // of this thread, when it had yielded for kYieldNs; -1: it has not
    std::uint32_t seen_waits_ = 0;
    bool has_slept_ = false;
    unsigned turns_ = 0;  // since the time was looked at
  };
  friend class Insider;  // tests/fault: a rank that holds the key and breaks the protocol

  // Of a wait for any rank. A look that does not wait has none: a program that looks now and then, and never waits, would otherwise
  // connect to a rank that it has nothing to do with.
  Silence* silence_of_others(const Timeout& timeout) noexcept { return timeout.ns() == 0 ? nullptr : &silence_; }

  Engine() = default;
  // open.cpp
  Result<void> choose_device();
  Result<void> open_transports();
  void choose_cpus(const transport::Transport* verbs);
  void take_tuned_limits();
  Result<void> start(const FabricOptions& options);
  std::string make_rank_address() const;

  // waiting.cpp
  static bool wait_to_enter(Lock& lock, Queue& queue, Timeout& left) noexcept;
  bool progress_once();
  bool poll_channels();
  void poll_between_posts();
  void ask_before_sleep();
  bool arm_all();
  void sleep_on_descriptors(Lock& lock, std::int64_t deadline_ns);
  void wake_sleeper() noexcept;
  void stop_sleeping() noexcept;
  bool is_polled_by_others(std::uint32_t& seen_waits) const noexcept;
  void run_thread();
  void poll_or_sleep();
  void nap(int milliseconds);
  void sleep(Lock& lock, std::int64_t deadline_ns, std::uint32_t& seen_waits);

  // Sink
  void ready(transport::Link& link) override;
  void message(transport::Link& link, const transport::Header& header, std::span<const std::byte> payload) override;
  void done(transport::Link& link, std::uint64_t cookie, const Result<void>& outcome) override;
  void broken(transport::Link& link, const Error& error) override;
  // WireupEvents
  void connected(Rank rank, bool is_same_host, std::int64_t process) override;
  void frame(Rank rank, Frame frame) override;
  void lost(Rank rank, const Error& error) override;

  // peers.cpp
  // Null: the link is dropped, and what it still tells concerns nobody.
  static Peer* owner_of(const transport::Link& link) noexcept { return static_cast<Peer*>(link.owner); }
  void begin_to_connect(Peer& peer);
  void progress_connecting(Peer& peer);
  void connect_to_self(Peer& peer);
  Result<void> link_to_self(Peer& peer, transport::Transport& transport);
  void take_frame(Peer& peer, Frame& frame);
  void on_hello(Peer& peer, const Frame& frame);
  Result<void> offer_rails(Peer& peer);
  void offer_links(Peer& peer);
  void next_candidate(Peer& peer, const std::string& reason);
  void on_link_offer(Peer& peer, Frame& frame);
  void on_link_answer(Peer& peer, Frame& frame);
  void become_ready(Peer& peer);
  void retire(Peer& peer, const Error& said);  // not from inside a transport's poll
  void retire_ill();
  void fail(Peer& peer, Error error);  // from anywhere: lost at the end of progress()
  // Of what the peer does, or does not do: it is lost for that, as fail() says.
  void accuse(Peer& peer, std::string cause, const char* operation = "fabric");
  // From anywhere: something that the peer sent, or is to be sent, could not be kept, so that its connection is worth nothing any
  // more. It is lost at the end of progress(), or of the first one for which there is memory.
  void starve(Peer& peer) noexcept { peer.is_starved = has_starved_ = true; }
  void starve_all() noexcept;
  static void add_rail(Peer& peer, std::unique_ptr<transport::Link> link, std::uint32_t number);
  void cut_off(Peer& peer);
  void drop_links(Peer& peer);
  void end_retired_links();
  // The part of that transport; of none: why some are not open.
  static std::string_view part_of_address(std::string_view rank_address, std::optional<TransportKind> wanted);
  Error error_without_transport(const Peer& peer, std::string_view tried) const;
  // To this rank itself at once. A failure is the peer's too.
  Result<void> send_frame(Peer& peer, FrameType type, std::string body, std::vector<Descriptor> descriptors = {});

  // segments.cpp
  Result<std::unique_ptr<LocalSegment>> make_segment(void* address, std::size_t bytes, SharedPages pages = {});
  LocalSegment* segment_by_id(Peer& peer, SegmentId id);
  // The segment of a message's buffer: a registered one that holds it, else an anonymous one, which may be new. The operation fails
  // where there is none.
  void use_buffer(Op& op);
  LocalSegment* covering_segment(const void* address, std::uint64_t bytes, std::uint64_t& offset);
  void release(LocalSegment* segment);
  void retire(LocalSegment& segment);
  void revoke(LocalSegment& segment);
  void forget_knower(SegmentId id, Rank rank);
  void drop_if_retired(const LocalSegment& segment);
  void erase_segment(SegmentId id);
  LocalSegment* search_segment(SegmentId id) noexcept;
  // Counts no user of the segment.
  Result<void> make_mapping(MappedSegment& mapped, const MappedPlace& place) const;
  Result<void> map_own(MappedSegment& mapped, MappedFor who, const std::string& name) const;
  RemoteState& ask_segment(Peer& peer, SegmentId id);
  std::vector<Descriptor> describe_segment(const Peer& peer, const LocalSegment& segment, ByteWriter& writer);
  // `lacks_descriptors`: there were some, for which this process had no room.
  bool learn_segment(Peer& peer, RemoteState& remote, ByteReader& reader, std::vector<Descriptor> descriptors,
                     bool lacks_descriptors = false);
  void learn_buffer(Peer& peer, SegmentId id, std::string_view description);
  void on_segment_ask(Peer& peer, const Frame& frame);
  void on_segment_key(Peer& peer, Frame& frame);
  void on_segment_absent(Peer& peer, const Frame& frame);
  void on_segment_revoke(Peer& peer, const Frame& frame);
  void release(Peer& peer, RemoteState* remote);
  enum class Whose : std::uint8_t { of_peer, of_both };
  bool has_under_way_on(const Peer& peer, const LocalSegment& segment, Whose whose) const;

  Result<const Choice*> decide(Peer& peer, transport::Direction direction, const LocalSegment& local, const RemoteState& remote,
                               std::uint64_t bytes, std::uint64_t eager_bytes, const PathPolicy& policy, bool needs_message);
  TransferPath path_of_answer(const Peer& peer, const LocalSegment& local, const RemoteState& remote, std::uint64_t bytes,
                              std::uint64_t eager_bytes, const PathPolicy& policy) const;
  const Choice* keep(Choice choice);
  std::vector<Explanation::Alternative> considered_;  // by the last decision

  // operations.cpp
  Op& make_op(OpKind kind, QueueId queue, Peer* peer, bool is_internal);
  Result<void> check_transfer(const Transfer& transfer, LocalSegment*& local);
  // How far the notification of an operation has come.
  struct Notifying {
    bool is_word = false;          // it can be one
    const char* way = nullptr;     // for reports
    bool is_data_written = false;  // but what comes behind it is not posted
    bool could_be_word = false;    // if nothing before it had taken a message
  };
  std::optional<Operation> post_at_once(Peer& peer, const Transfer& transfer, QueueId queue, const LocalSegment* local,
                                        const RemoteState& remote, const Choice* choice, std::uint64_t begin_cycles,
                                        Notifying& notifying);
  Operation record_at_once(const Peer& peer, const Choice* choice, std::uint64_t bytes, std::uint64_t begin_cycles);
  Result<std::span<const std::byte>> plain_bytes(const LocalMemory& memory, std::uint64_t offset, std::uint64_t bytes);
  void submit(Op& op) noexcept;
  void list_busy(Peer& peer);
  void advance(Peer& peer);
  bool start_op(Op& op);  // true: nothing of it is left to post
  bool post_tail(Op& op);
  bool resolve(Op& op);  // false: the segment's key is not here yet
  bool post_message_op(Op& op);
  bool post_direct(Op& op);
  bool post_get(Op& op);
  bool post_after_data(Peer& peer, Message message, std::span<const std::byte> payload);
  bool say_first(Peer& peer, const Message& message, std::span<const std::byte> payload);
  void say(Peer& peer, const Message& message, std::span<const std::byte> payload = {}) noexcept;
  bool flush_outbox(Peer& peer);
  bool seal(Peer& peer);
  // Whether a notification can be a word now: one rail carries the data, and nothing before it is the peer's engine's to carry out.
  // `way` becomes the sentence for reports.
  bool is_by_word(Peer& peer, RemoteState& remote, std::uint8_t flags, NotificationId id, const char*& way);
  void find_way(const Peer& peer, RemoteState& remote, transport::WordKind kind);
  bool post_word(Peer& peer, const RemoteState& remote, std::uint8_t flags, NotificationId id, std::uint32_t value);
  void wake(Peer& peer);
  void ask_placed(Peer& peer);
  void ask_for_words(Peer& peer, const RemoteState& remote, std::uint8_t flags);
  // Whether the peer may have to hold so much that nothing more of the program's is said until it has told.
  bool is_too_far_ahead(Peer& peer);
  void end_if_over(Op& op);
  void end(Op& op);
  void give_back(Op& op) noexcept;
  Result<Record> record_of(std::uint64_t id) const;

  // stores.cpp
  void open_target(QueueId id, const Transfer& transfer, Peer& peer, const RemoteState& remote, const LocalSegment* local,
                   const Choice* choice) noexcept;
  // See queue.hpp. Before anything changes that stores to the peer rest on.
  void close_targets(Peer& peer) noexcept {
    if (peer.target_queues != 0) close_targets_of(peer);
  }
  void close_targets_of(Peer& peer) noexcept;
  void close_targets_from(const LocalSegment& segment) noexcept;

  // staged.cpp
  Result<void> make_staging(Peer& peer, std::unique_ptr<LocalSegment>& staging);
  bool post_staged(Op& op);
  bool say_opened(Op& op, std::uint64_t chunk_bytes);
  bool fill_slots(Op& op);
  void on_stage_open(Peer& peer, const Message& message, std::span<const std::byte> payload);
  void on_stage_grant(Peer& peer, const Message& message);
  void on_stage_chunk(Peer& peer, const Message& message);
  void on_stage_end(Peer& peer, const Message& message);
  void on_stage_abort(Peer& peer, const Message& message, std::span<const std::byte> payload);
  void grant(Peer& peer);
  bool poll_copies();
  bool has_copies_under_way() const;
  bool is_staging_settled(const Peer& peer) const;
  void out_copy_done(Op& op, OutSlot& slot);
  void in_chunk_placed(Peer& peer, const InCopy& copy);
  Result<StagingCopy> copy_staged(const LocalMemory& memory, bool is_out, void* destination, const void* source, std::size_t bytes);

  // incoming.cpp
  void handle(Peer& peer, const Message& message, std::span<const std::byte> payload);
  void release_held(Peer& peer);
  // Keeps the message on `list`, or gives the peer up.
  void hold(Peer& peer, std::deque<HeldMessage>& list, const Message& message, std::span<const std::byte> payload);
  void overrun(Peer& peer, const char* what);
  void on_put(Peer& peer, const Message& message, std::span<const std::byte> payload);
  void on_notify(Peer& peer, const Message& message);
  void pass_fences(Peer& peer);
  void on_get(Peer& peer, const Message& message, std::span<const std::byte> payload);
  void on_bytes_done(Peer& peer, const Message& message);
  Result<std::uint64_t> ask_for_atomic(Lock& lock, const AtomicRequest& asked, const Timeout& timeout);
  void on_atomic(Peer& peer, const Message& message, std::span<const std::byte> payload);
  void on_pong(Peer& peer, const Message& message);
  void on_revoked(const Peer& peer, const Message& message);
  void on_refused(Peer& peer, const Message& message);
  void refuse(Peer& peer, const Message& message, Status status);

  // messages.cpp
  void on_eager(Peer& peer, const Message& message, std::span<const std::byte> payload);
  void on_rendezvous_request(Peer& peer, const Message& message);
  void on_rendezvous_reply(Peer& peer, const Message& message, std::span<const std::byte> payload);
  void on_rendezvous_cancelled(Peer& peer, const Message& message);
  bool take_back(Op& op);
  Op* find_receive(const Peer& peer, Tag tag);
  void match(Op& receive, Peer& peer, Tag tag, std::uint64_t bytes) noexcept;
  void deliver(Op& receive, Peer& peer, Tag tag, std::span<const std::byte> data);
  std::string description_of_buffer(const Peer& peer, LocalSegment& segment);
  void reply_to_request(Op& receive, Peer& peer, Tag tag, std::uint64_t bytes, std::uint64_t request);
  bool has_most_messages() const noexcept { return ops_.size() + sent_.size() >= kMaxMessages; }
  Result<bool> say_eager(Peer& peer, Tag tag, const void* source, const LocalMemory* memory, std::uint64_t offset,
                         std::uint64_t bytes);
  bool post_eager(Op& op);
  const Choice* eager_choice(TransportKind kind, bool is_device);
  void took_eager(Peer& peer, std::uint64_t bytes);

  // collectives.cpp
  void on_collective(Peer& peer, const Message& message, std::span<const std::byte> payload);

  alignas(128) FairMutex mutex_;
  alignas(128) std::atomic<bool> is_open_{false};  // written under the lock; what follows it stays as it is once it is open
  std::uint32_t generation_ = 0;
  Job job_;
  Settings settings_;
  std::string why_no_transport_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Wireup> wireup_;
  std::string rank_address_;
  int device_ = -1;
  std::optional<Neighbour> gpu_;  // that this rank works with; no stand-in
  Placement placement_;

  std::map<Rank, std::unique_ptr<Peer>> peers_;
  Peer* recent_peer_ = nullptr;  // of them; found again without a search
  std::uint32_t last_link_number_ = 0;
  std::vector<std::pair<Peer*, Error>> failures_;
  bool has_starved_ = false, has_half_lost_ = false;                                     // one of the peers
  std::vector<std::pair<std::unique_ptr<transport::Link>, const Peer*>> retired_links_;  // and whose they were
  std::vector<Rank> unwanted_;  // whose channels go as soon as the channels are not being polled
  std::vector<Peer*> connecting_;
  std::vector<Peer*> busy_;  // with pending operations or words

  std::map<MappedPlace, MappedSegment> mapped_segments_;
  WordPages word_pages_;
  WordReaders word_readers_;
  bool has_plain_words_ = false;  // no adapter counts in them, and what came before them needs no flush
  std::map<SegmentId, std::unique_ptr<LocalSegment>> segments_;
  LocalSegment* recent_segment_ = nullptr;  // of the program's; found again without a search
  std::uint16_t last_epoch_ = 0;
  SegmentId next_anonymous_ = kFirstAnonymous;
  std::list<SegmentId> idle_anonymous_;  // of device memory, kept for the next message; oldest first

  std::array<Queue, kQueues> queues_;
  std::deque<Op> op_store_;
  std::vector<Op*> free_ops_;
  // Messages that are not waited for yet: those under way, and those that went straight into a link and need no operation.
  IdTable<Op*> ops_;
  IdTable<Received> sent_;  // the rank: to which
  std::uint64_t last_op_ = 0;
  std::vector<Record> records_;  // kRecords, by the last bits of their ids
  std::set<Choice> choices_;
  std::map<std::pair<const Choice*, TransferPath>, const Choice*> answered_;   // of reads, by the path that the peer took
  std::set<std::string> ways_;                                                 // of notifications
  std::array<std::array<const Choice*, 2>, kTransportKinds> eager_choices_{};  // by transport and whether the source is a device's

  RecentMemory recent_memory_;
  std::list<Op*> receives_, spare_receives_;  // that are not matched; and nodes that are kept for the next ones
  std::list<Unexpected> unexpected_;

  std::map<std::pair<int, bool>, std::unique_ptr<CopyStream>> copy_streams_;  // by device and whether outgoing
  std::vector<Op*> staging_ops_;
  std::deque<InCopy> in_copies_;

  std::map<std::uint64_t, AtomicAnswer> atomics_;  // by the number of the request
  std::uint64_t last_request_ = 0;
  std::uint64_t lost_count_ = 0;  // peers that were lost; counts up
  Silence silence_;               // in waits for any rank, since the last one that did not end by its time-out
  std::map<std::pair<Group, CollectiveContext>, Collective> collectives_;
  class CollectiveCall;
  using CollectiveParts = std::map<CollectivePart, std::string>;
  CollectiveParts collective_parts_;
  // Erases them, which makes room for others of the same ranks.
  void drop_parts(CollectiveParts::iterator first, CollectiveParts::iterator last) noexcept;
  // Those that failed, by group and sequence, and what their members are told.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> failed_collectives_;

  // who moves things on
  std::thread thread_;
  Descriptor epoll_;
  Descriptor wake_;  // an event: ends the sleep on epoll_
  Descriptor call_;  // an event: ends the nap of thread_
  std::atomic<bool> is_stopping_{false};
  // Of the program's threads, for the engine's own, which leaves the polling to them. Written under the lock; threads without it
  // read pollers_.
  alignas(128) std::atomic<std::uint32_t> waits_{0};  // that began, and polls between posts
  std::atomic<std::uint32_t> pollers_{0};             // waiting now, and not asleep
  std::atomic<bool> has_sleeper_{false};              // on epoll_: all is armed
  alignas(128) bool is_woken_ = false;                // the sleeper was told
  std::atomic<bool> is_napping_{false};               // thread_
  Patience patience_;
  std::condition_variable_any changed_;  // for waiters that leave the descriptors to others
  unsigned sleeper_count_ = 0;
  unsigned word_waits_ = 0;
  std::uint64_t changes_ = 0;  // counts what happened, for waiters
  std::uint64_t told_changes_ = 0;
  unsigned polls_ = 0;
  std::int64_t polled_between_posts_ns_ = 0;
  std::uint64_t cycles_per_look_ = 0;  // for as long a queue's posts are stores without a look at anything else; 0: not known yet
  std::vector<std::byte> bounce_;      // one message's bytes on their way from memory that the CPU does not reach plainly
  CycleMoment opened_at_;
  FabricStatistics statistics_;
};

}  // namespace gigabar::fabric
