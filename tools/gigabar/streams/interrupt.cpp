#include "streams/interrupt.hpp"

namespace gigabar::tool::streams {
namespace {

std::atomic<bool> is_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void set_flag(int) { is_interrupted.store(true); }

// A signal that is ignored (a job of nohup, or in the background of a script) stays ignored.
void listen(int signal, struct sigaction& old) {
  struct sigaction action{};
  action.sa_handler = set_flag;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(signal, nullptr, &old);
  if (old.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  is_interrupted.store(false);
  listen(SIGINT, old_interrupt_);
  listen(SIGTERM, old_terminate_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

const std::atomic<bool>& Interrupt::flag() noexcept { return is_interrupted; }

}  // namespace gigabar::tool::streams
