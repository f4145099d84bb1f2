// SPDX-License-Identifier: Apache-2.0
// The machine that topology and doctor look at: this one, or one that was captured somewhere else.
#pragma once

#include <memory>
#include <string>

#include "gigabar/export.hpp"
#include "gigabar/status.hpp"

namespace gigabar {

class SystemFiles;
struct DriverAnswers;

// A view of one machine; copies share what was read. Threads: any.
class Machine {
 public:
  // This machine. Nothing is read before somebody asks.
  GIGABAR_API static Machine here();

  // A machine captured before: an archive that capture() wrote, or a folder that holds its sys/, proc/, dev/, etc/ and boot/.
  // Nothing outside of the folder is read, whatever its links say.
  // Errors: invalid_argument (no such file or folder), no_permission, bad_file (not an archive of this kind, truncated, hostile).
  GIGABAR_API static Result<Machine> open(const std::string& path);

  bool is_live() const noexcept { return is_live_; }
  // "this machine", or the path that was opened.
  const std::string& origin() const noexcept { return origin_; }
  // What the one who made an archive says of it, for example that the tree was constructed and never ran; empty when nothing.
  GIGABAR_API const std::string& remark() const noexcept;

  // What topology and doctor read, as one text of JSON, which open() accepts when it lies in a file: files below /sys, /proc, /dev,
  // /etc and /boot, and the answers of the drivers. It holds no memory contents, no names of users and no environment; names of
  // hosts and serial numbers are not read. Errors: not_supported (this machine is itself a capture, or the text would exceed 256
  // MiB). Threads: any. Cost: seconds.
  GIGABAR_API Result<std::string> archive() const;
  // The same, written to a file: beside it, then renamed, so that no half is left. A device or FIFO is written through.
  // Errors: as archive(), and invalid_argument (the file cannot be written).
  GIGABAR_API Outcome capture(const std::string& archive_path) const;

  // For the rooms of Gigabar: the files, and what the drivers say (asked once, on first use).
  const SystemFiles& files() const noexcept;
  const DriverAnswers& answers() const;

 private:
  struct State;
  Machine(std::shared_ptr<State> state, bool is_live, std::string origin);
  std::shared_ptr<State> state_;
  bool is_live_ = false;
  std::string origin_;
};

}  // namespace gigabar
