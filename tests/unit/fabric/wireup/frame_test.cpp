// SPDX-License-Identifier: Apache-2.0
// Frames in volume, full queues, descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <new>

#include "ranks.hpp"
#include "secure/channel.hpp"
#include "support/descriptors.hpp"
#include "support/no_more_descriptors.hpp"

namespace gigabar::fabric::wireup {
namespace {

Descriptor memory_with(const std::string& content) {
  Descriptor memory(::memfd_create("gigabar-test", MFD_CLOEXEC));
  EXPECT_EQ(::pwrite(memory.get(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  return memory;
}

std::string content_of(const Descriptor& memory) {
  char bytes[64] = {};
  const ssize_t count = ::pread(memory.get(), bytes, sizeof bytes, 0);
  return {bytes, static_cast<std::size_t>(count > 0 ? count : 0)};
}

class WireupFrames : public testing::TestWithParam<bool> {
 protected:
  WireupFrames() { EXPECT_TRUE(connect_both(left, right)); }
  bool is_tcp() const { return GetParam(); }
  Node left{job_of(0, 2), GetParam() ? only_tcp() : both()};
  Node right{job_of(1, 2)};
};
INSTANTIATE_TEST_SUITE_P(Sockets, WireupFrames, testing::Values(false, true),
                         [](const auto& given) { return given.param ? "Tcp" : "Unix"; });

TEST_P(WireupFrames, LargeOnesInVolumeBothWays) {
  constexpr std::size_t kCount = 400;
  std::size_t sent[2] = {0, 0};
  std::size_t received[2] = {0, 0};
  Node* nodes[2] = {&left, &right};
  for (Node* node : nodes) {
    node->on_frame = [&, node](Rank, Frame frame) {
      const std::size_t number = received[node->rank]++;
      ASSERT_EQ(frame.type, number % 0x8000);
      ASSERT_EQ(frame.body, pattern(kMaxFrameBytes - number % 7, number * 2 + node->rank));
    };
  }
  ASSERT_TRUE(pump({&left, &right}, [&] {
    for (Node* node : nodes) {
      while (sent[node->rank] < kCount) {
        const std::size_t number = sent[node->rank];
        const Result<void> outcome = node->wireup->send(
            1 - node->rank,
            frame_of(static_cast<std::uint16_t>(number), pattern(kMaxFrameBytes - number % 7, number * 2 + 1 - node->rank)));
        if (outcome.status() == Status::busy) break;
        EXPECT_TRUE(outcome.is_ok()) << outcome.message();
        ++sent[node->rank];
      }
    }
    return received[0] == kCount && received[1] == kCount;
  }));
  EXPECT_LT(left.wireup->memory_bytes(1), 16384u) << "room for large frames is given back";
}

TEST_P(WireupFrames, ManySmallOnesKeepTheirOrder) {
  constexpr std::uint64_t kCount = 50'000;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  right.on_frame = [&](Rank, Frame frame) { ASSERT_EQ(frame.body, std::to_string(received++)); };
  ASSERT_TRUE(pump({&left, &right}, [&] {
    for (int burst = 0; burst < 1000 && sent < kCount; ++burst, ++sent) {
      if (!left.wireup->send(1, frame_of(1, std::to_string(sent))).is_ok()) break;
    }
    return received == kCount;
  }));
}

TEST_P(WireupFrames, AFullQueueIsBusyAndGoesOn) {
  std::size_t sent = 0;
  Result<void> outcome;
  const std::string body = pattern(kMaxFrameBytes, 1);
  while ((outcome = left.wireup->send(1, frame_of(1, body))).is_ok()) {
    ASSERT_LT(++sent, 1000u) << "there is no bound";
  }
  EXPECT_EQ(name_of(outcome.status()), "busy") << outcome.message();
  EXPECT_GE(sent * kMaxFrameBytes, kMaxQueuedBytes - 2 * kMaxFrameBytes);
  EXPECT_GT(left.wireup->memory_bytes(1), kMaxQueuedBytes / 2);
  EXPECT_LT(left.wireup->memory_bytes(1), kMaxQueuedBytes + 65536u);
  std::size_t received = 0;
  right.on_frame = [&](Rank, const Frame& frame) {
    ++received;
    EXPECT_TRUE(frame.body == (received > sent ? "again" : body));
  };
  ASSERT_TRUE(pump({&left, &right}, [&] { return received == sent; }));
  EXPECT_TRUE(left.wireup->send(1, frame_of(1, "again")).is_ok());
  ASSERT_TRUE(pump({&left, &right}, [&] { return received == sent + 1; }));
}

TEST_P(WireupFrames, BadOnesAreRefusedAndChangeNothing) {
  EXPECT_EQ(left.wireup->send(1, frame_of(0x8000, "")).status(), Status::invalid_argument);
  EXPECT_EQ(left.wireup->send(1, frame_of(1, std::string(kMaxFrameBytes + 1, 'x'))).status(), Status::invalid_argument);
  Frame many = frame_of(1, "");
  for (int count = 0; count < 9; ++count) many.descriptors.push_back(memory_with("x"));
  EXPECT_EQ(left.wireup->send(1, std::move(many)).status(), Status::invalid_argument);
  Frame closed = frame_of(1, "");
  closed.descriptors.emplace_back();
  EXPECT_EQ(left.wireup->send(1, std::move(closed)).status(), Status::invalid_argument);
  ASSERT_TRUE(left.wireup->send(1, frame_of(0x7fff, std::string(kMaxFrameBytes, 'y'))));
  ASSERT_TRUE(left.wireup->send(1, frame_of(0, "")));
  ASSERT_TRUE(pump({&left, &right}, [&] { return right.frames[0].size() == 2; }));
  EXPECT_EQ(right.frames[0][0].type, 0x7fff);
  EXPECT_EQ(right.frames[0][0].body.size(), kMaxFrameBytes);
  EXPECT_EQ(right.frames[0][1].body, "");
}

TEST_P(WireupFrames, DescriptorsPassOnUnixSocketsOnly) {
  Frame frame = frame_of(1, "with one");
  frame.descriptors.push_back(memory_with("content"));
  const Result<void> outcome = left.wireup->send(1, std::move(frame));
  EXPECT_EQ(name_of(outcome.status()), is_tcp() ? "invalid_argument" : "ok");
  if (is_tcp()) return;
  ASSERT_TRUE(pump({&left, &right}, [&] { return !right.frames[0].empty(); }));
  const Frame& received = right.frames[0][0];
  ASSERT_EQ(received.descriptors.size(), 1u);
  EXPECT_EQ(content_of(received.descriptors[0]), "content");
  EXPECT_NE(::fcntl(received.descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

// The first frame finds that the peer is gone, the next one is refused with the reason.
TEST(WireupQueue, OfAChannelThatBrokeTakesNothing) {
  Node node(job_of(0, 2));
  Puppet puppet(node, job_of(1, 2), unix_of(node));
  ASSERT_TRUE(puppet.shake_hands());
  puppet.socket().close();
  ASSERT_TRUE(node.wireup->send(1, frame_of(1, "first")));
  const Result<void> refused = node.wireup->send(1, frame_of(1, "second"));
  EXPECT_EQ(name_of(refused.status()), "peer_lost");
  EXPECT_NE(refused.message().find("send frame: rank 1: sending failed"), std::string::npos) << refused.message();
  EXPECT_TRUE(pump({&node}, [&] { return node.losses.size() == 1; }));
}

// A peer that never takes the last of what is queued does not make it grow.
TEST(WireupQueue, ForgetsWhatItHasSent) {
  Node node(job_of(0, 2));
  Puppet puppet(node, job_of(1, 2), unix_of(node));
  ASSERT_TRUE(puppet.shake_hands());
  const std::string piece(60'000, 'p');
  std::string taken(60'000, '\0');
  const auto fill = [&] {
    while (node.wireup->memory_bytes(1) < (1 << 20)) ASSERT_TRUE(node.wireup->send(1, frame_of(1, piece)));
  };
  fill();
  for (int round = 0; round < 1000; ++round) {
    ASSERT_GT(::recv(puppet.socket().get(), taken.data(), taken.size(), 0), 0);
    node.poll();
    fill();
  }
  EXPECT_LT(node.wireup->memory_bytes(1), std::size_t{2} << 20);
}

// Where a peer's questions are to be answered, one that does not take the answers is not heard until it does.
TEST(WireupQueue, WhoDoesNotTakeTheAnswersIsHeldBack) {
  Settings answering = both();
  answering.queue = {~std::size_t{0}, 1 << 20};
  Node asker(job_of(0, 2)), answerer(job_of(1, 2), answering);
  ASSERT_TRUE(connect_both(asker, answerer));
  constexpr std::size_t kQuestions = 200;
  std::size_t heard = 0;
  answerer.on_frame = [&](Rank, Frame) {
    ++heard;
    EXPECT_TRUE(answerer.wireup->send(0, frame_of(2, std::string(kMaxFrameBytes, 'a'))));
  };
  for (std::size_t count = 0; count < kQuestions; ++count) ASSERT_TRUE(asker.wireup->send(1, frame_of(1, "?")));
  asker.poll();
  for (int round = 0; round < 1000 && answerer.poll(); ++round) continue;
  EXPECT_LT(heard, kQuestions);
  EXPECT_GT(answerer.wireup->memory_bytes(0), std::size_t{1} << 20);
  EXPECT_LT(answerer.wireup->memory_bytes(0), std::size_t{2} << 20);
  pollfd watched{answerer.wireup->wake_descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&watched, 1, 50), 0) << "nothing wakes it meanwhile";
  ASSERT_TRUE(pump({&asker, &answerer}, [&] { return asker.frames[1].size() == kQuestions; }));
  EXPECT_EQ(heard, kQuestions);
}

// Two channels that cannot send end at the next poll. What is told of the first throws: the second one's end is told all the same.
TEST(WireupQueue, WhatThrowsForOneRankForgetsNoOther) {
  Node node(job_of(0, 3));
  Puppet one(node, job_of(1, 3), unix_of(node)), two(node, job_of(2, 3), unix_of(node));
  for (Puppet* puppet : {&one, &two}) {
    ASSERT_TRUE(puppet->shake_hands());
    ASSERT_EQ(::shutdown(puppet->socket().get(), SHUT_RD), 0);
  }
  // From here on no event tells of either.
  while (node.poll()) continue;
  for (const Rank rank : {Rank{1}, Rank{2}}) ASSERT_TRUE(node.wireup->send(rank, frame_of(1, "it is not taken")));
  node.on_lost = [&](Rank) {
    if (node.losses.size() == 1) throw std::bad_alloc();
  };
  EXPECT_THROW(node.poll(), std::bad_alloc);
  EXPECT_TRUE(pump({&node}, [&] { return node.losses.size() == 2; }, kSecond));
}

struct UnixPair {
  Node left{job_of(0, 2)};
  Node right{job_of(1, 2)};
  UnixPair() { EXPECT_TRUE(connect_both(left, right)); }
};

// Frames with and without descriptors, small and larger than the socket: each gets its own.
TEST(WireupDescriptors, EachFrameGetsItsOwn) {
  UnixPair pair;
  const std::size_t before = test::open_descriptors();
  constexpr std::size_t kFrames = 120;
  std::size_t sent = 0;
  std::size_t received = 0;
  pair.right.on_frame = [&](Rank, const Frame& frame) {
    ASSERT_EQ(frame.descriptors.size(), received % 9);
    ASSERT_EQ(frame.body, pattern(received % 4 * 20'000, received));
    for (std::size_t index = 0; index < frame.descriptors.size(); ++index) {
      ASSERT_EQ(content_of(frame.descriptors[index]), std::to_string(received) + "." + std::to_string(index));
    }
    ++received;
  };
  ASSERT_TRUE(pump({&pair.left, &pair.right}, [&] {
    for (int burst = 0; burst < 20 && sent < kFrames; ++burst, ++sent) {
      Frame frame = frame_of(1, pattern(sent % 4 * 20'000, sent));
      for (std::size_t index = 0; index < sent % 9; ++index) {
        frame.descriptors.push_back(memory_with(std::to_string(sent) + "." + std::to_string(index)));
      }
      if (const Result<void> outcome = pair.left.wireup->send(1, std::move(frame)); !outcome) {
        EXPECT_EQ(name_of(outcome.status()), "busy") << outcome.message();
        break;
      }
    }
    return received == kFrames;
  }));
  EXPECT_EQ(test::open_descriptors(), before) << "descriptors that nobody took stay open";
}

TEST(WireupDescriptors, OfUnsentAndUnreadFramesAreClosed) {
  const std::size_t before = test::open_descriptors();
  {
    UnixPair pair;
    for (int count = 0; count < 60; ++count) {
      Frame frame = frame_of(1, std::string(60'000, 'x'));
      frame.descriptors.push_back(memory_with("x"));
      ASSERT_TRUE(pair.left.wireup->send(1, std::move(frame)));
    }
    pair.right.poll();
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

// A peer that asks and does not read takes few of this process's descriptors.
TEST(WireupDescriptors, FewWaitForAPeerThatDoesNotRead) {
  UnixPair pair;
  const std::size_t before = test::open_descriptors();
  Result<void> last;
  for (int count = 0; count < 5000 && last; ++count) {
    Frame frame = frame_of(1, "with one");
    frame.descriptors.push_back(memory_with("x"));
    last = pair.left.wireup->send(1, std::move(frame));
  }
  EXPECT_EQ(name_of(last.status()), "busy");
  EXPECT_NE(last.message().find("64 descriptors that wait for it"), std::string::npos) << last.message();
  EXPECT_EQ(test::open_descriptors(), before + 64);
  // Others pass, and so do these when it reads.
  EXPECT_TRUE(pair.left.wireup->send(1, frame_of(2, "without")).is_ok());
  ASSERT_TRUE(pump({&pair.left, &pair.right}, [&] {
    const bool has_come = !pair.right.frames[0].empty() && pair.right.frames[0].back().type == 2;
    if (!has_come) pair.right.frames[0].clear();
    return has_come;
  }));
  Frame frame = frame_of(3, "with one");
  frame.descriptors.push_back(memory_with("x"));
  EXPECT_TRUE(pair.left.wireup->send(1, std::move(frame)).is_ok());
}

void send_with_descriptors(int socket, std::string bytes, std::size_t count) {
  const Descriptor memory(::memfd_create("gigabar-test", MFD_CLOEXEC));
  std::vector<int> numbers(count, memory.get());
  std::vector<char> control(CMSG_SPACE(sizeof(int) * count));
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * count);
  std::memcpy(CMSG_DATA(header), numbers.data(), sizeof(int) * count);
  ASSERT_EQ(::sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// A peer that holds the key and sends other descriptors than it says: its channel breaks, nothing stays open.
TEST(WireupDescriptors, ThatDoNotMatchTheFrameBreakTheChannel) {
  struct Case {
    std::size_t sent, said;
    bool is_right;
  };
  for (const Case& given : {Case{1, 1, true}, Case{8, 8, true}, Case{1, 0, false}, Case{1, 2, false}, Case{9, 9, false},
                            Case{200, 8, false}, Case{8, 7, false}, Case{1, 65535, false}}) {
    const std::size_t before = test::open_descriptors();
    {
      Node node(job_of(0, 2));
      Node neighbour(job_of(2, 3));
      Puppet puppet(node, job_of(1, 2), unix_of(node));
      ASSERT_TRUE(puppet.shake_hands());
      send_with_descriptors(puppet.socket().get(), puppet.sealer->seal(1, given.said, "body"), given.sent);
      ASSERT_TRUE(pump({&node}, [&] { return !node.frames[1].empty() || !node.losses.empty(); }));
      node.poll();
      EXPECT_EQ(node.losses.empty(), given.is_right) << given.sent << " sent, " << given.said << " said";
      if (given.is_right) {
        ASSERT_EQ(node.frames[1].size(), 1u);
        EXPECT_EQ(node.frames[1][0].descriptors.size(), given.sent);
      } else {
        EXPECT_EQ(node.losses[0].second.status(), Status::peer_lost);
      }
    }
    EXPECT_EQ(test::open_descriptors(), before);
  }
}

// Those that come beside a handshake are not even taken.
TEST(WireupDescriptors, OfStrangersAreNotTaken) {
  Node node(job_of(0, 2));
  const std::size_t before = test::open_descriptors();
  {
    Puppet puppet(node, job_of(1, 2), unix_of(node));
    send_with_descriptors(puppet.socket().get(), "gigabarW", 8);
    node.poll();
    node.poll();
    EXPECT_EQ(test::open_descriptors(), before + 2) << "the two ends of the socket";
  }
  node.poll();
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
// Its frame comes without any and says so; those before and after it are whole.
TEST(WireupDescriptors, WithoutRoomForThemTheChannelGoesOn) {
  UnixPair pair;
  for (const int descriptor_count : {0, 2, 0}) {
    Frame frame = frame_of(1, "body");
    for (int index = 0; index < descriptor_count; ++index) frame.descriptors.push_back(memory_with("x"));
    ASSERT_TRUE(pair.left.wireup->send(1, std::move(frame)));
  }
  pair.left.poll();
  test::without_descriptors([&] {
    for (int round = 0; round < 5; ++round) pair.right.poll();
    return 0;
  });
  Frame last = frame_of(1, "body");
  last.descriptors.push_back(memory_with("x"));
  ASSERT_TRUE(pair.left.wireup->send(1, std::move(last)));
  pair.left.poll();
  for (int round = 0; round < 5; ++round) pair.right.poll();
  EXPECT_TRUE(pair.right.losses.empty());
  const auto& frames = pair.right.frames[0];
  ASSERT_EQ(frames.size(), 4u);
  for (std::size_t index = 0; index < 4; ++index) {
    EXPECT_EQ(frames[index].lacks_descriptors, index == 1) << index;
    EXPECT_EQ(frames[index].descriptors.size(), index == 3 ? 1u : 0u) << index;
    EXPECT_EQ(frames[index].body, "body");
  }
}
#endif

}  // namespace
}  // namespace gigabar::fabric::wireup
