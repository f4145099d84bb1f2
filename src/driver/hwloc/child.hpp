// SPDX-License-Identifier: Apache-2.0
// Work that may crash or never end, done in a forked child whose output comes back through a pipe.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

struct ChildLimits {
  std::chrono::milliseconds time{20'000};
  std::size_t output_bytes = std::size_t{64} << 20;
  std::size_t memory_bytes = std::size_t{2} << 30;  // besides what this process has
};

// Runs `work` in a child with an empty environment and no descriptors but /dev/null for 0 to 2 and the one that `work` is given to
// write to, and gives back what it wrote. The child cannot write to files and leaves no core.
// `work` must not start threads or throw, and calls only libraries that are open already: other threads of this process may have
// held the loader's lock when it forked.
// Errors: bad_file (the child crashed, ran out of time, or wrote more than it may; the cause says which), out_of_descriptors,
// out_of_memory. `name` is the object of the error. Threads: any.
Result<std::string> output_of_child(const std::function<void(int)>& work, const std::string& name, const ChildLimits& limits);

}  // namespace gigabar::inline v0
