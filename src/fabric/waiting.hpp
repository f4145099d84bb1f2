// SPDX-License-Identifier: Apache-2.0
// How long threads that wait poll, and let others run, before they sleep.
#pragma once

#include <cstdint>

namespace gigabar::fabric {

inline constexpr std::int64_t kSpinNs = 50'000;
inline constexpr unsigned kPollsPerLook = 16;  // at the time, and for a thread that wants the lock
// A thread that waits lets others run between its polls for so long, and then sleeps: the second where no other did run. To wake a
// thread takes tens of microseconds, in a virtual machine more than a hundred, and a processor that nobody else wants is not worth
// that.
inline constexpr std::int64_t kYieldNs = 1'000'000;
inline constexpr std::int64_t kFreeYieldNs = 10'000'000;
// Where the kernel's threads do a link's work on this processor: an answer comes within the first (a round trip over soft-RoCE
// takes 30 to 100 us, by the machine), else they get their turn, and the processor is never free.
inline constexpr std::int64_t kSpinBesideKernelNs = 100'000;
inline constexpr unsigned kPollsPerYield = 4;
// There several threads that wait get their turns at once, and sleep as late as where processors are free: each would be woken for
// the end of a window. Writes of 8 bytes over soft-RoCE, four threads, two processors: 20,000/s, and 10,000 asleep after kYieldNs.
inline constexpr std::int64_t kCrowdYieldNs = kFreeYieldNs;
// A thread that posts much moves things on so often between its posts.
inline constexpr unsigned kLooksPerMs = 5;

// Of the threads that wait in one engine.
struct Patience {
  std::int64_t spin_ns = kSpinNs;
  std::int64_t free_yield_ns = kFreeYieldNs;
  unsigned polls_per_look = kPollsPerLook;  // at the time
  bool is_beside_kernel = false;
};
inline constexpr Patience kPatienceBesideKernel{kSpinBesideKernelNs, kYieldNs, kPollsPerYield, true};

// Of those that could end a wait. It outlasts the call that waits: who waits in many short calls waits as long.
struct Silence {
  std::int64_t next_look_ns = 0;  // 0: it has not begun
  unsigned calls = 0;
};

// When a wait has to look after ranks that say nothing: when one was lost since it looked last, and every now and then once the
// silence has lasted for a second.
class Watch {
 public:
  // `silence`, null: of a call that does not wait.
  Watch(const std::uint64_t& lost_count, Silence* silence) noexcept
      : lost_count_(lost_count), lost_before_(lost_count), silence_(silence) {}
  bool is_due() noexcept;
  // Behind is_due(): whether that look may connect to see whether a rank lives. For one that was lost before the wait it has not
  // to: those that are left have not been silent yet. Who does not wait has no other look.
  bool may_connect() const noexcept { return may_connect_; }

 private:
  const std::uint64_t& lost_count_;
  const std::uint64_t lost_before_;
  Silence* const silence_;
  std::uint64_t seen_lost_count_ = 0;
  bool may_connect_ = true;
};

}  // namespace gigabar::fabric
