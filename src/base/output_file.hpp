// SPDX-License-Identifier: Apache-2.0
// How a file that a user named is written. Every output of the library and of the program goes through here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gigabar::inline v0 {

struct OutputFault {
  std::string cause;  // "cannot be created"
  int code = 0;       // errno
};

// Afterwards `path` holds `content`, or a fault says why not.
// A regular file, or one that does not exist yet: the content goes to a new file beside it, which then takes its name, so nobody
// reads half of it and a failure leaves the old content. Its mode and owner are kept. A symbolic link stays; its target is written.
// Where no new file can take the name (the file is a mount point, its folder is read-only, its owner cannot be kept) it is
// overwritten in place. Anything else (a device, a FIFO, a pipe below /dev/fd) and what this process has as its standard output or
// standard error is opened and written through. A FIFO that nobody reads is waited for, 30 s at most; a reader that is gone is
// EPIPE, without SIGPIPE. Signals for the calling thread wait while a new file lies beside the old one, so that none stays behind.
// Threads: any. Cost: one fsync().
std::optional<OutputFault> write_output(const std::string& path, std::string_view content);

// Whether write_output() can be expected to write there, for what takes long before it has something to write. Only looks: nothing
// is opened, made or changed, so that what happens later (a disk that is full, a reader that goes) is told by the write. Threads:
// any.
std::optional<OutputFault> check_output(const std::string& path);

// The file whose content write_output() would replace: one text for all paths to it, also where it does not exist yet. Empty for
// what outputs only add to: devices, FIFOs, pipes, this process' standard output and standard error. Threads: any.
std::string replaced_file(const std::string& path);

// Writes all of it; false with errno when that fails.
bool write_all(int descriptor, std::string_view content) noexcept;

}  // namespace gigabar::inline v0
