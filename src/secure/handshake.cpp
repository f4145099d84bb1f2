// SPDX-License-Identifier: Apache-2.0
#include "secure/handshake.hpp"

#include <sodium.h>

#include <utility>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/in_place.hpp"

namespace gigabar::secure {
namespace {

constexpr std::string_view kMagic = "gigabarW";
constexpr std::size_t kRandomBytes = 32;  // of a challenge
constexpr std::size_t kHashBytes = 32;
constexpr std::size_t kPublicKeyBytes = crypto_scalarmult_BYTES;
constexpr std::size_t kStackBytes = 4096;  // what libsodium's functions use

// A hello: the prefix, the number of ranks, from, to, purpose, public key, tag, hash.
constexpr std::size_t kHashOffset = kPrefixBytes + 4 * sizeof(std::uint32_t) + kPublicKeyBytes + kHashBytes;
static_assert(kHashOffset + kHashBytes == kHelloBytes);
static_assert(kChallengeBytes == kPrefixBytes + kRandomBytes);
static_assert(kProofBytes == kPrefixBytes + kStreamHeaderBytes + kHashBytes);

// BLAKE2b over parts, each preceded by its length: no two lists of parts give the same bytes.
class Hash : InPlace {
 public:
  ~Hash() {
    sodium_memzero(&state_, sizeof state_);
    // Words of key and message, and the scalar of an exchange before it, are left there.
    sodium_stackzero(kStackBytes);
  }
  explicit Hash(std::string_view key = {}) {
    crypto_generichash_init(&state_, key.empty() ? nullptr : unsigned_bytes(key), key.size(), kHashBytes);
  }
  Hash& add(std::string_view part) {
    const std::string length = ByteWriter().number(std::uint64_t{part.size()}).take();
    crypto_generichash_update(&state_, unsigned_bytes(length), length.size());
    crypto_generichash_update(&state_, unsigned_bytes(part), part.size());
    return *this;
  }
  std::string text() {
    std::string digest(kHashBytes, '\0');
    end(reinterpret_cast<unsigned char*>(digest.data()));
    return digest;
  }
  Secret secret() {
    Secret digest = Secret::of_size(kHashBytes);
    end(digest.data());
    return digest;
  }

 private:
  void end(unsigned char* digest) { crypto_generichash_final(&state_, digest, kHashBytes); }
  crypto_generichash_state state_{};
};

// The job's id as a hello shows it: different in every hello, so that jobs cannot be told apart by those who do not know the id.
std::string tag_of(const std::string& job_id, std::string_view public_key) {
  return Hash(public_key).add("job").add(job_id).text();
}

// Of a hash that the end of one role makes.
std::string made_by(Role role, std::string_view what) {
  return text(what, role == Role::initiator ? " of the initiator" : " of the acceptor");
}

bool is_equal(std::string_view left, std::string_view right) {
  return left.size() == right.size() && sodium_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace

Identity make_identity(const Secret& key, const std::string& job_id, Rank rank, Rank rank_count, Purpose purpose) {
  Secret secret =
      key.is_set() ? Hash().add("gigabar job key").add(key.bytes()).secret() : Hash().add("gigabar job id").add(job_id).secret();
  return {std::move(secret), key.is_set(), job_id, rank, rank_count, purpose, kProtocolVersion};
}

std::string secret_name(const Identity& identity, std::string_view what) {
  const std::string hash = Hash(identity.secret.bytes()).add("name").add(identity.job_id).add(what).text();
  std::array<char, kHashBytes + 1> digits{};
  return sodium_bin2hex(digits.data(), digits.size(), unsigned_bytes(hash), kHashBytes / 2);
}

std::string encode(const Prefix& prefix) {
  return ByteWriter(kMagic).number(prefix.version).number(static_cast<std::uint32_t>(prefix.verdict)).take();
}

std::optional<Prefix> decode_prefix(std::string_view bytes) {
  ByteReader reader(bytes);
  reader.expect(reader.bytes(kMagic.size()) == kMagic);
  const auto version = reader.number<std::uint32_t>();
  const auto verdict = reader.number<std::uint32_t>();
  if (!reader.is_ok() || verdict > static_cast<std::uint32_t>(Verdict::wrong_count)) return {};
  return Prefix{version, static_cast<Verdict>(verdict)};
}

Rank rank_in_hello(std::string_view hello) { return ByteReader(hello.substr(kPrefixBytes + sizeof(Rank))).number<Rank>(); }

Secret fresh_private_key() {
  Secret made = Secret::of_size(crypto_scalarmult_SCALARBYTES);
  randombytes_buf(made.data(), crypto_scalarmult_SCALARBYTES);
  return made;
}

Handshake::Handshake(const Identity& identity, Role role, Secret private_key)
    : identity_(identity), role_(role), private_key_(std::move(private_key)) {}

const unsigned char* Handshake::private_key() {
  if (!private_key_.is_set()) private_key_ = fresh_private_key();
  return private_key_.data();
}

std::string Handshake::challenge() {
  challenge_ = encode(Prefix{identity_.version, Verdict::proceed});
  challenge_.resize(kChallengeBytes);
  randombytes_buf(challenge_.data() + kPrefixBytes, kRandomBytes);
  return challenge_;
}

bool Handshake::take_challenge(std::string_view bytes) {
  const auto prefix = bytes.size() == kChallengeBytes ? decode_prefix(bytes) : std::nullopt;
  if (!prefix || prefix->version != identity_.version || prefix->verdict != Verdict::proceed) return false;
  challenge_ = bytes;
  return true;
}

// Of all that was said before, for this connection and role only: an acceptor's answers one hello.
std::string Handshake::hash_of(std::string_view hello, Role role) const {
  Hash hash(identity_.secret.bytes());
  hash.add(made_by(role, "hello")).add(challenge_);
  if (role == Role::acceptor) hash.add(hellos_.front());
  return hash.add(hello.substr(0, kHashOffset)).text();
}

std::string Handshake::hello(Rank peer) {
  peer_ = peer;
  // Where this fails the key stays zero, which the other end refuses as one that gives no secret.
  std::array<unsigned char, kPublicKeyBytes> public_key{};
  if (crypto_scalarmult_base(public_key.data(), private_key()) != 0) public_key.fill(0);
  ByteWriter writer(encode(Prefix{identity_.version, Verdict::proceed}));
  writer.number(identity_.rank_count).number(identity_.rank).number(peer).number(static_cast<std::uint32_t>(identity_.purpose));
  std::string& own = hello_of(role_);
  own = writer.bytes(view_of(public_key)).bytes(tag_of(identity_.job_id, view_of(public_key))).take();
  own += hash_of(own, role_);
  if (!hello_of(other_role()).empty()) agree();
  return own;
}

HelloFault Handshake::take_hello(std::string_view bytes) {
  const auto prefix = decode_prefix(bytes);
  if (bytes.size() != kHelloBytes || !prefix || prefix->verdict != Verdict::proceed) return HelloFault::malformed;
  if (prefix->version != identity_.version) return HelloFault::version;
  ByteReader reader(bytes.substr(kPrefixBytes));
  const auto rank_count = reader.number<Rank>();
  const auto from = reader.number<Rank>();
  const auto to = reader.number<Rank>();
  const auto purpose = reader.number<std::uint32_t>();
  const std::string_view public_key = reader.bytes(kPublicKeyBytes);
  if (purpose != static_cast<std::uint32_t>(identity_.purpose)) return HelloFault::job;
  if (!is_equal(reader.bytes(kHashBytes), tag_of(identity_.job_id, public_key))) return HelloFault::job;
  // Rank 0 tells a rank that counts differently, once it has proven who it is.
  if (rank_count != identity_.rank_count && identity_.purpose != Purpose::directory) return HelloFault::job;
  if (to != identity_.rank) return HelloFault::rank;
  if (from >= rank_count || from == identity_.rank) return HelloFault::rank;
  if (role_ == Role::initiator && from != peer_) return HelloFault::rank;
  if (challenge_.empty() || !is_equal(reader.bytes(kHashBytes), hash_of(bytes, other_role()))) return HelloFault::key;
  // A point of low order gives the same secret whatever our key is.
  shared_ = Secret::of_size(crypto_scalarmult_BYTES);
  if (crypto_scalarmult(shared_.data(), private_key(), unsigned_bytes(public_key)) != 0) return HelloFault::malformed;
  peer_ = from;
  peer_rank_count_ = rank_count;
  hello_of(other_role()) = bytes;
  if (!hello_of(role_).empty()) agree();
  return HelloFault::none;
}

void Handshake::agree() {
  master_ = Hash(identity_.secret.bytes())
                .add("gigabar channel")
                .add(shared_.bytes())
                .add(challenge_)
                .add(hellos_.front())
                .add(hellos_.back())
                .secret();
  shared_ = Secret();
  private_key_ = Secret();
  sealer_ = Sealer(key("frames", role_));
}

Secret Handshake::key(std::string_view what, Role role) const { return Hash(master_.bytes()).add(made_by(role, what)).secret(); }

std::string Handshake::proof_of(std::string_view message, Role role) const {
  return Hash(master_.bytes()).add(made_by(role, "proof")).add(message).text();
}

std::string Handshake::proof(Verdict verdict) const {
  std::string bytes = encode(Prefix{identity_.version, verdict}) + sealer_.header();
  return bytes += proof_of(bytes, role_);
}

bool Handshake::take_proof(std::string_view bytes) {
  const auto prefix = bytes.size() == kProofBytes ? decode_prefix(bytes) : std::nullopt;
  constexpr std::size_t kSaidBytes = kProofBytes - kHashBytes;
  if (!prefix || !is_equal(bytes.substr(kSaidBytes), proof_of(bytes.substr(0, kSaidBytes), other_role()))) return false;
  verdict_ = prefix->verdict;
  opener_ = Opener(key("frames", other_role()), bytes.substr(kPrefixBytes, kStreamHeaderBytes));
  return true;
}

Established Handshake::establish(Connection connection) {
  return {std::move(connection), take_sealer(), take_opener(), data_key(role_), data_key(other_role())};
}

}  // namespace gigabar::secure
