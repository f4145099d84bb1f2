// SPDX-License-Identifier: Apache-2.0
// A rank as an object of Python, and the arguments of its calls. Each refusal names the argument.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <memory>

#include "arguments.hpp"
#include "errors.hpp"
#include "gigabar/fabric.hpp"
#include "waiting.hpp"

namespace gigabar::python {

SegmentId segment_of(nb::handle object, const char* operation);
Rank rank_of(nb::handle object, const char* operation);
NotificationId notification_of(nb::handle object, const char* operation);
std::uint32_t value_of(nb::handle object, const char* operation);
LocalPlace local_of(nb::handle object, const char* operation);
RemotePlace remote_of(nb::handle object, const char* operation);
QueueId queue_of(nb::handle queue, const char* operation);
Group group_of(nb::handle ranks, const char* operation);
// `form` is what a tuple of this length holds, for messages.
nb::tuple tuple_of(nb::handle object, const Argument& argument, std::size_t length, const char* form);

// Of PathPolicy, FabricLimits and PostOptions, dataclasses of the package. None: as by default.
PathPolicy policy_of(nb::handle policy, const char* operation);
FabricLimits limits_of(nb::handle limits, const char* operation);
PostOptions post_options(nb::handle queue, nb::handle options, const char* operation);

// The fabric goes first, then the memory that its peers and its messages use.
struct Joined {
  std::map<SegmentId, Bytes> segments;
  std::map<Operation, Bytes> messages;  // posted, and not over at the end of a wait
  Fabric fabric;
};

class FabricObject {
 public:
  explicit FabricObject(const FabricOptions& options);

  // A copy keeps it for a call during which another thread may leave the job.
  std::shared_ptr<Joined> joined(const char* operation) const;

  void close(nb::handle timeout);
  void abandon() noexcept { joined_.reset(); }
  bool is_closed() const noexcept { return joined_ == nullptr; }
  void exit(nb::handle type);

 private:
  std::shared_ptr<Joined> joined_;
};

// Posts something while other threads run, and returns its number.
template <class Call>
std::uint64_t post_joined(const FabricObject& self, const char* operation, const Call& call) {
  const auto held = self.joined(operation);
  return static_cast<std::uint64_t>(take([&] {
    const nb::gil_scoped_release released;
    return call(held->fabric);
  }()));
}

// Waits in a call of the fabric, with whatever it returns; signals are looked at meanwhile.
template <class Call>
auto wait_joined(const FabricObject& self, nb::handle timeout, const char* operation, const Call& call) {
  const auto held = self.joined(operation);
  return take(wait_in_slices(timeout_of(timeout, operation), [&](Timeout slice) { return call(held->fabric, slice); }));
}

// In one wait, which no signal ends: its time-out is more than the end of a part.
template <class Call>
auto wait_joined_once(const FabricObject& self, nb::handle timeout, const char* operation, const Call& call) {
  const auto held = self.joined(operation);
  const Timeout time = timeout_of(timeout, operation);
  return take([&] {
    const nb::gil_scoped_release released;
    return call(held->fabric, time);
  }());
}

void add_posts(nb::class_<FabricObject>& type);
void add_waits(nb::class_<FabricObject>& type);
void add_messages(nb::class_<FabricObject>& type);
void add_state(nb::class_<FabricObject>& type);

}  // namespace gigabar::python
