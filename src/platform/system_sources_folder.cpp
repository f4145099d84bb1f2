// SPDX-License-Identifier: Apache-2.0
// A folder as the root of a machine's files. The kernel follows no link here: each part of a path is opened on its own, so that
// what a captured tree's links say cannot lead out of it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "platform/system_sources.hpp"

namespace gigabar::inline v0 {
namespace {

class FolderPosition {
 public:
  explicit FolderPosition(const Descriptor& root) : root_(root.get()) {}

  int folder() const { return folders_.empty() ? root_ : folders_.back().get(); }
  // Of the leaf that was entered last.
  const std::string& leaf() const { return leaf_; }
  const struct stat& found() const { return found_; }

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

 private:
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
  std::string leaf_;
  struct stat found_{};
};

class FolderSource final : public WalkedSource<FolderPosition, Descriptor> {
 public:
  using WalkedSource::WalkedSource;

  FileText read(const std::string& path, std::size_t most_bytes) const override {
    const auto [at, end] = go(path);
    if (!end.is_there()) return {end.state, {}, end.reason};
    if (end.is_folder) return {FileState::refused, {}, "not a regular file"};
    return read_regular(at.folder(), at.leaf(), O_NOFOLLOW, most_bytes);
  }

  FolderNames list(const std::string& folder) const override {
    const auto [at, end] = go(folder);
    return end.is_there() && end.is_folder ? names_in(at.folder()) : FolderNames{{}, end.reason};
  }

  NodeFacts facts(const std::string& path) const override {
    const auto [at, end] = go(path);
    if (!end.is_there()) return {};
    struct stat found = at.found();
    if (end.is_folder && ::fstat(at.folder(), &found) != 0) return {};
    return facts_of(found, at.folder(), end.is_folder ? "." : at.leaf().c_str());
  }
};

}  // namespace

Result<SystemFiles> SystemFiles::of_folder(const std::string& path) {
  Descriptor root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.is_open()) {
    const int code = errno;
    return make_error(status_of_errno(code, Status::invalid_argument), "open machine", path, "the folder cannot be opened",
                      "name a folder that holds sys/ and proc/ of a machine", errno_code(code));
  }
  return SystemFiles(std::make_shared<FolderSource>(std::move(root)));
}

}  // namespace gigabar::inline v0
