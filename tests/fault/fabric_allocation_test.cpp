// SPDX-License-Identifier: Apache-2.0
// Host memory runs out at every single allocation that the calls of a fabric make on the calling thread, in turn: the call answers
// ok, out_of_memory, or that the connection was lost for it, nothing is thrown, and afterwards all of it works and nothing has
// leaked.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fabric/job/directories.hpp"
#include "fabric/job/job.hpp"
#include "fault/doors.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/memory.hpp"
#include "support/descriptors.hpp"
#include "support/failing_new.hpp"
#include "support/free_port.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::fail_each_allocation;
using test::open_descriptors;
using test::ScopedEnvironment;

constexpr std::chrono::seconds kPatience{20};
constexpr std::size_t kBytes = 256 << 10;
constexpr SegmentId kHost = 1, kDevice = 2;

std::size_t mappings_of_files() { return test::mapped_ranges("memfd:") + test::mapped_ranges("gigabar"); }

bool is_lost_or_done_before(Status status) { return status == Status::peer_lost || status == Status::invalid_argument; }

// Whatever fails while the rank is used, it can be used afterwards and holds no more than before.
template <class AnyRank>
void fail_each_of_use(AnyRank& rank) {
  ASSERT_EQ(rank.use(), Status::ok);
  ASSERT_EQ(rank.use(), Status::ok);
  const std::size_t descriptors = open_descriptors();
  const auto check = [&] {
    rank.recover();
    EXPECT_LE(open_descriptors(), descriptors + 2);
  };
  EXPECT_GT(fail_each_allocation([&] { return rank.use(); }, check, is_lost_or_done_before), 50U);
}

// One rank and the memory that it moves.
class Rank1 {
 public:
  static FabricOptions options() {
    FabricOptions options;
    options.rank = 0;
    options.rank_count = 1;
    return options;
  }

  Status open() {
    auto opened = Fabric::open(options());
    if (!opened) return opened.status();
    fabric_.emplace(std::move(*opened));
    return Status::ok;
  }

  // The first failure of all that a program does. What is left over of a failed round before is cleared away first.
  Status use() {
    Fabric& fabric = *fabric_;
    std::optional<DeviceMemory> device;
    if (auto allocated = DeviceMemory::allocate(0, kBytes)) {
      device.emplace(std::move(*allocated));
    } else {
      return allocated.status();
    }
    Status first = Status::ok;
    const auto note = [&](const auto& result) {
      if (first != Status::ok || result) return;
      first = result.status();
      why_ = result.message();
    };
    std::fill(memory_.begin(), memory_.end(), 'a');
    note(fabric.register_segment(kHost, memory_.data(), memory_.size()));
    note(fabric.register_segment(kDevice, device->address(), device->bytes()));
    if (first == Status::ok) {
      note(fabric.connect(0, kPatience));
      // Small, large, staged from one memory to the other, and back.
      note(fabric.write_notify({kHost, 0}, {0, kHost, 4096}, 64, 3, 1));
      note(fabric.write({kHost, 0}, {0, kDevice, 0}, kBytes));
      note(fabric.wait(0, kPatience));
      note(fabric.flush(0, kPatience));
      note(fabric.read({kHost, 0}, {0, kDevice, 0}, kBytes));
      note(fabric.wait(0, kPatience));
      const std::array<ListPiece, 2> pieces = {ListPiece{{kHost, 0}, kHost, 8192, 100}, ListPiece{{kHost, 200}, kHost, 9000, 100}};
      note(fabric.write_list_notify(0, pieces, kHost, 4, 1));
      note(fabric.notify_add(0, kHost, 5, 2));
      note(fabric.wait(0, kPatience));
    }
    if (first == Status::ok) {
      note(fabric.notification_wait(kHost, 3, 3, kPatience));
      note(fabric.fetch_add({0, kHost, 0}, 1, kPatience));
      note(exchange(16));
      note(exchange(64 << 10));
      std::int64_t one = 1, sum = 0;
      note(fabric.barrier({}, kPatience));
      note(fabric.all_reduce({}, ReduceOperation::sum, {&one, 1}, {&sum, 1}, kPatience));
      note(fabric.explain_write({kHost, 0}, {0, kDevice, 0}, kBytes, kPatience));
      const auto mapped = fabric.map_segment(0, kHost, kPatience, MappedFor::cpu);
      note(mapped);
      if (mapped) note(fabric.unmap_segment(0, kHost, MappedFor::cpu));
      static_cast<void>(fabric.settings());
      static_cast<void>(fabric.peers());
    }
    for (const SegmentId id : {kHost, kDevice}) end_segment(id);
    return first;
  }

  void recover() {
    if (!fabric_) return;
    for (const PeerState& peer : fabric_->peers()) {
      if (peer.is_broken) static_cast<void>(fabric_->forget(peer.rank));
    }
    static_cast<void>(fabric_->wait(0, kPatience));
    const std::string before = why_;
    EXPECT_EQ(use(), Status::ok) << "once more, with all its memory: " << why_ << "\nbehind: " << before;
  }

  void close() { fabric_.reset(); }

 private:
  // A message of this rank to itself. What is under way when something fails is waited for: its buffer ends here.
  Result<void> exchange(std::size_t bytes) {
    std::vector<char> sent, received;
    try {
      sent.assign(bytes, 's');
      received.assign(bytes, 'r');
    } catch (const std::bad_alloc&) {
      return Error::out_of_memory();  // of the test's own
    }
    const auto receive = fabric_->post_recv(0, 9, ~Tag{0}, received.data(), bytes);
    if (!receive) return receive.error();
    const Result<void> posted = fabric_->send(0, 9, sent.data(), bytes, kPatience);
    if (!posted) {
      if (!fabric_->cancel_recv(*receive)) static_cast<void>(fabric_->wait_message(*receive, kPatience));
      return posted;
    }
    const auto taken = fabric_->wait_message(*receive, kPatience);
    if (taken.status() == Status::out_of_memory) static_cast<void>(fabric_->wait_message(*receive, kPatience));
    if (!taken) return taken.error();
    EXPECT_EQ(std::memcmp(sent.data(), received.data(), bytes), 0);
    return {};
  }

  // Only one allocation fails: what could not be ended is ended the second time.
  void end_segment(SegmentId id) {
    const Result<void> ended = fabric_->deregister_segment(id, kPatience);
    if (ended || ended.status() == Status::invalid_argument) return;
    const Result<void> again = fabric_->deregister_segment(id, kPatience);
    EXPECT_TRUE(again) << again.message() << "\nbehind: " << ended.message();
  }

  std::optional<Fabric> fabric_;
  std::string why_;  // the first failure
  std::vector<char> memory_ = std::vector<char>(kBytes);
};

ISOLATED_TEST(FabricAllocation, Open) {
  // Without this machine's tuning: the library that reads the file frees what it holds with allocations, and does not survive one
  // that fails then.
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1"), tuning("GIGABAR_TUNING", "none");
  Rank1 warm;
  ASSERT_EQ(warm.open(), Status::ok);
  ASSERT_EQ(warm.use(), Status::ok);
  warm.close();
  const std::size_t descriptors = open_descriptors(), mappings = mappings_of_files();
  const auto check = [&] {
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(mappings_of_files(), mappings);
  };
  const auto open_and_close = [] { return Fabric::open(Rank1::options()).status(); };
  EXPECT_GT(fail_each_allocation(open_and_close, check), 50U);
}

ISOLATED_TEST(FabricAllocation, EverythingOfOneRank) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  Rank1 rank;
  ASSERT_EQ(rank.open(), Status::ok);
  fail_each_of_use(rank);
}

// From nothing: the connection is made on the way.
ISOLATED_TEST(FabricAllocation, TheFirstUse) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  Rank1 rank;
  const auto use = [&] {
    {
      const test::WithMemory enough;
      EXPECT_EQ(rank.open(), Status::ok);
    }
    return rank.use();
  };
  const auto check = [&] {
    rank.recover();
    rank.close();
  };
  EXPECT_GT(fail_each_allocation(use, check, is_lost_or_done_before), 100U);
}

// --- Refusals -------------------------------------------------------------------------------------------------------------------

// A fabric that was moved from refuses every call, and says which; so it does where there is no memory for the reason.
ISOLATED_TEST(FabricAllocation, RefusalsByEveryCall) {
  auto opened = Fabric::open(Rank1::options());
  ASSERT_TRUE(opened) << opened.message();
  Fabric fabric = std::move(*opened);
  const Fabric kept = std::move(fabric);
  const LocalPlace here{kHost, 0};
  const RemotePlace there{0, kHost, 0};
  const std::array<ListPiece, 1> pieces{ListPiece{here, kHost, 0, 8}};
  std::uint64_t word = 0;
  struct Call {
    const char* name;
    std::function<Result<void>()> body;
  };
  const auto call = [](const char* name, auto body) {
    return Call{name, [body]() -> Result<void> {
                  auto result = body();
                  if (!result) return result.error();
                  return {};
                }};
  };
  // NOLINTBEGIN(bugprone-use-after-move): that is the case
  for (const Call& one : {call("close", [&] { return fabric.close(kPatience); }),
                          call("write", [&] { return fabric.write(here, there, 8); }),
                          call("read", [&] { return fabric.read(here, there, 8); }),
                          call("write_list", [&] { return fabric.write_list(0, pieces); }),
                          call("read_list", [&] { return fabric.read_list(0, pieces); }),
                          call("write_notify", [&] { return fabric.write_notify(here, there, 8, 1, 1); }),
                          call("write_notify_add", [&] { return fabric.write_notify_add(here, there, 8, 1, 1); }),
                          call("write_list_notify", [&] { return fabric.write_list_notify(0, pieces, kHost, 1, 1); }),
                          call("notify", [&] { return fabric.notify(0, kHost, 1, 1); }),
                          call("notify_add", [&] { return fabric.notify_add(0, kHost, 1, 1); }),
                          call("write_in_order", [&] { return fabric.write_in_order(&word, there, 8); }),
                          call("notification_wait", [&] { return fabric.notification_wait(kHost, 0, 1, kPatience); }),
                          call("notification_wait_count", [&] { return fabric.notification_wait_count(kHost, 0, 1, kPatience); }),
                          call("notification_reset", [&] { return fabric.notification_reset(kHost, 0); }),
                          call("wait", [&] { return fabric.wait(0, kPatience); }),
                          call("progress", [&] { return fabric.progress(); }),
                          call("flush", [&] { return fabric.flush(0, kPatience); }),
                          call("report", [&] { return fabric.report(Operation{1}); }),
                          call("post_send", [&] { return fabric.post_send(0, 1, &word, 8); }),
                          call("post_recv", [&] { return fabric.post_recv(0, 1, 0, &word, 8); }),
                          call("wait_message", [&] { return fabric.wait_message(Operation{1}, kPatience); })}) {
    SCOPED_TRACE(one.name);
    unsigned named = 0;  // where it was thrown; an error that itself found no memory has no name
    const auto refusal = [&] {
      const Result<void> result = one.body();
      if (result.status() == Status::out_of_memory) named += result.record().operation == one.name ? 1 : 0;
      return result.status() == Status::unavailable ? Status::ok : result.status();
    };
    fail_each_allocation(refusal, [] {});
    EXPECT_GT(named, 0U);
  }
  // NOLINTEND(bugprone-use-after-move)
}

// --- A queue at which another thread is ------------------------------------------------------------------------------------------

ISOLATED_TEST(FabricAllocation, AQueueOfAnotherThread) {
  FabricOptions options = Rank1::options();
  options.rank_count = 2;  // the other one never comes
  options.master_address = "127.0.0.1";
  options.master_port = test::free_port();
  options.connect_timeout = std::chrono::seconds(3);
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(fabric) << fabric.message();
  std::vector<char> memory(kBytes);
  ASSERT_TRUE(fabric->register_segment(kHost, memory.data(), memory.size()));
  std::thread other([&] { EXPECT_EQ(fabric->write({kHost, 0}, {1, kHost, 0}, 8).status(), Status::peer_lost); });
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (fabric->wait(0, Timeout::test()) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  const auto wait = [&] {
    const Status status = fabric->wait(0, std::chrono::milliseconds(1)).status();
    return status == Status::timed_out ? Status::ok : status;
  };
  EXPECT_GT(fail_each_allocation(wait, [] {}), 0U);
  other.join();
  ASSERT_TRUE(fabric->write({kHost, 0}, {0, kHost, 4096}, 64));
  EXPECT_TRUE(fabric->wait(0, kPatience));
}

// --- A rank that is gone ---------------------------------------------------------------------------------------------------------

// What it has sent is there to be received. A receive that cannot end well for want of memory ends with that, and not never: nobody
// else is there to end it.
constexpr std::size_t kLetters = 200;

ISOLATED_TEST(FabricAllocation, MessagesOfARankThatIsGone) {
  const std::uint16_t port = test::free_port();
  std::array<int, 2> received{};
  ASSERT_EQ(::pipe2(received.data(), O_CLOEXEC), 0);
  const pid_t sender = ::fork();
  const auto options = [port](Rank rank) {
    FabricOptions made;
    made.rank = rank;
    made.rank_count = 2;
    made.master_address = "127.0.0.1";
    made.master_port = port;
    made.progress_thread = false;
    return made;
  };
  if (sender == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto fabric = Fabric::open(options(1));
    const std::string letter = "more than there is room for";
    for (std::size_t count = 0; fabric && count < kLetters; ++count) {
      if (!fabric->send(0, 7, letter.data(), letter.size(), kPatience)) ::_exit(3);
    }
    if (!fabric || !fabric->send(0, 8, nullptr, 0, kPatience)) ::_exit(4);
    char byte = 0;
    static_cast<void>(::read(received[0], &byte, 1));
    ::_exit(0);
  }
  auto fabric = Fabric::open(options(0));
  ASSERT_TRUE(fabric) << fabric.message();
  ASSERT_TRUE(fabric->recv(1, 8, nullptr, 0, kPatience));
  ASSERT_EQ(::write(received[1], "x", 1), 1);
  ::waitpid(sender, nullptr, 0);
  for (const int end : received) ::close(end);
  Status waited = Status::timed_out;
  for (const auto end = std::chrono::steady_clock::now() + kPatience;
       waited == Status::timed_out && std::chrono::steady_clock::now() < end;)
    waited = fabric->recv(1, 9, nullptr, 0, std::chrono::milliseconds(20)).status();
  ASSERT_EQ(waited, Status::peer_lost) << name_of(waited);
  std::array<char, 8> buffer{};
  const auto receive = [&] {
    const auto posted = fabric->post_recv(1, 7, ~Tag{0}, buffer.data(), buffer.size());
    if (!posted) return posted.status();
    const auto taken = fabric->wait_message(*posted, std::chrono::seconds(2));
    // Too long for the buffer: so it is when nothing lacks.
    return taken.status() == Status::out_of_range ? Status::ok : taken.status();
  };
  EXPECT_GT(fail_each_allocation(receive, [] {}), 2U);
}

// --- Strangers -------------------------------------------------------------------------------------------------------------------

// Rank 0's directory turns away whom it has no memory for. Whom it keeps it ends in time, too.
ISOLATED_TEST(FabricAllocation, TheDirectoryAmongStrangers) {
  fabric::Job job;
  job.rank_count = 2;
  job.id = "test";
  job.key = fabric::JobKey("sixteen bytes or more");
  job.master_address = "127.0.0.1";
  job.master_port = test::free_port();
  job.is_on_one_host = false;
  auto server = fabric::open_bootstrap_server(job, 50'000'000);
  ASSERT_TRUE(server) << server.error().message();
  std::optional<Descriptor> stranger;
  fabric::Job member = job;
  member.rank = 1;
  const secure::Identity identity = fabric::identity_of(member, secure::Purpose::directory);
  const auto come = [&] {
    const long left = std::exchange(test::left_until_failure, -1);
    stranger.emplace(test::knock_tcp(job.master_port));
    EXPECT_TRUE(stranger->is_open());
    test::left_until_failure = left;
    Status status = Status::ok;
    const auto poll = [&] {
      for (int round = 0; round < 4 && status == Status::ok; ++round) status = (*server)->poll().status();
    };
    poll();
    {
      // Its hello, where it was let in.
      const test::WithMemory enough;
      secure::Handshake handshake(identity, secure::Role::initiator);
      std::string challenge(secure::kChallengeBytes, '\0');
      if (::recv(stranger->get(), challenge.data(), challenge.size(), MSG_DONTWAIT) == ssize_t(challenge.size()) &&
          handshake.take_challenge(challenge)) {
        const std::string hello = handshake.hello(0);
        EXPECT_EQ(::send(stranger->get(), hello.data(), hello.size(), MSG_NOSIGNAL), ssize_t(hello.size()));
      }
    }
    poll();
    return status;
  };
  const auto is_cut_off = [&] {
    std::array<char, 256> heard{};
    const ssize_t bytes = ::recv(stranger->get(), heard.data(), heard.size(), MSG_DONTWAIT);
    return bytes == 0 || (bytes < 0 && errno != EAGAIN);
  };
  const auto check = [&] {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!is_cut_off() && std::chrono::steady_clock::now() < end) {
      ASSERT_TRUE((*server)->poll());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(is_cut_off());
  };
  EXPECT_GT(fail_each_allocation(come, check), 5U);
}

// --- Two ranks -------------------------------------------------------------------------------------------------------------------

// Rank 1, in a process of its own: sends every message back, and forgets who was lost.
class Partner {
 public:
  explicit Partner(std::uint16_t port) : process_(::fork()) {
    if (process_ == 0) serve(port);
  }
  ~Partner() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Partner(const Partner&) = delete;
  Partner& operator=(const Partner&) = delete;

  static FabricOptions options(Rank rank, std::uint16_t port) {
    FabricOptions options;
    options.rank = rank;
    options.rank_count = 2;
    options.master_address = "127.0.0.1";
    options.master_port = port;
    return options;
  }

 private:
  [[noreturn]] static void serve(std::uint16_t port) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto fabric = Fabric::open(options(1, port));
    auto device = DeviceMemory::allocate(0, kBytes);
    std::vector<char> memory(kBytes), message(kBytes);
    if (!fabric || !device || !fabric->register_segment(kHost, memory.data(), memory.size()) ||
        !fabric->register_segment(kDevice, device->address(), device->bytes())) {
      ::_exit(3);
    }
    while (true) {
      const auto receive = fabric->post_recv(kAnyRank, 0, 0, message.data(), message.size());
      if (!receive) ::_exit(4);
      auto received = fabric->wait_message(*receive, std::chrono::milliseconds(5));
      while (!received && received.status() == Status::timed_out) {
        forget_lost(*fabric);
        received = fabric->wait_message(*receive, std::chrono::milliseconds(5));
      }
      if (received) static_cast<void>(fabric->send(0, received->tag, message.data(), received->bytes, kPatience));
      forget_lost(*fabric);
    }
  }

  static void forget_lost(Fabric& fabric) {
    for (const PeerState& peer : fabric.peers()) {
      if (peer.is_broken) static_cast<void>(fabric.forget(peer.rank));
    }
  }

  pid_t process_;
};

class Rank0 {
 public:
  explicit Rank0(Fabric fabric) : fabric_(std::move(fabric)) {}

  Status use() {
    std::fill(memory_.begin(), memory_.end(), 'a');
    Result<void> first = use_all();
    if (const Result<void> ended = fabric_.deregister_segment(kHost, kPatience);
        !ended && ended.status() != Status::invalid_argument) {
      const Result<void> again = fabric_.deregister_segment(kHost, kPatience);
      EXPECT_TRUE(again) << again.message() << "\nbehind: " << ended.message();
    }
    if (!first) why_ = first.message();
    return first.status();
  }

  // The other rank may take a moment to see that it was lost.
  void recover() {
    const std::string before = why_;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    Status status = Status::ok;
    do {
      for (const PeerState& peer : fabric_.peers()) {
        if (peer.is_broken) static_cast<void>(fabric_.forget(peer.rank));
      }
      static_cast<void>(fabric_.wait(0, kPatience));
      status = use();
    } while (status == Status::peer_lost && std::chrono::steady_clock::now() < end);
    EXPECT_EQ(status, Status::ok) << "once more, with all its memory: " << why_ << "\nbehind: " << before;
  }

 private:
  Result<void> use_all() {
    if (Result<void> done = fabric_.register_segment(kHost, memory_.data(), memory_.size()); !done) return done;
    if (Result<void> done = fabric_.connect(1, kPatience); !done) return done;
    for (const SegmentId remote : {kHost, kDevice}) {
      if (const auto posted = fabric_.write_notify({kHost, 0}, {1, remote, 0}, 64, 3, 1); !posted) return posted.error();
      if (const auto posted = fabric_.write({kHost, 0}, {1, remote, 0}, kBytes); !posted) return posted.error();
      if (const auto posted = fabric_.read({kHost, 0}, {1, remote, 0}, kBytes); !posted) return posted.error();
      if (Result<void> done = fabric_.wait(0, kPatience); !done) return done;
    }
    if (Result<void> done = fabric_.flush(1, kPatience); !done) return done;
    if (const auto before = fabric_.fetch_add({1, kHost, 0}, 1, kPatience); !before) return before.error();
    if (Result<void> done = echo(16); !done) return done;
    return echo(64 << 10);
  }

  Result<void> echo(std::size_t bytes) {
    std::fill(received_.begin(), received_.end(), 'r');
    const Tag tag = ++last_tag_;
    const auto receive = fabric_.post_recv(1, tag, ~Tag{0}, received_.data(), bytes);
    if (!receive) return receive.error();
    if (Result<void> sent = fabric_.send(1, tag, memory_.data(), bytes, kPatience); !sent) {
      if (!fabric_.cancel_recv(*receive)) static_cast<void>(fabric_.wait_message(*receive, kPatience));
      return sent;
    }
    auto taken = fabric_.wait_message(*receive, kPatience);
    if (taken.status() == Status::out_of_memory) taken = fabric_.wait_message(*receive, kPatience);
    if (!taken) return taken.error();
    EXPECT_EQ(std::memcmp(memory_.data(), received_.data(), bytes), 0);
    return {};
  }

  Fabric fabric_;
  std::string why_;
  Tag last_tag_ = 0;
  std::vector<char> memory_ = std::vector<char>(kBytes), received_ = std::vector<char>(kBytes);
};

ISOLATED_TEST(FabricAllocation, EverythingOfTwoRanks) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const std::uint16_t port = test::free_port();
  const Partner partner(port);
  FabricOptions options = Partner::options(0, port);
  options.progress_thread = false;  // so that all of it happens on this thread
  auto opened = Fabric::open(options);
  ASSERT_TRUE(opened) << opened.message();
  Rank0 rank(std::move(*opened));
  fail_each_of_use(rank);
}

}  // namespace
}  // namespace gigabar
