// SPDX-License-Identifier: Apache-2.0
// What every call of Fabric looks at first: whether there is a fabric, its options, and the thread that uses the queue.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "base/uncancelled.hpp"
#include "fabric/engine.hpp"
#include "gigabar/fabric.hpp"

namespace gigabar::inline v0 {

struct Fabric::State {
  std::unique_ptr<fabric::Engine> engine;
  // In a forked child the parent's connections, threads and kernel objects are the parent's alone: nothing of them may be closed.
  ~State() {
    if (engine && !engine->belongs_to_this_process()) [[maybe_unused]]
      fabric::Engine* const left_alone = engine.release();
  }
};

}  // namespace gigabar::inline v0

namespace gigabar::fabric {

// A queue while one thread is at it, which waits for others for at most `timeout`. Made and destroyed under the lock.
class QueueGuard : InPlace {
 public:
  QueueGuard(Engine& engine, Engine::Lock& lock, QueueId queue, const Timeout& timeout) noexcept
      : engine_(engine), queue_(queue), left_(timeout), is_entered_(engine.enter_queue(lock, queue, left_)) {}
  ~QueueGuard() {
    if (is_entered_) engine_.leave_queue(queue_);
  }
  // False: the time was too short, or another thread has closed the fabric meanwhile.
  bool is_entered() const noexcept { return is_entered_ && engine_.is_open(); }
  Error why_not(std::string_view operation) const;
  Timeout left() const noexcept { return left_; }

 private:
  Engine& engine_;
  QueueId queue_;
  Timeout left_;
  bool is_entered_;
};

// Whether there is an open fabric of this process. Inline, and what is said of it is not: it stands before every small message.
template <class State>
bool is_usable(const State& state) noexcept {
  const Engine* const engine = state ? state->engine.get() : nullptr;
  return engine != nullptr && engine->belongs_to_this_process() && engine->is_open();
}
Error why_unusable(const Engine* engine, std::string_view operation);
template <class State>
Error unusable(const State& state, std::string_view operation) {
  return why_unusable(state ? state->engine.get() : nullptr, operation);
}
Error bad_queue(std::string_view operation, QueueId queue);
std::optional<Error> look_at_options(std::string_view operation, const PostOptions& options);
inline std::optional<Error> refuse_options(const char* operation, const PostOptions& options) {
  if (!options.chunk_bytes && !options.policy) return std::nullopt;
  return look_at_options(operation, options);
}

// How errors speak of a call: what it does, and the function where that was thrown out of.
struct CallName {
  std::string_view operation;
  const char* function;

  CallName(const char* both) noexcept : operation(both), function(both) {}
  CallName(const char* what, const char* thrown_by) noexcept : operation(what), function(thrown_by) {}
};

// What a wait came to: one that another thread's close() has ended was not too short, nor did a peer end it that left upon that.
template <class State, class Outcome>
Outcome unless_closed(const State& state, std::string_view operation, Outcome outcome) {
  const bool may_be_of_closing = outcome.status() == Status::timed_out || outcome.status() == Status::peer_lost;
  if (may_be_of_closing && !is_usable(state)) return unusable(state, operation);
  return outcome;
}

// What a call does: `call(engine, lock)` with the lock of an open fabric of this process, and nothing thrown leaves it.
template <class State, class Call>
std::invoke_result_t<Call, Engine&, Engine::Lock&> locked(const State& state, CallName name, const Call& call) try {
  if (!is_usable(state)) return unusable(state, name.operation);
  auto lock = state->engine->lock();
  return unless_closed(state, name.operation, call(*state->engine, lock));
} catch (...) {
  return error_of_exception(name.function);
}

// What every call does that has time to: as locked(), and as one piece to whoever cancels the thread.
template <class State, class Call>
std::invoke_result_t<Call, Engine&, Engine::Lock&> guarded(const State& state, CallName name, const Call& call) {
  const Uncancelled uncancelled;
  return locked(state, name, call);
}

// What a call does that has nothing to tell where there is no fabric.
template <class State, class Call>
std::invoke_result_t<Call, const Engine&> told(const State& state, const Call& call) noexcept try {
  const Uncancelled uncancelled;
  if (!is_usable(state)) return {};
  const auto lock = state->engine->lock();
  return call(*state->engine);
} catch (...) {
  return {};
}

}  // namespace gigabar::fabric
