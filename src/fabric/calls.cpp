// SPDX-License-Identifier: Apache-2.0
#include "fabric/calls.hpp"

#include <string>

#include "base/errors.hpp"
#include "fabric/settings.hpp"
#include "fabric/tuning.hpp"

namespace gigabar::fabric {

Error why_unusable(const Engine* engine, std::string_view operation) {
  if (engine != nullptr && !engine->belongs_to_this_process()) {
    return make_error(Status::foreign_process, std::string(operation), "fabric", "it belongs to the parent of this process",
                      "open a fabric in this process");
  }
  return make_error(Status::unavailable, std::string(operation), "fabric",
                    engine == nullptr ? "it was moved from or never opened" : "it is closed", "open the fabric first");
}

Error bad_queue(std::string_view operation, QueueId queue) {
  return make_error(Status::out_of_range, std::string(operation), text("queue ", static_cast<unsigned>(queue)),
                    text("there are ", kQueues, " queues"), "give a number below that");
}

Error QueueGuard::why_not(std::string_view operation) const {
  if (!engine_.is_open()) return why_unusable(&engine_, operation);
  return make_error(Status::timed_out, std::string(operation), text("queue ", static_cast<unsigned>(queue_)),
                    "another thread is using it", "call again, or use one queue per thread");
}

std::optional<Error> look_at_options(std::string_view operation, const PostOptions& options) {
  if (options.chunk_bytes && *options.chunk_bytes < kMinChunkBytes) {
    return make_error(Status::invalid_argument, std::string(operation), text("chunk_bytes ", *options.chunk_bytes),
                      "it is below 4096", "give at least 4096, or none for the fabric's");
  }
  if (!options.policy) return std::nullopt;
  return refuse_policy(operation, *options.policy);
}

}  // namespace gigabar::fabric
