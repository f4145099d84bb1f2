// SPDX-License-Identifier: Apache-2.0
// Knows whether this process is a forked child of the one that made a mapping; see detail::process_generation().
#pragma once

namespace gigabar::inline v0::detail {

// 0 when forks are watched, else pthread_atfork's errno. Whoever makes mappings calls it, so that a static link keeps the watch.
int fork_watch_status();

}  // namespace gigabar::inline v0::detail
