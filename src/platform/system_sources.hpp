// SPDX-License-Identifier: Apache-2.0
// What the sources of SystemFiles share, and the walk along a path of a folder and an archive: links are followed by own code, as
// if the root were "/".
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/system_files.hpp"

namespace gigabar::inline v0 {

// Limits of Linux (PATH_MAX, NAME_MAX, and the links in one path), and one of our own: sysfs is some 20 folders deep.
inline constexpr std::size_t kMaxPathBytes = 4096;
inline constexpr std::size_t kMaxPartBytes = 255;
inline constexpr unsigned kMaxLinks = 40;
inline constexpr std::size_t kMaxDepth = 64;

// Reads a regular file below `folder` (a descriptor, or AT_FDCWD); `flags` are more of open(2)'s. Never blocks.
FileText read_regular(int folder, const std::string& name, int flags, std::size_t most_bytes);

// What a part of a path is, seen from the folder where a walk stands.
enum class Entry : std::uint8_t { missing, folder, link, leaf, denied };

// Where a walk ended.
struct WalkEnd {
  FileState state = FileState::present;
  std::string reason;  // unless present or missing
  bool is_folder = false;
  std::optional<std::string> link_target;  // the last part is a link, which was not to be followed
  std::vector<std::string> parts;          // of the real path

  bool is_there() const noexcept { return state == FileState::present; }
};

// The parts of `path` in front of those that are still ahead (the next one is the last of the vector); "" and "." are no parts.
void put_ahead(std::vector<std::string>& ahead, std::string_view path);
std::string path_of(const std::vector<std::string>& parts);

// Goes along `path`. A Position stands in a folder, at first the root, and has
//   Entry enter(const std::string& part, std::string& detail)   goes into a folder; a leaf is remembered; `detail` is a link's
//                                                               target, the reason of `denied`, or why a leaf could not be read
//   void leave()      to the folder above; not called at the root
//   void restart()    to the root
// and, of where the walk ended,
//   FileText read(most_bytes)          of the leaf
//   FolderNames list(is_folder)
//   NodeFacts facts(is_folder)
template <class Position>
WalkEnd walk(Position& at, std::string_view path, bool is_last_followed = true) {
  WalkEnd end;
  const auto stopped = [&end](FileState state, std::string reason) {
    end.state = state;
    end.reason = std::move(reason);
    return std::move(end);
  };
  end.is_folder = true;
  std::string hidden;  // why it is not known what lies below a leaf
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
    if (!end.is_folder) return stopped(hidden.empty() ? FileState::missing : FileState::unreadable, hidden);
    if (part == "..") {
      if (end.parts.empty()) continue;
      at.leave();
      end.parts.pop_back();
      continue;
    }
    std::string detail;
    const Entry entry = at.enter(part, detail);
    if (entry == Entry::missing) return stopped(FileState::missing, {});
    if (entry == Entry::denied) return stopped(FileState::unreadable, std::move(detail));
    if (entry == Entry::link && (!ahead.empty() || is_last_followed)) {
      if (++links > kMaxLinks) return stopped(FileState::refused, "too many links");
      if (detail.starts_with('/')) {
        at.restart();
        end.parts.clear();
      }
      put_ahead(ahead, detail);
      continue;
    }
    end.parts.push_back(part);
    end.is_folder = entry == Entry::folder;
    if (entry == Entry::link) {
      end.link_target = std::move(detail);
    } else {
      hidden = std::move(detail);  // of a folder there is nothing
    }
  }
  return end;
}

// A source whose paths are gone along by walk(). A Position in the root is made from a Root.
template <class Position, class Root>
class WalkedSource final : public FileSource {
 public:
  explicit WalkedSource(Root root) : root_(std::move(root)) {}

  FileText read(const std::string& path, std::size_t most_bytes) const final {
    const auto [at, end] = go(path);
    if (!end.is_there()) return {end.state, {}, end.reason};
    return end.is_folder ? FileText{FileState::refused, {}, "not a regular file"} : at.read(most_bytes);
  }
  FolderNames list(const std::string& folder) const final {
    const auto [at, end] = go(folder);
    return end.is_there() ? at.list(end.is_folder) : FolderNames{{}, end.reason};
  }
  NodeFacts facts(const std::string& path) const final {
    const auto [at, end] = go(path);
    return end.is_there() ? at.facts(end.is_folder) : NodeFacts{};
  }
  std::optional<std::string> real_path(const std::string& path) const final {
    const WalkEnd end = go(path).end;
    return end.is_there() ? std::optional(path_of(end.parts)) : std::nullopt;
  }
  std::optional<std::string> link_target(const std::string& path) const final { return go(path, false).end.link_target; }

 private:
  struct Place {
    Position at;
    WalkEnd end;
  };
  Place go(const std::string& path, bool is_last_followed = true) const {
    Place place{Position(root_), {}};
    place.end = walk(place.at, path, is_last_followed);
    return place;
  }

  Root root_;
};

}  // namespace gigabar::inline v0
