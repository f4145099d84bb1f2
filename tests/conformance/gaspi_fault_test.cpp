// SPDX-License-Identifier: Apache-2.0
// Ranks that die, stop and are killed: the others are told in time, and go on without them.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "conformance/gaspi_ranks.hpp"

namespace gigabar::test {
namespace {

constexpr Rank kVictim = 2;

std::vector<gaspi_state_t> states(const RankProcess& me) {
  std::vector<gaspi_state_t> all(me.rank_count(), GASPI_STATE_CORRUPT);
  EXPECT_DONE(gaspi_state_vec_get(all.data()));
  return all;
}

void start_quietly() {
  gaspi_config_t config{};
  ASSERT_DONE(gaspi_config_get(&config));
  config.logger = 0;
  ASSERT_DONE(gaspi_config_set(config));
  ASSERT_DONE(gaspi_proc_init(kLong));
  ASSERT_DONE(gaspi_segment_create(0, 4096, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
}

// One of four is killed; the others find it in the state vector, form a group without it, and go on.
BARE_RANK_BODY(gaspi_go_on_without) {
  start_quietly();
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  EXPECT_EQ(states(me), std::vector<gaspi_state_t>(me.rank_count(), GASPI_STATE_HEALTHY));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_state_vec_get(nullptr));
  gaspi_group_t all = 0;
  ASSERT_DONE(gaspi_group_create(&all));
  for (Rank rank = 0; rank < me.rank_count(); ++rank) ASSERT_DONE(gaspi_group_add(all, gaspi_rank_t(rank)));
  ASSERT_DONE(gaspi_group_commit(all, kLong));
  if (me.rank() == kVictim) {
    me.tell("ready");
    static_cast<void>(me.hear());  // until it is killed
    return;
  }
  me.tell("ready");
  ASSERT_EQ(me.hear(), "go on");
  gaspi_return_t code = GASPI_TIMEOUT;
  const Deadline deadline = Deadline::after_ns(20'000'000'000);
  while (code == GASPI_TIMEOUT && !deadline.has_passed()) code = gaspi_barrier(all, 500);
  EXPECT_CODE(GASPI_ERROR, code);
  std::vector<gaspi_state_t> expected(me.rank_count(), GASPI_STATE_HEALTHY);
  expected[kVictim] = GASPI_STATE_CORRUPT;
  EXPECT_EQ(states(me), expected);
  // What was posted to it fails in time, whether at once or at the wait.
  const gaspi_return_t written = gaspi_write(0, 0, kVictim, 0, 0, 64, 0, 5000);
  EXPECT_CODE(GASPI_ERROR, written == GASPI_SUCCESS ? gaspi_wait(0, kLong) : written);
  EXPECT_DONE(gaspi_queue_purge(0, kLong));
  ASSERT_DONE(gaspi_group_delete(all));
  gaspi_group_t rest = 0;
  ASSERT_DONE(gaspi_group_create(&rest));
  for (Rank rank = 0; rank < me.rank_count(); ++rank) {
    if (rank != kVictim) {
      ASSERT_DONE(gaspi_group_add(rest, gaspi_rank_t(rank)));
    }
  }
  ASSERT_DONE(gaspi_group_commit(rest, kLong));
  long one = 1, sum = 0;
  ASSERT_DONE(gaspi_allreduce(&one, &sum, 1, GASPI_OP_SUM, GASPI_TYPE_LONG, rest, kLong));
  EXPECT_EQ(sum, long(me.rank_count()) - 1);
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

// However short the calls are that connect to a rank which was killed, and that leave it.
BARE_RANK_BODY(gaspi_connect_in_short_calls) {
  start_quietly();
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  me.tell("ready");
  if (me.rank() == kVictim) {
    static_cast<void>(me.hear());  // until it is killed
    return;
  }
  ASSERT_EQ(me.hear(), "go on");
  if (me.rank() == 0) {
    const Deadline deadline = Deadline::after_ns(20'000'000'000);
    while (states(me)[kVictim] == GASPI_STATE_HEALTHY && !deadline.has_passed())
      static_cast<void>(gaspi_connect(kVictim, GASPI_TEST));
    EXPECT_EQ(states(me)[kVictim], GASPI_STATE_CORRUPT);
    EXPECT_EQ(states(me)[1], GASPI_STATE_HEALTHY);
  }
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

// Of rank 1: the rank itself is a child, so that this process can tell how it ended.
bool ends_killed(pid_t rank) {
  int status = 0;
  return ::waitpid(rank, &status, 0) == rank && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

// A rank is ended by another one, through gaspi_proc_kill alone.
BARE_RANK_BODY(gaspi_kill_one) {
  if (me.rank() == 1) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child != 0) {
      EXPECT_TRUE(ends_killed(child));
      return;
    }
  }
  start_quietly();
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  const auto ranks = gaspi_rank_t(me.rank_count());
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_proc_kill(gaspi_rank_t(me.rank()), kLong)) << "this rank itself";
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_proc_kill(ranks, kLong));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_proc_ping(ranks, kLong));
  EXPECT_DONE(gaspi_proc_ping(gaspi_rank_t((me.rank() + 1) % ranks), kLong));
  ASSERT_TRUE(me.meet());
  if (me.rank() != 0) {
    static_cast<void>(me.hear());  // nothing, until it is killed
    ::_exit(1);
  }
  ASSERT_DONE(gaspi_proc_kill(1, kLong));
  gaspi_return_t code = GASPI_SUCCESS;
  const Deadline deadline = Deadline::after_ns(20'000'000'000);
  while (code != GASPI_ERROR && !deadline.has_passed()) code = gaspi_proc_ping(1, 200);
  EXPECT_CODE(GASPI_ERROR, code) << "it answers still";
  EXPECT_EQ(states(me)[1], GASPI_STATE_CORRUPT);
  EXPECT_DONE(gaspi_proc_kill(1, kLong)) << "it is dead";
  EXPECT_DONE(gaspi_proc_term(kLong));
}

// A rank that stands still: calls end with TIMEOUT and nothing is lost; it goes on, and so do they.
BARE_RANK_BODY(gaspi_stopped_one) {
  start_quietly();
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  me.tell("ready");
  ASSERT_EQ(me.hear(), "stopped");
  if (me.rank() == 0) {
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_barrier(GASPI_GROUP_ALL, 200));
    EXPECT_EQ(states(me), std::vector<gaspi_state_t>(me.rank_count(), GASPI_STATE_HEALTHY));
    me.tell("timed out");
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

// A rank that stands still keeps a segment of rank 0 from being deleted. Another thread of rank 0 makes one meanwhile.
BARE_RANK_BODY(gaspi_delete_waits) {
  start_quietly();
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  if (me.rank() == 1) {
    ASSERT_DONE(gaspi_write(0, 0, 0, 0, 0, 8, 0, kLong));  // it has the key from now on
    ASSERT_DONE(gaspi_wait(0, kLong));
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  me.tell("ready");
  ASSERT_EQ(me.hear(), "stopped");
  if (me.rank() == 0) {
    std::atomic<bool> is_over{false};
    std::thread deleting([&] {
      EXPECT_DONE(gaspi_segment_delete(0));
      is_over = true;
    });
    ::usleep(100'000);  // it waits by then, on most machines
    EXPECT_DONE(gaspi_segment_alloc(1, 64, GASPI_MEM_INITIALIZED));
    EXPECT_FALSE(is_over) << "the other call was not made beside it";
    me.tell("made one");
    deleting.join();
    EXPECT_DONE(gaspi_segment_alloc(0, 64, GASPI_MEM_INITIALIZED)) << "the id is free again";
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

// And from leaving the job, which waits for the call that deletes it. The mutex of other calls is free meanwhile.
BARE_RANK_BODY(gaspi_term_waits_for_delete) {
  start_quietly();
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  if (me.rank() == 1) {
    ASSERT_DONE(gaspi_write(0, 0, 0, 0, 0, 8, 0, kLong));  // it has the key from now on
    ASSERT_DONE(gaspi_wait(0, kLong));
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  me.tell("ready");
  ASSERT_EQ(me.hear(), "stopped");
  if (me.rank() != 0) {
    ASSERT_TRUE(me.meet());
    EXPECT_DONE(gaspi_proc_term(kLong));
    return;
  }
  // Of two calls that delete it one is refused at once, and the other one is under way then.
  std::atomic<int> deleted{0}, refused{0};
  std::atomic<bool> has_ended{false};
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&] {
      const gaspi_return_t code = gaspi_segment_delete(0);
      if (code == GASPI_SUCCESS) ++deleted;
      if (code == GASPI_ERR_INV_SEG) ++refused;
    });
  }
  const Deadline deadline = Deadline::after_ns(20'000'000'000);
  while (refused == 0 && !deadline.has_passed()) ::usleep(1000);
  EXPECT_CODE(GASPI_TIMEOUT, gaspi_proc_term(20));
  threads.emplace_back([&] {
    EXPECT_DONE(gaspi_proc_term(kLong));
    has_ended = true;
  });
  ::usleep(50'000);  // it waits by then, on most machines
  EXPECT_DONE(gaspi_segment_alloc(1, 64, GASPI_MEM_INITIALIZED));
  EXPECT_FALSE(has_ended);
  me.tell("made one");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(refused, 1);
  EXPECT_CODE(GASPI_ERR_NOINIT, gaspi_segment_delete(1));
  ASSERT_TRUE(me.meet());
}

// What this process prints, from the beginning to the end of its life, to be read at any time.
class PrintedLines {
 public:
  PrintedLines() : before_((std::fflush(stdout), ::dup(STDOUT_FILENO))), file_(::memfd_create("printed", MFD_CLOEXEC)) {
    EXPECT_EQ(::dup2(file_, STDOUT_FILENO), STDOUT_FILENO);
  }
  PrintedLines(const PrintedLines&) = delete;
  PrintedLines& operator=(const PrintedLines&) = delete;
  ~PrintedLines() {
    std::fflush(stdout);
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
    ::close(file_);
  }
  std::string text() const {
    std::string text(4096, '\0');
    const ssize_t count = ::pread(file_, text.data(), text.size(), 0);
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }

 private:
  int before_, file_;
};

GASPI_BODY(gaspi_connections) {
  const auto ranks = gaspi_rank_t(me.rank_count());
  gaspi_network_t network = GASPI_ARIES;
  for (gaspi_rank_t rank = 0; rank < ranks; ++rank) {
    EXPECT_DONE(gaspi_connect(rank, kLong));
    EXPECT_DONE(gaspi_disconnect(rank, kLong));
    EXPECT_DONE(gaspi_connect(rank, kLong)) << "again";
  }
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_connect(ranks, kLong));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_disconnect(ranks, kLong));
  EXPECT_DONE(gaspi_network_type(&network));
  EXPECT_EQ(network, me.setup().transport == TransportKind::verbs ? GASPI_IB : GASPI_ETHERNET);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_network_type(nullptr));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  const PrintedLines printed;
  if (me.rank() == 1) gaspi_printf_to(0, "from rank %d\n", 1);
  if (me.rank() == 0) {
    const Deadline deadline = Deadline::after_ns(20'000'000'000);
    while (printed.text().find("from rank 1\n") == std::string::npos && !deadline.has_passed()) ::usleep(1000);
    EXPECT_NE(printed.text().find(":1] from rank 1\n"), std::string::npos) << printed.text();
  }
  ASSERT_TRUE(me.meet());
}

class GaspiFaults : public testing::TestWithParam<RankSetup> {};
// Rank 2 is killed.
void run_with_a_dead_rank(const std::string& body, RankSetup setup, Rank rank_count) {
  setup.rank_count = rank_count;
  GaspiJob job(body, setup);
  job.start_all();
  for (Rank rank = 0; rank < rank_count; ++rank) ASSERT_TRUE(job.hear(rank, "ready"));
  job.send_signal(kVictim, SIGKILL);
  job.wait_end(kVictim);
  for (Rank rank = 0; rank < rank_count; ++rank) {
    if (rank != kVictim) job.tell(rank, "go on");
  }
  job.finish();
}
TEST_P(GaspiFaults, GoOnWithoutADeadRank) { run_with_a_dead_rank("gaspi_go_on_without", GetParam(), 4); }
TEST_P(GaspiFaults, ShortCallsFindADeadRank) { run_with_a_dead_rank("gaspi_connect_in_short_calls", GetParam(), 3); }
TEST_P(GaspiFaults, KillARank) { run_gaspi("gaspi_kill_one", GetParam()); }
// Rank 1 stands still until rank 0 says the word.
void run_with_a_stopped_rank(const std::string& body, const RankSetup& setup, const std::string& word) {
  GaspiJob job(body, setup);
  job.start_all();
  for (Rank rank = 0; rank < setup.rank_count; ++rank) ASSERT_TRUE(job.hear(rank, "ready"));
  job.send_signal(1, SIGSTOP);
  job.tell(0, "stopped");
  job.tell(1, "stopped");
  ASSERT_TRUE(job.hear(0, word));
  job.send_signal(1, SIGCONT);
  job.finish();
}
TEST_P(GaspiFaults, StoppedRank) { run_with_a_stopped_rank("gaspi_stopped_one", GetParam(), "timed out"); }
TEST_P(GaspiFaults, OtherCallsGoOnBesideDelete) { run_with_a_stopped_rank("gaspi_delete_waits", GetParam(), "made one"); }
TEST_P(GaspiFaults, LeavingWaitsForDelete) { run_with_a_stopped_rank("gaspi_term_waits_for_delete", GetParam(), "made one"); }
TEST_P(GaspiFaults, ConnectionsAndLines) { run_gaspi("gaspi_connections", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Transports, GaspiFaults, testing::ValuesIn(each_transport(2)), setup_name);

}  // namespace
}  // namespace gigabar::test
