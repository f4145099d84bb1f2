// SPDX-License-Identifier: Apache-2.0
// The machine that topology and doctor examine: this one, or a captured one.
#pragma once

#include <memory>
#include <string>

#include "gigabar/export.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

class SystemFiles;
struct DriverAnswers;

// A view of one machine. Copies share what was read. Threads: any.
class Machine {
 public:
  // Returns this machine. Reads nothing until it is used.
  GIGABAR_API static Machine here();

  // Opens a captured machine: an archive that capture() wrote, or a folder with its sys/, proc/, dev/, etc/ and boot/. Reads
  // nothing outside the folder, whatever its links say.
  // Errors: invalid_argument (no such file or folder), no_permission, bad_file (not an archive of this kind, truncated, hostile),
  // unavailable (libarchive, which reads tar files, is not installed), out_of_memory.
  GIGABAR_API static Result<Machine> open(const std::string& path);

  bool is_live() const noexcept { return is_live_; }
  // "this machine", or the path that was opened.
  const std::string& origin() const noexcept { return origin_; }
  // The remark in an archive, for example that the tree was constructed and never ran; empty when there is none.
  GIGABAR_API const std::string& remark() const noexcept;

  // Returns what topology and doctor read, as the bytes of a tar file, which open() accepts: files below /sys, /proc, /dev, /etc
  // and /boot, and the answers of the drivers. It has no memory contents, no user names and no environment; host names and serial
  // numbers are not read. Errors: not_supported (this machine is itself a capture, or the file would exceed 256 MiB), unavailable
  // (libarchive is not installed), out_of_memory. Threads: any. Cost: seconds.
  GIGABAR_API Result<std::string> archive() const;
  // Writes the same to a file: first to a temporary file, then renamed, so that no partial file is left. A device or FIFO is
  // written directly.
  // Errors: as archive(), and invalid_argument (the file cannot be written).
  GIGABAR_API Result<void> capture(const std::string& archive_path) const;

  // For Gigabar's own components: the files, and the drivers' answers (queried once, at first use).
  const SystemFiles& files() const noexcept;
  const DriverAnswers& answers() const;

 private:
  struct State;
  Machine(std::shared_ptr<State> state, bool is_live, std::string origin);
  std::shared_ptr<State> state_;
  bool is_live_ = false;
  std::string origin_;
};

}  // namespace gigabar::inline v0
