// SPDX-License-Identifier: Apache-2.0
// A file in memory for a child of this process: the child reads or writes it at its own pace, so no pipe can fill up or break.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/output_file.hpp"
#include "driver/child_process.hpp"
#include "support/failure.hpp"

namespace gigabar::tool {

class MemoryFile {
 public:
  // `option` is what it is needed for, "--svg": the message when there is no memory begins with it.
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

// Starts the program of that name in PATH with its words, the first being the name. Its output and messages go to the files; its
// input comes from one, null: it is this process's own. 0, or errno.
int start_program(std::vector<std::string> words, const MemoryFile* input, const MemoryFile& output, const MemoryFile& messages,
                  ChildProcess& child);

}  // namespace gigabar::tool
