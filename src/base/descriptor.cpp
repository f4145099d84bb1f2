// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/uncancelled.hpp"

namespace gigabar::inline v0 {

Descriptor::~Descriptor() {
  const Uncancelled uncancelled;
  if (number_ >= 0) ::close(number_);
}

bool read_all(int descriptor, std::size_t most_bytes, std::string& content) {
  char chunk[16384];
  for (;;) {
    const ssize_t count = ::read(descriptor, chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count == 0;
    content.append(chunk, static_cast<std::size_t>(count));
    if (content.size() > most_bytes) {
      errno = EFBIG;
      return false;
    }
  }
}

std::optional<std::string> read_small_file(const std::string& path, std::size_t most_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  std::string content;
  if (!file.is_open() || !read_all(file.get(), most_bytes, content)) return {};
  return content;
}

}  // namespace gigabar::inline v0
