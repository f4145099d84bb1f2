// SPDX-License-Identifier: Apache-2.0
#include "support/run_program.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "base/output_file.hpp"
#include "driver/child_process.hpp"
#include "support/failure.hpp"

namespace gigabar::tool {
namespace {

Descriptor make_memory_file(std::string_view option) {
  Descriptor file(memfd_create("gigabar", MFD_CLOEXEC));
  if (!file.is_open()) fail(fmt::format("{}: cannot make a file in memory: {}", option, std::strerror(errno)));
  return file;
}

std::string content_of(const Descriptor& file, std::string_view option) {
  std::string text;
  lseek(file.get(), 0, SEEK_SET);
  if (!read_all(file.get(), text.max_size(), text))
    fail(fmt::format("{}: cannot read a file in memory: {}", option, std::strerror(errno)));
  return text;
}

}  // namespace

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Finished run_program(std::string_view option, std::vector<std::string> words, const std::string* input, double most_seconds) {
  const std::vector<char*> arguments = pointers_to(words);
  // Made in the order in which they become 0, 1 and 2: where standard input is closed, what gets its number is the input.
  Descriptor read;
  if (input != nullptr) {
    read = make_memory_file(option);
    if (!write_all(read.get(), *input)) fail(fmt::format("{}: cannot fill a file in memory: {}", option, std::strerror(errno)));
    lseek(read.get(), 0, SEEK_SET);
  }
  const Descriptor output = make_memory_file(option), messages = make_memory_file(option);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (read.is_open()) posix_spawn_file_actions_adddup2(&actions, read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, messages.get(), STDERR_FILENO);
  pid_t process = -1;
  Finished finished;
  finished.start_error = posix_spawnp(&process, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (finished.start_error != 0) return finished;
  finished.status = ChildProcess(process).end_by(now_ns() + static_cast<std::int64_t>(most_seconds * 1e9));
  if (!finished.status) return finished;
  finished.output = content_of(output, option);
  finished.messages = content_of(messages, option);
  return finished;
}

}  // namespace gigabar::tool
