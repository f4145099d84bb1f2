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
#include "platform/capture.hpp"
#include "platform/system_sources.hpp"

namespace gigabar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCopy = "copy machine";

class Collected final : public CaptureVisitor {
 public:
  std::map<std::string, std::string> files, links;  // a link's real target
  std::set<std::string> folders;

  void file(const std::string& path, FileText text) override {
    if (text.is_present()) files[path] = std::move(text.content);
  }
  void link(const std::string& path, std::string /*target*/, const std::string& real) override { links[path] = real; }
  void folder(const std::string& path) override { folders.insert(path); }
  void device(const std::string& /*path*/, const NodeFacts& /*facts*/) override {}
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
  if (!file.is_open()) return false;
  while (!content.empty()) {
    const ssize_t count = ::write(file.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

Error not_copied(const std::string& path, int code) {
  return make_error(status_of_errno(code, Status::unavailable), kCopy, path, "the machine's files cannot be written there",
                    "let TMPDIR name a folder that you may write to and that has room", errno_code(code));
}

}  // namespace

DiskCopy::~DiskCopy() {
  if (path_.empty() || owner_ != ::getpid()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Result<std::string> DiskCopy::of(const SystemFiles& files) {
  std::call_once(once_, [&] {
    if (Outcome made = make(files); !made) error_ = std::move(made).take_error();
  });
  if (error_) return *error_;
  return path_;
}

Outcome DiskCopy::make(const SystemFiles& files) {
  Collected found;
  visit_captured(files, true, found);
  std::string made = folder_for_copies() + "/gigabar-machine-XXXXXX";
  if (::mkdtemp(made.data()) == nullptr) return not_copied(made, errno);
  owner_ = ::getpid();
  path_ = made;  // removed from here on, whatever happens
  std::error_code failed;
  const auto make_folder = [&](const fs::path& folder) {
    fs::create_directories(folder, failed);
    return !failed;
  };
  for (const std::string& folder : found.folders) {
    if (!make_folder(path_ + folder)) return not_copied(path_ + folder, failed.value());
  }
  for (const auto& [path, content] : found.files) {
    const std::string on_disk = path_ + path;
    if (!make_folder(fs::path(on_disk).parent_path())) return not_copied(on_disk, failed.value());
    if (!make_file(on_disk, content)) return not_copied(on_disk, errno);
  }
  for (const auto& [path, real] : found.links) {
    const fs::path on_disk = path_ + path;
    if (!make_folder(on_disk.parent_path())) return not_copied(on_disk.string(), failed.value());
    fs::create_symlink(fs::path(real).lexically_relative(fs::path(path).parent_path()), on_disk, failed);
    if (failed) return not_copied(on_disk.string(), failed.value());
  }
  return {};
}

}  // namespace gigabar
