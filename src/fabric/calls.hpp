// SPDX-License-Identifier: Apache-2.0
// What every call of Fabric looks at first: whether there is a fabric, its options, and the thread that uses the queue.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "fabric/engine.hpp"
#include "gigabar/fabric.hpp"

namespace gigabar {

struct Fabric::State {
  std::unique_ptr<fabric::Engine> engine;
  // In a forked child the parent's connections, threads and kernel objects are the parent's alone: nothing of them may be closed.
  ~State() {
    if (engine && !engine->belongs_to_this_process()) [[maybe_unused]]
      fabric::Engine* const left_alone = engine.release();
  }
};

}  // namespace gigabar

namespace gigabar::fabric {

// A queue while one thread is at it.
class QueueGuard {
 public:
  QueueGuard(Engine& engine, QueueId queue) noexcept : engine_(engine), queue_(queue), is_entered_(engine.enter_queue(queue)) {}
  ~QueueGuard() {
    if (is_entered_) engine_.leave_queue(queue_);
  }
  QueueGuard(const QueueGuard&) = delete;
  QueueGuard& operator=(const QueueGuard&) = delete;
  bool is_entered() const noexcept { return is_entered_; }

 private:
  Engine& engine_;
  QueueId queue_;
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
Error entered_queue(std::string_view operation, QueueId queue);
std::optional<Error> look_at_options(std::string_view operation, const PostOptions& options);
inline std::optional<Error> refuse_options(std::string_view operation, const PostOptions& options) {
  if (!options.chunk_bytes && !options.policy) return std::nullopt;
  return look_at_options(operation, options);
}

}  // namespace gigabar::fabric
