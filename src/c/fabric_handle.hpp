// SPDX-License-Identifier: Apache-2.0
// What the files of the C interface to ranks share: the handle, and arguments that many functions have.
#pragma once

#include <functional>

#include "c/call.hpp"
#include "gigabar/fabric.h"
#include "gigabar/fabric.hpp"
#include "gigabar/mapping.hpp"

struct gigabar_fabric {
  gigabar::Fabric fabric;
  const std::uint32_t generation = gigabar::detail::process_generation();  // of the process that opened it
};

namespace gigabar::c {

inline Fabric& fabric_at(gigabar_fabric* handle, const char*) { return object_at(handle, "fabric").fabric; }
// For calls of Fabric that return no error: refuses a forked child itself.
const Fabric& fabric_at(const gigabar_fabric* handle, const char* function);

// Negative numbers but GIGABAR_FOREVER are refused.
Timeout timeout_of(std::int64_t timeout_ns, const char* argument = "timeout_ns");

PathPolicy policy_of(const gigabar_path_policy& policy);
PostOptions post_options_of(const gigabar_post_options* options);

inline LocalPlace place_of(const gigabar_local_place& place) noexcept { return {place.segment, place.offset_bytes}; }
inline RemotePlace place_of(const gigabar_remote_place& place) noexcept { return {place.rank, place.segment, place.offset_bytes}; }

// A call of a job, which `body` gets.
template <class Handle, class Body>
gigabar_status on_fabric(const char* function, Handle* handle, Body&& body) noexcept {
  return guarded(function, [&] { body(fabric_at(handle, function)); });
}

// Stores the operation that `post` posts, where the caller asks for it: a method of the job, which gets what is given and the
// options, or a function that gets the job first.
template <class Post, class... Given>
gigabar_status posted(const char* function, gigabar_fabric* handle, const gigabar_post_options* options,
                      gigabar_operation* operation, const Post& post, const Given&... given) noexcept {
  return on_fabric(function, handle, [&](Fabric& job) {
    const Operation result = c::take(std::invoke(post, job, given..., post_options_of(options)));
    if (operation != nullptr) *operation = static_cast<gigabar_operation>(result);
  });
}

}  // namespace gigabar::c
