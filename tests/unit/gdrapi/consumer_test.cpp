// SPDX-License-Identifier: Apache-2.0
// The shared library as a C program uses it, on the fake GPU machine. The library's system calls reach the machine because this
// program defines them, as a preloaded library would.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <vector>

#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "unit/gdrapi/consumer.h"

namespace {

const gigabar::SystemCalls* machine_calls = nullptr;

// The machine itself makes system calls, which must not come back to it.
thread_local bool is_in_machine = false;

template <class Answer, class... Parameters, class... Arguments>
Answer call(Answer (*gigabar::SystemCalls::*entry)(Parameters...), long number, Arguments... arguments) {
  if (machine_calls == nullptr || is_in_machine) return (Answer)::syscall(number, arguments...);
  is_in_machine = true;
  const Answer answer = (machine_calls->*entry)(static_cast<Parameters>(arguments)...);
  is_in_machine = false;
  return answer;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int close(int descriptor) { return call(&gigabar::SystemCalls::close, SYS_close, descriptor); }
int munmap(void* address, std::size_t bytes) noexcept { return call(&gigabar::SystemCalls::munmap, SYS_munmap, address, bytes); }
int madvise(void* address, std::size_t bytes, int advice) noexcept {
  return call(&gigabar::SystemCalls::madvise, SYS_madvise, address, bytes, advice);
}
void* mmap(void* hint, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) noexcept {
  return call(&gigabar::SystemCalls::mmap, SYS_mmap, hint, bytes, protection, flags, descriptor, offset);
}
int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return call(&gigabar::SystemCalls::ioctl, SYS_ioctl, descriptor, request, argument);
}
int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const int mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, int) : 0;
  va_end(list);
  if (machine_calls == nullptr || is_in_machine) return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  is_in_machine = true;
  const int descriptor = machine_calls->open(path, flags);
  is_in_machine = false;
  return descriptor;
}

}  // extern "C"
#pragma GCC visibility pop

namespace gigabar::test {
namespace {

constexpr std::size_t kBlock = std::size_t{2} << 20;

void expect_flow(FakeSession& session) {
  session.start();
  machine_calls = FakeSession::symbol<fake::CallsFunction>(fake::kCallsSymbol)();
  const ScopedEnvironment no_cache("GIGABAR_CACHE_BYTES", "0");
  const CUdeviceptr memory = FakeSession::allocate(kBlock);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{4}, std::size_t{70001}}) {
    const auto source = pattern(100000, static_cast<unsigned>(offset));
    std::vector<unsigned char> back(source.size());
    EXPECT_EQ(consumer_flow(memory + offset, source.size(), source.data(), back.data()), 0) << "the line of consumer.c";
    EXPECT_EQ(back, source);
    EXPECT_EQ(FakeSession::read(memory + offset, source.size()), source);
  }
  FakeSession::free(memory);
  session.expect_kept_memory();  // what verified the device: gdr_close() waits for no kernel
}

TEST(Consumer, LayoutInC) { EXPECT_EQ(consumer_info_bytes(), 48U); }

ISOLATED_TEST(Consumer, DmaBuf) {
  FakeSession session;
  session.machine().cuda_version = 13030;
  session.machine().dma_buf_mmap_supported = 1;
  session.machine().is_dma_buf_mappable = true;
  expect_flow(session);
  EXPECT_GT(FakeSession::counts().total_dma_bufs, 0U);
}

ISOLATED_TEST(Consumer, KernelModule) {
  FakeSession session;
  session.machine().has_gdrdrv = true;
  expect_flow(session);
  EXPECT_GT(FakeSession::counts().total_gdrdrv_pins, 0U);
}

}  // namespace
}  // namespace gigabar::test
