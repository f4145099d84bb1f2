// SPDX-License-Identifier: Apache-2.0
// One reliable connection of a rail with a peer's, from the first packet of rdma_cm to the last completion.
//
// Messages are SENDs into receives that the peer keeps posted, counted by credits; writes and reads are RDMA WRITE and READ, cut
// into pieces. Words are a WRITE, or an atomic FETCH AND ADD, of the same queue pair. InfiniBand and RoCE promise that who sees an
// ATOMIC sees the WRITEs before it. They do not promise it of a later WRITE, which a network with adaptive routing may place first.
// Where WRITEs may be under way, a READ goes behind them, and the word behind the READ with a fence: the adapter sends it when the
// READ is answered, which is after the peer's adapter has carried out the WRITEs. A peer's adapter that is soft-RoCE needs
// neither. Between two of them they would do harm: the one that asks forgets at times to ask again for an answer that was lost
// (Linux 6.1, one loss in ten packets), and behind a fence nothing follows that would remind it. No memory is registered with
// relaxed ordering. iWARP has no words: only the delivery of a SEND says that what came before it is placed (RFC 5040, RFC 5041).
// No immediate data and no reliance on receiver-not-ready: iWARP has neither.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.hpp"
#include "transport/verbs/device.hpp"
#include "transport/verbs/ledger.hpp"
#include "transport/verbs/region.hpp"
#include "transport/verbs/wire.hpp"

namespace gigabar::transport::rdma {

class VerbsTransport;
class VerbsLink;

inline constexpr std::string_view kNoWordsOfIwarp =
    "iWARP may place a later write first; only the delivery of a message says that what was before it is placed (RFC 5040, 5041)";

inline constexpr std::string_view kNoWordsOfThisKernel =
    "an adapter is soft-RoCE, and this kernel's memcpy() may store the bytes of a word one by one, or twice";

inline constexpr std::size_t kPayloadBytes = 4096;
// A receive or send slot; 36 send slots and 68 receives make 433 KB per link. A message lies at its end, so that the payload begins
// at a cache line, which makes copies faster.
inline constexpr std::size_t kMessageBytes = kMessageHeaderBytes + kHeaderBytes + kPayloadBytes;
inline constexpr std::size_t kSlotBytes = (kMessageBytes + 63) / 64 * 64;
inline constexpr std::size_t kSlotPadding = kSlotBytes - kMessageBytes;
static_assert((kSlotPadding + kMessageHeaderBytes + kHeaderBytes) % 64 == 0 && kPayloadBytes <= 65535);
inline constexpr unsigned kAllSlots = kSendSlots + kControlSlots;
inline constexpr unsigned kReceivesAtOnce = kCredits / 4;  // most that are posted anew
inline constexpr std::size_t kMaxInlineBytes = 256;
inline constexpr unsigned kMaxReads = 16;  // READs under way on the wire: enough for any bandwidth, few enough for every adapter

// An event of rdma_cm without its owner: it is acknowledged before it is looked at.
struct CmEvent : rdma_cm_event {
  explicit CmEvent(const rdma_cm_event& told) noexcept : rdma_cm_event(told) {
    const auto* const data = static_cast<const std::uint8_t*>(param.conn.private_data);
    if (data != nullptr) private_count = param.conn.private_data_len;
    std::copy_n(data, private_count, private_bytes.begin());
  }
  std::span<const std::uint8_t> private_data() const noexcept { return std::span(private_bytes).first(private_count); }

  std::array<std::uint8_t, 256> private_bytes{};
  std::uint8_t private_count = 0;
};

class VerbsLink final : public Link {
 public:
  // `deadline_ns`: when it must be ready.
  VerbsLink(VerbsTransport& transport, std::size_t rail, const Token& token, std::int64_t deadline_ns);
  ~VerbsLink() override;

  // Slots and the completion queue. Errors: out_of_memory, device_error.
  Result<void> prepare();

  std::uint64_t memory_bytes() const noexcept override {
    return sizeof *this + (receives_ ? receives_->bytes() : 0) + (sends_ ? sends_->bytes() : 0);
  }
  Posted post_message(const Header& header, std::span<const std::byte> payload) override;
  Reach reach(Direction direction, const Region& local, const RemoteRegion& remote) const override;
  Posted post_copied_write(std::span<const std::byte> bytes, const RemoteRegion& remote, std::uint64_t remote_offset,
                           bool is_word_next) override;
  std::string why_no_word(WordKind kind, const RemoteRegion& words) const override;
  Posted post_word(WordKind kind, const RemoteRegion& words, std::size_t index, std::uint32_t value) override;
  Result<void> complete(Parcel answer) override;

  // Acceptor: waits for the peer that shows `expected` and is on its rail `peer_rail`; `token_` is what we show.
  void expect(const Token& expected, std::size_t peer_rail);
  const Token& token() const noexcept { return own_token_; }
  bool is_expecting(std::size_t rail, const Token& token) const noexcept;
  // Takes the id of a connection request whose token was right, and accepts it.
  void take_request(Id id, const CmEvent& event, const Introduction& peer);
  // An event of this link's id.
  void handle(const CmEvent& event, Sink& sink);

  // Moves on; true when something happened.
  bool poll(Sink& sink);
  // False: something is there already.
  bool arm();
  // What depends on the time. `now`: of base/clock.hpp.
  void look_at_clock(std::int64_t now);
  bool is_connecting() const noexcept { return state_ == LinkState::connecting; }
  bool has_failed() const noexcept { return failure_.has_value() && state_ != LinkState::broken; }
  bool is_on(const rdma_cm_id* id) const noexcept { return id_.get() == id; }
  bool has_queue(const ibv_cq* queue) const noexcept { return completions_ != nullptr && completions_ == queue; }
  bool has_device(const Device& device) const noexcept { return device_.get() == &device; }
  void fail(Error error);
  void fail_device(std::string cause);

 private:
  enum class Step : std::uint8_t { offered, resolving_address, resolving_route, connecting, expecting, accepting, up };
  struct Span {
    std::uint64_t local = 0, remote = 0, bytes = 0;
    std::uint32_t local_key = 0, remote_key = 0;
  };

  const Rail& own_rail() const noexcept;

  // Connecting.
  Result<void> new_id();
  void resolve_anew();
  void resolve_address();
  void resolve_route();
  void set_path();
  void start_again_with_path();
  int resolve_time_ms() const;
  void on_address();
  void on_route();
  void on_established(const CmEvent& event, Sink& sink);
  // The queue pair, with the first receives.
  Result<void> make_pair();
  Result<void> post_first_receives();
  rdma_conn_param parameters(const std::array<std::uint8_t, kIntroductionBytes>& introduction, unsigned reads) const;
  void set_receiver_not_ready_timer();
  void become_ready(Sink& sink);
  void set_read_limit(unsigned reads);
  Introduction introduction() const;
  std::string describe() const;
  const char* name_of_step() const noexcept;
  Error failed(Status status, std::string cause, std::string remedy = {}) const;

  // Sending.
  // `follows`: another post comes at once. What waits goes with it by one call, or at the next poll.
  enum class Next : std::uint8_t { none, follows };
  // `addend`: of an atomic.
  int post(ibv_wr_opcode opcode, const Span& span, std::uint64_t id, unsigned flags, std::uint64_t addend = 0,
           Next next = Next::none) noexcept;
  int post_behind_what_waits(ibv_send_wr* request) noexcept;
  void post_what_waits();
  Posted post_ordered(ibv_wr_opcode opcode, const Span& span, bool is_inline, unsigned flags, Next next = Next::none);
  bool must_signal() const noexcept;
  void count_signal(bool is_signalled) noexcept { unsignalled_ = is_signalled ? 0 : unsignalled_ + 1; }
  Posted post_bytes(MessageKind kind, const Header* header, std::span<const std::byte> payload);
  bool post_control(MessageKind kind);
  Posted post_pieces(const Span& span, std::uint64_t cookie, bool is_read, bool fills_gpu);
  Posted post_transfer(Direction direction, const Transfer& transfer) override;
  Posted post_bytes_to(const VerbsRemoteRegion& theirs, std::uint64_t remote_offset, std::span<const std::byte> bytes,
                       unsigned flags, Next next = Next::none);
  Posted post_set(const VerbsRemoteRegion& words, std::size_t index, std::uint32_t value);
  Posted post_unwanted_read(WorkKind kind, std::uint64_t number, const VerbsRemoteRegion& words, std::uint64_t offset,
                            std::uint64_t addend = 0);
  void post_probe(std::int64_t now);
  Posted refused_post(int result);

  // Completions.
  int take_completions(std::array<ibv_wc, 16>& completions);
  void on_completion(const ibv_wc& completion, Sink& sink);
  void on_failed(const ibv_wc& completion);
  bool is_port_up() const;
  void on_receive(unsigned slot, std::size_t bytes, Sink& sink);
  void on_message(const MessageHeader& header, const std::byte* bytes, Sink& sink);
  void on_ordered(std::uint64_t number, Sink& sink);
  void finish_piece(std::uint16_t index, Sink& sink);
  bool post_receives();
  bool repost(unsigned slot, bool has_credit);
  void break_down(Sink& sink);
  void disconnect() noexcept;

  std::byte* receive_slot(unsigned slot) const noexcept {
    return receives_->data() + std::size_t{slot} * kSlotBytes + kSlotPadding;
  }
  // The slot that the next message goes into.
  std::byte* send_slot() const noexcept { return sends_->data() + next_slot_ * kSlotBytes + kSlotPadding; }
  void take_slot() noexcept {
    ++slots_in_use_;
    next_slot_ = (next_slot_ + 1) % kAllSlots;
  }
  void return_slot() noexcept {
    if (--slots_in_use_ == 0) next_slot_ = 0;  // those used last are in the caches
  }

  VerbsTransport* transport_;
  std::shared_ptr<Device> device_;
  std::size_t rail_index_;
  std::uint64_t read_piece_bytes_;

  Step step_ = Step::offered;
  bool is_connected_ = false;  // rdma_disconnect has something to do
  std::int64_t deadline_ns_;
  Token own_token_;                  // which we show
  std::optional<Token> peer_token_;  // which the peer must show
  std::size_t peer_rail_ = 0;
  RailAddress peer_address_;           // initiator
  std::optional<ibv_path_data> path_;  // initiator: the resolved one with the service level of the options
  std::string network_;                // " (MTU 4096, ...)" once it stands
  std::optional<Introduction> peer_;
  std::optional<Error> failure_;

  std::unique_ptr<Pages> receives_, sends_;
  Mr receive_region_, send_region_;
  ibv_cq* completions_ = nullptr;
  Id id_;
  ibv_qp* pair_ = nullptr;  // of id_
  std::size_t inline_bytes_ = 0;
  unsigned read_depth_ = 0, reads_under_way_ = 0;  // with atomics
  // Numbers of the ledger: all writes posted, and those that a read behind them has shown to be placed, are below.
  std::uint64_t writes_posted_ = 0, writes_placed_ = 0;

  std::array<unsigned, kReceivesAtOnce> free_receives_{};  // slots that are to be posted anew
  unsigned free_receive_count_ = 0;
  unsigned free_credits_ = 0;  // of them
  // A write that waits for the word behind it.
  struct Waiting {
    ibv_send_wr request{};  // num_sge 0: none
    ibv_sge piece{};
    std::array<std::byte, kMaxInlineBytes> inline_bytes{};
  } waiting_;
  bool has_waiting() const noexcept { return waiting_.request.num_sge != 0; }
  Ledger ledger_;
  Credits credits_;
  Operations operations_;
  unsigned slots_in_use_ = 0, next_slot_ = 0;  // sends complete in order, so slots go round
  unsigned unsignalled_ = 0;
  bool has_gpu_writes_ = false;  // posted since the last message

  std::array<ibv_wc, 16> kept_{};  // taken by arm()
  int kept_count_ = 0;

  // Whether the peer's adapter answers, looked at when nothing was heard for a while.
  bool has_heard_ = false;
  std::int64_t quiet_since_ns_ = 0;
  std::int64_t probe_posted_ns_ = 0;  // 0: none under way
  std::uint64_t probe_behind_ = 0;    // entries of the ledger that the queue has before it
};

}  // namespace gigabar::transport::rdma
