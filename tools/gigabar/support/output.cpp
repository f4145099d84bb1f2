// SPDX-License-Identifier: Apache-2.0
#include "support/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/output_file.hpp"
#include "support/failure.hpp"
#include "support/named_files.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool {
namespace {

void ignore(int) {}

void fail_for(std::string_view option, const std::string& path, const std::optional<OutputFault>& fault) {
  if (!fault) return;
  fail(fmt::format("{} {}: {}: {}; name a file or a device that can be written", option, plain(path), fault->cause,
                   std::strerror(fault->code)));
}

}  // namespace

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
    struct sigaction action{};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = ignore;  // a handler, unlike SIG_IGN, is not passed on to a program that is executed
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace gigabar::tool
