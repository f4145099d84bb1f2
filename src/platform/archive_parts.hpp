// SPDX-License-Identifier: Apache-2.0
// An archive of either kind, part by part, for those who keep something of it.
#pragma once

#include <functional>
#include <string_view>

#include "base/json.hpp"
#include "driver/archive/archive.hpp"
#include "platform/system_files.hpp"

namespace gigabar::inline v0 {

// Called where they are set; what they throw as json::Problem is an error about the archive.
struct ArchiveParts {
  std::function<void(const json::Value&)> document;  // gigabar-machine.json, or the whole document
  std::function<void(const json::Value&)> answers;
  std::function<void(tar::Entry&&)> entry;  // every other one of a tar file
};

// Errors: bad_file with the place, unavailable (a tar file without libarchive).
Result<void> visit_archive(std::string_view archive, const ArchiveParts& parts);

inline constexpr std::uint32_t kMaxErrno = 4095;  // of Linux

template <>
struct json::Fields<NodeFacts> {
  static void each(auto& field, auto& node) {
    field("mode", node.mode, Between{0, 07777});
    field("major", node.device_major);
    field("minor", node.device_minor);
    field("can_read", node.can_read);
    field("can_write", node.can_write);
    field("open_errno", node.open_errno, Between{0, kMaxErrno});
  }
};

}  // namespace gigabar::inline v0
