// SPDX-License-Identifier: Apache-2.0
#include "support/failing_new.hpp"

#include <gtest/gtest.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

namespace gigabar::test {

thread_local long left_until_failure = -1;
thread_local bool has_failed = false;
bool (*is_inside_another)() = nullptr;

namespace {

std::atomic<long> left_of_all_threads{-1};
std::atomic<bool> has_failed_anywhere{false};

// The paths on which an allocation has failed. Allocates nothing: it stands in the middle of operator new.
class FailedPaths {
 public:
  void use(bool is_used) {
    is_used_ = is_used;
    count_ = 0;
    known_.fill(0);
  }
  // False where one has failed before on the path that leads here; never where paths are not used.
  bool add_this_one() {
    if (!is_used_) return true;
    std::uint64_t path = 0;
    _Unwind_Backtrace(&FailedPaths::add_frame, &path);
    path += path == 0 ? 1 : 0;
    std::size_t at = path % known_.size();
    while (known_[at] != 0 && known_[at] != path) at = (at + 1) % known_.size();
    if (known_[at] == path) {
      ++skipped_;
      return false;
    }
    if (++count_ > known_.size() / 2) std::abort();
    known_[at] = path;
    return true;
  }
  // Allocations, since the last call, that did not fail because of their path.
  long take_skipped() { return std::exchange(skipped_, 0); }

 private:
  static _Unwind_Reason_Code add_frame(_Unwind_Context* frame, void* sum) {
    auto& path = *static_cast<std::uint64_t*>(sum);
    path = (path ^ _Unwind_GetIP(frame)) * 0x9e3779b97f4a7c15;
    path ^= path >> 29;
    return _URC_NO_REASON;
  }

  bool is_used_ = false;
  long skipped_ = 0;
  std::size_t count_ = 0;
  std::array<std::uint64_t, 1 << 16> known_{};
};

FailedPaths failed_paths;
std::mutex all_threads_mutex;

bool strikes(std::atomic<long>& left) {
  if (left < 0) return false;
  const std::lock_guard lock(all_threads_mutex);
  if (left < 0 || (left > 0 && left-- > 0) || !failed_paths.add_this_one()) return false;
  left = -1;
  has_failed_anywhere = true;
  return true;
}

bool fails_now() {
  if (strikes(left_of_all_threads)) return true;
  if (left_until_failure < 0 || (is_inside_another != nullptr && is_inside_another())) return false;
  if ((left_until_failure > 0 && left_until_failure-- > 0) || !failed_paths.add_this_one()) return false;
  has_failed = true;
  left_until_failure = -1;
  return true;
}

}  // namespace

unsigned fail_each_allocation(const std::function<Status()>& call, const std::function<void()>& check,
                              const std::function<bool(Status)>& is_allowed, Failing failing) {
  constexpr unsigned kMaxFailures = 100'000;
  const bool is_by_path = failing == Failing::each_path || failing == Failing::each_path_of_all_threads;
  const bool is_anywhere = failing == Failing::each_of_all_threads || failing == Failing::each_path_of_all_threads;
  failed_paths.use(is_by_path);
  long allowed = 0;
  for (unsigned failures = 0; failures < kMaxFailures;) {
    has_failed = false;
    has_failed_anywhere = false;
    if (is_anywhere) {
      left_of_all_threads = allowed;
    } else {
      left_until_failure = allowed;
    }
    Status status = Status::ok;
    try {
      status = call();
    } catch (...) {
      ADD_FAILURE() << "it threw";
    }
    left_until_failure = -1;
    left_of_all_threads = -1;
    const long failed = allowed + failed_paths.take_skipped();
    if (!has_failed && !has_failed_anywhere) {
      EXPECT_EQ(status, Status::ok) << "with all its memory it works";
      if (!is_by_path || allowed == 0 || testing::Test::HasFailure()) {
        failed_paths.use(false);
        return failures;
      }
      allowed = 0;  // whatever came another way in this run: all of the next one is looked at
      continue;
    }
    ++failures;
    EXPECT_TRUE(status == Status::ok || status == Status::out_of_memory || (is_allowed && is_allowed(status))) << name_of(status);
    check();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "when allocation " << failed << " failed";
      failed_paths.use(false);
      return failures;
    }
    allowed = failed + 1;
  }
  ADD_FAILURE() << "it never succeeded";
  return kMaxFailures;
}

}  // namespace gigabar::test

void* operator new(std::size_t bytes) {
  if (gigabar::test::fails_now()) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return gigabar::test::fails_now() ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
}
// Not inlined: the compiler would see free() of what operator new gave and warn.
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
