// SPDX-License-Identifier: Apache-2.0
// A private copy on disk of what hwloc reads of a captured machine. Links in it are relative and lead to real paths of the copy, so
// that the kernel, which follows them there, cannot be led out.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <set>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/output_file.hpp"
#include "base/quietly.hpp"
#include "platform/capture.hpp"

namespace gigabar::inline v0 {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCopy = "copy machine";

struct Collected {
  std::map<std::string, std::string> files, links;  // a link's real target
  std::set<std::string> folders;
};

bool is_writable_folder(const char* path) {
  struct stat found{};
  return ::stat(path, &found) == 0 && S_ISDIR(found.st_mode) && ::access(path, W_OK | X_OK) == 0;
}

// Memory before disk: the files are small and soon gone.
std::string folder_for_copies() {
  std::string chosen = environment("TMPDIR").value_or("");
  if (!chosen.empty()) return chosen;
  return is_writable_folder("/dev/shm") ? "/dev/shm" : "/tmp";
}

bool make_file(const std::string& path, std::string_view content) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  return file.is_open() && write_all(file.get(), content);
}

Error not_copied(const std::string& path, int code) {
  return make_error(status_of_errno(code, Status::unavailable), kCopy, path, "the machine's files cannot be written there",
                    "let TMPDIR name a folder that you may write to and that has room", errno_code(code));
}

// `root` is an empty folder.
Result<void> fill(const std::string& root, const Collected& found) {
  std::error_code failed;
  const auto make_folder = [&](const fs::path& folder) -> Result<void> {
    fs::create_directories(folder, failed);
    if (failed) return not_copied(folder.string(), failed.value());
    return {};
  };
  for (const std::string& folder : found.folders) {
    if (Result<void> made = make_folder(root + folder); !made) return made;
  }
  for (const auto& [path, content] : found.files) {
    const std::string on_disk = root + path;
    if (Result<void> made = make_folder(fs::path(on_disk).parent_path()); !made) return made;
    if (!make_file(on_disk, content)) return not_copied(on_disk, errno);
  }
  for (const auto& [path, real] : found.links) {
    const fs::path on_disk = root + path;
    if (Result<void> made = make_folder(on_disk.parent_path()); !made) return made;
    fs::create_symlink(fs::path(real).lexically_relative(fs::path(path).parent_path()), on_disk, failed);
    if (failed) return not_copied(on_disk.string(), failed.value());
  }
  return {};
}

}  // namespace

FolderOnDisk::~FolderOnDisk() {
  if (owner_ == 0 || owner_ != ::getpid()) return;
  // Part of it stays where there is no memory to look for the rest.
  quietly([&] {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  });
}

Result<FolderOnDisk> SystemFiles::folder_on_disk() const {
  if (is_live()) return FolderOnDisk("/", 0);
  Collected found;
  visit_captured(*this, true, [&found](Captured&& one) {
    if (one.kind == Captured::Kind::file) found.files[one.path] = std::move(one.text);
    if (one.kind == Captured::Kind::link) found.links[one.path] = std::move(one.real);
    if (one.kind == Captured::Kind::folder) found.folders.insert(one.path);
  });
  std::string made = folder_for_copies() + "/gigabar-machine-XXXXXX";
  if (::mkdtemp(made.data()) == nullptr) return not_copied(made, errno);
  FolderOnDisk folder(made, ::getpid());  // removed from here on, whatever happens
  if (Result<void> filled = fill(made, found); !filled) return std::move(filled).error();
  return folder;
}

}  // namespace gigabar::inline v0
