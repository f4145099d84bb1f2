// SPDX-License-Identifier: Apache-2.0
// The public face of messages and collectives.
#include <cstring>
#include <utility>

#include "base/errors.hpp"
#include "fabric/calls.hpp"
#include "gigabar/fabric.hpp"

namespace gigabar::inline v0 {

using fabric::bad_queue;
using fabric::Engine;
using fabric::guarded;
using fabric::is_usable;
using fabric::locked;
using fabric::refuse_options;
using fabric::unusable;

// --- Messages -------------------------------------------------------------------------------------------------------------------

Result<Operation> Fabric::post_send(Rank to, Tag tag, const void* source, std::uint64_t bytes, const PostOptions& options) try {
  if (!is_usable(state_)) return unusable(state_, "send");
  if (options.queue >= kQueues) return bad_queue("send", options.queue);
  if (auto refused = refuse_options("send", options)) return std::move(*refused);
  auto lock = state_->engine->lock();
  return state_->engine->post_send(lock, to, tag, source, bytes, options);
} catch (...) {
  return error_of_exception("post_send");
}

Result<Operation> Fabric::post_recv(Rank from, Tag tag, Tag mask, void* destination, std::uint64_t bytes,
                                    const PostOptions& options) try {
  if (!is_usable(state_)) return unusable(state_, "recv");
  if (options.queue >= kQueues) return bad_queue("recv", options.queue);
  auto lock = state_->engine->lock();
  return state_->engine->post_recv(from, tag, mask, destination, bytes, options);
} catch (...) {
  return error_of_exception("post_recv");
}

Result<Received> Fabric::wait_message(Operation operation, Timeout timeout) {
  return locked(state_, "wait_message", [&](Engine& engine, auto& lock) { return engine.wait_message(lock, operation, timeout); });
}

Result<void> Fabric::cancel_recv(Operation operation) {
  return guarded(state_, "cancel_recv", [&](Engine& engine, auto&) { return engine.cancel_recv(operation); });
}

namespace {

// Ended by something that the operation itself knows nothing of: it must not touch the buffer later, when the caller has left.
bool is_left_posted(Status status) noexcept { return status == Status::timed_out || status == Status::out_of_memory; }

}  // namespace

Result<void> Fabric::send(Rank to, Tag tag, const void* source, std::uint64_t bytes, Timeout timeout,
                          const PostOptions& options) try {
  auto posted = post_send(to, tag, source, bytes, options);
  if (!posted) return std::move(posted).error();
  auto sent = wait_message(*posted, timeout);
  if (is_left_posted(sent.status()) && is_usable(state_)) {
    auto lock = state_->engine->lock();
    sent = state_->engine->leave_message(lock, *posted, timeout, std::move(sent).error());
  }
  if (!sent) return std::move(sent).error();
  return {};
} catch (...) {
  return error_of_exception("send");
}

Result<Received> Fabric::recv(Rank from, Tag tag, void* destination, std::uint64_t bytes, Timeout timeout,
                              const PostOptions& options) try {
  auto posted = post_recv(from, tag, ~Tag{0}, destination, bytes, options);
  if (!posted) return std::move(posted).error();
  auto received = wait_message(*posted, timeout);
  if (!is_left_posted(received.status()) || !is_usable(state_)) return received;
  auto lock = state_->engine->lock();
  return state_->engine->leave_message(lock, *posted, timeout, std::move(received).error());
} catch (...) {
  return error_of_exception("recv");
}

// --- Collectives ----------------------------------------------------------------------------------------------------------------

Result<void> Fabric::barrier(const Group& group, Timeout timeout, CollectiveContext context) {
  return guarded(state_, "barrier", [&](Engine& engine, auto& lock) -> Result<void> {
    std::string values;
    return engine.collect(lock, group, context, fabric::Collective::Kind::barrier, ReduceOperation::sum, values, timeout);
  });
}

namespace {

template <class Number>
Result<void> reduce(Engine& engine, Engine::Lock& lock, fabric::Collective::Kind kind, const Group& group,
                    CollectiveContext context, ReduceOperation operation, std::span<const Number> values, std::span<Number> results,
                    Timeout timeout) {
  const std::string object = text(values.size(), " values");
  if (values.empty() || values.size() > kMaxReduceElements) {
    return make_error(Status::out_of_range, "all_reduce", object, text("1 to ", kMaxReduceElements, " are reduced at once"),
                      "reduce in parts");
  }
  if (results.size() != values.size() || values.data() == nullptr || results.data() == nullptr) {
    return make_error(Status::invalid_argument, "all_reduce", "results", "there must be as many as values",
                      "give spans of one length");
  }
  if (operation > ReduceOperation::sum) {
    return make_error(Status::invalid_argument, "all_reduce", "operation", "it is none of minimum, maximum and sum", {});
  }
  std::string bytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  if (Result<void> done = engine.collect(lock, group, context, kind, operation, bytes, timeout); !done) return done;
  std::memcpy(results.data(), bytes.data(), results.size_bytes());
  return {};
}

}  // namespace

Result<void> Fabric::all_reduce(const Group& group, ReduceOperation operation, std::span<const std::int64_t> values,
                                std::span<std::int64_t> results, Timeout timeout, CollectiveContext context) {
  return guarded(state_, "all_reduce", [&](Engine& engine, auto& lock) {
    return reduce(engine, lock, fabric::Collective::Kind::integers, group, context, operation, values, results, timeout);
  });
}

Result<void> Fabric::all_reduce(const Group& group, ReduceOperation operation, std::span<const double> values,
                                std::span<double> results, Timeout timeout, CollectiveContext context) {
  return guarded(state_, "all_reduce", [&](Engine& engine, auto& lock) {
    return reduce(engine, lock, fabric::Collective::Kind::reals, group, context, operation, values, results, timeout);
  });
}

}  // namespace gigabar::inline v0
