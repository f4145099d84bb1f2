// SPDX-License-Identifier: Apache-2.0
// What everybody who accepts connections does with those that have not proved who they are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/descriptor.hpp"
#include "secure/pending_limit.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

// Gives `accepted` those that wait at the listener, each with its address, until `limit` is crowded or a turn is over. Returns for
// how long the listener is to be left alone: none could be accepted now. 0: not at all.
std::int64_t accept_waiting(int listener, const PendingLimit& limit, std::int64_t now_ns,
                            const std::function<void(Descriptor, const SocketAddress&)>& accepted);

// Of the connection from `where`, the `count`th that was turned away. Not a line each: who scans ports must not fill the log.
void log_refusal(const std::string& where, const char* why, std::uint64_t count);

}  // namespace gigabar::secure
