// SPDX-License-Identifier: Apache-2.0
// How far a command is, while nothing else is to be seen of it: one line of a terminal, written over again and again.
#pragma once

#include <unistd.h>

#include <string>

namespace gigabar::tool {

// The descriptor, or else standard error, is a terminal on which lines can be written over.
bool can_redraw(int descriptor = STDERR_FILENO);

// ", about 40 s left", after `done` of `count` equal steps; empty in the first second and before the first step is done.
std::string time_left(double elapsed_s, double done, double count);

class ProgressLine {
 public:
  // Without a terminal nothing is shown; so it is where the command's text goes there itself.
  explicit ProgressLine(bool is_shown) : is_shown_(is_shown && can_redraw()) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text);
  // Leaves the terminal as if nothing had been shown.
  void clear();

 private:
  bool is_shown_;
  bool has_line_ = false;
};

}  // namespace gigabar::tool
