// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/handshake.hpp"

#include <sodium.h>

#include <utility>

#include "base/bytes.hpp"

namespace gigabar::fabric::wireup {
namespace {

constexpr std::string_view kMagic = "gigabarW";
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kTagBytes = 32;
constexpr std::size_t kPublicKeyBytes = crypto_scalarmult_BYTES;

// A hello: the prefix, the number of ranks, from, to, zero, nonce, public key, tag, hash.
constexpr std::size_t kHashOffset = kPrefixBytes + 4 * sizeof(std::uint32_t) + kNonceBytes + kPublicKeyBytes + kTagBytes;
static_assert(kHashOffset + Secret::bytes() == kHelloBytes);
static_assert(kChallengeBytes == kPrefixBytes + kNonceBytes);
static_assert(kProofBytes == kPrefixBytes + Secret::bytes());
static_assert(Secret::bytes() == crypto_scalarmult_BYTES);
static_assert(Secret::bytes() == crypto_aead_xchacha20poly1305_ietf_KEYBYTES);

// BLAKE2b over parts, each preceded by its length: no two lists of parts give the same bytes.
class Hash {
 public:
  explicit Hash(std::string_view key = {}) {
    crypto_generichash_init(&state_, key.empty() ? nullptr : unsigned_bytes(key), key.size(), 32);
  }
  Hash& add(std::string_view part) {
    const std::string length = ByteWriter().number(std::uint64_t{part.size()}).take();
    crypto_generichash_update(&state_, unsigned_bytes(length), length.size());
    crypto_generichash_update(&state_, unsigned_bytes(part), part.size());
    return *this;
  }
  Secret end() {
    Secret digest;
    crypto_generichash_final(&state_, digest.data(), Secret::bytes());
    sodium_memzero(&state_, sizeof state_);
    return digest;
  }

 private:
  crypto_generichash_state state_{};
};

std::string_view view(const Secret& secret) { return {reinterpret_cast<const char*>(secret.data()), Secret::bytes()}; }

// The job's id as a hello shows it: different in every hello, so that jobs cannot be told apart by those who do not know the id.
Secret tag_of(const std::string& job_id, std::string_view nonce) { return Hash(nonce).add("job").add(job_id).end(); }

bool is_equal(std::string_view left, std::string_view right) {
  return left.size() == right.size() && sodium_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace

Secret::~Secret() { sodium_memzero(bytes_.data(), bytes_.size()); }

std::optional<Identity> identity_of(const Job& job) {
  if (sodium_init() < 0) return {};
  Identity identity;
  identity.has_key = job.key.is_set();
  identity.secret = JobKey(view(identity.has_key ? Hash().add("gigabar job key").add(job.key.bytes()).end()
                                                 : Hash().add("gigabar job id").add(job.id).end()));
  identity.job_id = job.id;
  identity.rank = job.rank;
  identity.rank_count = job.rank_count;
  return identity;
}

std::string encode(const Prefix& prefix) {
  return ByteWriter(kMagic).number(prefix.version).number(static_cast<std::uint32_t>(prefix.verdict)).take();
}

std::optional<Prefix> decode_prefix(std::string_view bytes) {
  ByteReader reader(bytes);
  reader.expect(reader.bytes(kMagic.size()) == kMagic);
  const auto version = reader.number<std::uint32_t>();
  const auto verdict = reader.number<std::uint32_t>();
  if (!reader.is_ok() || verdict > static_cast<std::uint32_t>(Verdict::occupied)) return {};
  return Prefix{version, static_cast<Verdict>(verdict)};
}

Ephemeral Ephemeral::fresh() {
  Ephemeral ephemeral;
  randombytes_buf(ephemeral.private_key.data(), Secret::bytes());
  randombytes_buf(ephemeral.nonce.data(), ephemeral.nonce.size());
  return ephemeral;
}

Handshake::Handshake(const Identity& identity, Role role, Ephemeral ephemeral)
    : identity_(identity), role_(role), ephemeral_(std::move(ephemeral)) {}

std::string Handshake::challenge() {
  challenge_ = encode(Prefix{identity_.version, Verdict::proceed});
  challenge_.resize(kChallengeBytes);
  randombytes_buf(challenge_.data() + kPrefixBytes, kNonceBytes);
  return challenge_;
}

bool Handshake::take_challenge(std::string_view bytes) {
  const auto prefix = bytes.size() == kChallengeBytes ? decode_prefix(bytes) : std::nullopt;
  if (!prefix || prefix->version != identity_.version || prefix->verdict != Verdict::proceed) return false;
  challenge_ = bytes;
  return true;
}

// Of all that stands in the hello before it, for this connection and role only.
Secret Handshake::hash_of(std::string_view hello, bool is_initiators) const {
  return Hash(identity_.secret.bytes())
      .add(is_initiators ? "hello of the initiator" : "hello of the acceptor")
      .add(challenge_)
      .add(hello.substr(0, kHashOffset))
      .end();
}

std::string Handshake::hello(Rank peer) {
  peer_ = peer;
  const std::string_view nonce = view_of(ephemeral_.nonce);
  // Where this fails the key stays zero, which the other end refuses as one that gives no secret.
  std::array<unsigned char, kPublicKeyBytes> public_key{};
  if (crypto_scalarmult_base(public_key.data(), ephemeral_.private_key.data()) != 0) public_key.fill(0);

  ByteWriter writer(encode(Prefix{identity_.version, Verdict::proceed}));
  writer.number(identity_.rank_count).number(identity_.rank).number(peer).number(std::uint32_t{0});
  writer.bytes(nonce).bytes(view_of(public_key)).bytes(view(tag_of(identity_.job_id, nonce)));
  own_hello_ = writer.take();
  own_hello_ += view(hash_of(own_hello_, role_ == Role::initiator));
  if (!peer_hello_.empty()) agree();
  return own_hello_;
}

HelloFault Handshake::take_hello(std::string_view bytes) {
  const auto prefix = decode_prefix(bytes);
  if (bytes.size() != kHelloBytes || !prefix || prefix->verdict != Verdict::proceed) return HelloFault::malformed;
  if (prefix->version != identity_.version) return HelloFault::version;
  ByteReader reader(bytes.substr(kPrefixBytes));
  const auto rank_count = reader.number<Rank>();
  const auto from = reader.number<Rank>();
  const auto to = reader.number<Rank>();
  if (reader.number<std::uint32_t>() != 0) return HelloFault::malformed;
  const std::string_view nonce = reader.bytes(kNonceBytes);
  const std::string_view public_key = reader.bytes(kPublicKeyBytes);
  if (!is_equal(reader.bytes(kTagBytes), view(tag_of(identity_.job_id, nonce)))) return HelloFault::job;
  if (rank_count != identity_.rank_count) return HelloFault::job;
  if (to != identity_.rank) return HelloFault::rank;
  if (from >= identity_.rank_count || from == identity_.rank) return HelloFault::rank;
  if (role_ == Role::initiator && from != peer_) return HelloFault::rank;
  if (challenge_.empty() || !is_equal(reader.bytes(Secret::bytes()), view(hash_of(bytes, role_ == Role::acceptor))))
    return HelloFault::key;
  // A point of low order gives the same secret whatever our key is.
  if (crypto_scalarmult(shared_.data(), ephemeral_.private_key.data(), unsigned_bytes(public_key)) != 0)
    return HelloFault::malformed;
  peer_ = from;
  peer_hello_ = bytes;
  if (!own_hello_.empty()) agree();
  return HelloFault::none;
}

void Handshake::agree() {
  const bool is_initiator = role_ == Role::initiator;
  master_ = Hash(identity_.secret.bytes())
                .add("gigabar wire-up")
                .add(view(shared_))
                .add(challenge_)
                .add(is_initiator ? own_hello_ : peer_hello_)
                .add(is_initiator ? peer_hello_ : own_hello_)
                .end();
}

Secret Handshake::derive(std::string_view purpose) const { return Hash(view(master_)).add(purpose).end(); }

std::string Handshake::proof() const {
  std::string bytes = encode(Prefix{identity_.version, Verdict::proceed});
  bytes += view(derive(role_ == Role::initiator ? "proof of the initiator" : "proof of the acceptor"));
  return bytes;
}

bool Handshake::is_proven(std::string_view bytes) const {
  if (bytes.size() != kProofBytes) return false;
  return is_equal(bytes.substr(kPrefixBytes),
                  view(derive(role_ == Role::initiator ? "proof of the acceptor" : "proof of the initiator")));
}

SessionKeys Handshake::session() const {
  const Secret from_initiator = derive("frames of the initiator");
  const Secret from_acceptor = derive("frames of the acceptor");
  if (role_ == Role::initiator) return {from_initiator, from_acceptor};
  return {from_acceptor, from_initiator};
}

}  // namespace gigabar::fabric::wireup
