// SPDX-License-Identifier: Apache-2.0
// The archive of a machine: a tar file of GNU's format. It has files, links and folders below the root ("sys/class/net"; folders
// only where they hold nothing captured, others follow from the paths in them), and
//   gigabar-answers.json   what the drivers say, see driver_answers.hpp
//   gigabar-machine.json   what tar cannot say, and the last entry, so that an archive that was cut is known by its absence:
//     {"format": "gigabar-machine", "version": 1, "remark": "...", "date": "...",
//      "unreadable": {"/path": "reason"},        not readable by the user who captured it: a file, or the names in a folder
//      "devices": {"/dev/nvidia0": {"mode": 438, "major": 195, "minor": 0, "can_read": true, "can_write": true}}}
//                                                and "open_errno": what open(2) for reading and writing said, 0 or errno; left out
//                                                where nobody tried
// Unpacked, it is a folder that Machine::open() takes, without devices and what could not be read.
//
// Also read: one JSON document, as archives were at first and as one writes a machine by hand. It is gigabar-machine.json with
//      "files": {"/proc/cmdline": "text"},       a file that is no UTF-8 text: {"base64": "..."}
//      "links": {"/sys/bus/pci/devices/0000:3b:00.0": "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"},
//      "folders": ["/sys/kernel/iommu_groups"],
//      "answers": {...}
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "gigabar/status.hpp"
#include "platform/driver_answers.hpp"
#include "platform/system_files.hpp"

namespace gigabar::inline v0 {

// ---- what is captured: one table of paths, and the walk over it. What is not in the table is not read. ----

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

// ---- the archive ----

// What is captured besides the files.
struct ArchiveHead {
  std::string remark;
  std::string date;  // ISO 8601, UTC
  DriverAnswers answers;
};

// The archive of what capture_patterns() match in `files`. Errors: not_supported (it has more than `max_bytes`), unavailable
// (libarchive is not there).
Result<std::string> write_archive(const SystemFiles& files, const ArchiveHead& head, std::size_t max_bytes = kMaxArchiveBytes);

// How much a tar file has, for those who wrote it.
struct ArchiveCounts {
  std::size_t files = 0, links = 0;
  std::size_t denied = 0;  // files and folders that the user might not read
};

struct Archive {
  SystemFiles files;
  ArchiveHead head;
  ArchiveCounts counts;
};
// Errors: bad_file, unavailable (a tar file without libarchive).
Result<Archive> read_archive(std::string_view archive);

}  // namespace gigabar::inline v0
