// SPDX-License-Identifier: Apache-2.0
// What is captured of a machine: one table of paths, and the walk over it. What is not in the table is not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "platform/system_files.hpp"

namespace gigabar::inline v0 {

struct CapturePattern {
  std::string_view folder;  // "/sys/class/net/*": '*' stands for any text within one part
  std::string_view names;   // in that folder, separated by spaces, each with '*' or not; links, folders and devices as they are
  std::string (*change)(const std::string&) = nullptr;  // what is kept of a file's content; null: all
  std::size_t most_bytes = kMaxFileBytes;               // of a file
};
std::span<const CapturePattern> capture_patterns();

// A thing that the patterns match, by its real path. A folder that cannot be listed is hidden, besides being a folder.
struct Captured {
  enum class Kind : std::uint8_t { file, hidden, link, folder, device };
  Kind kind = Kind::file;
  std::string path;
  std::string text;  // a file's content, why something is hidden, or what a link holds
  NodeFacts facts;   // of a device
};

// Tells of each thing once. Follows links below /sys, /proc, /dev, /etc, /boot, /run and /usr/lib only. Ends early, with what was
// met so far, after a quarter of a million things or kMaxArchiveBytes of content: a real machine has a third of that, a hostile
// tree any number.
void visit_captured(const SystemFiles& files, const std::function<void(Captured&&)>& visit);

}  // namespace gigabar::inline v0
