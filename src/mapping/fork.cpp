// SPDX-License-Identifier: Apache-2.0
// Knows whether this process is a forked child of the one that made a mapping.
#include <pthread.h>

#include "mapping/fork.hpp"

#include "gigabar/mapping.hpp"

namespace gigabar::inline v0::detail {

namespace {

std::uint32_t generation = 1;

// Runs in the child while it has one thread: a plain increment is enough, and the copy functions read it without a lock.
const int registered = pthread_atfork(nullptr, nullptr, [] { ++generation; });

}  // namespace

std::uint32_t process_generation() noexcept { return generation; }

int fork_watch_status() { return registered; }

}  // namespace gigabar::inline v0::detail
