// SPDX-License-Identifier: Apache-2.0
// Knows whether this process is a forked child of the one that made a mapping.
#include <pthread.h>

#include "gigabar/mapping.hpp"

namespace gigabar::inline v0::detail {

namespace {

std::uint32_t generation = 1;

// Whoever links process_generation() links this file, so also a static link keeps the watch. Runs in the child while it has one
// thread: a plain increment is enough, and the copy functions read it without a lock.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { ++generation; });

}  // namespace

std::uint32_t process_generation() noexcept { return generation; }

}  // namespace gigabar::inline v0::detail
