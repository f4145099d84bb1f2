// SPDX-License-Identifier: Apache-2.0
// Who moves things on, and how threads wait.
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/bell.hpp"
#include "base/log.hpp"
#include "base/remaining.hpp"
#include "base/undo.hpp"
#include "fabric/engine.hpp"
#include "platform/cpu_set.hpp"

namespace gigabar::fabric {
namespace {

// After that long without a poll of the program's the engine's own thread polls. A program that waits long, or polls every
// millisecond by itself, is disturbed less and less often.
constexpr int kMinNapMs = 1;
constexpr int kMaxNapMs = 8;
constexpr int kNapBesideSleeperMs = 100;  // it is called when the sleeper goes
constexpr std::int64_t kPostingPollNs = 1'000'000 / kLooksPerMs;
constexpr std::int64_t kMaxSleepNs = 100'000'000;
// Of a thread that another one will wake: what it waits for is asked again then, since a rank that was never connected to is found
// to be dead by asking only.
constexpr std::int64_t kAskAgainNs = 5 * kMaxSleepNs;
constexpr std::int64_t kConnectingSleepNs = 5'000'000;  // addresses that are awaited tell nobody
constexpr unsigned kPollsPerChannelPoll = 1024;         // channels cost a system call; nothing on them is urgent

// Of counters that are written under the lock.
void add(std::atomic<std::uint32_t>& counter, std::uint32_t number) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + number, std::memory_order_relaxed);
}

// How often another thread has run in this one's place.
std::int64_t context_switches() noexcept {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

// --- Moving on -------------------------------------------------------------------------------------------------------------------

// Also called by a thread that goes to sleep, where nobody else looks after memory that ends.
bool Engine::poll_channels() try {
  bool has_changed = wireup_->poll(*this);
  for (const Rank rank : std::exchange(unwanted_, {})) wireup_->disconnect(rank);
  if (!connecting_.empty()) {
    const std::vector<Peer*> peers = connecting_;
    for (Peer* peer : peers) progress_connecting(*peer);
  }
  // Rank 0 keeps the directory for the others.
  if (!directory_) return has_changed;
  if (const Result<void> polled = directory_->poll(); !polled) log(LogLevel::debug, polled.message());
  return has_changed;
} catch (const std::bad_alloc&) {
  starve_all();  // whose it was is not known
  return true;
}

bool Engine::progress_once() {
  bool has_changed = false;
  for (const auto& transport : transports_) has_changed |= transport->poll(*this);
  if (++polls_ % kPollsPerChannelPoll == 0 || !connecting_.empty()) has_changed |= poll_channels();
  if (!staging_ops_.empty() || !in_copies_.empty()) has_changed |= poll_copies();
  if (!busy_.empty()) {
    const std::vector<Peer*> peers = std::exchange(busy_, {});
    for (Peer* peer : peers) peer->is_listed = false;
    for (Peer* peer : peers) {
      try {
        advance(*peer);
      } catch (const std::bad_alloc&) {
        starve(*peer);
      }
    }
  }
  return has_changed;
}

bool Engine::progress() {
  wake_sleeper();
  bool has_changed = false;
  try {
    has_changed = progress_once();
  } catch (const std::bad_alloc&) {
    starve_all();  // whose it was is not known
  }
  while (!failures_.empty()) {
    // In order: what came first is the cause, what followed its consequence. Retiring one may fail another.
    const auto [peer, error] = failures_.front();
    retire(*peer, error);
    failures_.erase(failures_.begin());
    has_changed = true;
  }
  has_changed = has_changed || has_starved_;
  if (!retired_links_.empty()) end_retired_links();
  if (has_starved_ || has_half_lost_) retire_ill();
  if (has_changed) ++changes_;
  if (sleeper_count_ != 0 && changes_ != told_changes_) {
    told_changes_ = changes_;
    changed_.notify_all();
  }
  return has_changed;
}

// A thread that posts much and waits seldom moves things on now and then, and the engine's own leaves it alone.
void Engine::poll_between_posts() {
  const std::int64_t now = now_ns();
  if (now - polled_between_posts_ns_ < kPostingPollNs) return;
  const Uncancelled uncancelled;
  polled_between_posts_ns_ = now;
  take_over_polling();
  progress();
}

// --- Sleeping --------------------------------------------------------------------------------------------------------------------

// Whether messages with data are in place, so that the next notification can be a word. And who writes words by an adapter, which
// wakes nobody, is told once that a thread waits for them, until it has woken this rank.
void Engine::ask_before_sleep() {
  for (const auto& [rank, peer] : peers_) {
    if (peer->state != Peer::State::ready || !peer->transport->why_no_words().empty()) continue;
    if (peer->data_said != peer->data_placed) ask_placed(*peer);
    if (word_waits_ == 0 || peer->is_asked_to_wake || peer->rails.front().link->limits().words_wake) continue;
    peer->is_asked_to_wake = true;
    say(*peer, {.type = MessageType::wake_me});
  }
}

bool Engine::arm_all() {
  ask_before_sleep();
  // Operations that wait for room in a link, and copies, tell nobody when they can go on.
  if (!busy_.empty() || has_copies_under_way() || has_half_lost_ || !retired_links_.empty()) return false;
  for (const auto& transport : transports_) {
    if (!transport->arm()) return false;
  }
  return true;
}

// Behind arm_all(). One thread at a time: of two, an event would wake only one.
void Engine::sleep_on_descriptors(Lock& lock, std::int64_t deadline_ns) {
  const std::int64_t most_ns = connecting_.empty() ? kMaxSleepNs : kConnectingSleepNs;
  has_sleeper_ = true;
  lock.unlock();
  const std::int64_t left_ns = std::clamp<std::int64_t>(deadline_ns - now_ns(), 0, most_ns);
  epoll_event events[4];
  if (epoll_wait(epoll_.get(), events, 4, static_cast<int>((left_ns + 999'999) / 1'000'000)) > 0) take_event(wake_);
  lock.lock();
  has_sleeper_ = is_woken_ = false;
  if (poll_channels()) ++changes_;
}

Result<void> Engine::flush_gpu_writes() {
  for (const auto& transport : transports_) {
    if (Result<void> flushed = transport->flush_gpu_writes(); !flushed) return flushed;
  }
  return {};
}

// By whoever polls: links that are polled are armed no more, and tell the descriptors nothing.
void Engine::wake_sleeper() noexcept {
  if (has_sleeper_ && !std::exchange(is_woken_, true)) signal_event(wake_);
}

void Engine::take_over_polling() noexcept { add(waits_, 1); }

// Whether other threads of the program poll or sleep on the descriptors, or polled since this was asked last.
bool Engine::is_polled_by_others(std::uint32_t& seen_waits) const noexcept {
  const std::uint32_t waits = waits_.load(std::memory_order_relaxed);
  return std::exchange(seen_waits, waits) != waits || pollers_.load(std::memory_order_relaxed) != 0 || has_sleeper_;
}

// Who slept on the descriptors was the only one to be woken by them. Of those that wait one takes its place, else the engine's
// thread.
void Engine::stop_sleeping() noexcept {
  if (sleeper_count_ != 0) {
    changed_.notify_one();
  } else if (is_napping_) {
    signal_event(call_);
  }
}

// --- The engine's thread ---------------------------------------------------------------------------------------------------------

// Sleeps a little, unless it is called. Beside a sleeper it is, as soon as that one stops: it says that it naps before it looks for
// a sleeper, and who stops is none any more before it looks whether it naps.
void Engine::nap(int milliseconds) {
  is_napping_ = true;
  pollfd call{call_.get(), POLLIN, 0};
  if (::poll(&call, 1, has_sleeper_ ? kNapBesideSleeperMs : milliseconds) > 0) take_event(call_);
  is_napping_ = false;
}

void Engine::poll_or_sleep() {
  Lock guard = lock();
  // While this one waited for the lock another may have gone to sleep on the descriptors. If this one did too, it could take the
  // event that calls the other one, of which nobody would know any more that it sleeps.
  if (is_stopping_ || has_sleeper_) return;
  bool has_changed = progress();
  polls_ = kPollsPerChannelPoll - 1;
  if (progress()) {
    has_changed = true;
  } else if (arm_all()) {
    return sleep_on_descriptors(guard, INT64_MAX);
  }
  guard.unlock();
  // Only then: where more threads want to run than there are processors, each yield costs a round of all of them.
  if (!has_changed) sched_yield();
}

// While threads of the program poll, this one only looks now and then whether they still do.
void Engine::run_thread() {
  settle_this_thread("gigabar-fabric", placement_.cpus);
  std::uint32_t seen_waits = 0;
  int nap_ms = kMinNapMs;
  while (!is_stopping_) {
    const std::uint32_t waits_before = seen_waits;
    if (!is_polled_by_others(seen_waits)) {
      nap_ms = kMinNapMs;
      try {
        poll_or_sleep();
      } catch (const std::bad_alloc&) {
        nap(kMaxNapMs);  // until others have given some back
      }
      continue;
    }
    const bool is_busy =
        pollers_.load(std::memory_order_relaxed) != 0 || seen_waits - waits_before >= static_cast<unsigned>(nap_ms);
    nap_ms = is_busy ? std::min(2 * nap_ms, kMaxNapMs) : kMinNapMs;
    nap(nap_ms);
  }
}

// --- Threads that wait -----------------------------------------------------------------------------------------------------------

bool Engine::wait_to_enter(Lock& lock, Queue& queue, Timeout& left) noexcept {
  const Remaining time(left);
  const bool is_entered = queue.waiting.wait(lock, left, [&] { return queue.try_enter(); });
  left = time.left();
  return is_entered;
}

Engine::Waiter::Waiter(Engine& engine, const Timeout& timeout) noexcept
    : engine_(engine),
      timeout_ns_(timeout.is_forever() || timeout.ns() > INT64_MAX / 2 ? INT64_MAX : timeout.ns()),
      seen_changes_(engine.changes_) {
  add(engine_.pollers_, 1);
  engine_.take_over_polling();
  seen_waits_ = engine_.waits_.load(std::memory_order_relaxed);
}

Engine::Waiter::~Waiter() {
  add(engine_.pollers_, ~std::uint32_t{0});
  if (has_slept_) engine_.stop_sleeping();
}

bool Engine::Waiter::is_in_crowd() const noexcept {
  return engine_.patience_.is_beside_kernel && engine_.pollers_.load(std::memory_order_relaxed) > 1;
}

// Whether to let others run and poll again, rather than sleep.
bool Engine::Waiter::is_to_yield(std::int64_t waited_ns) noexcept {
  if (waited_ns <= (is_in_crowd() ? kCrowdYieldNs : kYieldNs)) return true;
  if (waited_ns > engine_.patience_.free_yield_ns) return false;
  const std::int64_t switches = context_switches();
  if (switches_ < 0) switches_ = switches;
  return switches == switches_;
}

bool Engine::Waiter::progress(Lock& lock) {
  if (++turns_ < engine_.patience_.polls_per_look) return true;
  turns_ = 0;
  const std::int64_t now = now_ns();
  if (deadline_ns_ == 0) {
    deadline_ns_ = timeout_ns_ == INT64_MAX ? INT64_MAX : now + timeout_ns_;
    last_change_ns_ = now;
  }
  if (now >= deadline_ns_ || !engine_.is_open()) return false;
  if (std::exchange(seen_changes_, engine_.changes_) != engine_.changes_) {
    last_change_ns_ = now;
    switches_ = -1;
  }
  const std::int64_t waited_ns = now - last_change_ns_;
  const bool yields = waited_ns >= engine_.patience_.spin_ns || is_in_crowd();
  if (yields && !is_to_yield(waited_ns)) {
    engine_.sleep(lock, deadline_ns_, seen_waits_);
    has_slept_ = true;
    return true;
  }
  // Others get their turn: another thread of the program may wait for the lock.
  lock.unlock();
  if (yields) sched_yield();
  lock.lock();
  return true;
}

bool Watch::is_due() noexcept {
  constexpr unsigned kCallsPerLook = 16;  // at the time
  constexpr std::int64_t kSilentNs = 1'000'000'000, kAgainNs = 100'000'000;
  if (std::exchange(seen_lost_count_, lost_count_) != lost_count_) {
    may_connect_ = silence_ == nullptr || lost_count_ != lost_before_;
    return true;
  }
  may_connect_ = true;
  if (silence_ == nullptr || ++silence_->calls % kCallsPerLook != 0) return false;
  const std::int64_t now = now_ns();
  const bool is_first = silence_->next_look_ns == 0;
  if (!is_first && now < silence_->next_look_ns) return false;
  silence_->next_look_ns = now + (is_first ? kSilentNs : kAgainNs);
  return !is_first;
}

// Until something may have happened. Who polls, or sleeps on the descriptors, tells the others of changes.
void Engine::sleep(Lock& lock, std::int64_t deadline_ns, std::uint32_t& seen_waits) {
  add(pollers_, ~std::uint32_t{0});
  const Undo polls_again([&] { add(pollers_, 1); });
  if (is_polled_by_others(seen_waits)) {
    const std::uint64_t seen_changes = changes_;
    const std::int64_t until_ns = std::min(deadline_ns, now_ns() + kAskAgainNs);
    ++sleeper_count_;
    do {
      const std::int64_t most_ns = has_sleeper_ ? kMaxSleepNs : std::int64_t{kMinNapMs} * 1'000'000;
      changed_.wait_for(lock, std::chrono::nanoseconds(std::clamp<std::int64_t>(until_ns - now_ns(), 0, most_ns)));
    } while (has_sleeper_ && changes_ == seen_changes && now_ns() < until_ns);
    --sleeper_count_;
  } else if (!poll_channels() && arm_all()) {
    sleep_on_descriptors(lock, deadline_ns);
  } else {
    lock.unlock();
    sched_yield();
    lock.lock();
  }
}

}  // namespace gigabar::fabric
