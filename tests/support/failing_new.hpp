// SPDX-License-Identifier: Apache-2.0
// Host memory that runs out: operator new of the whole program, which fails at an allocation of the calling thread that a test
// names. A program that is to have it is linked with failing_new.cpp.
#pragma once

#include <functional>

#include "gigabar/status.hpp"

namespace gigabar::test {

// Allocations of this thread that still succeed before one, and only one, fails; negative: none fails.
extern thread_local long left_until_failure;
// Whether one has failed.
extern thread_local bool has_failed;
// Where it answers true, allocations are another's and none of them fails. Null: nowhere.
extern bool (*is_inside_another)();

// Runs `call` again and again, each time with one more allocation that succeeds, until none fails; `check` behind each that had one
// fail. What `call` answers is then out_of_memory, or what `is_allowed` allows. Answers how many runs had a failure.
unsigned fail_each_allocation(const std::function<Status()>& call, const std::function<void()>& check,
                              const std::function<bool(Status)>& is_allowed = {});

}  // namespace gigabar::test
