// SPDX-License-Identifier: Apache-2.0
// What other ranks ask of this process, however busy its threads are: to end, to print, to answer. They write to a segment of its
// own; a thread looks at it from time to time, seldom enough to disturb nobody.
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <thread>

#include "base/blocked_signals.hpp"
#include "gaspi/process.hpp"

namespace gigabar::gaspi {

struct Control {
  alignas(64) std::uint64_t word = 0;  // the control segment
  std::mutex mutex;
  std::condition_variable changed;
  bool is_stopping = false;
  std::thread thread;
};

namespace {

constexpr NotificationId kEnd = 0, kPrint = 1;  // of the control segment
constexpr Tag kPrintTag = 0x6761'7370'6900'0002;
constexpr std::chrono::milliseconds kBetweenLooks{20};
constexpr std::size_t kMaxLine = 2048;
constexpr PostOptions kOptions{.queue = kInternalQueue, .policy = std::nullopt};

void print_from(Fabric& fabric) {
  std::array<char, kMaxLine> line{};
  const Result<Received> received = fabric.recv(kAnyRank, kPrintTag, line.data(), line.size(), std::chrono::seconds(1));
  if (received) std::fwrite(line.data(), 1, received->bytes, stdout);
  std::fflush(stdout);
}

void look(Fabric& fabric) {
  if (fabric.notification_wait(kControlSegment, kEnd, 1, Timeout::test())) ::kill(::getpid(), SIGKILL);
  while (fabric.notification_wait_count(kControlSegment, kPrint, 1, Timeout::test())) print_from(fabric);
  raise_arrived();
}

void run(Control& control, Fabric& fabric) {
  std::unique_lock lock(control.mutex);
  while (!control.changed.wait_for(lock, kBetweenLooks, [&] { return control.is_stopping; })) {
    lock.unlock();
    static_cast<void>(guarded([&] { return look(fabric), GASPI_SUCCESS; }));  // without memory: at the next look
    lock.lock();
  }
}

}  // namespace

Result<void> start_control(Process& all) {
  if (!all.control) {
    all.control = std::make_shared<Control>();
    Result<void> registered = all.fabric->register_segment(kControlSegment, &all.control->word, sizeof all.control->word);
    if (!registered) {
      all.control.reset();
      return registered;
    }
  }
  all.control->is_stopping = false;
  const BlockedSignals blocked;
  all.control->thread = std::thread([control = all.control.get(), &fabric = *all.fabric] { run(*control, fabric); });
  return {};
}

void stop_control(Process& all) {
  {
    const std::scoped_lock lock(all.control->mutex);
    all.control->is_stopping = true;
  }
  all.control->changed.notify_all();
  if (all.control->thread.joinable()) all.control->thread.join();  // a start that failed has left none
}

}  // namespace gigabar::gaspi

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

// A notification of the rank's control segment, and that it is there. Whether the rank still lives afterwards is another question.
Result<void> tell(Rank rank, NotificationId id, const Remaining& time) {
  Fabric& fabric = *process().fabric;
  Result<void> connected = fabric.connect(rank, time.left());
  if (!connected) return connected;
  for (;;) {
    const auto posted = fabric.notify_add(rank, kControlSegment, id, 1, kOptions);
    if (posted) break;
    if (posted.status() != Status::busy || is_over(time)) return Error(posted.error());
    static_cast<void>(fabric.wait(kInternalQueue, Timeout::test()));
  }
  return fabric.flush(rank, time.left());
}

std::string line_of(const char* format, va_list arguments) {
  std::array<char, kMaxLine> line{};
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const int begin = std::snprintf(line.data(), line.size(), "[%s:%u] ", host.data(), process().rank);
  std::vsnprintf(line.data() + begin, line.size() - static_cast<std::size_t>(begin), format, arguments);
  return line.data();
}

}  // namespace

gaspi_return_t pgaspi_proc_kill(const gaspi_rank_t rank, const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (rank >= process().rank_count || rank == process().rank) return GASPI_ERR_INV_RANK;
    const Result<void> told = tell(rank, kEnd, Remaining(timeout_of(timeout_ms)));
    if (told) return GASPI_SUCCESS;
    // It ended before it could answer, or was dead before.
    if (told.status() == Status::peer_lost) {
      process().peers[rank].is_corrupt = true;
      return GASPI_SUCCESS;
    }
    return code_of(told.error(), "gaspi_proc_kill");
  });
}
GASPI_NAMED(gaspi_proc_kill);

gaspi_return_t pgaspi_proc_ping(const gaspi_rank_t rank, gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (rank >= process().rank_count) return GASPI_ERR_INV_RANK;
    Process& all = process();
    const Remaining time(timeout_of(timeout_ms));
    if (Result<void> connected = all.fabric->connect(rank, time.left()); !connected)
      return code_of(connected.error(), "gaspi_proc_ping");
    // An addition of nothing: the rank's own process answers.
    const auto answered = all.fabric->fetch_add({rank, kControlSegment, 0}, 0, time.left());
    return answered ? GASPI_SUCCESS : code_of(answered.error(), "gaspi_proc_ping");
  });
}
GASPI_NAMED(gaspi_proc_ping);

void pgaspi_printf(const char* format, ...) try {
  const Uncancelled uncancelled;
  va_list arguments;
  va_start(arguments, format);
  const std::string line = line_of(format, arguments);
  va_end(arguments);
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
} catch (...) {
  std::fputs("gaspi_printf: no memory for the line\n", stderr);
}
GASPI_NAMED(gaspi_printf);

void pgaspi_printf_to(gaspi_rank_t rank, const char* format, ...) try {
  const Uncancelled uncancelled;
  va_list arguments;
  va_start(arguments, format);
  const std::string line = line_of(format, arguments);
  va_end(arguments);
  if (!is_ready() || rank >= process().rank_count) {
    std::fprintf(stderr, "gaspi_printf_to: there is no rank %u; the line was: %s", rank, line.c_str());
    return;
  }
  const Remaining time(std::chrono::seconds(10));
  Result<void> sent = process().fabric->send(rank, kPrintTag, line.data(), line.size(), time.left());
  if (sent) sent = tell(rank, kPrint, time);
  if (!sent) std::fprintf(stderr, "gaspi_printf_to: %s; the line was: %s", sent.message().c_str(), line.c_str());
} catch (...) {
  std::fputs("gaspi_printf_to: no memory for the line\n", stderr);
}
GASPI_NAMED(gaspi_printf_to);
