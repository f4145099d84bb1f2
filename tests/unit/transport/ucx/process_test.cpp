// SPDX-License-Identifier: Apache-2.0
// Links between processes, one of which dies or stops; and UCX's library, loaded anew in each process.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "support/stop_process.hpp"
#include "support/temporary_folder.hpp"
#include "transport/ucx/open.hpp"
#include "unit/transport/ucx/pair.hpp"

namespace gigabar::transport::ucx::test {
namespace {

// --- Two processes ---------------------------------------------------------------------------------------------------------------

void tell(int socket, const std::string& bytes) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  EXPECT_EQ(::write(socket, &length, sizeof length), static_cast<ssize_t>(sizeof length));
  EXPECT_EQ(::write(socket, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}
std::string hear(int socket) {
  std::uint32_t length = 0;
  if (::recv(socket, &length, sizeof length, MSG_WAITALL) != static_cast<ssize_t>(sizeof length)) return {};
  std::string bytes(length, '\0');
  return ::recv(socket, bytes.data(), length, MSG_WAITALL) == static_cast<ssize_t>(length) ? bytes : std::string();
}

// Accepts a link, tells its key, sends every message back with what the write before it left, until it is killed.
[[noreturn]] void be_the_peer(int socket) {
  ::alarm(60);
  const auto transport = open_transport();
  Recorder sink;
  Buffer target(*transport, 4 << 20);
  Parcel offer, answer;
  offer.bytes = hear(socket);
  auto link = transport->accept({}, std::move(offer), answer);
  if (!link) ::_exit(3);
  tell(socket, answer.bytes);
  tell(socket, target.region->key({})->bytes);
  sink.on_message = [&](Link& to, const Header& header, std::span<const std::byte>) {
    to.post_message(header, {target.data(), 1000});
  };
  while (true) transport->poll(sink);
}

// UCX is first used after the fork, in both processes.
struct TwoProcesses {
  TwoProcesses() {
    int sockets[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    peer = ::fork();
    if (peer == 0) be_the_peer(sockets[1]);
    ::close(sockets[1]);
    socket = Descriptor(sockets[0]);
    transport = open_transport();
    Parcel offer, answer, key;
    link = std::move(transport->offer({}, 0, offer)).value();
    tell(socket.get(), offer.bytes);
    answer.bytes = hear(socket.get());
    key.bytes = hear(socket.get());
    EXPECT_TRUE(link->complete(std::move(answer)));
    remote = std::move(transport->open_region({}, std::move(key))).value();
    EXPECT_TRUE(poll_until([&] { return sink.ready_count[link.get()] == 1; }));
  }
  ~TwoProcesses() {
    ::kill(peer, SIGKILL);
    ::waitpid(peer, nullptr, 0);
  }
  bool poll_until(const std::function<bool()>& condition) {
    const Deadline deadline = Deadline::after_ns(kPatienceNs);
    while (!condition()) {
      if (deadline.has_passed()) return false;
      transport->poll(sink);
    }
    return true;
  }

  pid_t peer = -1;
  Descriptor socket;
  Recorder sink;
  std::unique_ptr<UcxTransport> transport;
  std::unique_ptr<Link> link;
  std::unique_ptr<RemoteRegion> remote;
};

ISOLATED_TEST(UcxTwoProcesses, MoveData) {
  TwoProcesses both;
  Buffer source(*both.transport, 4 << 20), back(*both.transport, 4 << 20);
  for (std::uint64_t round = 0; round < 50; ++round) {
    const std::vector<std::byte> data = patterned(4 << 20, round);
    std::memcpy(source.data(), data.data(), data.size());
    ASSERT_EQ(both.link->post_write(*source.region, 0, *both.remote, 0, 4 << 20, 2 * round), Posted::ok);
    ASSERT_EQ(both.link->post_message(header_of(round), {}), Posted::ok);
    ASSERT_TRUE(both.poll_until([&] { return both.sink.messages.size() == round + 1; }));
    const Message& echo = both.sink.messages.back();
    ASSERT_EQ(number_of(echo.header), round);
    ASSERT_TRUE(std::equal(echo.payload.begin(), echo.payload.end(), data.begin()));
    ASSERT_EQ(both.link->post_read(*back.region, 0, *both.remote, 0, 4 << 20, 2 * round + 1), Posted::ok);
    ASSERT_TRUE(both.poll_until([&] { return both.sink.dones.size() == 2 * round + 2; }));
    ASSERT_EQ(std::memcmp(back.data(), data.data(), data.size()), 0);
  }
  EXPECT_TRUE(back.is_guarded());
}

ISOLATED_TEST(UcxTwoProcesses, AKilledPeerIsNoticedWithWorkUnderWay) {
  TwoProcesses both;
  Buffer source(*both.transport, 4 << 20);
  ASSERT_TRUE(gigabar::test::stop_process(both.peer));  // else it may take all of it before it dies
  for (std::uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(both.link->post_write(*source.region, 0, *both.remote, 0, 4 << 20, i), Posted::ok);
  }
  for (int i = 0; i < 10; ++i) both.transport->poll(both.sink);
  ASSERT_EQ(::kill(both.peer, SIGKILL), 0);
  const std::int64_t killed_ns = now_ns();
  ASSERT_TRUE(both.poll_until([&] { return both.sink.errors.size() == 1; }));
  EXPECT_LT(now_ns() - killed_ns, 10'000'000'000);
  EXPECT_EQ(both.sink.statuses[both.link.get()], Status::peer_lost) << both.sink.errors[both.link.get()];
  EXPECT_EQ(both.sink.dones.size(), 40u);
  unsigned failed = 0;
  for (const auto& [cookie, error] : both.sink.dones) failed += error.empty() ? 0 : 1;
  EXPECT_GT(failed, 0u);
}

// One finds out that the other has died by sending to it while it handles a message, as a barrier's tree does, when the death
// itself is known to the kernel: UCX 1.13 ended this process for that.
ISOLATED_TEST(UcxTwoProcesses, AMessagePassedOnToOneThatHasDied) {
  TwoProcesses both;
  const auto other = open_transport();
  Recorder other_sink;
  Parcel offer, answer;
  const auto near_link = std::move(both.transport->offer({}, 0, offer)).value();
  const auto other_link = std::move(other->accept({}, std::move(offer), answer)).value();
  ASSERT_TRUE(near_link->complete(std::move(answer)));
  ASSERT_TRUE(both.poll_until([&] {
    other->poll(other_sink);
    return both.sink.ready_count[near_link.get()] == 1 && other_sink.ready_count[other_link.get()] == 1;
  }));
  Posted passed_on = Posted::full;
  both.sink.on_message = [&](Link&, const Header& header, std::span<const std::byte>) {
    passed_on = both.link->post_message(header, {});
  };
  ASSERT_TRUE(gigabar::test::stop_process(both.peer));
  // It leaves this unread, so that its end resets the connection.
  ASSERT_EQ(both.link->post_message(header_of(1), {}), Posted::ok);
  for (int i = 0; i < 100; ++i) both.transport->poll(both.sink);
  ASSERT_EQ(other_link->post_message(header_of(2), {}), Posted::ok);
  for (int i = 0; i < 100; ++i) other->poll(other_sink);
  ASSERT_EQ(::kill(both.peer, SIGKILL), 0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(both.peer), &ended, WEXITED | WNOWAIT), 0);
  ASSERT_TRUE(both.poll_until([&] { return both.sink.errors.contains(both.link.get()); }));
  EXPECT_EQ(both.sink.statuses[both.link.get()], Status::peer_lost) << both.sink.errors[both.link.get()];
  ASSERT_TRUE(both.poll_until([&] { return passed_on == Posted::ok; })) << "the message did not come first";
  EXPECT_FALSE(both.sink.errors.contains(near_link.get()));
}

ISOLATED_TEST(UcxTwoProcesses, AKilledPeerWakesASleeper) {
  TwoProcesses both;
  ASSERT_TRUE(both.poll_until([&] { return !both.transport->poll(both.sink) && both.transport->arm(); }));
  ASSERT_EQ(::kill(both.peer, SIGKILL), 0);
  const Deadline deadline = Deadline::after_ns(kPatienceNs);
  while (both.sink.errors.empty() && !deadline.has_passed()) {
    pollfd watched{both.transport->wake_descriptor(), POLLIN, 0};
    ASSERT_EQ(::poll(&watched, 1, 20'000), 1) << "nothing woke it";
    do both.transport->poll(both.sink);
    while (both.sink.errors.empty() && !both.transport->arm());
  }
  EXPECT_EQ(both.sink.statuses[both.link.get()], Status::peer_lost);
}

// Its kernel takes what fits; the rest is ours until the link goes.
ISOLATED_TEST(UcxTwoProcesses, AStoppedPeerHoldsNobodyUp) {
  TwoProcesses both;
  auto source = std::make_unique<Buffer>(*both.transport, 16 << 20);
  Buffer small(*both.transport, 4096);
  ASSERT_TRUE(gigabar::test::stop_process(both.peer));
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(both.link->post_write(*source->region, i << 20, *both.remote, 0, 4 << 20, i), Posted::ok);
  }
  for (int i = 0; i < 1000; ++i) both.transport->poll(both.sink);
  EXPECT_LT(both.sink.dones.size(), 8u);
  const std::int64_t begin_ns = now_ns();
  both.link.reset();
  source.reset();
  both.transport.reset();
  small.region.reset();
  EXPECT_LT(now_ns() - begin_ns, 10'000'000'000);
}

// --- The library -----------------------------------------------------------------------------------------------------------------

ISOLATED_TEST(UcxLibrary, MissingOrUnfit) {
  const gigabar::test::ScopedEnvironment library("GIGABAR_UCP_LIBRARY", "/nonexistent/libucp.so.0");
  const auto refused = open_ucx({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::unavailable);
  EXPECT_NE(refused.error().message().find("/nonexistent/libucp.so.0"), std::string::npos) << refused.error().message();
  EXPECT_EQ(ucp::availability().code, AvailabilityCode::library_missing);
  EXPECT_FALSE(ucp::availability().remedy.empty());
}

ISOLATED_TEST(UcxLibrary, WithoutItsFunctions) {
  const gigabar::test::ScopedEnvironment library("GIGABAR_UCP_LIBRARY", "libm.so.6");
  EXPECT_EQ(open_ucx({}).status(), Status::unavailable);
  EXPECT_EQ(ucp::availability().code, AvailabilityCode::symbol_missing);
  EXPECT_NE(ucp::availability().reason.find("ucp_"), std::string::npos);
}

ISOLATED_TEST(UcxLibrary, NoSuchNetwork) {
  const gigabar::test::ScopedEnvironment networks("GIGABAR_UCX_TLS", "nonsense");
  const auto refused = open_ucx({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::unavailable) << refused.error().message();
  EXPECT_NE(refused.error().message().find("GIGABAR_UCX_TLS"), std::string::npos) << refused.error().message();
}

// The program keeps its signals and its environment.
ISOLATED_TEST(UcxLibrary, LeavesSignalsAndVariablesAlone) {
  ASSERT_TRUE(open_ucx({}));
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction action{};
    ASSERT_EQ(::sigaction(number, nullptr, &action), 0);
#if !defined(GIGABAR_SANITIZE_ADDRESS)
    EXPECT_EQ(action.sa_handler, SIG_DFL) << number;
#endif
  }
  EXPECT_EQ(std::getenv("UCX_HANDLE_ERRORS"), nullptr);
  EXPECT_EQ(std::getenv("UCX_MEM_EVENTS"), nullptr);
  EXPECT_TRUE(ucp::availability().reason.starts_with("UCX 1.")) << ucp::availability().reason;
}

ISOLATED_TEST(UcxLibrary, UsersSmallSegmentsWork) {
  const gigabar::test::ScopedEnvironment segment("UCX_TCP_RX_SEG_SIZE", "16K");
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Buffer source(*pair.near, 1 << 20), target(*pair.far, 1 << 20);
  for (std::size_t i = 0; i < source.bytes; ++i) source.data()[i] = pattern(i, 4);
  const auto remote = pair.open_far(*target.region);
  ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, 1 << 20, 1), Posted::ok);
  const std::size_t most = pair.near_link->limits().payload_bytes;
  EXPECT_LT(most, 16U << 10);
  pair.post([&] { return pair.near_link->post_message(header_of(1), patterned(most, 1)); });
  ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == 1; }));
  EXPECT_EQ(pair.far_sink.messages[0].payload, patterned(most, 1));
  EXPECT_EQ(std::memcmp(source.data(), target.data(), 1 << 20), 0);
}

// UCX ends a process that is sent more than its segments take.
ISOLATED_TEST(UcxLibrary, RanksWithOtherSegmentsWork) {
  std::unique_ptr<UcxTransport> small;
  {
    const gigabar::test::ScopedEnvironment segment("UCX_TCP_RX_SEG_SIZE", "16K");
    small = open_transport();
  }
  Pair pair(std::move(small), open_transport());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Buffer near_memory(*pair.near, 1 << 20), far_memory(*pair.far, 1 << 20);
  for (std::size_t i = 0; i < far_memory.bytes; ++i) far_memory.data()[i] = pattern(i, 5);
  const auto remote = pair.open_far(*far_memory.region);
  ASSERT_EQ(pair.near_link->post_read(*near_memory.region, 0, *remote, 0, 1 << 20, 1), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.size() == 1; }));
  EXPECT_EQ(std::memcmp(near_memory.data(), far_memory.data(), 1 << 20), 0);
  for (Link* link : {pair.near_link.get(), pair.far_link.get()}) {
    const std::size_t most = link->limits().payload_bytes;
    EXPECT_LT(most, 16U << 10);
    pair.post([&] { return link->post_message(header_of(1), patterned(most, 1)); });
  }
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.messages.size() + pair.far_sink.messages.size() == 2; }));
}

// UCX takes a name that it does not know without a word, and tells in its log what it has applied.
ISOLATED_TEST(UcxLibrary, ItsSettingsAreInForce) {
  const gigabar::test::TemporaryFolder folder;
  const std::string path = folder.path() + "/log";
  const gigabar::test::ScopedEnvironment level("UCX_LOG_LEVEL", "debug"), file("UCX_LOG_FILE", path.c_str());
  testing::Test::RecordProperty("keeps_descriptors", "UCX closes its log when the process ends");
  open_transport();
  std::ifstream log(path);
  const std::string told((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
  for (const std::string setting : {"TX_SEG_SIZE=65536", "MAX_POLL=1", "CONN_NB=y"}) {
    const std::string applied = "apply UCT configuration ";
    EXPECT_TRUE(told.find(applied + setting) != std::string::npos || told.find(applied + "TCP_" + setting) != std::string::npos)
        << setting;
  }
}

}  // namespace
}  // namespace gigabar::transport::ucx::test
