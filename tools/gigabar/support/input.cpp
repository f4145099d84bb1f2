// SPDX-License-Identifier: Apache-2.0
#include "support/input.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/descriptor.hpp"
#include "support/failure.hpp"
#include "support/named_files.hpp"
#include "support/report.hpp"

namespace gigabar::tool {
namespace {

constexpr int kWriterSeconds = 30;  // for the first writer of a FIFO
constexpr int kForever = -1;

// False when the time is over.
bool await(int file, int milliseconds) {
  pollfd waited{file, POLLIN, 0};
  int count = -1;
  while (count < 0) {
    count = ::poll(&waited, 1, milliseconds);
    if (count < 0 && errno != EINTR) return true;
  }
  return count > 0;
}

bool is_fifo(int file) {
  struct stat found{};
  return ::fstat(file, &found) == 0 && S_ISFIFO(found.st_mode);
}

[[noreturn]] void refuse(const std::string& name, std::string_view cause, std::string_view remedy) {
  refuse_usage(fmt::format("{}: {}; {}", name, cause, remedy));
}

std::string read_all(const std::string& name, int file, const InputForm& form) {
  std::string text;
  std::vector<char> part(std::size_t{1} << 16);
  for (;;) {
    const ssize_t count = ::read(file, part.data(), part.size());
    if (count == 0) return text;
    if (count > 0) {
      text.append(part.data(), static_cast<std::size_t>(count));
      if (text.size() > form.most_bytes) {
        refuse(name, fmt::format("is larger than {}", bytes_text(form.most_bytes)), form.remedy_if_larger);
      }
    } else if (errno == EAGAIN) {
      await(file, kForever);  // for a writer that is at work
    } else if (errno != EINTR) {
      refuse(name, fmt::format("cannot be read: {}", std::strerror(errno)), form.remedy);
    }
  }
}

}  // namespace

std::string read_file(std::string_view option, const std::string& path, const InputForm& form) {
  add_named_file(option, path, FileUse::read);
  const std::string name = file_text(option, path);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.is_open()) refuse(name, fmt::format("cannot be opened: {}", std::strerror(errno)), form.remedy);
  // Without a writer it reads as an empty file.
  const bool had_writer = !is_fifo(file.get()) || await(file.get(), kWriterSeconds * 1000);
  std::string text = read_all(name, file.get(), form);
  if (text.empty() && !had_writer) refuse(name, fmt::format("had no writer for {} s", kWriterSeconds), form.remedy);
  return text;
}

std::string read_standard_input(const std::string& name, const InputForm& form) { return read_all(name, STDIN_FILENO, form); }

}  // namespace gigabar::tool
