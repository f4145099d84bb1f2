// SPDX-License-Identifier: Apache-2.0
// Waits, notifications, atomics and collectives.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric_object.hpp"

namespace gigabar::python {

namespace {

NotificationId notification_wait(const FabricObject& self, nb::handle segment, nb::handle first, nb::handle count,
                                 nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.notification_wait";
  const SegmentId here = segment_of(segment, kOperation);
  const NotificationId from = notification_of(first, kOperation);
  const auto number = static_cast<std::uint32_t>(count_of(count, {kOperation, "count"}, kNotifications));
  return wait_joined(self, timeout, kOperation,
                     [&](Fabric& fabric, Timeout slice) { return fabric.notification_wait(here, from, number, slice); });
}

void notification_wait_count(const FabricObject& self, nb::handle segment, nb::handle notification, nb::handle value,
                             nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.notification_wait_count";
  const SegmentId here = segment_of(segment, kOperation);
  const NotificationId id = notification_of(notification, kOperation);
  const std::uint32_t count = value_of(value, kOperation);
  wait_joined(self, timeout, kOperation,
              [&](Fabric& fabric, Timeout slice) { return fabric.notification_wait_count(here, id, count, slice); });
}

std::uint32_t notification_reset(const FabricObject& self, nb::handle segment, nb::handle notification) {
  constexpr const char* kOperation = "Fabric.notification_reset";
  return take(self.joined(kOperation)
                  ->fabric.notification_reset(segment_of(segment, kOperation), notification_of(notification, kOperation)));
}

void wait(const FabricObject& self, nb::handle queue, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.wait";
  const QueueId id = queue_of(queue, kOperation);
  wait_joined(self, timeout, kOperation, [&](Fabric& fabric, Timeout slice) { return fabric.wait(id, slice); });
}

void flush(const FabricObject& self, nb::handle rank, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.flush";
  const Rank to = rank_of(rank, kOperation);
  wait_joined(self, timeout, kOperation, [&](Fabric& fabric, Timeout slice) { return fabric.flush(to, slice); });
}

void progress(const FabricObject& self) {
  const auto held = self.joined("Fabric.progress");
  take([&] {
    const nb::gil_scoped_release released;
    return held->fabric.progress();
  }());
}

void barrier(const FabricObject& self, nb::handle group, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.barrier";
  const Group ranks = group_of(group, kOperation);
  wait_joined(self, timeout, kOperation, [&](Fabric& fabric, Timeout slice) { return fabric.barrier(ranks, slice); });
}

// The peer's answer to an atomic counts once, so these are one wait.
std::uint64_t fetch_add(const FabricObject& self, nb::handle remote, nb::handle value, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.fetch_add";
  const RemotePlace at = remote_of(remote, kOperation);
  const auto addend = count_of(value, {kOperation, "value"});
  return wait_joined_once(self, timeout, kOperation,
                          [&](Fabric& fabric, Timeout time) { return fabric.fetch_add(at, addend, time); });
}

std::uint64_t compare_swap(const FabricObject& self, nb::handle remote, nb::handle expected, nb::handle desired,
                           nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.compare_swap";
  const RemotePlace at = remote_of(remote, kOperation);
  const auto old_value = count_of(expected, {kOperation, "expected"});
  const auto new_value = count_of(desired, {kOperation, "desired"});
  return wait_joined_once(self, timeout, kOperation,
                          [&](Fabric& fabric, Timeout time) { return fabric.compare_swap(at, old_value, new_value, time); });
}

ReduceOperation reduction_of(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, ReduceOperation>, 3> kNames{
      {{"min", ReduceOperation::minimum}, {"max", ReduceOperation::maximum}, {"sum", ReduceOperation::sum}}};
  for (const auto& [known, operation] : kNames) {
    if (known == name) return operation;
  }
  refuse({"Fabric.all_reduce", "operation", "it is '" + name + "'", "pass sum, min or max"});
}

template <class Number>
std::vector<Number> reduced(const FabricObject& self, const std::vector<Number>& values, ReduceOperation operation,
                            nb::handle group, nb::handle timeout) {
  const Group ranks = group_of(group, "Fabric.all_reduce");
  std::vector<Number> results(values.size());
  wait_joined(self, timeout, "Fabric.all_reduce", [&](Fabric& fabric, Timeout slice) {
    return fabric.all_reduce(ranks, operation, std::span<const Number>(values), std::span<Number>(results), slice);
  });
  return results;
}

std::int64_t signed_of(nb::handle one) {
  const nb::object number = nb::steal(PyNumber_Index(one.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  const long long value = PyLong_AsLongLong(number.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse({"Fabric.all_reduce", "values", "one does not fit into 64 bits", "pass numbers from -2**63 to 2**63 - 1"},
           Status::out_of_range);
  }
  return value;
}

nb::object all_reduce(const FabricObject& self, nb::handle values, const std::string& operation, nb::handle group,
                      nb::handle timeout) {
  if (PySequence_Check(values.ptr()) == 0) throw nb::type_error("Fabric.all_reduce: values: a sequence of numbers is expected");
  const ReduceOperation wanted = reduction_of(operation);
  const nb::list all(nb::borrow(values));
  bool is_whole = true;
  for (const nb::handle one : all) is_whole = is_whole && PyIndex_Check(one.ptr()) != 0;
  if (is_whole) {
    std::vector<std::int64_t> numbers;
    for (const nb::handle one : all) numbers.push_back(signed_of(one));
    return nb::cast(reduced(self, numbers, wanted, group, timeout));
  }
  std::vector<double> numbers;
  for (const nb::handle one : all) {
    numbers.push_back(PyFloat_AsDouble(one.ptr()));
    if (numbers.back() == -1.0 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      throw nb::type_error("Fabric.all_reduce: values: one is no number");
    }
  }
  return nb::cast(reduced(self, numbers, wanted, group, timeout));
}

}  // namespace

void add_waits(nb::class_<FabricObject>& type) {
  type.def("wait", &wait, nb::arg("queue") = 0, nb::arg("timeout").none() = 30.0,
           nb::sig("def wait(self, queue: int = 0, timeout: float | None = 30.0) -> None"),
           "Wait for local completion of everything in the queue. Errors: the first failure of one of its operations.")
      .def("flush", &flush, nb::arg("rank"), nb::arg("timeout").none() = 30.0,
           nb::sig("def flush(self, rank: int, timeout: float | None = 30.0) -> None"),
           "Wait until everything posted to rank is in place there.")
      .def("progress", &progress, nb::sig("def progress(self) -> None"),
           "Make progress without waiting: for a program that polls its own memory instead of waiting for a notification.")
      .def(
          "notification_wait", &notification_wait, nb::arg("segment"), nb::arg("first") = 0, nb::arg("count") = 1,
          nb::arg("timeout").none() = 30.0,
          nb::sig("def notification_wait(self, segment: int, first: int = 0, count: int = 1, timeout: float | None = 30.0) -> int"),
          "Wait until one of count notifications from first on is not 0, and return the lowest such one.")
      .def("notification_wait_count", &notification_wait_count, nb::arg("segment"), nb::arg("notification"), nb::arg("value"),
           nb::arg("timeout").none() = 30.0,
           nb::sig("def notification_wait_count(self, segment: int, notification: int, value: int, timeout: float | None = 30.0) "
                   "-> None"),
           "Wait until the notification is at least value, and subtract value from it.")
      .def("notification_reset", &notification_reset, nb::arg("segment"), nb::arg("notification"),
           nb::sig("def notification_reset(self, segment: int, notification: int) -> int"),
           "Set the notification to 0 and return its value before.")
      .def("barrier", &barrier, nb::arg("group").none() = nb::none(), nb::arg("timeout").none() = 30.0,
           nb::sig("def barrier(self, group: Offsets | None = None, timeout: float | None = 30.0) -> None"),
           "Wait for all ranks of the group (ascending; None: all). After TimedOut call again with the same group.")
      .def("all_reduce", &all_reduce, nb::arg("values"), nb::arg("operation") = "sum", nb::arg("group").none() = nb::none(),
           nb::arg("timeout").none() = 30.0,
           nb::sig("def all_reduce(self, values: Sequence[N], operation: str = 'sum', group: Offsets | None = None, "
                   "timeout: float | None = 30.0) -> list[N]"),
           "Combine up to 255 numbers of each rank of the group by sum, min or max, and return the results at all of them.\n\n"
           "Where all values are whole they are 64-bit integers, else doubles: the same at every rank. After TimedOut call again.")
      .def("fetch_add", &fetch_add, nb::arg("remote"), nb::arg("value"), nb::arg("timeout").none() = 30.0,
           nb::sig("def fetch_add(self, remote: RemotePlace, value: int, timeout: float | None = 30.0) -> int"),
           "Add to 8 aligned bytes of any segment, atomically among the ranks, and return them as before. Ctrl-C does not end this "
           "wait.")
      .def("compare_swap", &compare_swap, nb::arg("remote"), nb::arg("expected"), nb::arg("desired"),
           nb::arg("timeout").none() = 30.0,
           nb::sig("def compare_swap(self, remote: RemotePlace, expected: int, desired: int, timeout: float | None = 30.0) -> int"),
           "Set 8 aligned bytes of any segment to desired where they are expected, and return them as before. As fetch_add.");
}

}  // namespace gigabar::python
