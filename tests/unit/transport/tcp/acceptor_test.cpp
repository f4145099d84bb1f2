// SPDX-License-Identifier: Apache-2.0
// Who connects to a transport's port without the key of a link, and what may go wrong between two that have it.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>

#include "platform/network.hpp"
#include "secure/acceptor.hpp"
#include "secure/dial.hpp"
#include "secure/sockets.hpp"
#include "unit/transport/tcp/pair.hpp"

namespace gigabar::transport::tcp::test {
namespace {

// A link of `near` that waits, and what its peer was told.
struct Waiting : Pair {
  explicit Waiting(Protection protection = Protection::authenticated, const char* lanes = "0") : Pair(protection, lanes) {
    Parcel parcel;
    auto offered = near->offer(to_far, 0, parcel);
    EXPECT_TRUE(offered);
    near_link = std::move(*offered);
    bytes = parcel.bytes;
    auto decoded = decode_offer(bytes);
    EXPECT_TRUE(decoded);
    offer = std::move(*decoded);
  }
  // The peer comes, and finds its place free.
  void let_the_peer_in() {
    Parcel parcel, answer;
    parcel.bytes = bytes;
    auto accepted = far->accept(to_near, std::move(parcel), answer);
    ASSERT_TRUE(accepted) << accepted.error().message();
    far_link = std::move(*accepted);
    ASSERT_TRUE(near_link->complete(std::move(answer)));
    ASSERT_TRUE(poll_until([&] { return is_ready(); }));
  }
  Descriptor knock() {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(socket.is_open());
    if (socket.is_open()) {
      EXPECT_EQ(::connect(socket.get(), offer.targets.front().get(), offer.targets.front().bytes), 0);
    }
    return socket;
  }
  bool is_closed(const Descriptor& socket) {
    return poll_until([&] {
      std::array<char, 256> words{};
      const ssize_t count = ::recv(socket.get(), words.data(), words.size(), MSG_DONTWAIT);
      if (count > 0) heard_bytes += static_cast<std::size_t>(count);
      return count == 0 || (count < 0 && errno != EAGAIN);
    });
  }

  std::string bytes;
  Offer offer;
  std::size_t heard_bytes = 0;  // by those that were turned away
};

void say(const Descriptor& socket, std::string_view words) {
  ASSERT_EQ(::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
}

TEST(TcpAcceptor, AStrangerIsRefusedAndCounted) {
  Waiting one;
  const Descriptor garbage = one.knock(), other_link = one.knock(), closing = one.knock();
  say(garbage, std::string(500, 'x'));
  say(other_link, secure::preamble_of(one.offer.link - 1));
  ::shutdown(closing.get(), SHUT_RDWR);
  EXPECT_TRUE(one.is_closed(garbage));
  EXPECT_TRUE(one.is_closed(other_link));
  ASSERT_TRUE(one.poll_until([&] { return one.near->refused_count() == 3; }));
  EXPECT_EQ(one.near_link->state(), LinkState::connecting);
  ASSERT_NO_FATAL_FAILURE(one.let_the_peer_in());
  EXPECT_EQ(one.near->refused_count(), 3u);
}

// It knows the number of the link, which anybody on the way can read, but not its secret.
TEST(TcpAcceptor, TheNumberOfALinkIsNotEnough) {
  Waiting one;
  const Descriptor socket = one.knock();
  say(socket, secure::preamble_of(one.offer.link) + std::string(secure::kHelloBytes, '\0'));
  EXPECT_TRUE(one.is_closed(socket));
  ASSERT_TRUE(one.poll_until([&] { return one.near->refused_count() == 1; }));
  ASSERT_NO_FATAL_FAILURE(one.let_the_peer_in());
}

TEST(TcpAcceptor, AnotherSecretIsRefused) {
  Waiting one;
  Offer wrong;
  wrong.link = one.offer.link;
  wrong.secret = secure::Secret(std::string(kSecretBytes, 's'));
  wrong.targets = one.offer.targets;
  Parcel parcel, answer;
  parcel.bytes = encode(wrong);
  auto accepted = one.far->accept(one.to_near, std::move(parcel), answer);
  ASSERT_TRUE(accepted);
  ASSERT_TRUE(one.poll_until([&] { return one.near->refused_count() > 0; }));
  EXPECT_EQ((*accepted)->state(), LinkState::connecting);
  accepted->reset();
  ASSERT_NO_FATAL_FAILURE(one.let_the_peer_in());
}

// What it says names the peer, and not what the handshake calls it.
TEST(TcpAcceptor, ARefusedLinkIsNotTakenForRankZero) {
  Waiting one;
  const auto poller = secure::Poller::open().value();
  const auto identity = identity_of(secure::Secret(std::string(kSecretBytes, 's')), one.offer.link, {}, secure::Role::initiator);
  secure::Dial dial(identity, *poller, 1, Rank{0}, one.offer.targets, now_ns() + kPatienceNs, std::nullopt);
  dial.set_link(secure::preamble_of(one.offer.link), 5);
  ASSERT_TRUE(one.poll_until([&] {
    EXPECT_EQ(dial.advance(now_ns()), secure::Dial::Progress::going);
    return dial.error().status() == Status::no_permission;
  }));
  const std::string said = dial.error().message();
  EXPECT_NE(said.find("rank 5 at 127.0.0.1:"), std::string::npos) << said;
  EXPECT_NE(said.find("another secret"), std::string::npos) << said;
  EXPECT_EQ(said.find("rank 0"), std::string::npos) << said;
  EXPECT_EQ(said.find("JOB_KEY"), std::string::npos) << said;
}

// The peer is gone before its answer has come through the ranks' channel.
TEST(TcpAcceptor, AResetBeforeTheAnswerKeepsNobodyBusy) {
  Waiting one;
  Parcel parcel, answer;
  parcel.bytes = one.bytes;
  auto accepted = one.far->accept(one.to_near, std::move(parcel), answer);
  ASSERT_TRUE(accepted);
  ASSERT_TRUE(one.poll_until([&] { return one.far_sink.ready_count[accepted->get()] == 1; }));
  // A reset and not an end.
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0 || peer.ss_family != AF_INET) continue;
    const linger at_once{1, 0};
    ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    if (network::port_of(secure::own_address_of(descriptor)) == network::port_of(one.offer.targets.front())) continue;
    EXPECT_EQ(::connect(descriptor, &nobody, sizeof nobody), 0);  // ends the connection
  }
  unsigned busy = 0;
  for (int turn = 0; turn < 1000; ++turn) busy += one.near->poll(one.near_sink) ? 1 : 0;
  EXPECT_LT(busy, 10u);
  ASSERT_TRUE(one.near_link->complete(std::move(answer)));
  ASSERT_TRUE(one.poll_until([&] { return one.near_sink.errors.size() == 1; }));
  EXPECT_EQ(one.near_sink.statuses[one.near_link.get()], Status::peer_lost);
}

// However it comes in pieces, a message is what it was.
TEST(TcpAcceptor, MessagesInManyPieces) {
  Waiting one;
  const auto poller = secure::Poller::open().value();
  const auto identity = identity_of(one.offer.secret, one.offer.link, {}, secure::Role::initiator);
  secure::Dial dial(identity, *poller, 1, Rank{0}, one.offer.targets, now_ns() + kPatienceNs, std::nullopt);
  dial.set_link(secure::preamble_of(one.offer.link), 1);
  ASSERT_TRUE(one.poll_until([&] { return dial.advance(now_ns()) == secure::Dial::Progress::connected; }));
  const secure::Established established = dial.take();
  Parcel answer;
  answer.bytes = encode_answer(one.offer.link, 0);
  ASSERT_TRUE(one.near_link->complete(std::move(answer)));
  std::string bytes;
  std::vector<std::size_t> lengths;
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, std::size_t{3000}, kMaxPayloadBytes, std::size_t{0}, std::size_t{100}}) {
    FrameHeader header = make_header(FrameKind::message, 0, length);
    header.body = header_of(lengths.size());
    bytes.append(reinterpret_cast<const char*>(&header), sizeof header);
    for (const std::byte byte : patterned(length, lengths.size())) bytes += static_cast<char>(byte);
    lengths.push_back(length);
  }
  std::size_t said = 0;
  for (const std::size_t piece : {1U, 7U, 55U, 56U, 57U, 1000U, 30000U}) {
    one.near_sink.messages.clear();
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      const std::size_t count = std::min(piece, bytes.size() - at);
      ASSERT_EQ(::send(established.connection.socket.get(), bytes.data() + at, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
      said += count;
      if (piece > 1 || at % 16 == 0) one.near->poll(one.near_sink);
    }
    ASSERT_TRUE(one.poll_until([&] { return one.near_sink.messages.size() == lengths.size(); })) << piece;
    for (std::size_t index = 0; index < lengths.size(); ++index) {
      EXPECT_EQ(number_of(one.near_sink.messages[index].header), index);
      EXPECT_EQ(one.near_sink.messages[index].payload, patterned(lengths[index], index)) << piece;
    }
  }
  EXPECT_EQ(said, 7 * bytes.size());
  EXPECT_LT(one.near_link->memory_bytes(), 8192U) << "room of what was carried is kept";
}

TEST(TcpAcceptor, ALinkHasOneConnection) {
  Waiting one;
  ASSERT_NO_FATAL_FAILURE(one.let_the_peer_in());
  const Descriptor again = one.knock();
  say(again, secure::preamble_of(one.offer.link));
  EXPECT_TRUE(one.is_closed(again));
  EXPECT_EQ(one.heard_bytes, 0u) << "it was challenged";
  EXPECT_EQ(one.near->refused_count(), 1u);
  EXPECT_EQ(one.near_link->state(), LinkState::ready);
}

TEST(TcpAcceptor, ACrowdOfSilentOnesKeepsNobodyOut) {
  Waiting one;
  std::vector<Descriptor> crowd;
  for (int index = 0; index < 400; ++index) {
    crowd.push_back(one.knock());
    one.near->poll(one.near_sink);
  }
  ASSERT_NO_FATAL_FAILURE(one.let_the_peer_in());
  EXPECT_GE(one.near->refused_count(), 100u);
}

// A rank whose offer has numbers that are not its own, which this one dials in vain.
void dial_in_vain(Waiting& one, std::uint64_t link, unsigned lanes) {
  const Offer offer{
      link, secure::Secret(std::string(kSecretBytes, 's')), {network::with_port(one.offer.targets.front(), 1)}, lanes};
  Parcel parcel, answer;
  parcel.bytes = encode(offer);
  auto accepted = one.near->accept(one.to_far, std::move(parcel), answer);
  ASSERT_TRUE(accepted) << accepted.error().message();
}

TEST(TcpAcceptor, ADiallingLinkTakesNobodysPlace) {
  Waiting one;
  ASSERT_NO_FATAL_FAILURE(dial_in_vain(one, one.offer.link, 0));
  ASSERT_NO_FATAL_FAILURE(one.let_the_peer_in());
}

// Its lane's number is 0, that of all who have not yet said which link they come for.
TEST(TcpAcceptor, ADiallingLinkWhoseNumbersWrapAroundDropsNobody) {
  Waiting one(Protection::authenticated, "1");
  const Descriptor silent = one.knock();
  for (int poll = 0; poll < 50; ++poll) one.near->poll(one.near_sink);
  ASSERT_NO_FATAL_FAILURE(dial_in_vain(one, ~std::uint64_t{0}, 1));
  for (int poll = 0; poll < 50; ++poll) one.near->poll(one.near_sink);
  char letter = 0;
  EXPECT_TRUE(::recv(silent.get(), &letter, 1, MSG_DONTWAIT) > 0 || errno == EAGAIN) << "it was dropped";
}

TEST(TcpAcceptor, NobodyComesWithinTheDeadline) {
  TransportOptions options;
  options.connect_deadline_ns = 50'000'000;
  Pair pair(open_transport(options), open_transport());
  Parcel parcel;
  auto offered = pair.near->offer(pair.to_far, 0, parcel);
  ASSERT_TRUE(offered);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; }));
  EXPECT_EQ(pair.near_sink.statuses[offered->get()], Status::timed_out);
}

// --- Somebody on the way ---------------------------------------------------------------------------------------------------------

// Stands between the two: the far end connects to it, and it to the near end. `change` sees what goes to the near end.
class Middle {
 public:
  using Change = std::function<void(std::string&)>;
  explicit Middle(const network::SocketAddress& target, Change change) : target_(target), change_(std::move(change)) {
    listener_ = secure::listen_at(network::with_port(target, 0));
    EXPECT_TRUE(listener_.is_open());
  }
  network::SocketAddress address() const {
    return network::with_port(target_, network::port_of(secure::own_address_of(listener_.get())));
  }
  void pass() {
    if (!far_.is_open()) {
      far_ = Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (far_.is_open()) near_ = secure::start_connect(target_);
      return;
    }
    std::string to_near = read(far_), to_far = read(near_);
    passed_ += to_near.size();
    // What is left of the handshake goes through as it is.
    if (passed_ > secure::kPreambleBytes + secure::kHelloBytes + secure::kProofBytes) change_(to_near);
    write(near_, to_near);
    write(far_, to_far);
  }

 private:
  static std::string read(const Descriptor& socket) {
    std::array<char, 65536> bytes{};
    const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    return count > 0 ? std::string(bytes.data(), static_cast<std::size_t>(count)) : std::string();
  }
  static void write(const Descriptor& socket, const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t count = ::send(socket.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (count > 0) at += static_cast<std::size_t>(count);
      if (count < 0 && errno != EAGAIN) return;
    }
  }
  network::SocketAddress target_;
  Change change_;
  Descriptor listener_, far_, near_;
  std::size_t passed_ = 0;
};

// Messages through somebody who changes the stream: the near end gets those before the change, and no wrong byte.
void expect_loss(const Middle::Change& change) {
  Pair pair(Protection::sealed);
  Parcel parcel, answer;
  auto offered = pair.near->offer(pair.to_far, 0, parcel);
  ASSERT_TRUE(offered);
  pair.near_link = std::move(*offered);
  auto offer = decode_offer(parcel.bytes);
  ASSERT_TRUE(offer);
  Middle middle(offer->targets.front(), change);
  offer->targets = {middle.address()};
  parcel.bytes = encode(*offer);
  auto accepted = pair.far->accept(pair.to_near, std::move(parcel), answer);
  ASSERT_TRUE(accepted);
  pair.far_link = std::move(*accepted);
  ASSERT_TRUE(pair.near_link->complete(std::move(answer)));
  const auto pass = [&] { return middle.pass(), pair.is_ready(); };
  ASSERT_TRUE(pair.poll_until(pass));
  const std::vector<std::byte> payload = patterned(1000, 3);
  for (std::uint64_t number = 0; number < 20; ++number) {
    ASSERT_EQ(pair.far_link->post_message(header_of(number), payload), Posted::ok);
    for (int turn = 0; turn < 20; ++turn) middle.pass(), pair.near->poll(pair.near_sink);
  }
  ASSERT_TRUE(pair.poll_until([&] { return middle.pass(), !pair.near_sink.errors.empty(); }));
  EXPECT_EQ(pair.near_sink.statuses[pair.near_link.get()], Status::peer_lost);
  EXPECT_NE(pair.near_sink.errors[pair.near_link.get()].find("not authentic"), std::string::npos);
  EXPECT_LT(pair.near_sink.messages.size(), 20u);
  for (std::size_t index = 0; index < pair.near_sink.messages.size(); ++index) {
    EXPECT_EQ(number_of(pair.near_sink.messages[index].header), index);
    EXPECT_EQ(pair.near_sink.messages[index].payload, payload);
  }
}

TEST(TcpMiddle, AFlippedBitIsFound) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{100}, std::size_t{1075}}) {
    int count = 0;
    ASSERT_NO_FATAL_FAILURE(expect_loss([&](std::string& bytes) {
      if (bytes.size() > at && ++count == 5) bytes[at] ^= 4;
    })) << at;
  }
}

TEST(TcpMiddle, ADroppedRecordIsFound) {
  int count = 0;
  expect_loss([&](std::string& bytes) {
    if (!bytes.empty() && ++count == 4) bytes.clear();
  });
}

TEST(TcpMiddle, ARepeatedRecordIsFound) {
  int count = 0;
  expect_loss([&](std::string& bytes) {
    if (!bytes.empty() && ++count == 4) bytes += bytes;
  });
}

TEST(TcpMiddle, RecordsInAnotherOrderAreFound) {
  std::string kept;
  int count = 0;
  expect_loss([&](std::string& bytes) {
    if (bytes.empty()) return;
    if (++count == 4) return kept.swap(bytes);
    if (count == 5) bytes += kept;
  });
}

}  // namespace
}  // namespace gigabar::transport::tcp::test
