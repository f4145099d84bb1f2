// SPDX-License-Identifier: Apache-2.0
// What ranks and the bootstrap server prove and send: fabric/job/handshake.hpp, sealed_stream.hpp.
#include "fabric/job/sealed_stream.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <type_traits>
#include <utility>

#include "fabric/job/handshake.hpp"
#include "unit/fabric/job/jobs.hpp"

namespace gigabar {
namespace {

using fabric::BootstrapMessage;
using fabric::BootstrapMessageType;
using fabric::Handshake;
using fabric::Purpose;
using fabric::SealedStream;

// Two ends of one connection that hold matching keys.
struct Line {
  Line() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
    writer = Descriptor(ends[0]);
    reader = fabric::ByteStream(Descriptor(ends[1]));
  }
  void put(std::string_view bytes) const { ASSERT_EQ(::send(writer.get(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size())); }
  SealedStream::Found next() {
    reader.receive(fabric::most_sealed_bytes());
    return receiver.next(reader, message);
  }

  fabric::Secret there = Handshake(test::make_job(0, 2, 1)).derive(Purpose::member_sends, "a", "b");
  fabric::Secret back = Handshake(test::make_job(0, 2, 1)).derive(Purpose::server_sends, "a", "b");
  SealedStream sender{there, back}, receiver{back, there};
  Descriptor writer;
  fabric::ByteStream reader{Descriptor()};
  BootstrapMessage message;
};

TEST(Handshake, AHelloIsReadBack) {
  const fabric::Hello hello = fabric::make_hello(test::make_job(7, 300, 1));
  const std::string bytes = fabric::write_hello(hello);
  ASSERT_EQ(bytes.size(), fabric::kHelloBytes);
  const auto read = fabric::read_hello(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->version, fabric::kDirectoryVersion);
  EXPECT_EQ(read->rank, 7u);
  EXPECT_EQ(read->rank_count, 300u);
  EXPECT_EQ(read->nonce, hello.nonce);
  EXPECT_NE(fabric::make_hello(test::make_job(7, 300, 1)).nonce, hello.nonce);
  EXPECT_FALSE(fabric::read_hello(bytes.substr(0, bytes.size() - 1)));
  EXPECT_FALSE(fabric::read_hello(""));
  for (std::size_t byte = 0; byte < 8; ++byte) {
    std::string other = bytes;
    other[byte] = static_cast<char>(other[byte] ^ 1);
    EXPECT_FALSE(fabric::read_hello(other)) << byte;
  }
}

TEST(Handshake, AProofIsOfOneKeyOneJobOneRoleAndOneExchange) {
  const auto job = test::make_job(0, 2, 1);
  const std::string proof = fabric::proof_text(Handshake(job).derive(Purpose::member_proof, "member", "server"));
  EXPECT_TRUE(fabric::is_proof(Handshake(job).derive(Purpose::member_proof, "member", "server"), proof));
  EXPECT_FALSE(fabric::is_proof(Handshake(job).derive(Purpose::server_proof, "member", "server"), proof));
  EXPECT_FALSE(fabric::is_proof(Handshake(job).derive(Purpose::member_proof, "server", "member"), proof));
  EXPECT_FALSE(fabric::is_proof(Handshake(job).derive(Purpose::member_proof, "membeR", "server"), proof));
  EXPECT_FALSE(fabric::is_proof(
      Handshake(test::make_job(0, 2, 1, "another key of enough")).derive(Purpose::member_proof, "member", "server"), proof));
  auto other = job;
  other.id = "test2";
  EXPECT_FALSE(fabric::is_proof(Handshake(other).derive(Purpose::member_proof, "member", "server"), proof));
  // The id in place of a key proves nothing to a job whose key is that text.
  const auto keyless = test::make_job(0, 2, 1, "");
  const auto keyed = test::make_job(0, 2, 1, "test");
  EXPECT_NE(Handshake(keyless).derive(Purpose::member_proof, "m", "k").bytes,
            Handshake(keyed).derive(Purpose::member_proof, "m", "k").bytes);
  EXPECT_FALSE(fabric::is_proof(Handshake(job).derive(Purpose::member_proof, "member", "server"), proof.substr(1)));
}

TEST(SealedStream, CarriesMessagesInOrder) {
  Line line;
  const std::string longest(fabric::kMaxRankAddressBytes, '\x5a');
  for (const auto& [rank, body] : {std::pair<Rank, std::string>{1, "address"}, {0xfffffffe, ""}, {3, longest}}) {
    const std::string wire = line.sender.seal({BootstrapMessageType::rank_address, rank, body});
    EXPECT_EQ(wire.find("address"), std::string::npos) << "it is not encrypted";
    line.put(wire.substr(0, 1));
    EXPECT_EQ(line.next(), SealedStream::Found::nothing);
    line.put(wire.substr(1, wire.size() - 2));
    EXPECT_EQ(line.next(), SealedStream::Found::nothing);
    line.put(wire.substr(wire.size() - 1));
    ASSERT_EQ(line.next(), SealedStream::Found::message);
    EXPECT_EQ(line.message.type, BootstrapMessageType::rank_address);
    EXPECT_EQ(line.message.rank, rank);
    EXPECT_EQ(line.message.body, body);
  }
}

// A copy would count on from the same number, with the same key.
static_assert(!std::is_copy_constructible_v<SealedStream> && !std::is_copy_assignable_v<SealedStream>);

TEST(SealedStream, AMovedOneLeavesNoKeyBehind) {
  Line line;
  line.put(line.sender.seal({BootstrapMessageType::ask, 1, {}}));
  EXPECT_EQ(line.next(), SealedStream::Found::message);
  SealedStream moved = std::move(line.sender);
  line.put(moved.seal({BootstrapMessageType::ask, 2, {}}));
  EXPECT_EQ(line.next(), SealedStream::Found::message);
  line.put(line.sender.seal({BootstrapMessageType::ask, 3, {}}));  // NOLINT(bugprone-use-after-move): that is what is asked
  EXPECT_EQ(line.next(), SealedStream::Found::broken);
}

TEST(SealedStream, RefusesEveryChangedByte) {
  Line sample;
  const std::size_t bytes = sample.sender.seal({BootstrapMessageType::ask, 1, "x"}).size();
  for (std::size_t byte = 0; byte < bytes; ++byte) {
    Line line;
    std::string wire = line.sender.seal({BootstrapMessageType::ask, 1, "x"});
    wire[byte] = static_cast<char>(wire[byte] ^ 0x10);
    line.put(wire + std::string(40, '\0'));
    EXPECT_NE(line.next(), SealedStream::Found::message) << byte;
  }
}

TEST(SealedStream, RefusesWhatIsRepeatedLeftOutOrSentBack) {
  Line repeated;
  const std::string first = repeated.sender.seal({BootstrapMessageType::ask, 1, {}});
  repeated.put(first + first);
  EXPECT_EQ(repeated.next(), SealedStream::Found::message);
  EXPECT_EQ(repeated.next(), SealedStream::Found::broken);

  Line left_out;
  const std::string gone = left_out.sender.seal({BootstrapMessageType::ask, 1, {}});
  left_out.put(left_out.sender.seal({BootstrapMessageType::ask, 2, {}}));
  EXPECT_EQ(left_out.next(), SealedStream::Found::broken) << gone.size();

  Line sent_back;
  sent_back.put(sent_back.receiver.seal({BootstrapMessageType::ask, 1, {}}));
  EXPECT_EQ(sent_back.next(), SealedStream::Found::broken);
}

TEST(SealedStream, RefusesLengthsThatCannotBe) {
  for (const unsigned length : {0U, 20U, unsigned(fabric::most_sealed_bytes()) - 1, 0xffffU}) {
    Line line;
    std::string wire{static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
    line.put(wire);
    EXPECT_EQ(line.next(), SealedStream::Found::broken) << length;
  }
}

}  // namespace
}  // namespace gigabar
