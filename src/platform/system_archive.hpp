// SPDX-License-Identifier: Apache-2.0
// The archive of a machine: one JSON document.
//   {"format": "gigabar-machine", "version": 1, "remark": "...", "date": "...",
//    "files": {"/proc/cmdline": "text"},            a file that is no UTF-8 text: {"base64": "..."}
//    "unreadable": {"/path": "reason"},             there, but not readable by the user who captured it
//    "links": {"/sys/bus/pci/devices/0000:3b:00.0": "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"},
//    "folders": ["/sys/kernel/iommu_groups"],       only those that hold nothing captured; others follow from the paths in them
//    "devices": {"/dev/nvidia0": {"mode": 438, "major": 195, "minor": 0, "can_read": true, "can_write": true}},
//                                                   and "open_errno": what open(2) for reading and writing said, 0 or errno; left
//                                                   out where nobody tried
//    "answers": {...}}                              of the drivers, see driver_answers.hpp
#pragma once

#include <string>
#include <string_view>

#include "gigabar/status.hpp"
#include "platform/driver_answers.hpp"
#include "platform/system_files.hpp"

namespace gigabar {

// What is captured besides the files.
struct ArchiveHead {
  std::string remark;
  std::string date;  // ISO 8601, UTC
  DriverAnswers answers;
};

// The archive of what capture_patterns() match in `files`.
std::string write_archive(const SystemFiles& files, const ArchiveHead& head);

// What stands for the answers where nobody asked the drivers: a tree that was copied by hand, or written.
DriverAnswers no_answers();

// Everything but the files, which SystemFiles::of_archive takes. Errors: bad_file.
Result<ArchiveHead> read_archive_head(std::string_view json);

}  // namespace gigabar
