// SPDX-License-Identifier: Apache-2.0
// What is captured of a machine: one table of paths, and the walk over it. What is not in the table is not read.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "platform/system_files.hpp"

namespace gigabar::inline v0 {

struct CapturePattern {
  std::string_view folder;    // "/sys/class/net/*": '*' stands for any text within one part
  std::string_view names;     // in that folder, separated by spaces, each with '*' or not; links, folders and devices as they are
  bool is_for_hwloc = false;  // hwloc reads it when it discovers a machine from a folder
  std::string (*change)(const std::string&) = nullptr;  // what is kept of a file's content; null: all
  std::size_t most_bytes = kMaxFileBytes;               // of a file
};
std::span<const CapturePattern> capture_patterns();

// Told of each thing that the patterns match, once, by its real path.
class CaptureVisitor {
 public:
  CaptureVisitor() = default;
  CaptureVisitor(const CaptureVisitor&) = delete;
  CaptureVisitor& operator=(const CaptureVisitor&) = delete;
  virtual ~CaptureVisitor() = default;

  // Present or unreadable; a folder that cannot be listed is unreadable, besides being a folder.
  virtual void file(const std::string& path, FileText text) = 0;
  // `real` is where it leads in the end; `target` what it holds.
  virtual void link(const std::string& path, std::string target, const std::string& real) = 0;
  virtual void folder(const std::string& path) = 0;
  virtual void device(const std::string& path, const NodeFacts& facts) = 0;
};

// Follows links below /sys, /proc, /dev, /etc, /boot, /run and /usr/lib only. Ends early, with what was met so far, after a quarter
// of a million things or kMaxArchiveBytes of content: a real machine has a third of that, a hostile tree any number.
void visit_captured(const SystemFiles& files, bool only_for_hwloc, CaptureVisitor& visitor);

}  // namespace gigabar::inline v0
