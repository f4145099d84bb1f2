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
#include <ranges>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
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

// Names in `name` below `folder` (a descriptor, or AT_FDCWD), sorted and bounded.
FolderNames names_in(int folder, const char* name) {
  Descriptor opened(::openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
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
    const std::string_view found(&entry->d_name[0]);
    if (found != "." && found != "..") listed.names.emplace_back(found);
  }
  std::sort(listed.names.begin(), listed.names.end());
  return listed;
}

// What a link below `folder` (a descriptor, or AT_FDCWD) holds; nothing, with errno, where there is none.
std::optional<std::string> target_of(int folder, const char* name) {
  std::string target(kMaxPathBytes, '\0');
  const ssize_t bytes = ::readlinkat(folder, name, target.data(), target.size());
  if (bytes < 0) return {};
  target.resize(static_cast<std::size_t>(bytes));
  return target;
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

class DiskFolder final : public SourceFolder {
 public:
  explicit DiskFolder(Descriptor folder) : folder_(std::move(folder)) {}

  Found find(const std::string& part) const override {
    struct stat found{};
    if (::fstatat(folder_.get(), part.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) return failed(errno);
    if (S_ISLNK(found.st_mode)) {
      auto target = target_of(folder_.get(), part.c_str());
      return target ? Found{Entry::link, std::move(*target), {}} : failed(errno);
    }
    if (!S_ISDIR(found.st_mode)) return {Entry::leaf, {}, {}};
    Descriptor entered(::openat(folder_.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!entered.is_open()) return failed(errno);
    return {Entry::folder, {}, std::make_shared<const DiskFolder>(std::move(entered))};
  }
  FolderNames list() const override { return names_in(folder_.get(), "."); }
  FileText read(const std::string& leaf, std::size_t most_bytes) const override {
    return read_regular(folder_.get(), leaf, O_NOFOLLOW, most_bytes);
  }
  NodeFacts facts(const std::string& leaf) const override {
    struct stat found{};
    const int code =
        leaf.empty() ? ::fstat(folder_.get(), &found) : ::fstatat(folder_.get(), leaf.c_str(), &found, AT_SYMLINK_NOFOLLOW);
    return code != 0 ? NodeFacts{} : facts_of(found, folder_.get(), leaf.empty() ? "." : leaf.c_str());
  }

 private:
  static Found failed(int error) {
    if (error == ENOENT || error == ENOTDIR || error == ELOOP) return {};
    return {Entry::denied, reason_of(error), {}};
  }

  Descriptor folder_;
};

// The parts of `path` in front of those that are still ahead (the next one is the last of the vector); "" and "." are no parts.
void put_ahead(std::vector<std::string>& ahead, std::string_view path) {
  const std::vector<std::string_view> parts = words_of(path, "/");
  for (const std::string_view part : std::views::reverse(parts)) {
    if (part != ".") ahead.emplace_back(part);
  }
}

}  // namespace

// Where a walk along a path ended.
struct SystemFiles::End {
  FileState state = FileState::present;
  std::string reason;                                        // unless present or missing
  std::vector<std::string> parts;                            // of the real path
  std::vector<std::shared_ptr<const SourceFolder>> folders;  // the root, and those of the parts that are folders
  bool is_folder = true;                                     // the last part is one
  std::string hidden;                                        // why it is not known what is in a leaf, or below it
  std::optional<std::string> link_target;                    // the last part is a link, which was not to be followed

  bool is_there() const noexcept { return state == FileState::present; }
};

SystemFiles::End SystemFiles::go(std::string_view path, bool is_last_followed) const {
  using Entry = SourceFolder::Entry;
  End end;
  end.folders.push_back(root_);
  const auto stopped = [&end](FileState state, std::string reason) {
    end.state = state;
    end.reason = std::move(reason);
    return std::move(end);
  };
  if (path.size() > kMaxPathBytes) return stopped(FileState::refused, "the path is too long");
  if (!path.starts_with('/')) return stopped(FileState::missing, {});
  std::vector<std::string> ahead;
  put_ahead(ahead, path);
  for (unsigned links = 0; !ahead.empty();) {
    const std::string part = std::exchange(ahead.back(), {});
    ahead.pop_back();
    if (part != ".." && (part.size() > kMaxPartBytes || end.parts.size() >= kMaxDepth)) {
      return stopped(FileState::refused, "a name is too long or the folders are too deep");
    }
    if (!end.is_folder) return stopped(end.hidden.empty() ? FileState::missing : FileState::unreadable, end.hidden);
    if (part == "..") {
      if (end.parts.empty()) continue;
      end.folders.pop_back();
      end.parts.pop_back();
      continue;
    }
    SourceFolder::Found found = end.folders.back()->find(part);
    if (found.entry == Entry::missing) return stopped(FileState::missing, {});
    if (found.entry == Entry::denied) return stopped(FileState::unreadable, std::move(found.detail));
    if (found.entry == Entry::link && (!ahead.empty() || is_last_followed)) {
      if (++links > kMaxLinks) return stopped(FileState::refused, "too many links");
      if (found.detail.starts_with('/')) {
        end.folders.resize(1);
        end.parts.clear();
      }
      put_ahead(ahead, found.detail);
      continue;
    }
    end.parts.push_back(part);
    end.is_folder = found.entry == Entry::folder;
    if (end.is_folder) {
      end.folders.push_back(std::move(found.folder));
    } else if (found.entry == Entry::link) {
      end.link_target = std::move(found.detail);
    } else {
      end.hidden = std::move(found.detail);
    }
  }
  return end;
}

SystemFiles SystemFiles::live() { return SystemFiles(nullptr); }

Result<SystemFiles> SystemFiles::of_folder(const std::string& path) {
  Descriptor root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.is_open()) {
    const int code = errno;
    return make_error(status_of_errno(code, Status::invalid_argument), "open machine", path, "the folder cannot be opened",
                      "name a folder that holds sys/ and proc/ of a machine", errno_code(code));
  }
  return SystemFiles(std::make_shared<const DiskFolder>(std::move(root)));
}

FileText SystemFiles::read(const std::string& path, std::size_t most_bytes) const {
  if (is_live()) return path.starts_with('/') ? read_regular(AT_FDCWD, path, 0, most_bytes) : FileText{};
  const End end = go(path);
  if (!end.is_there()) return {end.state, {}, end.reason};
  if (end.is_folder) return {FileState::refused, {}, "not a regular file"};
  if (!end.hidden.empty()) return {FileState::unreadable, {}, end.hidden};
  return end.folders.back()->read(end.parts.back(), most_bytes);
}

FolderNames SystemFiles::list(const std::string& folder) const {
  if (is_live()) return folder.starts_with('/') ? names_in(AT_FDCWD, folder.c_str()) : FolderNames{};
  const End end = go(folder);
  if (!end.is_there()) return {{}, end.reason};
  return end.is_folder ? end.folders.back()->list() : FolderNames{{}, end.hidden};
}

NodeFacts SystemFiles::facts(const std::string& path) const {
  if (is_live()) {
    struct stat found{};
    if (!path.starts_with('/') || ::stat(path.c_str(), &found) != 0) return {};
    return facts_of(found, AT_FDCWD, path.c_str());
  }
  const End end = go(path);
  if (!end.is_there()) return {};
  return end.folders.back()->facts(end.is_folder ? std::string() : end.parts.back());
}

std::optional<std::string> SystemFiles::real_path(const std::string& path) const {
  if (is_live()) {
    std::array<char, kMaxPathBytes> real{};
    static_assert(kMaxPathBytes >= PATH_MAX);
    if (!path.starts_with('/') || ::realpath(path.c_str(), real.data()) == nullptr) return {};
    return std::string(real.data());
  }
  const End end = go(path);
  if (!end.is_there()) return {};
  std::string real;
  for (const std::string& part : end.parts) real += "/" + part;
  return real.empty() ? "/" : real;
}

std::optional<std::string> SystemFiles::link_target(const std::string& path) const {
  if (!is_live()) return go(path, false).link_target;
  return path.starts_with('/') ? target_of(AT_FDCWD, path.c_str()) : std::nullopt;
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

}  // namespace gigabar::inline v0
