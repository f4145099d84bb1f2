// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/output_file.hpp"
#include "support/failure.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool {
namespace {

struct NamedFile {
  std::string name, identity;
  FileUse use;
};

constexpr int kWriterSeconds = 30;  // for the first writer of a FIFO
constexpr int kForever = -1;

// False when the time is over.
bool await(int file, int milliseconds) {
  pollfd waited{file, POLLIN, 0};
  int count = 0;
  do {
    count = ::poll(&waited, 1, milliseconds);
  } while (count < 0 && errno == EINTR);
  return count != 0;
}

[[noreturn]] void refuse(const std::string& name, std::string_view cause, std::string_view remedy) {
  refuse_usage(fmt::format("{}: {}; {}", name, cause, remedy));
}

std::string read_whole(const std::string& name, int file, const InputForm& form) {
  std::string text;
  while (!read_all(file, form.most_bytes, text)) {
    if (errno == EFBIG) refuse(name, fmt::format("is larger than {}", bytes_text(form.most_bytes)), form.remedy_if_larger);
    if (errno != EAGAIN) refuse(name, fmt::format("cannot be read: {}", std::strerror(errno)), form.remedy);
    await(file, kForever);  // for a writer that is at work
  }
  return text;
}

void fail_for(std::string_view option, const std::string& path, const std::optional<OutputFault>& fault) {
  if (!fault) return;
  fail(fmt::format("{} {}: {}: {}; name a file or a device that can be written", option, plain(path), fault->cause,
                   std::strerror(fault->code)));
}

}  // namespace

void add_named_file(std::string_view name, const std::string& path, FileUse use) {
  static auto* const files = new std::vector<NamedFile>();
  std::string identity = replaced_file(path);
  if (identity.empty()) return;
  for (const NamedFile& other : *files) {
    const bool is_written = use == FileUse::written || other.use == FileUse::written;
    if (is_written && other.identity == identity && other.name != name) {
      refuse_usage(fmt::format("{} and {} name the same file; name two", other.name, name));
    }
  }
  files->push_back({std::string(name), std::move(identity), use});
}

std::string file_text(std::string_view name, const std::string& path) {
  return name.starts_with('-') ? fmt::format("{} {}", name, plain(path)) : plain(path);
}

std::string read_file(std::string_view option, const std::string& path, const InputForm& form) {
  add_named_file(option, path, FileUse::read);
  const std::string name = file_text(option, path);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.is_open()) refuse(name, fmt::format("cannot be opened: {}", std::strerror(errno)), form.remedy);
  // Without a writer it reads as an empty file.
  std::error_code ignored;
  const bool had_writer = !std::filesystem::is_fifo(path, ignored) || await(file.get(), kWriterSeconds * 1000);
  std::string text = read_whole(name, file.get(), form);
  if (text.empty() && !had_writer) refuse(name, fmt::format("had no writer for {} s", kWriterSeconds), form.remedy);
  return text;
}

std::string read_standard_input(const std::string& name, const InputForm& form) { return read_whole(name, STDIN_FILENO, form); }

void flush(std::FILE* text) {
  if (std::fflush(text) == 0 && std::ferror(text) == 0) return;
  const char* const name = text == stdout ? "standard output" : "standard error";
  fail(fmt::format("{}: cannot be written: {}", name, std::strerror(errno)));
}

void write_file(std::string_view option, const std::string& path, std::string_view content) {
  fail_for(option, path, write_output(path, content));
}

void require_writable(std::string_view option, const std::string& path) {
  fail_for(option, path, check_output(path));
  add_named_file(option, path, FileUse::written);
}

void require_storable(std::string_view option, const std::string& path) {
  std::filesystem::path first = path;  // that is made
  std::error_code ignored;
  while (first.has_parent_path() && first.has_relative_path() && !std::filesystem::exists(first.parent_path(), ignored)) {
    first = first.parent_path();
  }
  fail_for(option, path, check_output(first.string()));
  add_named_file(option, path, FileUse::written);
}

void write_standard_output(std::string_view content) {
  flush(stdout);
  if (!write_all(STDOUT_FILENO, content)) fail(fmt::format("standard output: cannot be written: {}", std::strerror(errno)));
}

void report_failed_writes() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    // A handler, unlike SIG_IGN, is not passed on to a program that is executed. What is ignored already stays so.
    if (std::signal(signal, [](int) {}) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

}  // namespace gigabar::tool
