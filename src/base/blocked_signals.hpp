// SPDX-License-Identifier: Apache-2.0
// Threads of the library start with every signal blocked: the program's handlers run on the program's own threads.
#pragma once

#include <csignal>

#include "base/in_place.hpp"

namespace gigabar::inline v0 {

// For the scope in which threads are started, which inherit the mask of who starts them.
class BlockedSignals : InPlace {
 public:
  BlockedSignals() noexcept {
    sigset_t every;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace gigabar::inline v0
