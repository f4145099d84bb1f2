// SPDX-License-Identifier: Apache-2.0
// A machine's files on disk: this machine's own, where the kernel follows the links, and those below a folder. There the kernel
// follows none: each part of a path is opened on its own, so that what a captured tree's links say cannot lead out of it.
#include "platform/system_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "platform/device_nodes.hpp"
#include "platform/system_sources.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::string_view kWhiteSpace(" \t\r\n\v\f\0", 7);
constexpr off_t kMaxPretendedBytes = 65536;  // the largest page of Linux's processors

// "permission denied", or what strerror says.
std::string reason_of(int error) {
  return error == EACCES || error == EPERM ? std::string("permission denied") : std::string(std::strerror(error));
}

FolderNames unlisted(int error) { return {{}, error == ENOENT || error == ENOTDIR ? std::string() : reason_of(error)}; }

// Names in an open folder, sorted and bounded.
FolderNames names_in(int folder) {
  // A descriptor of its own: reading moves the position in the folder.
  Descriptor opened(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) return unlisted(errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(opened.get()), ::closedir);
  if (stream == nullptr) return unlisted(errno);
  static_cast<void>(opened.release());  // now the stream's
  FolderNames listed;
  while (listed.names.size() < kMaxNames) {
    errno = 0;  // the end and a failure are the same null
    const dirent* const entry = ::readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) listed.reason = unlisted(errno).reason;
      break;
    }
    const std::string_view name(&entry->d_name[0]);
    if (name != "." && name != "..") listed.names.emplace_back(name);
  }
  std::sort(listed.names.begin(), listed.names.end());
  return listed;
}

// Of what was found under `name` in `folder`, and what this user may do with it.
NodeFacts facts_of(const struct stat& found, int folder, const char* name) {
  NodeFacts facts;
  facts.kind = NodeKind::other;
  if (S_ISREG(found.st_mode)) facts.kind = NodeKind::file;
  if (S_ISDIR(found.st_mode)) facts.kind = NodeKind::folder;
  if (S_ISCHR(found.st_mode)) facts.kind = NodeKind::character_device;
  facts.mode = found.st_mode & 07777;
  if (S_ISCHR(found.st_mode) || S_ISBLK(found.st_mode)) {
    facts.device_major = ::gnu_dev_major(found.st_rdev);
    facts.device_minor = ::gnu_dev_minor(found.st_rdev);
  }
  facts.can_read = ::faccessat(folder, name, R_OK, AT_EACCESS) == 0;
  facts.can_write = ::faccessat(folder, name, W_OK, AT_EACCESS) == 0;
  return facts;
}

class LiveSource final : public FileSource {
 public:
  bool is_live() const noexcept override { return true; }

  FileText read(const std::string& path, std::size_t most_bytes) const override {
    if (!path.starts_with('/')) return {};
    return read_regular(AT_FDCWD, path, 0, most_bytes);
  }

  FolderNames list(const std::string& folder) const override {
    if (!folder.starts_with('/')) return {};
    const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return opened.is_open() ? names_in(opened.get()) : unlisted(errno);
  }

  NodeFacts facts(const std::string& path) const override {
    struct stat found{};
    if (!path.starts_with('/') || ::stat(path.c_str(), &found) != 0) return {};
    return facts_of(found, AT_FDCWD, path.c_str());
  }

  std::optional<std::string> real_path(const std::string& path) const override {
    if (!path.starts_with('/')) return {};
    std::array<char, kMaxPathBytes> real{};
    static_assert(kMaxPathBytes >= PATH_MAX);
    if (::realpath(path.c_str(), real.data()) == nullptr) return {};
    return std::string(real.data());
  }

  std::optional<std::string> link_target(const std::string& path) const override {
    if (!path.starts_with('/')) return {};
    std::string target(kMaxPathBytes, '\0');
    const ssize_t bytes = ::readlink(path.c_str(), target.data(), target.size());
    if (bytes < 0) return {};
    target.resize(static_cast<std::size_t>(bytes));
    return target;
  }
};

class FolderPosition {
 public:
  explicit FolderPosition(const Descriptor& root) : root_(root.get()) {}

  Entry enter(const std::string& part, std::string& detail) {
    if (::fstatat(folder(), part.c_str(), &found_, AT_SYMLINK_NOFOLLOW) != 0) return failed(errno, detail);
    if (S_ISLNK(found_.st_mode)) return read_link(part, detail);
    leaf_ = part;
    if (!S_ISDIR(found_.st_mode)) return Entry::leaf;
    Descriptor entered(::openat(folder(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!entered.is_open()) return failed(errno, detail);
    folders_.push_back(std::move(entered));
    return Entry::folder;
  }
  void leave() { folders_.pop_back(); }
  void restart() { folders_.clear(); }

  FileText read(std::size_t most_bytes) const { return read_regular(folder(), leaf_, O_NOFOLLOW, most_bytes); }
  FolderNames list(bool is_folder) const { return is_folder ? names_in(folder()) : FolderNames{}; }
  NodeFacts facts(bool is_folder) const {
    struct stat found = found_;
    if (is_folder && ::fstat(folder(), &found) != 0) return {};
    return facts_of(found, folder(), is_folder ? "." : leaf_.c_str());
  }

 private:
  int folder() const { return folders_.empty() ? root_ : folders_.back().get(); }
  static Entry failed(int error, std::string& detail) {
    if (error == ENOENT || error == ENOTDIR || error == ELOOP) return Entry::missing;
    detail = reason_of(error);
    return Entry::denied;
  }
  Entry read_link(const std::string& part, std::string& target) const {
    target.resize(kMaxPathBytes);
    const ssize_t bytes = ::readlinkat(folder(), part.c_str(), target.data(), target.size());
    if (bytes < 0) return failed(errno, target);
    target.resize(static_cast<std::size_t>(bytes));
    return Entry::link;
  }

  int root_;
  std::vector<Descriptor> folders_;
  std::string leaf_;  // that was entered last
  struct stat found_{};
};

}  // namespace

SystemFiles SystemFiles::live() {
  static const auto* const source = new std::shared_ptr<const FileSource>(std::make_shared<LiveSource>());
  return SystemFiles(*source);
}

Result<SystemFiles> SystemFiles::of_folder(const std::string& path) {
  Descriptor root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.is_open()) {
    const int code = errno;
    return make_error(status_of_errno(code, Status::invalid_argument), "open machine", path, "the folder cannot be opened",
                      "name a folder that holds sys/ and proc/ of a machine", errno_code(code));
  }
  return SystemFiles(std::make_shared<WalkedSource<FolderPosition, Descriptor>>(std::move(root)));
}

std::optional<std::string> SystemFiles::word(const std::string& path) const {
  const FileText text = read(path);
  if (!text.is_present()) return {};
  const std::size_t first = text.content.find_first_not_of(kWhiteSpace);
  if (first == std::string::npos) return std::string();
  return text.content.substr(first, text.content.find_last_not_of(kWhiteSpace) - first + 1);
}

std::optional<int> SystemFiles::open_errno(const std::string& path) const {
  const NodeFacts node = facts(path);
  if (!is_live()) return node.open_errno;
  return try_to_open(path, node, driver_of_node(*this, path));
}

std::optional<std::string> SystemFiles::link_name(const std::string& path) const {
  std::optional<std::string> real = real_path(path);
  if (real) real->erase(0, real->rfind('/') + 1);
  return real;
}

FileText read_regular(int folder, const std::string& name, int flags, std::size_t most_bytes) {
  const auto failed = [](int error) -> FileText {
    if (error == ENOENT || error == ENOTDIR) return {};
    if (error == ELOOP || error == ENAMETOOLONG) return {FileState::refused, {}, reason_of(error)};
    return {FileState::unreadable, {}, reason_of(error)};
  };
  FileText special{FileState::refused, {}, "not a regular file"};
  // Looked at before it is opened: opening a device can change it (a watchdog starts, a tape rewinds).
  struct stat found{};
  if (::fstatat(folder, name.c_str(), &found, (flags & O_NOFOLLOW) != 0 ? AT_SYMLINK_NOFOLLOW : 0) != 0) return failed(errno);
  if (!S_ISREG(found.st_mode)) return special;
  const Descriptor file(::openat(folder, name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | flags));
  if (!file.is_open()) return failed(errno);
  if (::fstat(file.get(), &found) != 0) return failed(errno);
  if (!S_ISREG(found.st_mode)) return special;
  FileText too_large{FileState::refused, {}, "larger than " + std::to_string(most_bytes) + " bytes"};
  // The size that sysfs and procfs tell is not that of the content, but at most a page.
  if (found.st_size > kMaxPretendedBytes && static_cast<std::size_t>(found.st_size) > most_bytes) return too_large;
  FileText text{FileState::present, {}, {}};
  if (read_all(file.get(), most_bytes, text.content)) return text;
  return errno == EFBIG ? too_large : failed(errno);
}

void put_ahead(std::vector<std::string>& ahead, std::string_view path) {
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    const std::string_view part = slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (!part.empty() && part != ".") ahead.emplace_back(part);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
}

std::string path_of(const std::vector<std::string>& parts) {
  std::string path;
  for (const std::string& part : parts) path += "/" + part;
  return path.empty() ? "/" : path;
}

}  // namespace gigabar::inline v0
