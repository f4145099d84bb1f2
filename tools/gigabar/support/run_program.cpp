// SPDX-License-Identifier: Apache-2.0
#include "support/run_program.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view option) : option_(option), file_(memfd_create("gigabar", MFD_CLOEXEC)) {
    if (!file_.is_open()) fail(fmt::format("{}: cannot make a file in memory: {}", option_, std::strerror(errno)));
  }
  int number() const noexcept { return file_.get(); }

  void fill(std::string_view text) const {
    if (!write_all(number(), text)) fail(fmt::format("{}: cannot fill a file in memory: {}", option_, std::strerror(errno)));
    lseek(number(), 0, SEEK_SET);
  }
  std::string content() const {
    std::string text(static_cast<std::size_t>(std::max<off_t>(lseek(number(), 0, SEEK_END), 0)), '\0');
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t count = pread(number(), text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(fmt::format("{}: cannot read a file in memory: {}", option_, std::strerror(errno)));
      done += static_cast<std::size_t>(count);
    }
    return text;
  }

 private:
  std::string_view option_;
  Descriptor file_;
};

}  // namespace

Finished run_program(std::string_view option, std::vector<std::string> words, const std::string* input, double most_seconds) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // Made in the order in which they become 0, 1 and 2: where standard input is closed, what gets its number is the input.
  std::optional<MemoryFile> read;
  if (input != nullptr) read.emplace(option).fill(*input);
  const MemoryFile output(option), messages(option);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (read) posix_spawn_file_actions_adddup2(&actions, read->number(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, messages.number(), STDERR_FILENO);
  pid_t process = -1;
  Finished finished;
  finished.start_error = posix_spawnp(&process, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (finished.start_error != 0) return finished;
  finished.status = ChildProcess(process).end_by(now_ns() + static_cast<std::int64_t>(most_seconds * 1e9));
  if (!finished.status) return finished;
  finished.output = output.content();
  finished.messages = messages.content();
  return finished;
}

}  // namespace gigabar::tool
