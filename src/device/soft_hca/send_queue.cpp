// SPDX-License-Identifier: Apache-2.0
#include "device/soft_hca/send_queue.hpp"

#include <utility>

#include "base/quietly.hpp"
#include "gigabar/device/memory.hpp"

namespace gigabar::soft_hca {
namespace {

namespace mlx5 = device::mlx5;

// --- Reading a WQE ---------------------------------------------------------------------------------------------------------------

constexpr std::uint64_t kBytesOfZero = std::uint64_t{1} << 31;  // what hardware takes a data segment of 0 bytes for
constexpr std::size_t kWordsPerSegment = 4;

// The block's words, big-endian ones swapped on demand. Relaxed loads: the doorbell was taken by acquire before.
class Reader {
 public:
  explicit Reader(const mlx5::Block& block) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] = device::load_relaxed(&block.segments[i / kWordsPerSegment].words[i % kWordsPerSegment]);
    }
  }
  std::uint32_t raw(std::size_t word) const { return words_[word]; }
  std::uint32_t value32(std::size_t word) const { return mlx5::big_endian(words_[word]); }
  std::uint64_t value64(std::size_t word) const { return mlx5::both_halves(value32(word + 1), value32(word)); }

 private:
  std::array<std::uint32_t, mlx5::kBlockBytes / sizeof(std::uint32_t)> words_{};
};

void read_data(const Reader& reader, std::size_t segment, WorkRequest& request) {
  const std::size_t word = segment * kWordsPerSegment;
  const std::uint32_t bytes = reader.value32(word);
  request.bytes = bytes == 0 ? kBytesOfZero : bytes;
  request.local_key = reader.value32(word + 1);
  request.local_address = reader.value64(word + 2);
}

bool read_inline(const Reader& reader, std::uint32_t segment_count, WorkRequest& request) {
  constexpr std::size_t kHeader = 2 * kWordsPerSegment;
  const std::uint32_t bytes = reader.value32(kHeader) & ~mlx5::kInlineFlag;
  if (bytes == 0 || bytes > mlx5::kMaxInlineBytes || segment_count != mlx5::inline_segment_count(bytes)) return false;
  request.is_inline = true;
  request.bytes = bytes;
  for (std::size_t i = 0; i < request.payload.size(); ++i) request.payload[i] = reader.raw(kHeader + 1 + i);
  return true;
}

// What follows the first segment: where the peer's memory is, an atomic's operands, the data or where they are.
bool read_segments(const Reader& reader, std::uint32_t segment_count, WorkRequest& request) {
  const bool is_atomic = request.opcode == Opcode::compare_swap || request.opcode == Opcode::fetch_add;
  const bool is_remote = is_atomic || request.opcode == Opcode::rdma_write || request.opcode == Opcode::rdma_read;
  if (!is_remote && request.opcode != Opcode::dump) return request.opcode == Opcode::nop && segment_count == 1;
  std::size_t segment = 1;
  if (is_remote) {
    request.remote_address = reader.value64(segment * kWordsPerSegment);
    request.remote_key = reader.value32(segment * kWordsPerSegment + 2);
    ++segment;
  }
  if (is_atomic) {
    request.swap_or_add = reader.value64(segment * kWordsPerSegment);
    request.compare = reader.value64(segment * kWordsPerSegment + 2);
    ++segment;
  }
  const bool is_inline = (reader.value32(segment * kWordsPerSegment) & mlx5::kInlineFlag) != 0;
  if (is_inline && request.opcode == Opcode::rdma_write) return read_inline(reader, segment_count, request);
  read_data(reader, segment, request);
  return segment_count == segment + 1 && (!is_atomic || request.bytes == sizeof(std::uint64_t));
}

// Whether the WQE with this index of this queue is in its place as a whole: one without tags as soon as its name is, since its
// device has ordered it in front of the doorbell.
bool has_arrived(const mlx5::Block& block, std::uint64_t index, std::uint32_t queue_number) {
  const std::uint32_t what = mlx5::big_endian(device::load_acquire(&block.segments[0].words[0]));
  const std::uint32_t whose = mlx5::big_endian(device::load_acquire(&block.segments[0].words[1]));
  if ((what >> 8 & 0xffff) != (index & 0xffff) || whose >> 8 != queue_number) return false;
  if ((what & mlx5::kSequenceTagFlag) == 0) return true;
  for (std::size_t i = 0; i < mlx5::kTaggedSegments; ++i) {
    if (device::load_acquire(&block.segments[i].words[mlx5::kTagWord]) != mlx5::sequence_tag(index)) return false;
  }
  return true;
}

// So that what is stored there next shows by its own.
void clear_tags(mlx5::Block& block) {
  for (std::size_t i = 0; i < mlx5::kTaggedSegments; ++i) device::store_relaxed(&block.segments[i].words[mlx5::kTagWord], 0);
}

// Reads the block once, and checks that it is the WQE with this index of this queue.
WorkRequest read_work_request(const mlx5::Block& block, std::uint64_t index, std::uint32_t queue_number) {
  const Reader reader(block);
  const std::uint32_t what = reader.value32(0);
  const std::uint32_t whose = reader.value32(1);
  WorkRequest request;
  request.opcode = static_cast<Opcode>(what & 0xff);
  request.flags = static_cast<std::uint8_t>(reader.raw(2) >> 24);
  const bool is_this =
      (what & ~mlx5::kSequenceTagFlag) >> 8 == (index & 0xffff) && whose >> 8 == queue_number;  // the rest of opmod is 0
  if (!is_this || !read_segments(reader, whose & 0xff, request)) request.syndrome = Syndrome::local_operation;
  return request;
}

// --- The queue -------------------------------------------------------------------------------------------------------------------

bool has_result(Opcode opcode) {
  return opcode == Opcode::rdma_read || opcode == Opcode::fetch_add || opcode == Opcode::compare_swap;
}

std::byte* payload_of(WorkRequest& request) { return reinterpret_cast<std::byte*>(request.payload.data()); }

// Data that come behind their CQE are looked at before they are there, which is the fault: so by words.
void land(std::byte* place, const std::vector<std::byte>& data) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    __atomic_store_n(reinterpret_cast<unsigned char*>(place) + i, static_cast<unsigned char>(data[i]), __ATOMIC_RELEASE);
  }
}

}  // namespace

SendQueue::SendQueue(std::uint32_t number, const QueueOptions& options, const QueueMemory& memory, const MemoryTable& local,
                     Wire& wire)
    : number_(number),
      options_(options),
      ring_(static_cast<mlx5::Block*>(memory.ring.cpu)),
      record_(static_cast<const std::uint32_t*>(memory.doorbell_record.cpu) + mlx5::kSendRecordIndex),
      doorbell_(static_cast<const std::uint64_t*>(memory.doorbell.cpu)),
      cq_(static_cast<mlx5::Cqe*>(memory.cq.cpu)),
      drain_(memory.drain),
      local_(&local),
      wire_(&wire),
      rung_(options.first_index),
      produced_(options.first_index),
      begun_(options.first_index),
      random_(0x9e37'79b9'7f4a'7c15U ^ number) {
  for (std::uint32_t i = 0; i < options.depth; ++i) clear_tags(ring_[i]);
}

bool SendQueue::step() {
  land_late_data();
  if (is_held_up()) return false;
  look_at_doorbell();
  const bool has_begun = begin_rung();
  return collect() || has_begun;
}

bool SendQueue::is_idle() const {
  return device::load_acquire(doorbell_) == seen_doorbell_ && begun_ == rung_ && pending_.empty() && landings_.empty();
}

bool SendQueue::is_held_up() {
  if (faults_.is_stalled) {
    ++statistics_.faults.polls_stalled;
    return true;
  }
  if (faults_.sit_out_percent == 0) return false;
  random_ ^= random_ << 13;  // xorshift64
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  if (random_ % 100 >= faults_.sit_out_percent) return false;
  ++statistics_.faults.polls_sat_out;
  return true;
}

// --- Doorbell --------------------------------------------------------------------------------------------------------------------

void SendQueue::take_doorbell(std::uint64_t value) {
  seen_doorbell_ = value;
  ++statistics_.doorbells;
  const std::uint32_t index16 = mlx5::big_endian(mlx5::low_half(value)) >> 8 & 0xffff;
  const std::uint32_t number = mlx5::big_endian(mlx5::high_half(value)) >> 8;
  const std::uint64_t distance = (index16 - begun_) & 0xffff;
  if (number != number_ || distance > options_.depth) {
    ++statistics_.ignored_doorbells;
    return;
  }
  if (faults_.lost_doorbells > 0) {
    --faults_.lost_doorbells;
    ++statistics_.faults.lost_doorbells;
    return;
  }
  if (faults_.lost_records > 0) {
    --faults_.lost_records;
    ++statistics_.faults.lost_records;
    return;
  }
  rung_ = begun_ + distance;
  record_polls_left_ = faults_.late_record_polls;
  if (record_polls_left_ > 0) ++statistics_.faults.late_records;
}

// The doorbell's acquire meets the device's release: everything up to its index is seen, and nothing beyond it is looked at.
// Without tags: where the device has not released them, the record may come behind the doorbell, and WQEs behind the record.
void SendQueue::look_at_doorbell() {
  const std::uint64_t value = device::load_acquire(doorbell_);
  if (value != seen_doorbell_) take_doorbell(value);
  if (rung_ == produced_) return;
  const std::uint64_t distance = (mlx5::big_endian(device::load_acquire(record_)) - begun_) & 0xffff;
  const bool is_late = distance > options_.depth || distance < rung_ - begun_;
  if (is_late || record_polls_left_ > 0) {
    if (is_late) ++statistics_.late_records;
    if (record_polls_left_ > 0) --record_polls_left_;
    return;
  }
  produced_ = rung_;
}

// --- Work requests ---------------------------------------------------------------------------------------------------------------

bool SendQueue::begin_rung() {
  const std::uint64_t before = begun_;
  while (begun_ != produced_ && is_there() && begin_one()) {
    ++begun_;
    ++statistics_.work_requests;
  }
  return begun_ != before;
}

bool SendQueue::is_there() {
  if (is_broken_ || late_polls_ == options_.most_late_polls || has_arrived(ring_[begun_ & (options_.depth - 1)], begun_, number_)) {
    late_polls_ = 0;
    return true;
  }
  ++late_polls_;
  ++statistics_.late_requests;
  return false;
}

bool SendQueue::is_fence_open(const WorkRequest& request) const {
  if ((request.flags & mlx5::kFenceMask) == 0) return true;
  return open_result_count_ == 0 && landings_.empty();
}

bool SendQueue::is_to_fail(std::uint64_t index) const {
  return faults_.error_at_wqe != 0 && index - options_.first_index + 1 == faults_.error_at_wqe;
}

// Finds the local memory. What it answers ends the request without the wire, for NOP and DUMP with none.
Syndrome SendQueue::prepare(Pending& pending) {
  WorkRequest& request = pending.request;
  if (is_broken_) return Syndrome::flushed;
  if (is_to_fail(pending.index)) return faults_.error_syndrome;
  if (request.syndrome != Syndrome::none || request.opcode == Opcode::nop) return request.syndrome;
  const Access wanted = has_result(request.opcode) ? Access::local_write : Access::local_read;
  request.local =
      request.is_inline ? payload_of(request) : local_->find(request.local_key, request.local_address, request.bytes, wanted);
  if (request.local == nullptr) return Syndrome::local_protection;
  if (request.opcode == Opcode::dump) return Syndrome::none;
  if (request.opcode == Opcode::rdma_read && faults_.late_read_polls > 0) {
    pending.landing = request.local;
    pending.late_data.resize(static_cast<std::size_t>(request.bytes));
    request.local = pending.late_data.data();
  }
  pending.is_on_wire = true;
  return Syndrome::none;
}

// A small write that the wire does while it is told of it needs no place among those that are under way.
bool SendQueue::do_at_once(WorkRequest& request) {
  const bool can_be = request.is_inline && request.syndrome == Syndrome::none && pending_.empty() && is_fence_open(request);
  if (!can_be || is_broken_ || is_to_fail(begun_)) return false;
  request.local = payload_of(request);
  if (!wire_->place(request)) return false;
  note_good(begun_, request);
  return true;
}

bool SendQueue::begin_one() {
  mlx5::Block& block = ring_[begun_ & (options_.depth - 1)];
  WorkRequest request = read_work_request(block, begun_, number_);
  if (do_at_once(request)) return clear_tags(block), true;
  Pending* added = nullptr;
  quietly([&] { added = &pending_.emplace_back(); });
  if (added == nullptr) return false;  // there is no memory for it now
  Pending& pending = *added;
  pending.index = begun_;
  pending.request = request;
  pending.request.syndrome = prepare(pending);
  const bool can_begin = is_broken_ || is_fence_open(pending.request);
  if (!can_begin || (pending.is_on_wire && !wire_->begin(pending.request))) {
    pending_.pop_back();
    return false;
  }
  if (pending.is_on_wire && has_result(pending.request.opcode)) ++open_result_count_;
  is_broken_ = is_broken_ || pending.request.syndrome != Syndrome::none;
  clear_tags(block);
  return true;
}

// --- Completions -----------------------------------------------------------------------------------------------------------------

bool SendQueue::collect() {
  if (pending_.empty()) wire_->idle();
  bool has_collected = false;
  while (!pending_.empty()) {
    Pending& pending = pending_.front();
    if (pending.is_on_wire) {
      const std::optional<Syndrome> ended = wire_->poll();
      if (!ended) break;
      pending.request.syndrome = *ended;
      if (has_result(pending.request.opcode)) --open_result_count_;
    }
    finish(pending);
    pending_.pop_front();
    has_collected = true;
  }
  write_last_good_cqe();
  return has_collected;
}

void SendQueue::finish(Pending& pending) {
  const Syndrome syndrome = has_failed_ ? Syndrome::flushed : pending.request.syndrome;
  if (syndrome != Syndrome::none) {
    write_last_good_cqe();
    write_cqe(pending.index, pending.request.opcode, pending.request.bytes, syndrome);
    if (!has_failed_ && is_to_fail(pending.index)) ++statistics_.faults.errors;
    is_broken_ = has_failed_ = true;
    return;
  }
  note_good(pending.index, pending.request);
  if (pending.landing != nullptr) {
    landings_.push_back({pending.landing, std::move(pending.late_data), faults_.late_read_polls});
    ++statistics_.faults.late_reads;
  }
}

void SendQueue::note_good(std::uint64_t index, const WorkRequest& request) {
  if ((request.flags & mlx5::kCqUpdate) == 0) return;
  // Of a collapsed CQ the one that follows would overwrite it before anybody could count on it.
  if (!options_.is_collapsed) write_last_good_cqe();
  good_cqe_ = {true, index, request.opcode, request.bytes};
}

void SendQueue::land_late_data() {
  for (Landing& landing : landings_) {
    if (landing.polls_left > 0) --landing.polls_left;
  }
  while (!landings_.empty() && landings_.front().polls_left == 0) {
    land(landings_.front().place, landings_.front().data);
    landings_.pop_front();
  }
}

void SendQueue::write_last_good_cqe() {
  if (!good_cqe_.is_due) return;
  good_cqe_.is_due = false;
  write_cqe(good_cqe_.index, good_cqe_.opcode, good_cqe_.bytes, Syndrome::none);
}

// Results that the wire has stored are before the last word's release, and the body is too. Of a good CQE the device looks at the
// last word alone, whose line is drained as a whole.
void SendQueue::write_cqe(std::uint64_t index, Opcode opcode, std::uint64_t bytes, Syndrome syndrome) {
  const bool is_bad = syndrome != Syndrome::none;
  const std::uint32_t owner = !options_.is_collapsed && (cq_produced_ & options_.cq_depth) != 0 ? 1 : 0;
  mlx5::Cqe& cqe = cq_[cq_produced_ & (options_.cq_depth - 1)];
  std::uint64_t body[mlx5::kCqeLastWord] = {};
  if (is_bad)
    body[mlx5::kCqeErrorWord] = mlx5::cqe_error_word(static_cast<std::uint8_t>(syndrome), 0);
  else
    body[mlx5::kCqeCountWord] = mlx5::cqe_count_word(static_cast<std::uint32_t>(bytes));
  for (std::uint32_t i = 0; i < mlx5::kCqeLastWord; ++i) device::store_relaxed(&cqe.words[i], body[i]);
  if (is_bad && drain_ != nullptr) drain_();
  const mlx5::CqeOpcode kind = is_bad ? mlx5::CqeOpcode::request_error : mlx5::CqeOpcode::request;
  device::store_release(&cqe.words[mlx5::kCqeLastWord], mlx5::cqe_last_word(kind, owner, index, opcode, number_));
  if (drain_ != nullptr) drain_();
  ++cq_produced_;
  ++statistics_.cqes;
  if (is_bad) ++statistics_.error_cqes;
}

}  // namespace gigabar::soft_hca
