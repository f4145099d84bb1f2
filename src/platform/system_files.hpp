// SPDX-License-Identifier: Apache-2.0
// The files that tell of a machine, below one root: the machine's own, a folder, or an archive. Reading is bounded in size and
// depth, and never leaves the root: links are followed inside of it, as if it were "/".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

inline constexpr std::size_t kMaxFileBytes = std::size_t{4} << 20;       // of one file: more is `refused`
inline constexpr std::size_t kMaxArchiveBytes = std::size_t{256} << 20;  // of an archive
inline constexpr std::size_t kMaxNames = 65536;                          // of one folder: more are left out

// The folders that list the devices.
inline constexpr const char* kPciFolder = "/sys/bus/pci/devices";
inline constexpr const char* kInfinibandFolder = "/sys/class/infiniband";

enum class FileState : std::uint8_t {
  present,
  missing,     // there is no such file
  unreadable,  // it is there, and this user may not read it (or reading failed); `reason` says why
  refused,     // too large, too many links, or not a regular file; `reason` says which
};

struct FileText {
  FileState state = FileState::missing;
  std::string content;  // as it is: with its newline, possibly binary
  std::string reason;   // one clause; empty when present

  bool is_present() const noexcept { return state == FileState::present; }
};

struct FolderNames {
  std::vector<std::string> names;  // sorted as text
  std::string reason;              // why they could not be listed, one clause; empty: these are all, or there is no such folder
};

enum class NodeKind : std::uint8_t { missing, file, folder, character_device, other };

struct NodeFacts {
  NodeKind kind = NodeKind::missing;  // of what a link leads to
  std::uint32_t mode = 0;             // permission bits, as in stat(2)
  std::uint32_t device_major = 0;     // of a device
  std::uint32_t device_minor = 0;
  bool can_read = false;  // by the user who looked (who captured it)
  bool can_write = false;
  std::optional<int> open_errno;  // of an archive: as open_errno() of the machine was
};

class SourceFolder;

// Paths are absolute ("/sys/class/net"), of the machine, not of the disk where a copy of it lies. Threads: any; reading does not
// change it.
class SystemFiles {
 public:
  static SystemFiles live();
  // A folder, as the root. Errors: as Machine::open.
  static Result<SystemFiles> of_folder(const std::string& path);
  // Those of an archive. Errors: as read_archive() of system_archive.hpp.
  static Result<SystemFiles> of_archive(std::string_view archive);
  // A tree that somebody has made; null: this machine's.
  explicit SystemFiles(std::shared_ptr<const SourceFolder> root) : root_(std::move(root)) {}

  bool is_live() const noexcept { return root_ == nullptr; }

  // Reads at most `most_bytes`; a larger file is refused. Never blocks on a FIFO or a device.
  FileText read(const std::string& path, std::size_t most_bytes = kMaxFileBytes) const;
  // The content without white space around it; nothing unless it is present.
  std::optional<std::string> word(const std::string& path) const;
  FolderNames list(const std::string& folder) const;
  // For those to whom a folder that cannot be listed is as good as none.
  std::vector<std::string> names(const std::string& folder) const { return list(folder).names; }
  bool exists(const std::string& path) const { return facts(path).kind != NodeKind::missing; }
  NodeFacts facts(const std::string& path) const;
  // What open(2) of a device node answered: 0, or errno. A container's device cgroup refuses there what the permission bits allow,
  // and a driver says whether it works. On this machine as try_to_open() of device_nodes.hpp, of an archive what it holds; nothing:
  // it was not tried.
  std::optional<int> open_errno(const std::string& path) const;
  // The path with every link followed, inside the root; nothing when it does not exist or the links have no end.
  std::optional<std::string> real_path(const std::string& path) const;
  // What the link at `path` holds, when its last part is a link; the folders above it are followed as always.
  std::optional<std::string> link_target(const std::string& path) const;
  // Last part of real_path: what a link like ".../driver" or ".../iommu_group" names.
  std::optional<std::string> link_name(const std::string& path) const;

 private:
  struct End;
  // Goes along `path`; not of this machine, where the kernel does.
  End go(std::string_view path, bool is_last_followed = true) const;

  std::shared_ptr<const SourceFolder> root_;
};

}  // namespace gigabar::inline v0
