// SPDX-License-Identifier: Apache-2.0
#include "fabric_object.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace gigabar::python {

namespace {

Preference preference_of(nb::handle policy, const char* path, const char* operation) {
  constexpr std::array<std::pair<std::string_view, Preference>, 4> kNames{{{"allow", Preference::allow},
                                                                           {"prefer", Preference::prefer},
                                                                           {"require", Preference::require},
                                                                           {"forbid", Preference::forbid}}};
  const nb::str given = nb::str(nb::object(policy.attr(path)));
  for (const auto& [name, preference] : kNames) {
    if (name == given.c_str()) return preference;
  }
  refuse({operation, "policy", std::string(path) + " is '" + given.c_str() + "'", "pass allow, prefer, require or forbid"});
}

// An instance of a dataclass of the package, so that its members are there.
void require_type(nb::handle object, const char* type, const Argument& argument) {
  if (nb::isinstance(object, nb::module_::import_("gigabar._types").attr(type))) return;
  const std::string what = std::string(argument.operation) + ": " + argument.name + ": gigabar." + type + " or None is expected";
  throw nb::type_error(what.c_str());
}

std::optional<std::uint64_t> count_or_none(nb::handle holder, const char* name, const char* operation) {
  const nb::object value = holder.attr(name);
  if (value.is_none()) return std::nullopt;
  return count_of(value, {operation, name});
}

}  // namespace

SegmentId segment_of(nb::handle object, const char* operation) {
  return static_cast<SegmentId>(count_of(object, {operation, "segment"}, kMaxSegments - 1));
}
Rank rank_of(nb::handle object, const char* operation) {
  return static_cast<Rank>(count_of(object, {operation, "rank"}, UINT32_MAX));
}
NotificationId notification_of(nb::handle object, const char* operation) {
  return static_cast<NotificationId>(count_of(object, {operation, "notification"}, kNotifications - 1));
}
std::uint32_t value_of(nb::handle object, const char* operation) {
  return static_cast<std::uint32_t>(count_of(object, {operation, "value"}, UINT32_MAX));
}

nb::tuple tuple_of(nb::handle object, const Argument& argument, std::size_t length, const char* form) {
  if (!nb::isinstance<nb::tuple>(object) || nb::len(object) != length) {
    const std::string what = std::string(argument.operation) + ": " + argument.name + ": " + form + " is expected";
    throw nb::type_error(what.c_str());
  }
  return nb::borrow<nb::tuple>(object);
}
LocalPlace local_of(nb::handle object, const char* operation) {
  const nb::tuple parts = tuple_of(object, {operation, "local"}, 2, "(segment, offset)");
  return {segment_of(parts[0], operation), count_of(parts[1], {operation, "local offset"})};
}
RemotePlace remote_of(nb::handle object, const char* operation) {
  const nb::tuple parts = tuple_of(object, {operation, "remote"}, 3, "(rank, segment, offset)");
  return {rank_of(parts[0], operation), segment_of(parts[1], operation), count_of(parts[2], {operation, "remote offset"})};
}

QueueId queue_of(nb::handle queue, const char* operation) {
  return static_cast<QueueId>(count_of(queue, {operation, "queue"}, kQueues - 1));
}

PathPolicy policy_of(nb::handle policy, const char* operation) {
  if (policy.is_none()) return {};
  require_type(policy, "PathPolicy", {operation, "policy"});
  return {preference_of(policy, "gdr", operation), preference_of(policy, "p2p", operation), preference_of(policy, "bar", operation),
          preference_of(policy, "staged", operation)};
}

FabricLimits limits_of(nb::handle limits, const char* operation) {
  FabricLimits found;
  if (limits.is_none()) return found;
  require_type(limits, "FabricLimits", {operation, "limits"});
  found.eager_bytes = count_or_none(limits, "eager_bytes", operation);
  found.gdr_bytes = count_or_none(limits, "gdr_bytes", operation);
  found.gdr_read_bytes = count_or_none(limits, "gdr_read_bytes", operation);
  found.chunk_bytes = count_or_none(limits, "chunk_bytes", operation);
  const nb::object chunk_count = limits.attr("chunk_count");
  if (!chunk_count.is_none()) {
    found.chunk_count = static_cast<unsigned>(count_of(chunk_count, {operation, "chunk_count"}, UINT32_MAX));
  }
  found.kernel_bytes = count_or_none(limits, "kernel_bytes", operation);
  found.stripe_bytes = count_or_none(limits, "stripe_bytes", operation);
  return found;
}

PostOptions post_options(nb::handle queue, nb::handle options, const char* operation) {
  PostOptions found;
  found.queue = queue_of(queue, operation);
  if (options.is_none()) return found;
  require_type(options, "PostOptions", {operation, "options"});
  const nb::object policy = options.attr("policy");
  if (!policy.is_none()) found.policy = policy_of(policy, operation);
  found.chunk_bytes = count_or_none(options, "chunk_bytes", operation);
  found.stripe_bytes = count_or_none(options, "stripe_bytes", operation);
  return found;
}

Group group_of(nb::handle ranks, const char* operation) {
  Group group;
  if (ranks.is_none()) return group;
  const Counts counts(ranks, {operation, "group"});
  for (const std::uint64_t one : counts.values()) {
    if (one > UINT32_MAX)
      refuse({operation, "group", "a rank is " + std::to_string(one), "pass ranks of the job"}, Status::out_of_range);
    group.push_back(static_cast<Rank>(one));
  }
  return group;
}

FabricObject::FabricObject(const FabricOptions& options) {
  Result<Fabric> opened = [&] {
    const nb::gil_scoped_release released;
    return Fabric::open(options);
  }();
  joined_ = std::make_shared<Joined>(std::map<SegmentId, Bytes>{}, std::map<Operation, Bytes>{}, take(std::move(opened)));
}

std::shared_ptr<Joined> FabricObject::joined(const char* operation) const {
  if (joined_ == nullptr) refuse({operation, "self", "the fabric is closed", "open another"}, Status::unavailable);
  return joined_;
}

void FabricObject::close(nb::handle timeout) {
  if (joined_ == nullptr) return;
  const auto held = joined_;
  take(wait_in_slices(timeout_of(timeout, "Fabric.close"), [&](Timeout slice) { return held->fabric.close(slice); }));
  joined_.reset();
}

void FabricObject::exit(nb::handle type) {
  if (type.is_none()) {
    close(nb::float_(30.0));
  } else {
    abandon();
  }
}

}  // namespace gigabar::python
