// SPDX-License-Identifier: Apache-2.0
#include "support/failing_new.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace gigabar::test {

thread_local long left_until_failure = -1;
thread_local bool has_failed = false;
bool (*is_inside_another)() = nullptr;

namespace {

std::atomic<long> left_of_all_threads{-1};
std::atomic<bool> has_failed_anywhere{false};

bool fails_now() {
  if (left_of_all_threads.load(std::memory_order_relaxed) >= 0 && left_of_all_threads.fetch_sub(1) == 0) {
    has_failed_anywhere = true;
    return true;
  }
  if (left_until_failure < 0 || (is_inside_another != nullptr && is_inside_another())) return false;
  if (left_until_failure-- > 0) return false;
  has_failed = true;
  left_until_failure = -1;
  return true;
}

}  // namespace

unsigned fail_each_allocation(const std::function<Status()>& call, const std::function<void()>& check,
                              const std::function<bool(Status)>& is_allowed, Failing failing) {
  constexpr long kMaxAllocations = 2'000'000;
  unsigned failures = 0;
  const long part = failing == Failing::some ? 100 : failing == Failing::few ? 10 : kMaxAllocations;
  for (long allowed = 0; allowed < kMaxAllocations; allowed += 1 + allowed / part) {
    has_failed = false;
    has_failed_anywhere = false;
    if (failing == Failing::each_of_all_threads) {
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
    if (!has_failed && !has_failed_anywhere) {
      EXPECT_EQ(status, Status::ok) << "with all its memory it works";
      return failures;
    }
    ++failures;
    EXPECT_TRUE(status == Status::ok || status == Status::out_of_memory || (is_allowed && is_allowed(status))) << name_of(status);
    check();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "when allocation " << allowed << " failed";
      return failures;
    }
  }
  ADD_FAILURE() << "it never succeeded";
  return failures;
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
