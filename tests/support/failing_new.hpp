// SPDX-License-Identifier: Apache-2.0
// Host memory that runs out: operator new of the whole program, which fails at an allocation that a test names. A program that is
// to have it is linked with failing_new.cpp.
#pragma once

#include <cstdint>
#include <functional>

#include "gigabar/status.hpp"

namespace gigabar::test {

// Allocations of this thread that still succeed before one, and only one, fails; negative: none fails.
extern thread_local long left_until_failure;
// Whether one has failed.
extern thread_local bool has_failed;
// Where it answers true, allocations are another's and none of them fails. Null: nowhere.
extern bool (*is_inside_another)();

// None of this thread's allocations fails while this lives: what a test prepares, in the middle of a call that fails.
class WithMemory {
 public:
  WithMemory() noexcept : left_(left_until_failure) { left_until_failure = -1; }
  ~WithMemory() { left_until_failure = left_; }
  WithMemory(const WithMemory&) = delete;
  WithMemory& operator=(const WithMemory&) = delete;

 private:
  const long left_;
};

// Which allocations fail, one in each run.
enum class Failing : std::uint8_t {
  each,                 // of the calling thread, one after another
  each_of_all_threads,  // of the call's own threads too
  // For long calls: the first on each path, which is the stack of return addresses that leads to the allocation. Whatever number of
  // allocations a loop makes, it is one path; a last run looks whether any path is left.
  each_path,
  each_path_of_all_threads
};

// Runs `call` again and again, each time with one more allocation that succeeds, until none fails; `check` behind each that had one
// fail. What `call` answers is then out_of_memory, or what `is_allowed` allows. Answers how many runs had a failure.
unsigned fail_each_allocation(const std::function<Status()>& call, const std::function<void()>& check,
                              const std::function<bool(Status)>& is_allowed = {}, Failing failing = Failing::each);

}  // namespace gigabar::test
