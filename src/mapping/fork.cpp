// SPDX-License-Identifier: Apache-2.0
// Knows whether this process is a forked child of the one that made a mapping.
#include <pthread.h>

#include "mapping/fork.hpp"

#include "gigabar/mapping.hpp"

namespace gigabar::detail {

std::uint32_t process_generation = 1;

namespace {

// Runs in the child while it has one thread: a plain increment is enough, and the copy functions read it without a lock.
const int registered = pthread_atfork(nullptr, nullptr, [] { ++process_generation; });

}  // namespace

int fork_watch_status() { return registered; }

}  // namespace gigabar::detail
