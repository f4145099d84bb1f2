// SPDX-License-Identifier: Apache-2.0
#include "run/labels.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

namespace gigabar::tool::run {
namespace {

constexpr std::size_t kMaxLineBytes = 65536;

// A target that is gone ends nothing here: the signal of a broken pipe has, unless it is ignored.
void write_all(int target, std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = ::write(target, text.data(), text.size());
    if (bytes >= 0) {
      text.remove_prefix(static_cast<std::size_t>(bytes));
    } else if (errno == EAGAIN) {
      pollfd entry{target, POLLOUT, 0};
      ::poll(&entry, 1, 1000);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

LabelledStream::LabelledStream(Descriptor source, int target, unsigned rank)
    : source_(std::move(source)), target_(target), label_(fmt::format("[{}] ", rank)) {
  ::fcntl(source_.get(), F_SETFL, ::fcntl(source_.get(), F_GETFL) | O_NONBLOCK);
}

bool LabelledStream::pass_on() {
  std::array<char, 16384> piece{};
  const ssize_t bytes = ::read(source_.get(), piece.data(), piece.size());
  if (bytes == 0) return false;
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  waiting_.append(piece.data(), static_cast<std::size_t>(bytes));
  write_lines(false);
  return true;
}

void LabelledStream::finish() { write_lines(true); }

void LabelledStream::write_lines(bool is_end) {
  std::string lines;
  std::size_t start = 0;
  while (start < waiting_.size()) {
    const std::size_t newline = waiting_.find('\n', start);
    if (newline == std::string::npos && !is_end && waiting_.size() - start < kMaxLineBytes) break;
    const std::size_t end = newline == std::string::npos ? waiting_.size() : newline;
    lines += label_;
    lines.append(waiting_, start, end - start);
    lines += '\n';
    start = newline == std::string::npos ? waiting_.size() : newline + 1;
  }
  waiting_.erase(0, start);
  write_all(target_, lines);
}

}  // namespace gigabar::tool::run
