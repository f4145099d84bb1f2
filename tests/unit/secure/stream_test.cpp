// SPDX-License-Identifier: Apache-2.0
// Sealed frames without sockets, and what becomes of secrets.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <type_traits>
#include <utility>

#include "unit/fabric/wireup/ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

Secret secret_of(char fill) { return Secret(std::string(32, fill)); }

TEST(SecureStream, FramesComeBackInOrder) {
  Sealer sealer(secret_of('k'));
  Opener opener(secret_of('k'), sealer.header());
  const std::vector<std::size_t> lengths{0, 1, 17, 4096, kMaxFrameBytes};
  std::string wire;
  for (const std::size_t length : lengths) wire += sealer.seal(static_cast<std::uint16_t>(length % 77), 3, pattern(length, length));
  std::string_view left = wire;
  for (const std::size_t length : lengths) {
    OpenedFrame frame;
    ASSERT_EQ(opener.open(left, frame), Opener::Found::frame);
    EXPECT_EQ(frame.type, length % 77);
    EXPECT_EQ(frame.descriptor_count, 3u);
    EXPECT_EQ(frame.body, pattern(length, length));
  }
  EXPECT_TRUE(left.empty());
}

TEST(SecureStream, NothingOfAFrameIsInTheClear) {
  Sealer sealer(secret_of('k'));
  const std::string body = "a segment's key";
  EXPECT_EQ(sealer.seal(1, 0, body).find("segment"), std::string::npos);
  EXPECT_NE(sealer.seal(1, 0, body), sealer.seal(1, 0, body)) << "the nonce repeats";
}

// A copy would count on from the same number, with the same key.
static_assert(!std::is_copy_constructible_v<Sealer> && !std::is_copy_assignable_v<Sealer>);
static_assert(!std::is_copy_constructible_v<Opener> && !std::is_copy_assignable_v<Opener>);

TEST(SecureStream, AMovedSealerLeavesNoKeyBehind) {
  Sealer first(secret_of('k'));
  const std::string one = first.seal(1, 0, "one");
  Sealer moved = std::move(first);
  std::string wire = one + moved.seal(1, 0, "two");
  std::string_view left = wire;
  Opener opener(secret_of('k'), moved.header());
  OpenedFrame frame;
  EXPECT_EQ(opener.open(left, frame), Opener::Found::frame);
  EXPECT_EQ(opener.open(left, frame), Opener::Found::frame);
  EXPECT_EQ(first.seal(1, 0, "three"), "");  // NOLINT(bugprone-use-after-move): that is what is asked
  Opener taken = std::move(opener);
  const std::string four = moved.seal(1, 0, "four");
  left = four;
  EXPECT_EQ(opener.open(left, frame), Opener::Found::forged);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(taken.open(left, frame), Opener::Found::frame);
}

TEST(SecureStream, EveryFlippedBitIsNoticed) {
  Sealer sealer(secret_of('k'));
  const std::string wire = sealer.seal(5, 1, "0123456789");
  for (std::size_t bit = 0; bit < 8 * wire.size(); ++bit) {
    std::string changed = wire;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    std::string_view left = changed;
    OpenedFrame frame;
    EXPECT_NE(Opener(secret_of('k'), sealer.header()).open(left, frame), Opener::Found::frame) << bit;
  }
}

TEST(SecureStream, ReplayedMovedAndMissingFramesAreNoticed) {
  Sealer sealer(secret_of('k'));
  const std::string first = sealer.seal(1, 0, "first");
  const std::string second = sealer.seal(1, 0, "second");
  OpenedFrame frame;
  Opener skips(secret_of('k'), sealer.header());
  std::string_view left = second;
  EXPECT_EQ(skips.open(left, frame), Opener::Found::forged) << "the first is lost";
  left = first;
  EXPECT_EQ(skips.open(left, frame), Opener::Found::forged) << "they changed places, and nothing opens any more";
  Opener repeats(secret_of('k'), sealer.header());
  left = first;
  EXPECT_EQ(repeats.open(left, frame), Opener::Found::frame);
  left = first;
  EXPECT_EQ(repeats.open(left, frame), Opener::Found::forged);
  Sealer another(secret_of('k'));
  Opener mixed(secret_of('k'), sealer.header());
  const std::string foreign = another.seal(1, 0, "first");
  left = foreign;
  EXPECT_EQ(mixed.open(left, frame), Opener::Found::forged) << "of another stream with the same key";
}

// Only who holds the key ends a stream.
TEST(SecureStream, TheSealedEndIsTold) {
  Sealer sealer(secret_of('k'));
  Opener opener(secret_of('k'), sealer.header());
  std::string wire = sealer.seal(1, 0, "one");
  wire += sealer.seal(0, 0, "", true);
  std::string_view left = wire;
  OpenedFrame frame;
  ASSERT_EQ(opener.open(left, frame), Opener::Found::frame);
  EXPECT_FALSE(frame.is_last);
  ASSERT_EQ(opener.open(left, frame), Opener::Found::frame);
  EXPECT_TRUE(frame.is_last);
}

// A frame made by the construction that libsodium documents for its secretstream, out of its other functions: HChaCha20 for the
// key, ChaCha20 for the bytes, Poly1305 over length, tag, bytes and their numbers.
std::string sealed_by_hand(std::string_view key, std::string_view header, std::string_view length, std::string_view plain) {
  const auto bytes = [](std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); };
  std::array<unsigned char, 32> stream_key{};
  crypto_core_hchacha20(stream_key.data(), bytes(header), bytes(key), nullptr);
  std::array<unsigned char, 12> nonce{1};
  std::memcpy(nonce.data() + 4, header.data() + 16, 8);
  std::array<unsigned char, 64> block{};
  crypto_stream_chacha20_ietf(block.data(), block.size(), nonce.data(), stream_key.data());
  crypto_onetimeauth_poly1305_state authenticator;
  crypto_onetimeauth_poly1305_init(&authenticator, block.data());
  const auto add = [&](std::string_view part) { crypto_onetimeauth_poly1305_update(&authenticator, bytes(part), part.size()); };
  const std::string zeros(16, '\0');
  add(length);
  add(std::string_view(zeros).substr(0, (16 - length.size()) % 16));
  block = {};  // the tag of a message, 0, and 63 zeros
  crypto_stream_chacha20_ietf_xor_ic(block.data(), block.data(), block.size(), nonce.data(), 1, stream_key.data());
  add({reinterpret_cast<const char*>(block.data()), block.size()});
  std::string sealed(plain);
  crypto_stream_chacha20_ietf_xor_ic(reinterpret_cast<unsigned char*>(sealed.data()), bytes(plain), plain.size(), nonce.data(), 2,
                                     stream_key.data());
  add(sealed);
  add(std::string_view(zeros).substr(0, plain.size() & 15));  // not to a multiple of 16: so libsodium does it
  std::string numbers(16, '\0');
  numbers[0] = static_cast<char>(length.size());
  numbers[8] = static_cast<char>(64 + plain.size());
  add(numbers);
  std::string tag(16, '\0');
  crypto_onetimeauth_poly1305_final(&authenticator, reinterpret_cast<unsigned char*>(tag.data()));
  return std::string(length) + static_cast<char>(block[0]) + sealed + tag;
}

TEST(SecureStream, IsTheOneThatLibsodiumDocuments) {
  const std::string key = pattern(32, 1), header = pattern(24, 2), body = "a body of some bytes";
  const std::string plain = std::string("\x07\x00\x03\x00", 4) + body;
  const std::string length{static_cast<char>(plain.size() + 17), 0, 0, 0};
  const std::string wire = sealed_by_hand(key, header, length, plain);
  std::string_view left = wire;
  OpenedFrame frame;
  Opener opener(Secret(key), header);
  ASSERT_EQ(opener.open(left, frame), Opener::Found::frame);
  EXPECT_EQ(frame.type, 7);
  EXPECT_EQ(frame.descriptor_count, 3u);
  EXPECT_EQ(frame.body, body);
  Sealer sealer{Secret(key)};
  EXPECT_EQ(sealer.seal(7, 3, body), sealed_by_hand(key, sealer.header(), length, plain));
}

std::string from_hexadecimal(std::string_view digits) {
  std::string bytes(digits.size() / 2, '\0');
  std::size_t count = 0;
  sodium_hex2bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), digits.data(), digits.size(), nullptr, &count,
                 nullptr);
  EXPECT_EQ(count, bytes.size());
  return bytes;
}
std::string counting(std::size_t bytes) {
  std::string made;
  for (std::size_t byte = 0; byte < bytes; ++byte) made.push_back(static_cast<char>(byte));
  return made;
}

// What the channel and the construction above are made of: RFC 7693 (appendix A, and the known answer of its reference code for a
// key of 64 bytes and no message), RFC 8439 (2.3.2 and 2.5.2), draft-irtf-cfrg-xchacha-03 (2.2.1). X25519: handshake_test.cpp.
TEST(SecureStream, ItsPartsAreThoseOfThePublishedVectors) {
  const auto in = [](std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); };
  const auto out = [](std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); };
  std::string hash(64, '\0');
  crypto_generichash(out(hash), hash.size(), in("abc"), 3, nullptr, 0);
  EXPECT_EQ(hash, from_hexadecimal("ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
                                   "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"));
  crypto_generichash(out(hash), hash.size(), nullptr, 0, in(counting(64)), 64);
  EXPECT_EQ(hash, from_hexadecimal("10ebb67700b1868efb4417987acf4690ae9d972fb7a590c2f02871799aaa4786"
                                   "b5e996e8f0f4eb981fc214b005f42d2ff4233499391653df7aefcbc13fc51568"));
  std::string key(32, '\0');
  crypto_core_hchacha20(out(key), in(from_hexadecimal("000000090000004a0000000031415927")), in(counting(32)), nullptr);
  EXPECT_EQ(key, from_hexadecimal("82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"));
  std::string block(64, '\0');
  crypto_stream_chacha20_ietf_xor_ic(out(block), in(block), block.size(), in(from_hexadecimal("000000090000004a00000000")), 1,
                                     in(counting(32)));
  EXPECT_EQ(block, from_hexadecimal("10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
                                    "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"));
  std::string tag(16, '\0');
  const std::string_view message = "Cryptographic Forum Research Group";
  crypto_onetimeauth(out(tag), in(message), message.size(),
                     in(from_hexadecimal("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b")));
  EXPECT_EQ(tag, from_hexadecimal("a8061dc1305136c6c22b8baf0c0127a9"));
}

TEST(SecureStream, TruncatedOnesWaitAndLongOnesDoNot) {
  Sealer sealer(secret_of('k'));
  const std::string wire = sealer.seal(5, 1, "0123456789");
  OpenedFrame frame;
  for (std::size_t length = 0; length < wire.size(); ++length) {
    Opener opener(secret_of('k'), sealer.header());
    std::string_view left = std::string_view(wire).substr(0, length);
    EXPECT_EQ(opener.open(left, frame), Opener::Found::incomplete) << length;
    EXPECT_EQ(left.size(), length);
  }
  for (const std::string& length :
       {std::string("\xff\xff\xff\xff"), std::string("\x16\x00\x01\x00", 4), std::string("\x14\0\0\0", 4), std::string(4, '\0')}) {
    std::string_view left = length;
    EXPECT_EQ(Opener(secret_of('k'), sealer.header()).open(left, frame), Opener::Found::too_long);
  }
}

// --- Secrets ---------------------------------------------------------------------------------------------------------------------

// The flags of the mapping that has this address, as the kernel tells them. Source: proc(5), /proc/PID/smaps.
std::string flags_of(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool is_in = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream fields(line); fields >> std::hex >> begin >> dash >> end && dash == '-') {
      is_in = begin <= wanted && wanted < end;
    } else if (is_in && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return {};
}

TEST(Secret, IsInNoCoreDump) {
  const Secret small(std::string(32, 's')), large(std::string(1000, 'l'));
  for (const Secret* secret : {&small, &large}) EXPECT_NE(flags_of(secret->data()).find(" dd "), std::string::npos);
  const std::string ordinary(1000, 'o');
  EXPECT_EQ(flags_of(ordinary.data()).find(" dd "), std::string::npos) << "the control";
}

// Small ones lie in memory that stays mapped, and can be looked at afterwards.
TEST(Secret, IsWipedWhenItGoes) {
  const std::string text(32, 's'), zeros(32, '\0');
  const auto at = [](const unsigned char* place) { return std::string(reinterpret_cast<const char*>(place), 32); };
  const unsigned char* place = nullptr;
  {
    const Secret secret(text);
    place = secret.data();
    EXPECT_EQ(at(place), text);
  }
  EXPECT_EQ(at(place), zeros) << "destroyed";
  Secret first(text);
  place = first.data();
  Secret moved = std::move(first);
  EXPECT_FALSE(first.is_set());  // NOLINT(bugprone-use-after-move): that is what is asked
  EXPECT_EQ(moved.data(), place) << "there is no second copy";
  moved = Secret(std::string(32, 'n'));
  EXPECT_EQ(at(place), zeros) << "replaced";
  Secret copy = moved;
  EXPECT_NE(copy.data(), moved.data());
  EXPECT_EQ(copy.bytes(), moved.bytes());
  place = copy.data();
  copy = std::move(moved);
  EXPECT_EQ(at(place), zeros) << "moved into";
  EXPECT_EQ(copy.bytes(), std::string(32, 'n'));
}

// Each has its own place, however many there are.
TEST(Secret, ManyAreKeptApart) {
  std::vector<Secret> all;
  for (std::size_t count = 0; count < 1000; ++count) all.emplace_back(pattern(1 + count % 80, count));
  for (std::size_t count = 0; count < all.size(); count += 3) all[count] = Secret(pattern(40, count));
  for (std::size_t count = 0; count < all.size(); ++count)
    ASSERT_EQ(all[count].bytes(), count % 3 == 0 ? pattern(40, count) : pattern(1 + count % 80, count)) << count;
}

// The keys of a handshake go when the frames' keys are made, and those with the frames' ends.
TEST(Secret, OfAHandshakeIsWipedWithIt) {
  const Identity identity = identity_of(job_of(0, 2));
  const unsigned char* place = nullptr;
  {
    Secret private_key = fresh_private_key();
    place = private_key.data();
    Handshake handshake(identity, Role::initiator, std::move(private_key));
    EXPECT_NE(std::string(reinterpret_cast<const char*>(place), 32), std::string(32, '\0'));
    const Identity other = identity_of(job_of(1, 2));
    Handshake acceptor(other, Role::acceptor);
    ASSERT_TRUE(handshake.take_challenge(acceptor.challenge()));
    ASSERT_EQ(acceptor.take_hello(handshake.hello(1)), HelloFault::none);
    ASSERT_EQ(handshake.take_hello(acceptor.hello(0)), HelloFault::none);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(place), 32), std::string(32, '\0')) << "when the keys are made";
  }
  Secret unused = fresh_private_key();
  place = unused.data();
  Handshake(identity, Role::initiator, std::move(unused));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(place), 32), std::string(32, '\0')) << "when there were none";
}

// How often `bytes` stand in the memory that a core dump of this process has: all that can be written and is not left out of it.
std::size_t copies_of(const Secret& bytes) {
  struct Region {
    std::uintptr_t begin = 0, end = 0;
    std::string flags;
  };
  std::vector<Region> regions;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    Region region;
    char dash = 0;
    std::istringstream fields(line);
    if (fields >> std::hex >> region.begin >> dash >> region.end && dash == '-') regions.push_back(region);
    if (line.starts_with("VmFlags:")) regions.back().flags = line + " ";
  }
  const Descriptor memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  constexpr std::size_t kPieceBytes = 1 << 20;
  Secret piece = Secret::of_size(kPieceBytes);  // left out of the dump itself
  std::size_t count = 0;
  for (const Region& region : regions) {
    if (region.flags.find(" wr ") == std::string::npos || region.flags.find(" dd ") != std::string::npos) continue;
    for (std::uintptr_t at = region.begin; at < region.end; at += kPieceBytes - bytes.bytes().size()) {
      const std::size_t wanted = std::min<std::size_t>(kPieceBytes, region.end - at);
      const ssize_t read = ::pread(memory.get(), piece.data(), wanted, static_cast<off_t>(at));
      if (read <= 0) break;
      const std::string_view found = piece.bytes().substr(0, static_cast<std::size_t>(read));
      for (std::size_t place = found.find(bytes.bytes()); place != std::string_view::npos;
           place = found.find(bytes.bytes(), place + 1))
        ++count;
      if (wanted < kPieceBytes) break;
    }
  }
  return count;
}

// The job's key, what is made of it, and the key of an exchange: after two ranks have talked they stand in guarded pages only.
TEST(Secret, AChannelLeavesNoCopyForACoreDump) {
  Job jobs[] = {job_of(0, 2), job_of(1, 2)};
  for (Job& job : jobs) job.key = Secret::of_size(32);
  randombytes_buf(jobs[0].key.data(), 32);
  jobs[1].key = jobs[0].key;
  Node left(jobs[0]), right(jobs[1]);
  ASSERT_TRUE(connect_both(left, right));
  ASSERT_TRUE(left.wireup->send(1, frame_of(1, "a frame")));
  ASSERT_TRUE(pump({&left, &right}, [&] { return !right.frames[0].empty(); }));
  const Identity identity = identity_of(jobs[0]), other = identity_of(jobs[1]);
  const Secret exchanged = fresh_private_key();
  Handshake handshake(identity, Role::initiator, exchanged), acceptor(other, Role::acceptor);
  ASSERT_TRUE(handshake.take_challenge(acceptor.challenge()));
  ASSERT_EQ(acceptor.take_hello(handshake.hello(1)), HelloFault::none);
  ASSERT_EQ(handshake.take_hello(acceptor.hello(0)), HelloFault::none);
  for (const Secret* secret : std::initializer_list<const Secret*>{&jobs[0].key, &identity.secret, &exchanged}) {
    EXPECT_EQ(copies_of(*secret), 0u);
    const std::string ordinary(secret->bytes());
    const char* volatile shown = ordinary.data();  // so that it is really made
    EXPECT_NE(shown, nullptr);
    EXPECT_GE(copies_of(*secret), 1u) << "the control";
  }
}

}  // namespace
}  // namespace gigabar::fabric::wireup
