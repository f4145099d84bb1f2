// SPDX-License-Identifier: Apache-2.0
// gigabar report: one HTML page of documents that this program wrote. The page is made by the Python package gigabar_report, which
// is installed beside the program; here the arguments are checked, and the page is written as every other output.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "driver/child_process.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"
#include "support/run_program.hpp"

namespace gigabar::tool {
namespace {

constexpr const char* kUsualPython = "python3";
constexpr const char* kSystemPython = "/usr/bin/python3";  // a distribution's packages are its own, whatever comes first in PATH
constexpr int kNoDocument = 2;                             // exit statuses of gigabar_report
constexpr int kNoLibrary = 3;

struct Options {
  std::vector<std::string> files, before;
  std::string output_path;
  std::string python;
  double timeout_s = 120;
};

// The folder of the package: beside this program wherever both were installed or built.
std::string package_folder() {
  std::error_code code;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", code);
  if (code) fail(fmt::format("where this program is cannot be told: {}", code.message()));
  const std::filesystem::path folder = (program.parent_path() / GIGABAR_PYTHON_FROM_BIN / "gigabar_report").lexically_normal();
  if (!std::filesystem::exists(folder / "__main__.py", code)) {
    fail(fmt::format("{}: is missing, and makes the page; install gigabar with everything that belongs to it",
                     plain(folder.string())));
  }
  return folder.string();
}

// `argument`: its name, or the option's.
void require_readable(std::string_view argument, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    add_named_file(argument, path, FileUse::read);
    std::error_code ignored;
    int code = ::access(path.c_str(), R_OK) == 0 ? 0 : errno;
    if (code == 0 && std::filesystem::is_directory(path, ignored)) code = EISDIR;
    if (code == 0) continue;
    refuse_usage(fmt::format("{}: cannot be read: {}; name a file that 'gigabar COMMAND --json FILE' wrote",
                             file_text(argument, path), std::strerror(code)));
  }
}

// The last line: what a program of Python that failed says comes before it.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return plain(text.substr(text.rfind('\n') + 1));
}

// What it did by itself, to its end.
Finished draw_with(const std::string& python, const Options& options) {
  std::vector<std::string> words = {python, "-B", package_folder()};
  words.insert(words.end(), options.files.begin(), options.files.end());
  words.emplace_back("--before");
  words.insert(words.end(), options.before.begin(), options.before.end());
  Finished drawn = run_program("--output", std::move(words), nullptr, options.timeout_s);
  if (drawn.start_error != 0) {
    fail(
        fmt::format("'{}', which makes the page, cannot be started: {}; install it (apt install python3 python3-matplotlib), or "
                    "name another with --python",
                    plain(python), std::strerror(drawn.start_error)));
  }
  if (!drawn.status) {
    fail(fmt::format("'{}' was not done with the page after {:g} s and was ended; give fewer files, or a larger --timeout",
                     plain(python), options.timeout_s));
  }
  if (!WIFEXITED(*drawn.status)) {
    fail(fmt::format("'{}' was ended by {}: {}", plain(python), signal_text(*drawn.status), last_line(drawn.messages)));
  }
  return drawn;
}

std::string draw(const Options& options) {
  const bool is_chosen = !options.python.empty();
  Finished drawn = draw_with(is_chosen ? options.python : kUsualPython, options);
  if (WEXITSTATUS(*drawn.status) == kNoLibrary && !is_chosen && ::access(kSystemPython, X_OK) == 0) {
    drawn = draw_with(kSystemPython, options);
  }
  const int exit_status = WEXITSTATUS(*drawn.status);
  const std::string message = last_line(drawn.messages);
  if (exit_status == kNoDocument) refuse_usage(message);
  if (exit_status == kNoLibrary) fail(message);
  if (exit_status != 0 || drawn.output.empty()) {
    fail(fmt::format("the page was not made (exit status {}): {}", exit_status, message));
  }
  return std::move(drawn.output);
}

void run_report(const Options& options, const Invocation& invocation) {
  Report report("report", invocation, "");
  require_writable("--output", options.output_path);
  require_readable("DOCUMENT", options.files);
  require_readable("--before", options.before);
  report.show_progress("drawing {}", plain(options.output_path));
  const std::string page = draw(options);
  write_file("--output", options.output_path, page);
  report.print("drawn: {}, {} in {}\n", plain(options.output_path),
               counted(options.files.size() + options.before.size(), "document"), counted(page.size(), "byte"));
}

}  // namespace

void add_report(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "report", "One HTML page of JSON documents, for a browser or a printer", run_report);
  command
      ->add_option("DOCUMENT", options.files, Value{"FILE..."},
                   "JSON files of survey, streams, copylat, latency, bw, bibw, multi-lat, mbw-mr, matrix, compare, doctor, "
                   "topology or preflight")
      ->required();
  command->add_option("-o,--output", options.output_path, {"FILE", file_name()}, "Write the page to this file")->required();
  command->add_option("--before", options.before, Value{"FILE..."},
                      "JSON files of before, up to the next option: what differs by more than the noise is marked");
  command->add_option("--python", options.python, Value{"PROGRAM"}, "Python 3.9 or newer, with matplotlib where curves are drawn");
  command->add_option("--timeout", options.timeout_s, seconds(3600), "Of the whole run");
  command->footer(
      "The page has everything inside, and no script. Curves by size are drawn by matplotlib (apt install python3-matplotlib);\n"
      "pages without them need Python alone. Without --python it is python3, and where that has no matplotlib /usr/bin/python3.\n"
      "Exit status: 0 done, 1 failed, 2 a file is no such document, or the command line cannot be followed.");
}

}  // namespace gigabar::tool
