// SPDX-License-Identifier: Apache-2.0
// Fork, and other processes: nobody gets at memory that is not theirs, and nobody's end disturbs the owner.
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "scenarios/sanity/scenario.hpp"
#include "support/failure.hpp"
#include "support/pattern.hpp"

extern char** environ;

namespace gigabar::tool {
namespace {

constexpr std::size_t kBytes = 256 << 10;

int load_and_leave(const std::byte* address) {
  static_cast<void>(*reinterpret_cast<const volatile std::byte*>(address));
  return 0;
}

void expect_works(const GdrBuffer& buffer, const EngineView& view) { expect_both_ways(buffer, view, 0, kBytes); }

void fork_child_touches_mapping(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kBytes);
  const EngineView view(memory);
  const GdrBuffer buffer(session->get(), memory.address(), kBytes);
  const Mapping mapping = take(map(memory.address(), kBytes));
  expect_fault(run_in_child([&] { return load_and_leave(buffer.address()); }), "a forked child loads from the parent's mapping");
  const ChildEnd end = run_in_child([&] {
    std::byte word[8] = {};
    if (gdr_copy_from_mapping(buffer.handle(), word, buffer.address(), sizeof word) != EACCES) return 1;
    if (gdr_copy_to_mapping(buffer.handle(), buffer.address(), word, sizeof word) != EACCES) return 2;
    if (copy_from(mapping, 0, word, sizeof word).status() != Status::foreign_process) return 3;
    if (copy_to(mapping, 0, word, sizeof word).status() != Status::foreign_process) return 4;
    return 0;
  });
  expect_refusals(end, "copies in a forked child must be refused (EACCES, foreign_process)");
  expect_works(buffer, view);
}

void fork_access_after_free(const Context& context) {
  const auto session = open_session();
  std::optional<DeviceMemory> memory(allocate(context, kBytes));
  const GdrBuffer buffer(session->get(), memory->address(), kBytes);
  int freed[2];
  expect(pipe(freed) == 0, "pipe failed");
  const auto child = [&] {
    char go = 0;
    return read(freed[0], &go, 1) == 1 ? load_and_leave(buffer.address()) : 98;
  };
  const auto free_and_tell = [&] {
    memory.reset();
    expect(write(freed[1], "x", 1) == 1, "the child could not be told");
  };
  expect_fault(run_in_child(child, free_and_tell), "a forked child loads from the parent's mapping of freed memory");
  close(freed[0]);
  close(freed[1]);
  std::byte word{0};
  buffer.read(0, {&word, 1});  // the parent itself may
}

void fork_child_maps_parents_pin(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kBytes);
  gdr_mh_t handle{};
  expect_code(gdr_pin_buffer(session->get(), reinterpret_cast<unsigned long>(memory.address()), kBytes, 0, 0, &handle), 0,
              "gdr_pin_buffer");
  const ChildEnd end = run_in_child([&] {
    void* mapped = nullptr;
    return gdr_map(session->get(), handle, &mapped, kBytes) == EACCES && mapped == nullptr ? 0 : 1;
  });
  expect_refusals(end, "gdr_map in a forked child with the parent's session must be EACCES");
  expect_code(gdr_unpin_buffer(session->get(), handle), 0, "gdr_unpin_buffer");
}

void fork_child_pins_parents_memory(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kBytes);
  const auto address = reinterpret_cast<unsigned long>(memory.address());
  const ChildEnd end = run_in_child([&] {
    gdr_mh_t handle{77};
    if (gdr_pin_buffer(session->get(), address, kBytes, 0, 0, &handle) != EACCES) return 1;
    if (gdr_pin_buffer_v2(session->get(), address, kBytes, 0, &handle) != EACCES) return 2;
    if (gdr_pin_buffer(session->get(), address, kBytes, 1, 1, &handle) == 0) return 3;
    return handle.h == 77 ? 0 : 4;
  });
  expect_refusals(end, "a forked child must not pin the parent's memory with the parent's session (EACCES)");
  const GdrBuffer buffer(session->get(), memory.address(), kBytes);
}

void fork_child_ends_parents_session(const Context& context) {
  const auto session = open_session();
  gdr_t g = session->get();
  const DeviceMemory memory = allocate(context, kBytes);
  const EngineView view(memory);
  const GdrBuffer buffer(g, memory.address(), kBytes);
  const ChildEnd end = run_in_child([&] {
    gdr_info_t info{};
    int value = 0;
    int check = 0;
    for (const int code :
         {gdr_get_info(g, buffer.handle(), &info), gdr_get_callback_flag(g, buffer.handle(), &value),
          gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value), gdr_driver_get_version(g, &value, &value),
          gdr_unmap(g, buffer.handle(), buffer.address(), kBytes), gdr_unpin_buffer(g, buffer.handle()), gdr_close(g)}) {
      ++check;
      if (code != EACCES) return check;
    }
    return 0;
  });
  expect_refusals(end, "a forked child must not use or end the parent's pin or session (EACCES)");
  expect_works(buffer, view);
}

void fork_inherits_when_asked(const Context& context) {
  const DeviceMemory memory = allocate(context, kBytes);
  const EngineView view(memory);
  MapOptions with;
  with.inherit_on_fork = true;
  auto made = map(memory.address(), kBytes, with);
  if (!made && made.status() == Status::not_supported) waive("inheriting is not supported here: " + made.error().message());
  const Mapping mapping = take(std::move(made));
  std::vector<std::byte> seven(8, std::byte{7});
  view.write(0, seven);
  const ChildEnd end =
      run_in_child([&] { return *reinterpret_cast<const volatile std::byte*>(mapping.address()) == std::byte{7} ? 0 : 1; });
  expect_refusals(end, "a child that inherits the mapping must read it");
}

// What the peer is told: everything that a process could tell another about its buffer.
struct Told {
  std::uint64_t address;
  std::uint64_t mapped_address;
  std::uint64_t handle;
  std::uint64_t session;
  std::uint32_t wants_pin;  // else gdr_map
};

struct Answer {
  std::uint32_t is_refused;
  char text[200];
};

// Starts this program again as the peer, tells it over a socket, and takes its answer; 30 s.
Answer ask_peer(const Context& context, const Told& told) {
  int ends[2];
  expect(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair failed");
  std::vector<std::string> words = context.peer_words(ends[1], context.device.index);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t peer = 0;
  const int code = posix_spawn(&peer, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ);
  close(ends[1]);
  expect(code == 0, fmt::format("cannot start the peer: {}", std::strerror(code)));
  Answer answer{};
  bool is_answered = write(ends[0], &told, sizeof told) == sizeof told;
  pollfd wait = {ends[0], POLLIN, 0};
  is_answered = is_answered && poll(&wait, 1, 30000) == 1 && read(ends[0], &answer, sizeof answer) == sizeof answer;
  close(ends[0]);
  if (!is_answered) kill(peer, SIGKILL);
  int status = 0;
  waitpid(peer, &status, 0);
  expect(is_answered, fmt::format("the peer gave no answer (wait status {})", status));
  answer.text[sizeof answer.text - 1] = '\0';
  return answer;
}

void expect_peer_refused(const Context& context, bool wants_pin) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kBytes);
  const EngineView view(memory);
  const GdrBuffer buffer(session->get(), memory.address(), kBytes);
  const Answer answer =
      ask_peer(context, {reinterpret_cast<std::uint64_t>(memory.address()), reinterpret_cast<std::uint64_t>(buffer.address()),
                         buffer.handle().h, reinterpret_cast<std::uint64_t>(session->get()), wants_pin ? 1U : 0U});
  expect(answer.is_refused == 1, fmt::format("another process got at this one's memory: {}", answer.text));
  expect_works(buffer, view);
}

void socket_peer_maps(const Context& context) { expect_peer_refused(context, false); }
void socket_peer_pins(const Context& context) { expect_peer_refused(context, true); }

}  // namespace

void add_processes(Table& table) {
  table.add("fork_child_touches_mapping", "a forked child cannot use the parent's mapping", fork_child_touches_mapping,
            "invalidation_fork_after_gdr_map_cumemalloc", "invalidation_fork_after_gdr_map_vmmalloc");
  table.add("fork_access_after_free", "nor after the parent freed the memory", fork_access_after_free,
            "invalidation_fork_access_after_free_cumemalloc", "invalidation_fork_access_after_free_vmmalloc");
  table.add("fork_child_maps_parents_pin", "nor map what the parent pinned", fork_child_maps_parents_pin,
            "invalidation_fork_child_gdr_map_parent_cumemalloc", "invalidation_fork_child_gdr_map_parent_vmmalloc");
  table.add("fork_child_pins_parents_memory", "nor pin the parent's memory, with tokens or without", fork_child_pins_parents_memory,
            "invalidation_fork_child_gdr_pin_parent_with_tokens");
  table.add("fork_child_ends_parents_session", "nor end the parent's session; the parent goes on undisturbed",
            fork_child_ends_parents_session, "invalidation_fork_map_and_free_cumemalloc",
            "invalidation_fork_map_and_free_vmmalloc");
  table.add("fork_inherits_when_asked", "a child reads a mapping that was made to be inherited", fork_inherits_when_asked);
  table.add("socket_peer_maps", "another process cannot map this one's memory with what it is told over a socket", socket_peer_maps,
            "invalidation_unix_sock_shared_fd_gdr_map_cumemalloc", "invalidation_unix_sock_shared_fd_gdr_map_vmmalloc");
  table.add("socket_peer_pins", "nor pin it", socket_peer_pins, "invalidation_unix_sock_shared_fd_gdr_pin_buffer_cumemalloc",
            "invalidation_unix_sock_shared_fd_gdr_pin_buffer_vmmalloc");
}

void run_peer(int socket, const DeviceInfo& device) {
  ask_for_stand_ins(device, take(devices()).size());
  Told told{};
  expect(read(socket, &told, sizeof told) == sizeof told, "the peer was told nothing");
  const auto session = open_session();
  Answer answer{1, "refused"};
  const auto report = [&](const char* what) {
    answer.is_refused = 0;
    std::strncpy(answer.text, what, sizeof answer.text - 1);
  };
  gdr_mh_t handle{told.handle};
  void* mapped = nullptr;
  std::byte word[8] = {};
  if (told.wants_pin != 0) {
    if (gdr_pin_buffer(session->get(), told.address, kBytes, 0, 0, &handle) == 0) report("its device address could be pinned");
    if (map(reinterpret_cast<const void*>(told.address), kBytes)) report("its device address could be mapped");
  } else {
    if (gdr_map(session->get(), handle, &mapped, kBytes) == 0) report("its handle could be mapped in a session of the peer");
    if (gdr_map(reinterpret_cast<gdr_t>(told.session), handle, &mapped, kBytes) == 0) report("its session could be used");
    if (gdr_copy_from_mapping(handle, word, reinterpret_cast<const void*>(told.mapped_address), sizeof word) == 0)
      report("its mapping could be read");
  }
  expect(write(socket, &answer, sizeof answer) == sizeof answer, "the answer could not be sent");
}

}  // namespace gigabar::tool
