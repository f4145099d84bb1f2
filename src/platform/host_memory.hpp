// SPDX-License-Identifier: Apache-2.0
// How much memory this process can still take before the kernel would have to kill somebody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gigabar::inline v0 {

struct AvailableHostMemory {
  std::uint64_t bytes = UINT64_MAX;  // UINT64_MAX: the machine does not say
  std::string limited_by;            // "the machine", "memory control group /sys/fs/cgroup/job"; empty when nobody said anything
};

// The least of what the machine has (MemAvailable: free, or taken back from caches without swapping) and what the memory control
// groups of this process leave it: limit, less what is used, plus the files' cache in it; of each level, versions 1 and 2.
// Threads: any. Cost: reads a few small files, tens of µs.
// Source: kernel, Documentation/filesystems/proc.rst; admin-guide/cgroup-v2.rst, "Memory"; admin-guide/cgroup-v1/memory.rst.
AvailableHostMemory available_host_memory();

// The number behind `key` in "key<separator>number[ kB]" lines, in bytes when it is followed by kB; the first such line counts.
// What stands before the key on its line must be blank or end with a blank ("Node 0 MemFree:  12 kB").
std::optional<std::uint64_t> number_behind(std::string_view content, std::string_view key);
// What a small file begins with; empty without the file.
std::string word_in_file(const std::string& path);
// The same where it is a number; nothing for other words.
std::optional<std::uint64_t> number_in_file(const std::string& path);

}  // namespace gigabar::inline v0
