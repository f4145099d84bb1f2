// SPDX-License-Identifier: Apache-2.0
#include "streams/repeat.hpp"

#include <sched.h>

#include <ctime>

#include "streams/plan.hpp"

namespace gigabar::inline v0 {

void TransferRun::fail(ErrorRecord record) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(record);
  has_failed_.store(true, std::memory_order_release);
}

std::optional<ErrorRecord> TransferRun::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

Repeat::Repeat(std::uint32_t* gate_word, std::size_t foreground_count, double timeout_seconds, const std::atomic<bool>* stop)
    : gate_word_(gate_word),
      stop_(stop),
      deadline_(Deadline::after_ns(static_cast<std::int64_t>(timeout_seconds * 1e9))),
      foreground_left_(foreground_count) {
  std::atomic_ref(*gate_word_).store(0, std::memory_order_seq_cst);
}

bool Repeat::arrive_and_wait() {
  arrived_.fetch_add(1, std::memory_order_acq_rel);
  Pause pause;
  while (!is_open() && !is_aborted()) pause();
  return is_open();
}

bool Repeat::await_arrivals(std::size_t worker_count) const {
  Pause pause;
  while (arrived_.load(std::memory_order_acquire) < worker_count) {
    if (has_timed_out() || is_aborted()) return false;
    pause();
  }
  return true;
}

bool Repeat::open(std::size_t worker_count) {
  if (!await_arrivals(worker_count)) return false;
  opened_ns_.store(now_ns(), std::memory_order_release);
  raise_gate();
  return true;
}

void Repeat::raise_gate() noexcept { std::atomic_ref(*gate_word_).store(1, std::memory_order_seq_cst); }

void Repeat::abort() noexcept {
  is_aborted_.store(true, std::memory_order_release);
  raise_gate();
}

std::int64_t Repeat::begins_at_ns(const Transfer& transfer) const noexcept {
  if (transfer.delay_seconds <= 0) return 0;
  return opened_ns() + static_cast<std::int64_t>(transfer.delay_seconds * 1e9);
}

bool Repeat::wants_more(const TransferRun& run, std::uint64_t begun) const noexcept {
  if (is_stopped() || is_aborted() || run.has_failed()) return false;
  const Transfer& transfer = run.transfer;
  if (begun == 0) return true;
  if (transfer.is_background) return foreground_left_.load(std::memory_order_acquire) > 0;
  if (transfer.iterations > 0) return begun < transfer.iterations;
  if (!is_open()) return true;
  return now_ns() < opened_ns() + static_cast<std::int64_t>((transfer.delay_seconds + transfer.seconds) * 1e9);
}

void Repeat::end_part(TransferRun& run) noexcept {
  if (run.end_part() && !run.transfer.is_background) foreground_left_.fetch_sub(1, std::memory_order_acq_rel);
}

ErrorRecord timed_out_record(const TransferRun& run) {
  return {Status::timed_out,
          "run streams",
          describe_transfer(run.index, run.transfer),
          {},
          "was not done within the plan's time",
          "ask for fewer iterations, or a longer timeout"};
}

void Pause::operator()() noexcept {
  constexpr unsigned kSpins = 2000;
  constexpr unsigned kYields = 4000;
  ++turns_;
  if (turns_ < kSpins) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  } else if (turns_ < kYields) {
    ::sched_yield();
  } else {
    const timespec moment{0, 20'000};
    ::nanosleep(&moment, nullptr);
  }
}

}  // namespace gigabar::inline v0
