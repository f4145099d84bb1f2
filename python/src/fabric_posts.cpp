// SPDX-License-Identifier: Apache-2.0
// Operations that are posted, and end in a wait.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "fabric_object.hpp"

namespace gigabar::python {

namespace {

// What all posts take behind their own arguments.
#define GIGABAR_POST_ARGUMENTS nb::kw_only(), nb::arg("queue") = 0, nb::arg("options").none() = nb::none()
#define GIGABAR_POST_SIGNATURE "*, queue: int = 0, options: PostOptions | None = None) -> int"

using Post = Result<Operation> (Fabric::*)(LocalPlace, RemotePlace, std::uint64_t, const PostOptions&);
template <Post post>
std::uint64_t move_bytes(const FabricObject& self, nb::handle local, nb::handle remote, nb::handle nbytes, nb::handle queue,
                         nb::handle options) {
  constexpr const char* kOperation = post == static_cast<Post>(&Fabric::write) ? "Fabric.write" : "Fabric.read";
  const LocalPlace at = local_of(local, kOperation);
  const RemotePlace there = remote_of(remote, kOperation);
  const auto count = count_of(nbytes, {kOperation, "nbytes"});
  const PostOptions wanted = post_options(queue, options, kOperation);
  return post_joined(self, kOperation, [&](Fabric& fabric) { return (fabric.*post)(at, there, count, wanted); });
}

using PostNotified = Result<Operation> (Fabric::*)(LocalPlace, RemotePlace, std::uint64_t, NotificationId, std::uint32_t,
                                                   const PostOptions&);
template <PostNotified post>
std::uint64_t write_notified(const FabricObject& self, nb::handle local, nb::handle remote, nb::handle nbytes,
                             nb::handle notification, nb::handle value, nb::handle queue, nb::handle options) {
  constexpr const char* kOperation = post == &Fabric::write_notify ? "Fabric.write_notify" : "Fabric.write_notify_add";
  const LocalPlace from = local_of(local, kOperation);
  const RemotePlace to = remote_of(remote, kOperation);
  const auto count = count_of(nbytes, {kOperation, "nbytes"});
  const NotificationId id = notification_of(notification, kOperation);
  const std::uint32_t word = value_of(value, kOperation);
  const PostOptions wanted = post_options(queue, options, kOperation);
  return post_joined(self, kOperation, [&](Fabric& fabric) { return (fabric.*post)(from, to, count, id, word, wanted); });
}

using Notify = Result<Operation> (Fabric::*)(Rank, SegmentId, NotificationId, std::uint32_t, const PostOptions&);
template <Notify post>
std::uint64_t notify(const FabricObject& self, nb::handle rank, nb::handle segment, nb::handle notification, nb::handle value,
                     nb::handle queue, nb::handle options) {
  constexpr const char* kOperation = post == &Fabric::notify ? "Fabric.notify" : "Fabric.notify_add";
  const Rank to = rank_of(rank, kOperation);
  const SegmentId there = segment_of(segment, kOperation);
  const NotificationId id = notification_of(notification, kOperation);
  const std::uint32_t word = value_of(value, kOperation);
  const PostOptions wanted = post_options(queue, options, kOperation);
  return post_joined(self, kOperation, [&](Fabric& fabric) { return (fabric.*post)(to, there, id, word, wanted); });
}

// ((segment, offset), (segment of the peer, offset), nbytes) of each.
std::vector<ListPiece> pieces_of(nb::handle pieces, const char* operation) {
  const Argument argument{operation, "pieces"};
  if (PySequence_Check(pieces.ptr()) == 0) {
    const std::string what = std::string(operation) + ": pieces: a sequence is expected";
    throw nb::type_error(what.c_str());
  }
  std::vector<ListPiece> found;
  for (const nb::handle one : nb::iter(pieces)) {
    const nb::tuple parts = tuple_of(one, argument, 3, "((segment, offset), (segment, offset), nbytes) of each");
    const nb::tuple there = tuple_of(parts[1], argument, 2, "(segment, offset) of the peer");
    found.push_back({local_of(parts[0], operation), segment_of(there[0], operation),
                     count_of(there[1], {operation, "remote offset"}), count_of(parts[2], {operation, "nbytes"})});
  }
  return found;
}

using PostList = Result<Operation> (Fabric::*)(Rank, std::span<const ListPiece>, const PostOptions&);
template <PostList post>
std::uint64_t move_list(const FabricObject& self, nb::handle rank, nb::handle pieces, nb::handle queue, nb::handle options) {
  constexpr const char* kOperation = post == &Fabric::write_list ? "Fabric.write_list" : "Fabric.read_list";
  const Rank peer = rank_of(rank, kOperation);
  const std::vector<ListPiece> list = pieces_of(pieces, kOperation);
  const PostOptions wanted = post_options(queue, options, kOperation);
  return post_joined(self, kOperation, [&](Fabric& fabric) { return (fabric.*post)(peer, list, wanted); });
}

std::uint64_t write_list_notify(const FabricObject& self, nb::handle rank, nb::handle pieces, nb::handle segment,
                                nb::handle notification, nb::handle value, nb::handle queue, nb::handle options) {
  constexpr const char* kOperation = "Fabric.write_list_notify";
  const Rank peer = rank_of(rank, kOperation);
  const std::vector<ListPiece> list = pieces_of(pieces, kOperation);
  const SegmentId there = segment_of(segment, kOperation);
  const NotificationId id = notification_of(notification, kOperation);
  const std::uint32_t word = value_of(value, kOperation);
  const PostOptions wanted = post_options(queue, options, kOperation);
  return post_joined(self, kOperation,
                     [&](Fabric& fabric) { return fabric.write_list_notify(peer, list, there, id, word, wanted); });
}

std::uint64_t write_in_order(const FabricObject& self, nb::handle source, nb::handle remote, nb::handle queue, nb::handle options) {
  constexpr const char* kOperation = "Fabric.write_in_order";
  const Bytes bytes = host_bytes(source, Access::read, {kOperation, "source"});
  const RemotePlace to = remote_of(remote, kOperation);
  const PostOptions wanted = post_options(queue, options, kOperation);
  return post_joined(self, kOperation,
                     [&](Fabric& fabric) { return fabric.write_in_order(bytes.address(), to, bytes.bytes(), wanted); });
}

}  // namespace

void add_posts(nb::class_<FabricObject>& type) {
  type.def("write", &move_bytes<&Fabric::write>, nb::arg("local"), nb::arg("remote"), nb::arg("nbytes"), GIGABAR_POST_ARGUMENTS,
           nb::sig("def write(self, local: LocalPlace, remote: RemotePlace, nbytes: int, " GIGABAR_POST_SIGNATURE),
           "Post a write from (segment, offset) to (rank, segment, offset), and return the operation's number. wait() ends it.\n\n"
           "Errors: busy (1,024 operations in the queue: wait), unavailable (no path: each with its reason).")
      .def("read", &move_bytes<&Fabric::read>, nb::arg("local"), nb::arg("remote"), nb::arg("nbytes"), GIGABAR_POST_ARGUMENTS,
           nb::sig("def read(self, local: LocalPlace, remote: RemotePlace, nbytes: int, " GIGABAR_POST_SIGNATURE),
           "Post a read from remote to local. As write.")
      .def("write_list", &move_list<&Fabric::write_list>, nb::arg("rank"), nb::arg("pieces"), GIGABAR_POST_ARGUMENTS,
           nb::sig("def write_list(self, rank: int, pieces: Sequence[Piece], " GIGABAR_POST_SIGNATURE),
           "Post up to 1,024 writes to one rank with one call. Each is ((segment, offset), (segment of rank, offset), nbytes).\n"
           "The number is the last one's operation, whose report is of it alone.")
      .def("read_list", &move_list<&Fabric::read_list>, nb::arg("rank"), nb::arg("pieces"), GIGABAR_POST_ARGUMENTS,
           nb::sig("def read_list(self, rank: int, pieces: Sequence[Piece], " GIGABAR_POST_SIGNATURE),
           "Post up to 1,024 reads from one rank with one call. As write_list.")
      .def("write_notify", &write_notified<&Fabric::write_notify>, nb::arg("local"), nb::arg("remote"), nb::arg("nbytes"),
           nb::arg("notification"), nb::arg("value") = 1, GIGABAR_POST_ARGUMENTS,
           nb::sig("def write_notify(self, local: LocalPlace, remote: RemotePlace, nbytes: int, notification: int, value: int = "
                   "1, " GIGABAR_POST_SIGNATURE),
           "Post a write, and set a notification of the remote segment to value (not 0) after the data is in place.")
      .def("write_notify_add", &write_notified<&Fabric::write_notify_add>, nb::arg("local"), nb::arg("remote"), nb::arg("nbytes"),
           nb::arg("notification"), nb::arg("value") = 1, GIGABAR_POST_ARGUMENTS,
           nb::sig("def write_notify_add(self, local: LocalPlace, remote: RemotePlace, nbytes: int, notification: int, "
                   "value: int = 1, " GIGABAR_POST_SIGNATURE),
           "As write_notify, but add value to the notification, modulo 2**32. Between two resets it is either set or added to.")
      .def("write_list_notify", &write_list_notify, nb::arg("rank"), nb::arg("pieces"), nb::arg("segment"), nb::arg("notification"),
           nb::arg("value") = 1, GIGABAR_POST_ARGUMENTS,
           nb::sig("def write_list_notify(self, rank: int, pieces: Sequence[Piece], segment: int, notification: int, "
                   "value: int = 1, " GIGABAR_POST_SIGNATURE),
           "As write_list, and set a notification of a segment of rank to value after all of the data is in place.")
      .def("notify", &notify<&Fabric::notify>, nb::arg("rank"), nb::arg("segment"), nb::arg("notification"), nb::arg("value") = 1,
           GIGABAR_POST_ARGUMENTS,
           nb::sig("def notify(self, rank: int, segment: int, notification: int, value: int = 1, " GIGABAR_POST_SIGNATURE),
           "Set a notification (0 to 65535) of a segment of rank to value, behind the queue's earlier writes to it.")
      .def("notify_add", &notify<&Fabric::notify_add>, nb::arg("rank"), nb::arg("segment"), nb::arg("notification"),
           nb::arg("value") = 1, GIGABAR_POST_ARGUMENTS,
           nb::sig("def notify_add(self, rank: int, segment: int, notification: int, value: int = 1, " GIGABAR_POST_SIGNATURE),
           "As notify, but add value to the notification, modulo 2**32. Between two resets it is either set or added to.")
      .def(
          "write_in_order", &write_in_order, nb::arg("source"), nb::arg("remote"), GIGABAR_POST_ARGUMENTS,
          nb::sig("def write_in_order(self, source: HostMemory, remote: RemotePlace, " GIGABAR_POST_SIGNATURE),
          "Copy up to 64 bytes of the host, and post their write. They are in place after all earlier writes of the queue to that\n"
          "rank, and before later calls of this: a flag in the program's own memory. report() has no path of it.");
}

}  // namespace gigabar::python
