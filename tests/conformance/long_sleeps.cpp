// SPDX-License-Identifier: Apache-2.0
#include "conformance/long_sleeps.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace gigabar::test {
namespace {

constexpr int kLimitedMs = 50, kLongMs = 30'000;
constexpr std::int64_t kMsNs = 1'000'000, kSecondNs = 1'000'000'000;

std::atomic<bool> are_long{false};
std::atomic<unsigned> on_descriptors_count{0}, on_conditions_count{0};

std::int64_t ns_of(const timespec& time) { return time.tv_sec * kSecondNs + time.tv_nsec; }

std::int64_t left_ns(clockid_t clock, const timespec& end) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return ns_of(end) - ns_of(now);
}

// What the program would have called: the C library's, or the sanitizer's in front of it.
template <class Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

LongSleeps::LongSleeps() { are_long = true; }
LongSleeps::~LongSleeps() { are_long = false; }
unsigned LongSleeps::on_descriptors() const { return on_descriptors_count; }
unsigned LongSleeps::on_conditions() const { return on_conditions_count; }

}  // namespace gigabar::test

extern "C" int epoll_wait(int epoll, epoll_event* events, int max_events, int timeout_ms) {
  using namespace gigabar::test;
  static auto* const next = next_of<decltype(epoll_wait)>("epoll_wait");
  if (timeout_ms >= kLimitedMs && are_long) {
    timeout_ms = kLongMs;
    ++on_descriptors_count;
  }
  return next(epoll, events, max_events, timeout_ms);
}

extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* end) {
  using namespace gigabar::test;
  static auto* const next = next_of<decltype(pthread_cond_clockwait)>("pthread_cond_clockwait");
  timespec late = *end;
  if (are_long && left_ns(clock, *end) >= kLimitedMs * kMsNs) {
    late.tv_sec += kLongMs / 1000;
    ++on_conditions_count;
  }
  return next(condition, mutex, clock, &late);
}
