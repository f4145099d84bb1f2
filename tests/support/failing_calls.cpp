// SPDX-License-Identifier: Apache-2.0
#include "support/failing_calls.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <string_view>

namespace gigabar::test {
namespace {

std::atomic<const char*> planned{nullptr};
std::atomic<int> planned_error{0}, left_before{0};
std::atomic<bool> was_failed{false};

bool fails(std::string_view function) {
  const char* const name = planned.load();
  if (name == nullptr || name != function || left_before.fetch_sub(1) != 0) return false;
  was_failed = true;
  errno = planned_error;
  return true;
}

// What the program would have called: the C library's, or the sanitizer's in front of it.
template <class Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

FailingCall::FailingCall(const char* function, int error, int skip) noexcept {
  planned_error = error;
  left_before = skip;
  was_failed = false;
  planned = function;
}
FailingCall::~FailingCall() { planned = nullptr; }
bool FailingCall::has_failed() const noexcept { return was_failed; }

}  // namespace gigabar::test

// A function whose failure is `failure`.
#define GIGABAR_TEST_CALL(type, name, parameters, arguments, failure) \
  extern "C" type name parameters {                                   \
    using namespace gigabar::test;                                    \
    static auto* const next = next_of<type parameters>(#name);        \
    return fails(#name) ? failure : next arguments;                   \
  }

GIGABAR_TEST_CALL(int, epoll_create1, (int flags), (flags), -1)
GIGABAR_TEST_CALL(int, epoll_ctl, (int epoll, int how, int descriptor, epoll_event* event), (epoll, how, descriptor, event), -1)
GIGABAR_TEST_CALL(int, eventfd, (unsigned value, int flags), (value, flags), -1)
GIGABAR_TEST_CALL(int, timerfd_create, (clockid_t clock, int flags), (clock, flags), -1)
GIGABAR_TEST_CALL(int, memfd_create, (const char* name, unsigned flags), (name, flags), -1)
GIGABAR_TEST_CALL(int, ftruncate, (int descriptor, off_t bytes), (descriptor, bytes), -1)
GIGABAR_TEST_CALL(int, fstat, (int descriptor, struct stat* status), (descriptor, status), -1)
GIGABAR_TEST_CALL(int, flock, (int descriptor, int how), (descriptor, how), -1)
GIGABAR_TEST_CALL(int, listen, (int socket, int backlog), (socket, backlog), -1)
GIGABAR_TEST_CALL(int, mprotect, (void* address, std::size_t bytes, int how), (address, bytes, how), -1)
GIGABAR_TEST_CALL(int, madvise, (void* address, std::size_t bytes, int how), (address, bytes, how), -1)
GIGABAR_TEST_CALL(ssize_t, read, (int descriptor, void* bytes, std::size_t count), (descriptor, bytes, count), -1)
GIGABAR_TEST_CALL(ssize_t, getrandom, (void* bytes, std::size_t count, unsigned flags), (bytes, count, flags), -1)
GIGABAR_TEST_CALL(void*, mmap, (void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset),
                  (address, bytes, protection, flags, descriptor, offset), MAP_FAILED)

extern "C" int fcntl(int descriptor, int command, ...) {
  using namespace gigabar::test;
  static auto* const next = next_of<int(int, int, ...)>("fcntl");
  if (fails("fcntl")) return -1;
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return next(descriptor, command, argument);
}
extern "C" long syscall(long number, ...) noexcept {
  using namespace gigabar::test;
  static auto* const next = next_of<long(long, ...)>("syscall");
  if (fails("syscall")) return -1;
  va_list arguments;
  va_start(arguments, number);
  long values[6];
  for (long& value : values) value = va_arg(arguments, long);
  va_end(arguments);
  return next(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
