// SPDX-License-Identifier: Apache-2.0
// Messages, writes, reads and their completions. Connecting is in link_connect.cpp, words are in link_words.cpp.
#include "transport/verbs/link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "transport/verbs/transport_state.hpp"

namespace gigabar::transport::rdma {
namespace {

// One signalled completion retires all messages before it. Less than half of the slots, so that those in use never wait for one
// that nobody asked for.
constexpr unsigned kSignalEvery = 12;
static_assert(2 * kSignalEvery < kSendSlots);
// Longer ones siw would send from the slot itself, and no later completion would tell when it is done with it.
constexpr std::size_t kMaxUnsignalledBytes = 4095;
constexpr std::int64_t kQuietNs = 1'000'000'000;
// rxe answers a READ with all its packets at once, and of more than 1,000 the kernel of the other end throws some away. While the
// answers to one READ still come and another is asked for again, rxe of Linux 6.1 may count the first one's packets wrong: a READ
// then ends as done without its data. So there is one at a time, of so many bytes.
constexpr std::uint64_t kReadPieceBytesOfRxe = 256 << 10;

std::uint64_t address_of(const void* memory) noexcept { return reinterpret_cast<std::uintptr_t>(memory); }

// What a completion says about the connection.
struct Meaning {
  Status status;
  const char* remedy;
};
Meaning meaning_of(ibv_wc_status status) noexcept {
  constexpr const char* kSeeLog = "see the adapter's driver in the kernel's log (dmesg)";
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {Status::peer_lost, "the peer's adapter did not answer: check that it runs, its link, cable, MTU and routes"};
    case IBV_WC_WR_FLUSH_ERR: return {Status::peer_lost, "connect anew if the peer still runs"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ABORT_ERR: return {Status::peer_lost, kSeeLog};
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
      return {Status::no_permission, "the peer's region is deregistered, or smaller or of another key than was told"};
    default: return {Status::device_error, kSeeLog};
  }
}

const char* name_of(WorkKind kind) noexcept {
  switch (kind) {
    case WorkKind::ordered: return "a message or write";
    case WorkKind::read: return "a read";
    case WorkKind::probe: return "a probe of the peer";
    case WorkKind::receive: return "a receive";
    case WorkKind::atomic: return "an atomic";
    case WorkKind::barrier: return "a read before a word";
  }
  return "work";
}

}  // namespace

VerbsLink::VerbsLink(VerbsTransport& transport, std::size_t rail, const Token& token, std::int64_t deadline_ns)
    : Link(transport.rail(rail).name),
      transport_(&transport),
      device_(transport.rail(rail).device),
      rail_index_(rail),
      read_piece_bytes_(device_->is_rxe ? std::min(own_rail().piece_bytes, kReadPieceBytesOfRxe) : own_rail().piece_bytes),
      deadline_ns_(deadline_ns),
      own_token_(token) {
  limits_.payload_bytes = limits_.copied_write_bytes = kPayloadBytes;
  limits_.write_bytes = own_rail().piece_bytes * kMaxPieces;
  transport_->add(this);
}

VerbsLink::~VerbsLink() {
  transport_->remove(this);
  disconnect();
  id_.reset();  // with its queue pair, before the completion queue of that
  if (completions_ != nullptr) verbs::functions().ibv_destroy_cq(completions_);
}

const Rail& VerbsLink::own_rail() const noexcept { return transport_->rail(rail_index_); }

// --- Sending ---------------------------------------------------------------------------------------------------------------------

// One piece only: libsiw puts several inline pieces on top of each other.
int VerbsLink::post(ibv_wr_opcode opcode, const Span& span, std::uint64_t id, unsigned flags, std::uint64_t addend,
                    Next next) noexcept {
  ibv_sge piece{span.local, static_cast<std::uint32_t>(span.bytes), span.local_key};
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = flags;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic.remote_addr = span.remote;
    request.wr.atomic.compare_add = addend;
    request.wr.atomic.rkey = span.remote_key;
  } else {
    request.wr.rdma.remote_addr = span.remote;
    request.wr.rdma.rkey = span.remote_key;
  }
  // A software adapter is the kernel's, and takes requests by a system call. Others take a single short one with the doorbell, and
  // would have to fetch several from memory.
  if (next == Next::none || !device_->is_software || has_waiting()) return post_behind_what_waits(&request);
  waiting_.piece = piece;
  if ((flags & IBV_SEND_INLINE) != 0) {
    std::memcpy(waiting_.inline_bytes.data(), reinterpret_cast<const void*>(span.local), span.bytes);
    waiting_.piece.addr = address_of(waiting_.inline_bytes.data());
  }
  request.sg_list = &waiting_.piece;
  waiting_.request = request;
  return 0;
}

// Both by one call. Of an error only the request's own poster is told, and what waits waits on if it was not taken. `request`,
// null: what waits alone.
int VerbsLink::post_behind_what_waits(ibv_send_wr* request) noexcept {
  const bool has_two = has_waiting() && request != nullptr;
  ibv_send_wr* const first = has_waiting() ? &waiting_.request : request;
  if (has_waiting()) waiting_.request.next = request;
  std::optional<Uncancelled> uncancelled;
  if (device_->is_software) uncancelled.emplace();
  ibv_send_wr* refused = nullptr;
  const int result = ibv_post_send(pair_, first, &refused);
  if (result == 0 || (has_two && refused == request)) {
    waiting_.request.num_sge = 0;
    return result;
  }
  // Where the library does not say which, as soft-RoCE's when its system call fails, nobody knows what is on its way.
  return (has_two || device_->is_rxe) && refused != first ? EIO : result;
}

void VerbsLink::post_what_waits() {
  if (!has_waiting() || failure_) return;
  if (const int result = post_behind_what_waits(nullptr); result != 0) refused_post(result);
}

bool VerbsLink::must_signal() const noexcept { return unsignalled_ + 1 >= kSignalEvery; }

Posted VerbsLink::refused_post(int result) {
  constexpr const char* kCall = "ibv_post_send";
  const int code = code_of(result);
  // The kernel has not yet taken the entries of the queue that we count as free.
  if ((code == ENOMEM || code == EAGAIN) && ledger_.in_use() > (has_waiting() ? 1U : 0U)) return Posted::full;
  // How siw refuses work once the connection has ended.
  if (code == ENOTCONN || code == ECONNRESET || code == EPIPE) {
    fail(failed(Status::peer_lost, text(kCall, " failed: ", std::strerror(code)), "connect anew if the peer still runs"));
  } else {
    fail(call_failed(kCall, describe(), code));
  }
  return Posted::broken;
}

// What lies in the next slot, or goes from the request itself.
Posted VerbsLink::post_ordered(ibv_wr_opcode opcode, const Span& span, bool is_inline, unsigned flags, Next next) {
  if (is_inline) flags |= IBV_SEND_INLINE;
  if (span.bytes > kMaxUnsignalledBytes) flags |= IBV_SEND_SIGNALED;
  const std::uint64_t number = ledger_.add({Ledger::kNoOperation, !is_inline});
  if (const int result = post(opcode, span, work_id(WorkKind::ordered, number), flags, 0, next); result != 0) {
    ledger_.take_back();
    return refused_post(result);
  }
  if (opcode == IBV_WR_RDMA_WRITE) writes_posted_ = number + 1;
  if (!is_inline) take_slot();
  count_signal((flags & IBV_SEND_SIGNALED) != 0);
  return Posted::ok;
}

Posted VerbsLink::post_bytes(MessageKind kind, const Header* header, std::span<const std::byte> payload) {
  std::size_t caller_bytes = header != nullptr ? needed_bytes(*header) : 0;
  const bool is_inline = kMessageHeaderBytes + caller_bytes + payload.size() <= inline_bytes_;
  if (!is_inline && header != nullptr) caller_bytes = kHeaderBytes;  // with all of it the payload begins at a cache line
  const std::size_t header_bytes = kMessageHeaderBytes + caller_bytes;
  const std::size_t count = header_bytes + payload.size();
  if (!is_inline && slots_in_use_ >= (kind == MessageKind::payload ? kSendSlots : kAllSlots)) return Posted::full;
  std::array<std::byte, kMaxInlineBytes> short_message;
  std::byte* const bytes = is_inline ? short_message.data() : send_slot();
  MessageHeader first;
  first.kind = kind;
  first.follows_gpu_writes = kind == MessageKind::payload && has_gpu_writes_;
  first.wants_credits = kind == MessageKind::payload && credits_.take_shortage();
  first.credits = static_cast<std::uint16_t>(credits_.owed());
  first.payload_bytes = static_cast<std::uint16_t>(payload.size());
  first.caller_bytes = static_cast<std::uint8_t>(caller_bytes);
  write_message_header(first, bytes);
  if (header != nullptr) std::memcpy(bytes + kMessageHeaderBytes, header->data(), caller_bytes);
  if (!payload.empty()) std::memcpy(bytes + header_bytes, payload.data(), payload.size());

  const Span span{address_of(bytes), 0, count, send_region_->lkey, 0};
  const Posted posted = post_ordered(IBV_WR_SEND, span, is_inline, must_signal() ? unsigned{IBV_SEND_SIGNALED} : 0U);
  if (posted != Posted::ok) return posted;
  credits_.told(first.credits);
  if (kind == MessageKind::payload) has_gpu_writes_ = false;
  return Posted::ok;
}

bool VerbsLink::post_control(MessageKind kind) { return ledger_.has_control_room() && post_bytes(kind, nullptr, {}) == Posted::ok; }

Posted VerbsLink::post_message(const Header& header, std::span<const std::byte> payload) {
  if (state_ == LinkState::broken || failure_) return Posted::broken;
  if (payload.size() > kPayloadBytes) {
    fail(failed(Status::invalid_argument,
                text("a message of ", counted(payload.size(), "byte"), " is longer than ", kPayloadBytes)));
    return Posted::broken;
  }
  if (state_ != LinkState::ready || !credits_.can_send() || !ledger_.has_room(1)) return Posted::full;
  credits_.take();
  const Posted posted = post_bytes(MessageKind::payload, &header, payload);
  if (posted != Posted::ok) credits_.give_back();
  return posted;
}

Reach VerbsLink::reach(Direction direction, const Region& local, const RemoteRegion& remote) const {
  const auto* const ours = dynamic_cast<const VerbsRegion*>(&local);
  const auto* const theirs = dynamic_cast<const VerbsRemoteRegion*>(&remote);
  const auto no = [](std::string why) { return Reach{false, TransferPath::none, std::move(why)}; };
  if (ours == nullptr || theirs == nullptr) return no("one of the regions is not registered with RDMA devices");
  if (state_ != LinkState::ready) return no(text("the link over ", rail_, " is not ready"));
  if (!theirs->has_rail(peer_rail_)) return no("the peer's memory is not registered on the rail of this link");
  if (direction == Direction::read && limits_.read_bytes == 0)
    return no(text("the adapters of ", rail_, " and its peer agreed on no reads"));
  const bool is_gdr = is_gpu_memory(local.kind()) || is_gpu_memory(theirs->key.kind);
  return {true, is_gdr ? TransferPath::gdr : TransferPath::host,
          is_gdr ? text(rail_, network_, " reaches the GPU memory itself (here: ", local.how(), ")")
                 : text(rail_, network_, " moves it between pinned host memories"),
          !is_gdr};
}

Posted VerbsLink::post_pieces(const Span& span, std::uint64_t cookie, bool is_read, bool fills_gpu) {
  const std::uint64_t piece_bytes = is_read ? read_piece_bytes_ : own_rail().piece_bytes;
  const auto count = static_cast<unsigned>((span.bytes + piece_bytes - 1) / piece_bytes);
  if (!operations_.has_room() || !ledger_.has_room(count)) return Posted::full;
  if (is_read && reads_under_way_ + count > read_depth_) return Posted::full;
  const std::uint16_t operation = operations_.add({cookie, count, fills_gpu});
  for (unsigned i = 0; i < count; ++i) {
    Span piece = span;
    const std::uint64_t begin = i * piece_bytes;
    piece.local += begin;
    piece.remote += begin;
    piece.bytes = std::min(piece_bytes, span.bytes - begin);
    const std::uint64_t number = is_read ? operation : ledger_.add({operation, false});
    const std::uint64_t id = work_id(is_read ? WorkKind::read : WorkKind::ordered, number);
    // Each one signalled: siw sends what is not from the pages themselves, and later completions do not tell when it is done with
    // them.
    const int result = post(is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, piece, id, IBV_SEND_SIGNALED);
    if (result != 0) {
      if (!is_read) ledger_.take_back();
      if (i == 0) {
        operations_.drop(operation);
        return refused_post(result);
      }
      fail(call_failed("ibv_post_send", describe(), code_of(result)));
      return Posted::ok;  // its done() tells it
    }
    if (is_read) {
      ledger_.add_read();
      ++reads_under_way_;
    } else {
      writes_posted_ = number + 1;
    }
  }
  return Posted::ok;
}

Posted VerbsLink::post_transfer(Direction direction, const Transfer& transfer) {
  if (state_ == LinkState::broken || failure_) return Posted::broken;
  if (state_ != LinkState::ready) return Posted::full;
  const bool is_read = direction == Direction::read;
  const auto& ours = static_cast<const VerbsRegion&>(transfer.local);
  const auto& theirs = static_cast<const VerbsRemoteRegion&>(transfer.remote);
  const bool is_right = is_inside(transfer.local_offset, transfer.bytes, ours.bytes()) &&
                        is_inside(transfer.remote_offset, transfer.bytes, theirs.bytes()) &&
                        transfer.bytes <= (is_read ? limits_.read_bytes : limits_.write_bytes) && theirs.has_rail(peer_rail_);
  if (!is_right) {
    const std::string cause =
        text(is_read ? "a read of " : "a write of ", counted(transfer.bytes, "byte"), " is not inside both regions");
    dones_.push_back({transfer.cookie, failed(Status::out_of_range, cause)});
    return Posted::ok;
  }
  const Span span{ours.address() + transfer.local_offset, theirs.key.address + transfer.remote_offset, transfer.bytes,
                  ours.local_key(rail_index_), theirs.key.keys[peer_rail_]};
  const Posted posted = post_pieces(span, transfer.cookie, is_read, is_read && is_gpu_memory(ours.kind()));
  if (posted == Posted::ok && !is_read) has_gpu_writes_ = has_gpu_writes_ || is_gpu_memory(theirs.key.kind);
  return posted;
}

// From the request itself where the device takes so many bytes inline, else from a slot, as messages.
Posted VerbsLink::post_copied_write(std::span<const std::byte> bytes, const RemoteRegion& remote, std::uint64_t remote_offset,
                                    bool is_word_next) {
  if (state_ == LinkState::broken || failure_) return Posted::broken;
  const auto& theirs = static_cast<const VerbsRemoteRegion&>(remote);
  const bool is_right = is_inside(remote_offset, bytes.size(), theirs.bytes()) && bytes.size() <= limits_.copied_write_bytes;
  if (!theirs.has_rail(peer_rail_) || !is_right) return Posted::full;
  const unsigned flags = must_signal() ? unsigned{IBV_SEND_SIGNALED} : 0U;
  const Posted posted = post_bytes_to(theirs, remote_offset, bytes, flags, is_word_next ? Next::follows : Next::none);
  if (posted == Posted::ok) has_gpu_writes_ = has_gpu_writes_ || is_gpu_memory(theirs.key.kind);
  return posted;
}

Posted VerbsLink::post_bytes_to(const VerbsRemoteRegion& theirs, std::uint64_t remote_offset, std::span<const std::byte> bytes,
                                unsigned flags, Next next) {
  if (state_ != LinkState::ready || !ledger_.has_room(1)) return Posted::full;
  const bool is_inline = bytes.size() <= inline_bytes_;
  if (!is_inline && slots_in_use_ >= kSendSlots) return Posted::full;
  const std::byte* from = bytes.data();
  if (!is_inline) from = static_cast<const std::byte*>(std::memcpy(send_slot(), bytes.data(), bytes.size()));
  const Span span{address_of(from), theirs.key.address + remote_offset, bytes.size(), send_region_->lkey,
                  theirs.key.keys[peer_rail_]};
  return post_ordered(IBV_WR_RDMA_WRITE, span, is_inline, flags, next);
}

// --- Completions -----------------------------------------------------------------------------------------------------------------

int VerbsLink::take_completions(std::array<ibv_wc, 16>& completions) {
  if (kept_count_ > 0) {
    completions = kept_;
    return std::exchange(kept_count_, 0);
  }
  if (completions_ == nullptr) return 0;
  const int count = ibv_poll_cq(completions_, static_cast<int>(completions.size()), completions.data());
  if (count >= 0) return count;
  fail(call_failed("ibv_poll_cq", describe(), code_of(count)));
  return 0;
}

bool VerbsLink::poll(Sink& sink) {
  if (state_ == LinkState::broken) return false;
  std::array<ibv_wc, 16> completions;
  const int count = take_completions(completions);
  for (int i = 0; i < count; ++i) on_completion(completions[static_cast<std::size_t>(i)], sink);
  post_what_waits();
  const bool has_told = tell_dones(sink);
  if (count == 0 && free_receive_count_ > 0 && !failure_) post_receives();
  if (credits_.must_return() && state_ == LinkState::ready && !failure_) post_control(MessageKind::credits);
  if (!failure_) return count > 0 || has_told;
  break_down(sink);
  return true;
}

bool VerbsLink::arm() {
  if (state_ == LinkState::broken) return true;
  if (failure_ || kept_count_ > 0 || has_waiting() || !dones_.empty()) return false;
  if (completions_ == nullptr || pair_ == nullptr) return true;
  if (const int result = ibv_req_notify_cq(completions_, 0); result != 0) {
    fail(call_failed("ibv_req_notify_cq", describe(), code_of(result)));
    return false;
  }
  // What came before the request raises no event.
  kept_count_ = take_completions(kept_);
  return kept_count_ == 0 && !failure_;
}

void VerbsLink::on_completion(const ibv_wc& completion, Sink& sink) {
  if (completion.status != IBV_WC_SUCCESS) return on_failed(completion);
  const std::uint64_t number = number_of(completion.wr_id);
  const WorkKind kind = kind_of(completion.wr_id);
  if (kind == WorkKind::ordered) return on_ordered(number, sink);
  has_heard_ = true;
  if (kind == WorkKind::receive) return on_receive(static_cast<unsigned>(number), completion.byte_len, sink);
  if (kind == WorkKind::read && operations_.find(number) == nullptr) return;
  ledger_.retire_read();
  if (kind == WorkKind::probe) {
    probe_posted_ns_ = 0;
    return;
  }
  --reads_under_way_;
  if (kind == WorkKind::barrier) writes_placed_ = std::max(writes_placed_, number);
  if (kind == WorkKind::read) finish_piece(static_cast<std::uint16_t>(number), sink);
}

bool VerbsLink::is_port_up() const {
  ibv_port_attr port{};
  const auto number = static_cast<std::uint8_t>(own_rail().port);
  const int result = verbs::functions().ibv_query_port(device_->context, number, reinterpret_cast<_compat_ibv_port_attr*>(&port));
  return result == 0 && port.state == IBV_PORT_ACTIVE;
}

void VerbsLink::on_failed(const ibv_wc& completion) {
  if (failure_) return;
  // While connecting, rdma_cm's event tells why the receives come back; or the deadline.
  if (state_ == LinkState::connecting && completion.status == IBV_WC_WR_FLUSH_ERR) return;
  // siw's word for a connection that ended under a write, and rxe's for a port that went down.
  const bool has_ended = completion.status == IBV_WC_LOC_QP_OP_ERR && (device_->is_iwarp || !is_port_up());
  const auto [status, remedy] = meaning_of(completion.status);
  Error error = failed(
      has_ended ? Status::peer_lost : status,
      text(name_of(kind_of(completion.wr_id)), " failed: ", verbs::functions().ibv_wc_status_str(completion.status)), remedy);
  edit(error).native = {NativeDomain::none, completion.status,
                        text("completion status ", static_cast<int>(completion.status), ", vendor error ", completion.vendor_err)};
  fail(std::move(error));
}

void VerbsLink::on_ordered(std::uint64_t number, Sink& sink) {
  if (probe_posted_ns_ != 0 && number < probe_behind_) has_heard_ = true;  // the probe waits behind large writes that go on
  ledger_.retire_up_to(number, [&](const Ledger::Entry& entry) {
    if (entry.has_slot) return_slot();
    if (entry.operation != Ledger::kNoOperation) finish_piece(entry.operation, sink);
  });
}

void VerbsLink::finish_piece(std::uint16_t index, Sink& sink) {
  const OperationState operation = *operations_.find(index);
  if (!operations_.finish_piece(index)) return;
  // A NIC of this side wrote into the GPU's memory: as after a peer's writes.
  sink.done(*this, operation.cookie, operation.fills_gpu ? transport_->flush_gpu_writes() : Result<void>());
}

// Together, and when nothing else is to be done: a message is answered before its receive is posted anew.
bool VerbsLink::post_receives() {
  std::array<ibv_sge, kReceivesAtOnce> pieces;
  std::array<ibv_recv_wr, kReceivesAtOnce> requests;
  for (unsigned i = 0; i < free_receive_count_; ++i) {
    const unsigned slot = free_receives_[i];
    pieces[i] = {address_of(receive_slot(slot)), kMessageBytes, receive_region_->lkey};
    requests[i] = {work_id(WorkKind::receive, slot), i + 1 < free_receive_count_ ? &requests[i + 1] : nullptr, &pieces[i], 1};
  }
  ibv_recv_wr* refused = nullptr;
  if (const int result = ibv_post_recv(pair_, requests.data(), &refused); result != 0) {
    fail(call_failed("ibv_post_recv", describe(), code_of(result)));
    return false;
  }
  free_receive_count_ = 0;
  credits_.reposted(std::exchange(free_credits_, 0));
  return true;
}

bool VerbsLink::repost(unsigned slot, bool has_credit) {
  free_receives_[free_receive_count_++] = slot;
  free_credits_ += has_credit ? 1 : 0;
  // The few receives of messages without a credit must be there whenever the peer sends one.
  return (has_credit && free_receive_count_ < credits_.most_unposted()) || post_receives();
}

void VerbsLink::on_receive(unsigned slot, std::size_t bytes, Sink& sink) {
  const std::byte* const message = receive_slot(slot);
  const auto header = read_message_header({message, std::min(bytes, kMessageBytes)});
  if (!header || !credits_.returned(header->credits)) {
    fail(failed(Status::peer_lost, "the peer sent bytes that are no message", "run the same version of Gigabar on all ranks"));
    return;
  }
  on_message(*header, message, sink);
  if (state_ == LinkState::broken || failure_) return;
  if (!repost(slot, header->kind == MessageKind::payload) || !header->wants_credits) return;
  const unsigned count = credits_.grow();
  for (unsigned more = kReceives - count; more < kReceives; ++more) {
    if (!repost(more, true)) return;
  }
}

void VerbsLink::on_message(const MessageHeader& header, const std::byte* bytes, Sink& sink) {
  if (header.kind == MessageKind::hello) {
    if (state_ == LinkState::broken) return;
    if (step_ != Step::accepting) return fail(failed(Status::peer_lost, "the peer greeted at the wrong time"));
    return become_ready(sink);
  }
  if (step_ != Step::up) return fail(failed(Status::peer_lost, "the peer sent a message before its greeting"));
  if (header.kind == MessageKind::credits) return;
  if (header.follows_gpu_writes) {
    if (Result<void> flushed = transport_->flush_gpu_writes(); !flushed) return fail(std::move(flushed).error());
  }
  Header first{};
  std::memcpy(first.data(), bytes + kMessageHeaderBytes, header.caller_bytes);
  sink.message(*this, first, {bytes + kMessageHeaderBytes + header.caller_bytes, header.payload_bytes});
}

// --- The end, and silence --------------------------------------------------------------------------------------------------------

void VerbsLink::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
}

void VerbsLink::fail_device(std::string cause) {
  fail(failed(Status::device_error, std::move(cause), "see the adapter's driver in the kernel's log (dmesg)"));
}

void VerbsLink::disconnect() noexcept {
  if (is_connected_ && id_ != nullptr) rdmacm::functions().rdma_disconnect(id_.get());
  is_connected_ = false;
}

void VerbsLink::break_down(Sink& sink) {
  state_ = LinkState::broken;
  const auto take_all = [&](bool has_receives) {
    std::array<ibv_wc, 16> completions;
    for (int count = take_completions(completions); count > 0; count = take_completions(completions)) {
      for (const ibv_wc& completion : std::span(completions).first(static_cast<std::size_t>(count))) {
        if (has_receives || kind_of(completion.wr_id) != WorkKind::receive) on_completion(completion, sink);
      }
    }
  };
  // What had arrived or was done before the end is told as such.
  take_all(true);
  disconnect();
  // With the queue pair goes the adapter's right to touch our memory; what it completed until then is still in the queue.
  if (pair_ != nullptr) rdmacm::functions().rdma_destroy_qp(id_.get());
  pair_ = nullptr;
  take_all(false);
  tell_dones(sink);
  for (std::uint16_t i = 0; i < kOperations; ++i) {
    const OperationState* const operation = operations_.find(i);
    if (operation == nullptr) continue;
    const std::uint64_t cookie = operation->cookie;
    operations_.drop(i);
    sink.done(*this, cookie, Result<void>(*failure_));
  }
  sink.broken(*this, *failure_);
}

void VerbsLink::post_probe(std::int64_t now) {
  if (!peer_ || peer_->probe_key == 0 || read_depth_ == 0 || !ledger_.has_control_room()) return;
  const Span span{device_->probe_sink(), peer_->probe_address, 8, device_->probe->lkey, peer_->probe_key};
  const int result = post(IBV_WR_RDMA_READ, span, work_id(WorkKind::probe, 0), IBV_SEND_SIGNALED);
  if (result != 0) return static_cast<void>(refused_post(result));
  ledger_.add_read();
  probe_posted_ns_ = now;
  probe_behind_ = ledger_.posted_count();
}

void VerbsLink::look_at_clock(std::int64_t now) {
  if (state_ == LinkState::broken || failure_) return;
  if (state_ == LinkState::connecting) {
    if (now >= deadline_ns_)
      fail(failed(Status::timed_out, text("the connection did not stand at its deadline; the last step was ", name_of_step()),
                  "check the peer and the network"));
    return;
  }
  if (std::exchange(has_heard_, false)) quiet_since_ns_ = now;
  const std::int64_t limit_ns = transport_->options().connect_deadline_ns;
  if (probe_posted_ns_ == 0) {
    if (now - quiet_since_ns_ >= kQuietNs) post_probe(now);
  } else if (now - std::max(probe_posted_ns_, quiet_since_ns_) >= limit_ns) {
    fail(failed(Status::peer_lost, text("the peer's adapter has not answered for ", limit_ns / 1'000'000, " ms"),
                "check that the peer runs, and the links and cables between"));
  }
}

std::string VerbsLink::describe() const {
  if (peer_address_.port == 0) return text(rail_, " with its peer");
  return text(rail_, " with ", text_of(peer_address_), " port ", peer_address_.port);
}

Error VerbsLink::failed(Status status, std::string cause, std::string remedy) const {
  return make_error(status, "link", describe(), std::move(cause), std::move(remedy));
}

}  // namespace gigabar::transport::rdma
