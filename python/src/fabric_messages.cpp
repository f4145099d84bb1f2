// SPDX-License-Identifier: Apache-2.0
// Messages: sent and received in one call, or posted and waited for.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "fabric_object.hpp"

namespace gigabar::python {

namespace {

// What all messages take behind their own arguments.
#define GIGABAR_MESSAGE_ARGUMENTS nb::kw_only(), nb::arg("queue") = 0, nb::arg("options").none() = nb::none()
#define GIGABAR_MESSAGE_SIGNATURE "*, queue: int = 0, options: PostOptions | None = None) -> "

// A message that has ended is told even where a signal's handler raises at that moment: nobody can ask for it again.
nb::object object_of(const Received& received) {
  if (PyErr_CheckSignals() != 0) {
    nb::python_error raised;
    raised.value().attr("add_note")("The message has ended: " + std::to_string(received.bytes) + " bytes of rank " +
                                    std::to_string(received.rank) + " with tag " + std::to_string(received.tag) + ".");
    throw raised;
  }
  return nb::module_::import_("gigabar._types").attr("Received")(received.rank, received.tag, received.bytes);
}

// A message that arrives when the time of its receive is over gets that time once more, and at least this, as in C++.
constexpr std::chrono::nanoseconds kMinToArrive = std::chrono::seconds(1);

// Ended by something that the operation itself knows nothing of.
bool is_left_posted(Status status) {
  return status == Status::timed_out || status == Status::out_of_memory || status == Status::unavailable ||
         status == Status::foreign_process;
}

// The memory of what is not over stays: up to another wait, or the end of the fabric.
Result<Received> wait_posted(Joined& held, Operation operation, const Timeout& timeout) {
  Result<Received> ended = wait_in_slices(timeout, [&](Timeout slice) { return held.fabric.wait_message(operation, slice); });
  if (!is_left_posted(ended.status())) held.messages.erase(operation);
  return ended;
}

// False: a message has matched the receive, which only wait_message ends then.
bool cancel(Joined& held, Operation operation) {
  const Status status = held.fabric.cancel_recv(operation).status();
  if (status == Status::ok || status == Status::invalid_argument) held.messages.erase(operation);  // cancelled, or over
  return status != Status::busy;
}

// Who leaves takes the receive back, so that it takes no later message. One that has matched has a message, which would be lost.
Received wait_or_cancel(Joined& held, Operation operation, const Timeout& timeout) {
  try {
    Result<Received> ended = wait_posted(held, operation, timeout);
    if (ended.status() == Status::timed_out && !cancel(held, operation)) {
      ended = wait_posted(held, operation, std::max(std::chrono::nanoseconds(timeout.ns()), kMinToArrive));
    }
    return take(std::move(ended));
  } catch (const nb::python_error& raised) {  // a time-out, or what a signal's handler raised
    const std::string number = std::to_string(static_cast<std::uint64_t>(operation));
    if (!cancel(held, operation))
      raised.value().attr("add_note")("Its message is arriving: wait_message(" + number + ") takes it.");
    throw;
  }
}

void send_message(const FabricObject& self, nb::handle to, nb::handle source, nb::handle tag, nb::handle timeout, nb::handle queue,
                  nb::handle options) {
  constexpr const char* kOperation = "Fabric.send";
  const Rank rank = rank_of(to, kOperation);
  Bytes bytes(source, Access::read, {kOperation, "source"});
  const Timeout time = timeout_of(timeout, kOperation);
  const Tag number = count_of(tag, {kOperation, "tag"});
  const PostOptions wanted = post_options(queue, options, kOperation);
  const auto held = self.joined(kOperation);
  const Operation operation = take([&] {
    const nb::gil_scoped_release released;
    return held->fabric.post_send(rank, number, bytes.address(), bytes.bytes(), wanted);
  }());
  held->messages.emplace(operation, std::move(bytes));
  try {
    take(wait_posted(*held, operation, time));
  } catch (const nb::python_error& raised) {
    if (held->messages.contains(operation)) {
      raised.value().attr("add_note")("It may still be sent: wait_message(" +
                                      std::to_string(static_cast<std::uint64_t>(operation)) + ") waits for it.");
    }
    throw;
  }
}

nb::object recv_message(const FabricObject& self, nb::handle from, nb::handle destination, nb::handle tag, nb::handle timeout,
                        nb::handle queue, nb::handle options) {
  constexpr const char* kOperation = "Fabric.recv";
  const Rank rank = from.is_none() ? kAnyRank : rank_of(from, kOperation);
  Bytes bytes(destination, Access::write, {kOperation, "destination"});
  const Timeout time = timeout_of(timeout, kOperation);
  const bool is_any = tag.is_none();
  const Tag number = is_any ? 0 : count_of(tag, {kOperation, "tag"});
  const PostOptions wanted = post_options(queue, options, kOperation);
  const auto held = self.joined(kOperation);
  const Operation operation = take([&] {
    const nb::gil_scoped_release released;
    return held->fabric.post_recv(rank, number, is_any ? 0 : ~Tag{0}, bytes.address(), bytes.bytes(), wanted);
  }());
  held->messages.emplace(operation, std::move(bytes));
  return object_of(wait_or_cancel(*held, operation, time));
}

std::uint64_t post_send(const FabricObject& self, nb::handle to, nb::handle source, nb::handle tag, nb::handle queue,
                        nb::handle options) {
  constexpr const char* kOperation = "Fabric.post_send";
  const auto held = self.joined(kOperation);
  const Rank rank = rank_of(to, kOperation);
  Bytes bytes(source, Access::read, {kOperation, "source"});
  const Tag number = count_of(tag, {kOperation, "tag"});
  const PostOptions wanted = post_options(queue, options, kOperation);
  const std::uint64_t operation = post_joined(
      self, kOperation, [&](Fabric& fabric) { return fabric.post_send(rank, number, bytes.address(), bytes.bytes(), wanted); });
  held->messages.emplace(static_cast<Operation>(operation), std::move(bytes));
  return operation;
}

std::uint64_t post_recv(const FabricObject& self, nb::handle from, nb::handle destination, nb::handle tag, nb::handle queue,
                        nb::handle options) {
  constexpr const char* kOperation = "Fabric.post_recv";
  const auto held = self.joined(kOperation);
  const Rank rank = from.is_none() ? kAnyRank : rank_of(from, kOperation);
  Bytes bytes(destination, Access::write, {kOperation, "destination"});
  const bool is_any = tag.is_none();
  const Tag number = is_any ? 0 : count_of(tag, {kOperation, "tag"});
  const PostOptions wanted = post_options(queue, options, kOperation);
  const std::uint64_t operation = post_joined(self, kOperation, [&](Fabric& fabric) {
    return fabric.post_recv(rank, number, is_any ? 0 : ~Tag{0}, bytes.address(), bytes.bytes(), wanted);
  });
  held->messages.emplace(static_cast<Operation>(operation), std::move(bytes));
  return operation;
}

Operation posted_of(nb::handle operation, const char* call) {
  return static_cast<Operation>(count_of(operation, {call, "operation"}));
}

nb::object wait_message(const FabricObject& self, nb::handle operation, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.wait_message";
  const Operation posted = posted_of(operation, kOperation);
  const auto held = self.joined(kOperation);
  return object_of(take(wait_posted(*held, posted, timeout_of(timeout, kOperation))));
}

void cancel_recv(const FabricObject& self, nb::handle operation) {
  constexpr const char* kOperation = "Fabric.cancel_recv";
  const Operation posted = posted_of(operation, kOperation);
  const auto held = self.joined(kOperation);
  take(held->fabric.cancel_recv(posted));
  held->messages.erase(posted);
}

}  // namespace

void add_messages(nb::class_<FabricObject>& type) {
  type.def("send", &send_message, nb::arg("rank"), nb::arg("source"), nb::arg("tag") = 0, nb::arg("timeout").none() = 30.0,
           GIGABAR_MESSAGE_ARGUMENTS,
           nb::sig(
               "def send(self, rank: int, source: AnyMemory, tag: int = 0, timeout: float | None = 30.0, " GIGABAR_MESSAGE_SIGNATURE
               "None"),
           "Send a message of contiguous memory of the host or a GPU. After TimedOut or Ctrl-C it may still be sent: do not change "
           "the memory.")
      .def("recv", &recv_message, nb::arg("rank").none(), nb::arg("destination"), nb::arg("tag").none() = 0,
           nb::arg("timeout").none() = 30.0, GIGABAR_MESSAGE_ARGUMENTS,
           nb::sig("def recv(self, rank: int | None, destination: AnyMemory, tag: int | None = 0, timeout: float | None = "
                   "30.0, " GIGABAR_MESSAGE_SIGNATURE "Received"),
           "Receive the first message of rank (None: of any) with that tag (None: any). Errors: out_of_range (it is longer than "
           "the\n"
           "destination).\n\n"
           "A message that is arriving at the end of the time gets that time once more, at least 1 s. After TimedOut or Ctrl-C\n"
           "nothing is received later, unless a note of the exception says that the message is arriving: wait_message takes it.")
      .def("post_send", &post_send, nb::arg("rank"), nb::arg("source"), nb::arg("tag") = 0, GIGABAR_MESSAGE_ARGUMENTS,
           nb::sig("def post_send(self, rank: int, source: AnyMemory, tag: int = 0, " GIGABAR_MESSAGE_SIGNATURE "int"),
           "Post a message, and return the operation's number. Do not change the memory, which stays alive, until wait_message.")
      .def("post_recv", &post_recv, nb::arg("rank").none(), nb::arg("destination"), nb::arg("tag").none() = 0,
           GIGABAR_MESSAGE_ARGUMENTS,
           nb::sig("def post_recv(self, rank: int | None, destination: AnyMemory, tag: int | None = 0, " GIGABAR_MESSAGE_SIGNATURE
                   "int"),
           "Post a receive, as of recv. Do not use the memory, which stays alive, until wait_message or cancel_recv.")
      .def("wait_message", &wait_message, nb::arg("operation"), nb::arg("timeout").none() = 30.0,
           nb::sig("def wait_message(self, operation: int, timeout: float | None = 30.0) -> Received"),
           "Wait for a posted message, once for each. After TimedOut it goes on. Errors: out_of_range (no such message, or longer "
           "than\n"
           "the destination).")
      .def("cancel_recv", &cancel_recv, nb::arg("operation"), nb::sig("def cancel_recv(self, operation: int) -> None"),
           "Cancel a receive that has not matched. Errors: busy (it is being filled or is complete: wait for it).");
}

}  // namespace gigabar::python
