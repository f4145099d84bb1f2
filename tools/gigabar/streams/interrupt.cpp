// SPDX-License-Identifier: Apache-2.0
#include "streams/interrupt.hpp"

namespace gigabar::tool::streams {
namespace {

std::atomic<bool> is_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void set_flag(int) { is_interrupted.store(true); }

}  // namespace

Interrupt::Interrupt() : handlers_(set_flag, SA_RESTART | static_cast<int>(SA_RESETHAND)) {}

const std::atomic<bool>& Interrupt::flag() noexcept { return is_interrupted; }

}  // namespace gigabar::tool::streams
