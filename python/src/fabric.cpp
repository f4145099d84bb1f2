// SPDX-License-Identifier: Apache-2.0
#include "fabric.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "errors.hpp"
#include "gigabar/fabric.hpp"
#include "waiting.hpp"

namespace gigabar::python {

namespace {

// The fabric goes first, then the memory that its peers and its messages use.
struct Joined {
  std::map<SegmentId, Bytes> segments;
  std::vector<Bytes> left;  // of messages that were still under way at the end of their wait
  Fabric fabric;
};

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
PostOptions post_options(nb::handle queue, const char* operation) {
  PostOptions options;
  options.queue = queue_of(queue, operation);
  return options;
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

std::uint64_t number_of(Result<Operation>&& posted) { return static_cast<std::uint64_t>(take(std::move(posted))); }

nb::object transport_of(const std::optional<TransportKind>& transport) {
  return transport ? nb::cast(name_of(*transport)) : nb::none();
}

class FabricObject {
 public:
  FabricObject(std::optional<Rank> rank, std::optional<Rank> rank_count, std::optional<std::string> master_address,
               std::optional<std::uint16_t> master_port, std::optional<std::string> job_key,
               const std::vector<std::string>& transports, std::optional<int> device, nb::handle connect_timeout) {
    FabricOptions options;
    options.rank = rank;
    options.rank_count = rank_count;
    options.master_address = std::move(master_address);
    options.master_port = master_port;
    options.job_key = std::move(job_key);
    options.device = device;
    options.connect_timeout = timeout_of(connect_timeout, "Fabric");
    for (const std::string& name : transports) {
      std::optional<TransportKind> kind;
      for (const TransportKind one : {TransportKind::local, TransportKind::verbs, TransportKind::ucx}) {
        if (name_of(one) == name) kind = one;
      }
      if (!kind) refuse({"Fabric", "transports", "one is '" + name + "'", "pass local, verbs and ucx"});
      options.transports.push_back(*kind);
    }
    Result<Fabric> opened = [&] {
      const nb::gil_scoped_release released;
      return Fabric::open(options);
    }();
    joined_ = std::make_shared<Joined>(std::map<SegmentId, Bytes>{}, std::vector<Bytes>{}, take(std::move(opened)));
  }

  // A copy keeps it for a call during which another thread may leave the job.
  std::shared_ptr<Joined> joined(const char* operation) const {
    if (joined_ == nullptr) refuse({operation, "self", "the fabric is closed", "open another"}, Status::unavailable);
    return joined_;
  }

  void close(nb::handle timeout) {
    if (joined_ == nullptr) return;
    const auto held = joined_;
    take(wait_in_slices(timeout_of(timeout, "Fabric.close"), [&](Timeout slice) { return held->fabric.close(slice); }));
    joined_.reset();
  }
  void abandon() noexcept { joined_.reset(); }
  bool is_closed() const noexcept { return joined_ == nullptr; }

  void exit(nb::handle type) {
    if (type.is_none()) {
      close(nb::float_(30.0));
    } else {
      abandon();
    }
  }

  void register_segment(nb::handle id, nb::handle memory) {
    constexpr const char* kOperation = "Fabric.register";
    const SegmentId segment = segment_of(id, kOperation);
    Bytes bytes(memory, Access::write, {kOperation, "memory"});
    const auto held = joined(kOperation);
    take(held->fabric.register_segment(segment, bytes.address(), bytes.bytes()));
    held->segments.erase(segment);
    held->segments.emplace(segment, std::move(bytes));
  }
  void deregister(nb::handle id, nb::handle timeout) {
    constexpr const char* kOperation = "Fabric.deregister";
    const SegmentId segment = segment_of(id, kOperation);
    const auto held = joined(kOperation);
    take(wait_in_slices(timeout_of(timeout, kOperation),
                        [&](Timeout slice) { return held->fabric.deregister_segment(segment, slice); }));
    held->segments.erase(segment);
  }

  void send(nb::handle to, nb::handle source, nb::handle tag, nb::handle timeout, nb::handle queue) {
    constexpr const char* kOperation = "Fabric.send";
    const Rank rank = rank_of(to, kOperation);
    Bytes bytes(source, Access::read, {kOperation, "source"});
    const Timeout time = timeout_of(timeout, kOperation);
    const Tag number = count_of(tag, {kOperation, "tag"});
    const PostOptions options = post_options(queue, kOperation);
    const auto held = joined(kOperation);
    const Operation operation = take([&] {
      const nb::gil_scoped_release released;
      return held->fabric.post_send(rank, number, bytes.address(), bytes.bytes(), options);
    }());
    wait_for(*held, operation, time, std::move(bytes));
  }

  nb::object recv(nb::handle from, nb::handle destination, nb::handle tag, nb::handle timeout, nb::handle queue) {
    constexpr const char* kOperation = "Fabric.recv";
    const Rank rank = from.is_none() ? kAnyRank : rank_of(from, kOperation);
    Bytes bytes(destination, Access::write, {kOperation, "destination"});
    const Timeout time = timeout_of(timeout, kOperation);
    const bool is_any = tag.is_none();
    const Tag number = is_any ? 0 : count_of(tag, {kOperation, "tag"});
    const PostOptions options = post_options(queue, kOperation);
    const auto held = joined(kOperation);
    const Operation operation = take([&] {
      const nb::gil_scoped_release released;
      return held->fabric.post_recv(rank, number, is_any ? 0 : ~Tag{0}, bytes.address(), bytes.bytes(), options);
    }());
    const Received received = wait_for(*held, operation, time, std::move(bytes));
    return nb::module_::import_("gigabar._types").attr("Received")(received.rank, received.tag, received.bytes);
  }

 private:
  // Where the wait ends before the message, a receive is cancelled; what cannot be cancelled keeps its memory up to the end of the
  // fabric.
  static Received wait_for(Joined& held, Operation operation, const Timeout& timeout, Bytes&& bytes) {
    const auto leave = [&] {
      if (!held.fabric.cancel_recv(operation)) held.left.push_back(std::move(bytes));
    };
    Result<Received> ended = [&] {
      try {
        return wait_in_slices(timeout, [&](Timeout slice) { return held.fabric.wait_message(operation, slice); });
      } catch (...) {  // what a signal's handler raised
        leave();
        throw;
      }
    }();
    if (ended.status() == Status::timed_out) leave();
    return take(std::move(ended));
  }

  std::shared_ptr<Joined> joined_;
};

nb::object report_of(const FabricObject& self, nb::handle operation) {
  const auto number = count_of(operation, {"Fabric.report", "operation"});
  const OperationReport report = take(self.joined("Fabric.report")->fabric.report(static_cast<Operation>(number)));
  nb::list rails;
  for (const RailShare& rail : report.rails) rails.append(nb::make_tuple(rail.rail, rail.bytes));
  return nb::module_::import_("gigabar._types")
      .attr("OperationReport")(report.is_done, name_of(report.status), name_of(report.path), transport_of(report.transport), rails,
                               report.bytes, report.duration_ns, report.reason, report.notification);
}

nb::object explanation_of(const Explanation& explanation) {
  nb::list alternatives;
  for (const Explanation::Alternative& one : explanation.alternatives) alternatives.append(nb::make_tuple(one.name, one.why_not));
  return nb::module_::import_("gigabar._types")
      .attr("Explanation")(explanation.is_possible, name_of(explanation.path), transport_of(explanation.transport),
                           explanation.rails, explanation.reason, alternatives, explanation.to_text());
}

nb::object explain(const FabricObject& self, nb::handle local, nb::handle remote, nb::handle nbytes, nb::handle timeout,
                   bool is_read) {
  constexpr const char* kOperation = "Fabric.explain";
  const LocalPlace from = local_of(local, kOperation);
  const RemotePlace to = remote_of(remote, kOperation);
  const auto count = count_of(nbytes, {kOperation, "nbytes"});
  const auto held = self.joined(kOperation);
  return explanation_of(take(wait_in_slices(timeout_of(timeout, kOperation), [&](Timeout slice) {
    return is_read ? held->fabric.explain_read(from, to, count, slice) : held->fabric.explain_write(from, to, count, slice);
  })));
}

using Post = Result<Operation> (Fabric::*)(LocalPlace, RemotePlace, std::uint64_t, const PostOptions&);
template <Post post>
std::uint64_t move_bytes(const FabricObject& self, nb::handle local, nb::handle remote, nb::handle nbytes, nb::handle queue) {
  constexpr const char* kOperation = post == static_cast<Post>(&Fabric::write) ? "Fabric.write" : "Fabric.read";
  const LocalPlace at = local_of(local, kOperation);
  const RemotePlace there = remote_of(remote, kOperation);
  const auto count = count_of(nbytes, {kOperation, "nbytes"});
  const PostOptions options = post_options(queue, kOperation);
  const auto held = self.joined(kOperation);
  return number_of([&] {
    const nb::gil_scoped_release released;
    return (held->fabric.*post)(at, there, count, options);
  }());
}

std::uint64_t write_notify(const FabricObject& self, nb::handle local, nb::handle remote, nb::handle nbytes,
                           nb::handle notification, nb::handle value, nb::handle queue) {
  constexpr const char* kOperation = "Fabric.write_notify";
  const LocalPlace from = local_of(local, kOperation);
  const RemotePlace to = remote_of(remote, kOperation);
  const auto count = count_of(nbytes, {kOperation, "nbytes"});
  const NotificationId id = notification_of(notification, kOperation);
  const std::uint32_t word = value_of(value, kOperation);
  const PostOptions options = post_options(queue, kOperation);
  const auto held = self.joined(kOperation);
  return number_of([&] {
    const nb::gil_scoped_release released;
    return held->fabric.write_notify(from, to, count, id, word, options);
  }());
}

std::uint64_t notify(const FabricObject& self, nb::handle rank, nb::handle segment, nb::handle notification, nb::handle value,
                     nb::handle queue) {
  constexpr const char* kOperation = "Fabric.notify";
  const Rank to = rank_of(rank, kOperation);
  const SegmentId there = segment_of(segment, kOperation);
  const NotificationId id = notification_of(notification, kOperation);
  const std::uint32_t word = value_of(value, kOperation);
  const PostOptions options = post_options(queue, kOperation);
  const auto held = self.joined(kOperation);
  return number_of([&] {
    const nb::gil_scoped_release released;
    return held->fabric.notify(to, there, id, word, options);
  }());
}

// Waits in a call of the fabric, with whatever it returns; signals are looked at meanwhile.
template <class Call>
auto wait_joined(const FabricObject& self, nb::handle timeout, const char* operation, const Call& call) {
  const auto held = self.joined(operation);
  return take(wait_in_slices(timeout_of(timeout, operation), [&](Timeout slice) { return call(held->fabric, slice); }));
}

NotificationId notification_wait(const FabricObject& self, nb::handle segment, nb::handle first, nb::handle count,
                                 nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.notification_wait";
  const SegmentId here = segment_of(segment, kOperation);
  const NotificationId from = notification_of(first, kOperation);
  const auto number = static_cast<std::uint32_t>(count_of(count, {kOperation, "count"}, kNotifications));
  return wait_joined(self, timeout, kOperation,
                     [&](Fabric& fabric, Timeout slice) { return fabric.notification_wait(here, from, number, slice); });
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

void connect(const FabricObject& self, nb::handle rank, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.connect";
  const Rank to = rank_of(rank, kOperation);
  wait_joined(self, timeout, kOperation, [&](Fabric& fabric, Timeout slice) { return fabric.connect(to, slice); });
}

void barrier(const FabricObject& self, nb::handle group, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.barrier";
  const Group ranks = group_of(group, kOperation);
  wait_joined(self, timeout, kOperation, [&](Fabric& fabric, Timeout slice) { return fabric.barrier(ranks, slice); });
}

// The peer's answer counts once, so this is one wait, which no signal ends.
std::uint64_t fetch_add(const FabricObject& self, nb::handle remote, nb::handle value, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.fetch_add";
  const RemotePlace at = remote_of(remote, kOperation);
  const auto addend = count_of(value, {kOperation, "value"});
  const Timeout time = timeout_of(timeout, kOperation);
  const auto held = self.joined(kOperation);
  return take([&] {
    const nb::gil_scoped_release released;
    return held->fabric.fetch_add(at, addend, time);
  }());
}

}  // namespace

void add_fabric(nb::module_& module) {
  nb::class_<FabricObject>(
      module, "Fabric",
      "This process as a rank of a job. A context manager: it leaves the job in order, and at once after an exception.\n\n"
      "Offsets and sizes are bytes, timeouts seconds; None waits until the operation ends or its peer is lost. A wait lets other\n"
      "threads run, and Ctrl-C ends it. Errors of every call: invalid_argument and out_of_range name the argument; unavailable\n"
      "(closed, no path); peer_lost; foreign_process. TimedOut: nothing is lost, the same call can be made again.\n"
      "Threads: any; operations of one queue, and collectives of one group, are for one thread at a time (busy).")
      .def(nb::init<std::optional<Rank>, std::optional<Rank>, std::optional<std::string>, std::optional<std::uint16_t>,
                    std::optional<std::string>, const std::vector<std::string>&, std::optional<int>, nb::handle>(),
           nb::kw_only(), nb::arg("rank") = nb::none(), nb::arg("rank_count") = nb::none(), nb::arg("master_address") = nb::none(),
           nb::arg("master_port") = nb::none(), nb::arg("job_key") = nb::none(), nb::arg("transports") = std::vector<std::string>(),
           nb::arg("device") = nb::none(), nb::arg("connect_timeout") = 30.0,
           nb::sig("def __init__(self, *, rank: int | None = None, rank_count: int | None = None, master_address: str | None = "
                   "None, master_port: "
                   "int | None = None, job_key: str | None = None, transports: Sequence[str] = (), device: int | None = None, "
                   "connect_timeout: "
                   "float = 30.0) -> None"),
           "Join the job. What is None is taken from the launcher: gigabar run, PMIx, srun, torchrun's variables; else a job of "
           "one rank.\n\n"
           "job_key: at least 16 bytes, the same at every rank. transports: local, verbs, ucx, best first; empty: all.\n"
           "Errors: invalid_argument, unavailable (no transport), timed_out (rank 0 never appeared), no_permission (another key).")
      .def(
          "__enter__", [](nb::handle_t<FabricObject> self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Fabric"))
      .def(
          "__exit__", [](FabricObject& self, nb::handle type, nb::handle, nb::handle) { self.exit(type); }, nb::arg().none(),
          nb::arg().none(), nb::arg().none(), nb::sig("def __exit__(self, kind: object, error: object, trace: object, /) -> None"))
      .def("close", &FabricObject::close, nb::arg("timeout").none() = 30.0,
           nb::sig("def close(self, timeout: float | None = 30.0) -> None"), "Complete the posted operations and leave the job.")
      .def("abandon", &FabricObject::abandon, nb::sig("def abandon(self) -> None"),
           "Leave the job at once: peers that need this rank see it as lost.")
      .def_prop_ro("closed", &FabricObject::is_closed, nb::sig("def closed(self) -> bool"), "Whether this rank has left the job.")
      .def_prop_ro(
          "rank", [](const FabricObject& self) { return self.joined("Fabric.rank")->fabric.rank(); },
          nb::sig("def rank(self) -> int"), "The number of this rank.")
      .def_prop_ro(
          "rank_count", [](const FabricObject& self) { return self.joined("Fabric.rank_count")->fabric.rank_count(); },
          nb::sig("def rank_count(self) -> int"), "The number of ranks of the job.")
      .def_prop_ro(
          "device", [](const FabricObject& self) { return self.joined("Fabric.device")->fabric.device(); },
          nb::sig("def device(self) -> int"), "The device of this rank.")
      .def("register", &FabricObject::register_segment, nb::arg("segment"), nb::arg("memory"),
           nb::sig("def register(self, segment: int, memory: AnyMemory) -> None"),
           "Register contiguous memory of the host or a GPU as a segment (0 to 1023), which peers then reach. It stays alive until "
           "deregister.\n\n"
           "Errors: invalid_argument (id in use), out_of_memory, device_error.")
      .def("deregister", &FabricObject::deregister, nb::arg("segment"), nb::arg("timeout").none() = 30.0,
           nb::sig("def deregister(self, segment: int, timeout: float | None = 30.0) -> None"),
           "Take the segment from the peers: afterwards none of them can access it.")
      .def("connect", &connect, nb::arg("rank"), nb::arg("timeout").none() = 30.0,
           nb::sig("def connect(self, rank: int, timeout: float | None = 30.0) -> None"),
           "Connect now instead of at the first operation.")
      .def("write", &move_bytes<&Fabric::write>, nb::arg("local"), nb::arg("remote"), nb::arg("nbytes"), nb::kw_only(),
           nb::arg("queue") = 0,
           nb::sig("def write(self, local: LocalPlace, remote: RemotePlace, nbytes: int, *, queue: int = 0) -> int"),
           "Post a write from (segment, offset) to (rank, segment, offset), and return the operation's number. wait() ends it.\n\n"
           "Errors: busy (1,024 operations in the queue: wait), unavailable (no path: each with its reason).")
      .def("read", &move_bytes<&Fabric::read>, nb::arg("local"), nb::arg("remote"), nb::arg("nbytes"), nb::kw_only(),
           nb::arg("queue") = 0,
           nb::sig("def read(self, local: LocalPlace, remote: RemotePlace, nbytes: int, *, queue: int = 0) -> int"),
           "Post a read from remote to local. As write.")
      .def("write_notify", &write_notify, nb::arg("local"), nb::arg("remote"), nb::arg("nbytes"), nb::arg("notification"),
           nb::arg("value") = 1, nb::kw_only(), nb::arg("queue") = 0,
           nb::sig("def write_notify(self, local: LocalPlace, remote: RemotePlace, nbytes: int, notification: int, value: int = 1, "
                   "*, queue: int = "
                   "0) -> int"),
           "Post a write, and set a notification of the remote segment to value (not 0) after the data is in place.")
      .def("notify", &notify, nb::arg("rank"), nb::arg("segment"), nb::arg("notification"), nb::arg("value") = 1, nb::kw_only(),
           nb::arg("queue") = 0,
           nb::sig("def notify(self, rank: int, segment: int, notification: int, value: int = 1, *, queue: int = 0) -> int"),
           "Set a notification (0 to 65535) of a segment of rank to value, behind the queue's earlier writes to it.")
      .def(
          "notification_wait", &notification_wait, nb::arg("segment"), nb::arg("first") = 0, nb::arg("count") = 1,
          nb::arg("timeout").none() = 30.0,
          nb::sig("def notification_wait(self, segment: int, first: int = 0, count: int = 1, timeout: float | None = 30.0) -> int"),
          "Wait until one of count notifications from first on is not 0, and return the lowest such one.")
      .def("notification_reset", &notification_reset, nb::arg("segment"), nb::arg("notification"),
           nb::sig("def notification_reset(self, segment: int, notification: int) -> int"),
           "Set the notification to 0 and return its value before.")
      .def("wait", &wait, nb::arg("queue") = 0, nb::arg("timeout").none() = 30.0,
           nb::sig("def wait(self, queue: int = 0, timeout: float | None = 30.0) -> None"),
           "Wait for local completion of everything in the queue. Errors: the first failure of one of its operations.")
      .def("flush", &flush, nb::arg("rank"), nb::arg("timeout").none() = 30.0,
           nb::sig("def flush(self, rank: int, timeout: float | None = 30.0) -> None"),
           "Wait until everything posted to rank is in place there.")
      .def("send", &FabricObject::send, nb::arg("rank"), nb::arg("source"), nb::arg("tag") = 0, nb::arg("timeout").none() = 30.0,
           nb::kw_only(), nb::arg("queue") = 0,
           nb::sig("def send(self, rank: int, source: AnyMemory, tag: int = 0, timeout: float | None = 30.0, *, queue: int = 0) -> "
                   "None"),
           "Send a message of contiguous memory of the host or a GPU. After TimedOut or Ctrl-C it may still be sent: do not change "
           "the memory.")
      .def("recv", &FabricObject::recv, nb::arg("rank").none(), nb::arg("destination"), nb::arg("tag").none() = 0,
           nb::arg("timeout").none() = 30.0, nb::kw_only(), nb::arg("queue") = 0,
           nb::sig("def recv(self, rank: int | None, destination: AnyMemory, tag: int | None = 0, timeout: float | None = 30.0, *, "
                   "queue: int = 0) -> "
                   "Received"),
           "Receive the first message of rank (None: of any) with that tag (None: any). After TimedOut nothing is received later, "
           "unless the\n"
           "message had begun to arrive. Errors: out_of_range (it is longer than the destination).")
      .def("barrier", &barrier, nb::arg("group").none() = nb::none(), nb::arg("timeout").none() = 30.0,
           nb::sig("def barrier(self, group: Offsets | None = None, timeout: float | None = 30.0) -> None"),
           "Wait for all ranks of the group (ascending; None: all). After TimedOut call again with the same group.")
      .def("fetch_add", &fetch_add, nb::arg("remote"), nb::arg("value"), nb::arg("timeout").none() = 30.0,
           nb::sig("def fetch_add(self, remote: RemotePlace, value: int, timeout: float | None = 30.0) -> int"),
           "Add to 8 aligned bytes of any segment, atomically among the ranks, and return them as before. Ctrl-C does not end this "
           "wait.")
      .def("report", &report_of, nb::arg("operation"), nb::sig("def report(self, operation: int) -> OperationReport"),
           "The path, duration and result of one of the last 4,096 operations. Errors: out_of_range.")
      .def("explain", &explain, nb::arg("local"), nb::arg("remote"), nb::arg("nbytes"), nb::arg("timeout").none() = 30.0,
           nb::kw_only(), nb::arg("read") = false,
           nb::sig("def explain(self, local: LocalPlace, remote: RemotePlace, nbytes: int, timeout: float | None = 30.0, *, read: "
                   "bool = False) -> "
                   "Explanation"),
           "Which path a write (or read) would take, and why not another.");
}

}  // namespace gigabar::python
