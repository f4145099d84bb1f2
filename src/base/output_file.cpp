// SPDX-License-Identifier: Apache-2.0
#include "base/output_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "base/blocked_signals.hpp"
#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "base/in_place.hpp"
#include "base/undo.hpp"

namespace gigabar::inline v0 {
namespace {

using Fault = std::optional<OutputFault>;

constexpr std::int64_t kReaderNs = 30'000'000'000;  // for the first reader of a FIFO
constexpr int kMaxLinks = 40;                       // as the kernel's
constexpr int kMaxNames = 100;                      // new files of processes that were killed may have the first ones

Fault fault(const char* cause, int code) { return OutputFault{cause, code}; }

// A write to a pipe without readers sends SIGPIPE to the thread; it is taken back here before anybody sees it.
class NoPipeSignal : InPlace {
 public:
  NoPipeSignal() noexcept {
    sigset_t pending;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
  bool was_pending_;
};

bool is_same(const struct stat& first, const struct stat& second) noexcept {
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// The path of the file itself behind symbolic links, also where the last one leads to a file that does not exist yet.
std::string behind_links(std::string path) {
  char target[PATH_MAX];
  for (int i = 0; i < kMaxLinks; ++i) {
    const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
    if (length < 0) break;
    const std::string_view next(target, static_cast<std::size_t>(length));
    path = next.starts_with('/') ? std::string() : folder_of(path);
    path += next;
  }
  return path;
}

// -1, or what this process writes its text to when that is this file: a new file in its place would lose the text.
int own_stream(const struct stat& file) {
  for (const int number : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat stream{};
    if (::fstat(number, &stream) == 0 && is_same(stream, file)) return number;
  }
  return -1;
}

bool is_pipe_without_name(const std::string& path) {
  struct statfs system{};
  return ::statfs(path.c_str(), &system) == 0 && system.f_type == PIPEFS_MAGIC;
}

// Waits for a FIFO's reader; errno says why there is none.
Descriptor open_stream(const std::string& path) {
  const Deadline deadline = Deadline::after_ns(kReaderNs);
  for (;;) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    const int code = errno;
    struct stat found{};
    const bool is_fifo = ::stat(path.c_str(), &found) == 0 && S_ISFIFO(found.st_mode);
    if (file.is_open()) {
      if (::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK) != 0) return {};
      return file;
    }
    if (code != EINTR && (code != ENXIO || !is_fifo || deadline.has_passed() || is_pipe_without_name(path))) {
      errno = code == ENXIO && is_fifo ? EPIPE : code;
      return {};
    }
    ::usleep(5000);
  }
}

Fault write_through(const std::string& path, std::string_view content) {
  const NoPipeSignal no_signal;
  const Descriptor file = open_stream(path);
  if (!file.is_open()) return fault(errno == EPIPE ? "has no reader" : "cannot be opened", errno);
  return write_all(file.get(), content) ? Fault() : fault("cannot be written", errno);
}

Fault write_to_own(int stream, std::string_view content) {
  const NoPipeSignal no_signal;
  std::fflush(stream == STDOUT_FILENO ? stdout : stderr);
  return write_all(stream, content) ? Fault() : fault("cannot be written", errno);
}

// Some file systems cannot.
bool is_stored(int file) noexcept { return ::fsync(file) == 0 || errno == EINVAL || errno == ENOSYS || errno == ENOTSUP; }

Fault overwrite(const std::string& path, std::string_view content) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.is_open()) return fault("cannot be opened", errno);
  const bool is_written = ::ftruncate(file.get(), 0) == 0 && write_all(file.get(), content) && is_stored(file.get());
  return is_written ? Fault() : fault("cannot be written", errno);
}

// Of a file that is not there yet; empty: the working folder.
Fault check_folder(const std::string& folder) {
  const char* const path = folder.empty() ? "." : folder.c_str();
  if (::faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0) return fault("cannot be created", errno);
  return {};
}

// A file that nobody else has; its name replaces `name`.
Descriptor create_beside(const std::string& path, std::string& name) {
  static std::atomic<unsigned> count{0};
  for (int i = 0; i < kMaxNames; ++i) {
    name = folder_of(path) + ".gigabar-" + std::to_string(::getpid()) + "-" + std::to_string(count.fetch_add(1)) + ".new";
    Descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file.is_open() || errno != EEXIST) return file;
  }
  return {};
}

// The owner first: changing it takes away some bits of the mode.
bool take_over(int file, const struct stat& old) {
  struct stat made{};
  if (::fstat(file, &made) != 0) return false;
  const bool has_owner = made.st_uid == old.st_uid && made.st_gid == old.st_gid;
  return (has_owner || ::fchown(file, old.st_uid, old.st_gid) == 0) && ::fchmod(file, old.st_mode & 07777) == 0;
}

// `old`: what has the name now, or null.
Fault replace(const std::string& path, const struct stat* old, std::string_view content) {
  const BlockedSignals blocked;
  std::string name;
  const Descriptor file = create_beside(path, name);
  const bool may_overwrite = old != nullptr;
  if (!file.is_open()) {
    const int code = errno;
    const bool is_of_folder = code == EACCES || code == EPERM || code == EROFS;
    return may_overwrite && is_of_folder ? overwrite(path, content) : fault("cannot be created", code);
  }
  Undo remove([&name] { ::unlink(name.c_str()); });
  if (may_overwrite && !take_over(file.get(), *old)) return overwrite(path, content);
  if (!write_all(file.get(), content) || !is_stored(file.get())) return fault("cannot be written", errno);
  if (::rename(name.c_str(), path.c_str()) == 0) {
    remove.call_off();
    return {};
  }
  return may_overwrite ? overwrite(path, content) : fault("cannot be created", errno);
}

}  // namespace

bool write_all(int descriptor, std::string_view content) noexcept {
  while (!content.empty()) {
    const ssize_t count = ::write(descriptor, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      if (count == 0) errno = ENOSPC;
      return false;
    }
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::optional<OutputFault> check_output(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0)
    return errno == ENOENT ? check_folder(folder_of(behind_links(path))) : fault("cannot be opened", errno);
  if (S_ISDIR(found.st_mode)) return fault("is a folder", EISDIR);
  if (S_ISSOCK(found.st_mode)) return fault("is a socket", ENXIO);
  if (own_stream(found) >= 0 || ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0) return {};
  return fault(S_ISREG(found.st_mode) ? "cannot be written" : "cannot be opened", errno);
}

std::string replaced_file(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) == 0) {
    const bool is_replaced = S_ISREG(found.st_mode) && own_stream(found) < 0;
    return is_replaced ? std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino) : std::string();
  }
  std::error_code ignored;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(behind_links(path), ignored), ignored).string();
}

std::optional<OutputFault> write_output(const std::string& path, std::string_view content) {
  if (Fault wrong = check_output(path)) return wrong;
  struct stat found{};
  const std::string file = behind_links(path);
  if (::stat(path.c_str(), &found) != 0) return replace(file, nullptr, content);
  if (const int stream = own_stream(found); stream >= 0) return write_to_own(stream, content);
  if (!S_ISREG(found.st_mode)) return write_through(path, content);
  struct stat behind{};
  // A file that lost its name is still there below /dev/fd.
  const bool has_name = ::lstat(file.c_str(), &behind) == 0 && is_same(found, behind);
  return has_name ? replace(file, &found, content) : overwrite(path, content);
}

}  // namespace gigabar::inline v0
