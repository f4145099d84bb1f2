// SPDX-License-Identifier: Apache-2.0
// What the kernels of pingpong and matvec do, which are measured beside the same by the CPU.
#pragma once

#include "device_ranks/unit.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::tool::device_ranks {

// --- pingpong -------------------------------------------------------------------------------------------------------------------

// One scope: checks what came, computes, and sends its part of the message at once. Messages of a ring are computed and checked
// word by word, as they go and come; writes are from memory to memory.
template <class Scope>
class TurnUnit {
 public:
  // `end` is zeroed before the first.
  GIGABAR_DEVICE TurnUnit(const Scope& scope, const TurnPlan& plan, std::uint32_t index, UnitEnd* end)
      : scope_(scope), plan_(plan), index_(index), end_(end) {
    const std::uint64_t left = plan.message_bytes > offset_ ? plan.message_bytes - offset_ : 0;
    bytes_ = left < plan.part_stride_bytes ? left : plan.part_stride_bytes;
  }

  // The partner's part of `round` is right.
  GIGABAR_DEVICE void check(std::uint32_t round) {
    if (plan_.uses_messages) return;
    check_words(scope_, words_at(plan_.receive_offset_bytes + offset_), bytes_, plan_.partner, {round, 0, offset_}, flip(round),
                end_);
  }

  // This rank's part of `round`, and time that passes as if it took that long to find it.
  GIGABAR_DEVICE void compute(std::uint32_t round) {
    const std::uint64_t begin_ns = plan_.work_ns != 0 ? device::now_ns() : 0;
    if (!plan_.uses_messages) fill_words(scope_, words_at(offset_), bytes_, plan_.fabric.rank, {round, 0, offset_});
    while (plan_.work_ns != 0 && device::now_ns() - begin_ns < plan_.work_ns) {
    }
    scope_.sync();
  }

  // All rounds in one kernel. `samples`: [round_count], of the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) {
    const RunClock clock;
    const std::uint32_t rounds = bytes_ != 0 ? plan_.round_count : 0;
    std::uint32_t round = 0;
    if (plan_.uses_messages) words_.note(open_ring(plan_.fabric, plan_.partner, index_, to_));
    if (plan_.uses_messages) words_.note(open_ring(plan_.fabric, plan_.partner, index_, from_));
    for (; round < rounds && !words_.is_over(clock); ++round) {
      const std::uint64_t before = ticks();
      if (plan_.is_active) {
        if (round != 0) check(round - 1);
        compute(round);
        send(round);
        take(round);
      } else {
        take(round);
        if (!words_.is_ok()) break;
        check(round);
        compute(round);
        send(round);
      }
      if (plan_.is_active && scope_.rank() == 0) samples[round] = ticks() - before;
    }
    if (plan_.is_active && words_.is_ok() && round != 0) check(round - 1);
    to_.close(scope_);
    from_.close(scope_);
    clock.report(scope_, plan_.is_active, words_.status(), round, end_);
  }

 private:
  GIGABAR_DEVICE std::uint32_t* words_at(std::uint64_t offset) const { return words_.template at<std::uint32_t>(offset, bytes_); }

  GIGABAR_DEVICE std::uint32_t flip(std::uint32_t round) const {
    return plan_.plants_fault && round + 1 == plan_.round_count && index_ == 0 ? 1 : 0;
  }

  GIGABAR_DEVICE void send(std::uint32_t round) {
    if (plan_.uses_messages) {
      const auto word = [&](std::uint64_t i) { return data_word(plan_.fabric.rank, round, 0, offset_ / 4 + i); };
      words_.note(device::send_words(scope_, to_, bytes_, word, words_.timeout()));
      return;
    }
    words_.note(device::write_notify(scope_, plan_.fabric, {kDataSegment, offset_},
                                     {plan_.partner, kDataSegment, plan_.receive_offset_bytes + offset_}, bytes_, index_,
                                     round + 1));
  }

  GIGABAR_DEVICE void take(std::uint32_t round) {
    if (!plan_.uses_messages) {
      words_.take(index_, round + 1, {round, 0, offset_});
      return;
    }
    if (!words_.is_ok()) return;
    const auto check_word = [&](std::uint64_t i, std::uint32_t word, std::uint32_t) {
      const std::uint32_t right = data_word(plan_.partner, round, 0, offset_ / 4 + i);
      const std::uint32_t found = word ^ (i == bytes_ / 4 / 2 ? flip(round) : 0);
      if (found != right) report_wrong(end_, {round, 0, offset_ + i * 4}, right, found);
    };
    std::uint64_t bytes = 0;
    words_.note(device::recv_words(scope_, from_, bytes_, check_word, bytes, words_.timeout()));
    words_.expect({round, 0, offset_}, bytes_, bytes);
  }

  const Scope& scope_;
  const TurnPlan& plan_;
  const std::uint32_t index_;
  UnitEnd* const end_;
  const std::uint64_t offset_ = index_ * plan_.part_stride_bytes;
  std::uint64_t bytes_ = 0;
  UnitWords<Scope> words_{scope_, plan_, end_};
  device::SendRing to_;
  device::RecvRing from_;
};

// The kernel that does all rounds.
using TurnsBody = UnitBody<TurnUnit, TurnPlan>;

// The kernel of one turn, which the CPU sends: checks what came in one round and computes what goes in another.
struct OneTurnBody {
  TurnPlan plan;
  UnitEnd* ends = nullptr;
  std::uint32_t checked_round = kNoRound;
  std::uint32_t computed_round = kNoRound;

  template <class Scope>
  GIGABAR_DEVICE void operator()(const Scope& scope, std::uint32_t unit, float* = nullptr) const {
    TurnUnit<Scope> turn(scope, plan, unit, ends + unit);
    if (checked_round != kNoRound) turn.check(checked_round);
    if (computed_round != kNoRound) turn.compute(computed_round);
  }
};

// --- matvec ---------------------------------------------------------------------------------------------------------------------

// One block: streams its part of every batch, or multiplies it by a matrix that stays in fast memory.
template <class Scope>
class MatvecUnit {
 public:
  // `fast`: plan.fast_bytes(), of this unit alone. `end` is zeroed.
  GIGABAR_DEVICE MatvecUnit(const Scope& scope, const MatvecPlan& plan, std::uint32_t index, float* fast, UnitEnd* end)
      : scope_(scope), plan_(plan), index_(index), matrix_(fast), end_(end) {}

  GIGABAR_DEVICE void fill() {
    if (is_source()) {
      for (std::uint32_t source = 0; source < plan_.source_count; ++source) {
        float* const values = values_at(plan_.source_offset(source) + part_offset());
        each(plan_.part_values(), [&](std::uint64_t i) { values[i] = vector_value(source, index_ * plan_.part_values() + i); });
      }
      for (std::uint32_t batch = 0; batch < plan_.batch_count; ++batch) {
        float* const values = values_at(plan_.product_offset(batch) + part_offset());
        each(plan_.part_values(), [&](std::uint64_t i) { values[i] = kNoProduct; });
      }
    } else if (index_ == 0) {
      float* const values = matrix_at();
      each(plan_.matrix_values(), [&](std::uint64_t i) {
        values[i] = matrix_value(static_cast<std::uint32_t>(i % plan_.elements), static_cast<std::uint32_t>(i / plan_.elements));
      });
    }
  }

  GIGABAR_DEVICE void stream() {
    if (!is_source()) load_matrix();
    const RunClock clock;
    std::uint64_t first_done_ns = 0;
    std::uint32_t batch = 0;
    if (plan_.uses_messages) words_.note(open_ring(plan_.fabric, plan_.partner, index_, to_));
    if (plan_.uses_messages) words_.note(open_ring(plan_.fabric, plan_.partner, index_, from_));
    for (; batch < plan_.batch_count && !words_.is_over(clock); ++batch) {
      is_source() ? send_batch(batch) : answer_batch(batch);
      if (batch == 0) first_done_ns = clock.elapsed_ns();
    }
    if (is_source()) {
      const std::uint32_t under_way = batch < plan_.slot_count ? batch : plan_.slot_count;
      for (std::uint32_t last = batch - under_way; last < batch; ++last) take(last);
    }
    to_.close(scope_);
    from_.close(scope_);
    if (scope_.rank() != 0) return;
    end_->status = words_.status();
    end_->rounds_done = batch;
    end_->elapsed_ns = clock.elapsed_ns() - first_done_ns;
  }

  GIGABAR_DEVICE void multiply(std::uint32_t batch) {
    load_matrix();
    multiply_part(batch);
  }

  static constexpr float kNoProduct = 1e30F;

 private:
  GIGABAR_DEVICE bool is_source() const { return plan_.fabric.rank == 1; }
  GIGABAR_DEVICE std::uint64_t part_offset() const { return index_ * plan_.part_bytes(); }
  // At rank 0 raised by vectors, at rank 1 by products.
  GIGABAR_DEVICE NotificationId notification(std::uint32_t batch) const { return index_ * plan_.slot_count + plan_.slot_of(batch); }

  GIGABAR_DEVICE float* values_at(std::uint64_t offset) const { return words_.template at<float>(offset, plan_.part_bytes()); }
  GIGABAR_DEVICE float* matrix_at() const {
    return words_.template at<float>(plan_.matrix_offset(), plan_.matrix_values() * sizeof(float));
  }

  template <class Body>
  GIGABAR_DEVICE void each(std::uint64_t count, const Body& body) const {
    for (std::uint64_t i = scope_.rank(); i < count; i += scope_.size()) body(i);
  }

  // Its slot is free when the products of the batch that had it are here.
  GIGABAR_DEVICE void send_batch(std::uint32_t batch) {
    if (batch >= plan_.slot_count) take(batch - plan_.slot_count);
    if (!words_.is_ok()) return;
    if (plan_.uses_messages) {
      const float* const vectors = values_at(plan_.source_offset(batch) + part_offset());
      words_.note(device::send(scope_, to_, vectors, plan_.part_bytes(), words_.timeout()));
      return;
    }
    words_.note(device::write_notify(scope_, plan_.fabric, {kDataSegment, plan_.source_offset(batch) + part_offset()},
                                     {plan_.partner, kDataSegment, plan_.slot_offset(batch) + part_offset()}, plan_.part_bytes(),
                                     notification(batch), batch + 1));
  }

  GIGABAR_DEVICE void answer_batch(std::uint32_t batch) {
    if (plan_.uses_messages) {
      answer_message(batch);
      return;
    }
    take(batch);
    if (!words_.is_ok()) return;
    multiply_part(batch);
    const std::uint64_t offset = plan_.product_offset(batch) + part_offset();
    words_.note(device::write_notify(scope_, plan_.fabric, {kDataSegment, offset}, {plan_.partner, kDataSegment, offset},
                                     plan_.part_bytes(), notification(batch), batch + 1));
  }

  // From the ring into fast memory, and from it into the ring: a product is computed where its line is stored.
  GIGABAR_DEVICE void answer_message(std::uint32_t batch) {
    receive(batch, vectors_);
    if (!words_.is_ok()) return;
    const auto word = [&](std::uint64_t i) { return static_cast<std::uint32_t>(device::detail::bits_of(product(i))); };
    words_.note(device::send_words(scope_, to_, plan_.part_bytes(), word, words_.timeout()));
    scope_.sync();  // the next batch goes to the same memory
  }

  GIGABAR_DEVICE void receive(std::uint32_t batch, float* values) {
    if (!words_.is_ok()) return;
    std::uint64_t bytes = 0;
    words_.note(device::recv(scope_, from_, values, plan_.part_bytes(), bytes, words_.timeout()));
    words_.expect({batch, 0, part_offset()}, plan_.part_bytes(), bytes);
  }

  // At rank 1 products, at rank 0 vectors.
  GIGABAR_DEVICE void take(std::uint32_t batch) {
    if (plan_.uses_messages) {
      receive(batch, values_at(plan_.product_offset(batch) + part_offset()));
    } else {
      words_.take(notification(batch), batch + 1, {batch, 0, part_offset()});
    }
  }

  GIGABAR_DEVICE void load_matrix() {
    const float* const from = matrix_at();
    each(plan_.matrix_values(), [&](std::uint64_t i) { matrix_[i] = from[i]; });
    scope_.sync();
  }

  GIGABAR_DEVICE void multiply_part(std::uint32_t batch) {
    // Written by the peer while this kernel runs, so past the first-level cache; once for all rows.
    const volatile float* const arrived = values_at(plan_.slot_offset(batch) + part_offset());
    each(plan_.part_values(), [&](std::uint64_t i) { vectors_[i] = arrived[i]; });
    scope_.sync();
    float* const products = values_at(plan_.product_offset(batch) + part_offset());
    each(plan_.part_values(), [&](std::uint64_t i) { products[i] = product(i); });
    scope_.sync();
  }

  // Of vectors and matrix in fast memory.
  GIGABAR_DEVICE float product(std::uint64_t i) const {
    const std::uint32_t elements = plan_.elements;
    const float* const vector = vectors_ + i / elements * elements;
    const float* const row = matrix_ + i % elements;
    float sum = 0;
    for (std::uint32_t column = 0; column < elements; ++column) sum += row[std::uint64_t{column} * elements] * vector[column];
    return sum;
  }

  const Scope& scope_;
  const MatvecPlan& plan_;
  const std::uint32_t index_;
  float* const matrix_;
  float* const vectors_ = matrix_ + plan_.matrix_values();
  UnitEnd* const end_;
  UnitWords<Scope> words_{scope_, plan_, end_};
  device::SendRing to_;
  device::RecvRing from_;
};

struct MatvecBody {
  MatvecPlan plan;
  MatvecTask task = MatvecTask::fill;
  std::uint32_t batch = 0;  // of multiply
  UnitEnd* ends = nullptr;  // [unit_count], zeroed

  template <class Scope>
  GIGABAR_DEVICE void operator()(const Scope& scope, std::uint32_t unit, float* fast) const {
    MatvecUnit<Scope> matvec(scope, plan, unit, fast, ends + unit);
    switch (task) {
      case MatvecTask::fill: matvec.fill(); break;
      case MatvecTask::stream: matvec.stream(); break;
      case MatvecTask::multiply: matvec.multiply(batch); break;
    }
  }
};

}  // namespace gigabar::tool::device_ranks
