// SPDX-License-Identifier: Apache-2.0
// Lines of a rank, each with the rank before it.
#pragma once

#include <string>

#include "base/descriptor.hpp"

namespace gigabar::tool::run {

// One stream of one rank. Lines go out whole, so that those of different ranks do not mix; one of more than 64 KiB is cut.
class LabelledStream {
 public:
  // `source` is made non-blocking. `target` is this process's standard output or standard error.
  LabelledStream(Descriptor source, int target, unsigned rank);

  int descriptor() const noexcept { return source_.get(); }
  // Passes on what has come. False: the source has ended.
  bool pass_on();
  // The last line, which no newline ended.
  void finish();

 private:
  void write_lines(bool is_end);

  Descriptor source_;
  int target_;
  std::string label_;
  std::string waiting_;
};

}  // namespace gigabar::tool::run
