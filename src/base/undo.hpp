// SPDX-License-Identifier: Apache-2.0
// Takes back what was done when the rest of a step does not succeed, by an error or by an exception.
#pragma once

#include <utility>

#include "base/in_place.hpp"
#include "base/quietly.hpp"

namespace gigabar::inline v0 {

// Runs `action` at the end of the scope, unless it was called off.
template <class Action>
class Undo : InPlace {
 public:
  explicit Undo(Action action) noexcept : action_(std::move(action)) {}
  ~Undo() {
    if (is_armed_) quietly(action_);
  }

  void call_off() noexcept { is_armed_ = false; }

 private:
  Action action_;
  bool is_armed_ = true;
};

}  // namespace gigabar::inline v0
