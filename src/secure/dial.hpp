// SPDX-License-Identifier: Apache-2.0
// The way to one rank: its addresses one after another, again and again until the deadline.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "secure/channel.hpp"
#include "secure/handshake.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

class Dial {
 public:
  enum class Progress : std::uint8_t {
    going,      // call advance() at the next event, or at next_ns()
    connected,  // take() the channel's part
    failed      // error() tells why
  };

  // The rank's addresses as they are now; none: those known before stay.
  using Refresh = std::function<std::vector<SocketAddress>()>;

  // `targets` may be empty: then `no_target_error` says why. A Unix socket that stands first is where the rank itself listens. Its
  // name is random or secret, but for the directory of a job without a key: that name is known, and another process can take it.
  // `token` names its sockets in the poller. `refresh` is called after each round over all targets.
  Dial(const Identity& identity, Poller& poller, std::uint64_t token, Rank rank, std::vector<SocketAddress> targets,
       std::int64_t deadline_ns, std::optional<Error> no_target_error, Refresh refresh = {});

  // Of a connection whose secret is not the job's: a link's. `preamble`, no secret, is sent before the first message, to a listener
  // that has many identities and reads there which one is meant. `owner`: the rank there, for errors.
  void set_link(std::string preamble, Rank owner) {
    preamble_ = std::move(preamble);
    shown_rank_ = owner;
  }

  Progress advance(std::int64_t now_ns);
  std::int64_t next_ns() const noexcept { return std::min(next_at_ns_, deadline_ns_); }
  // From here on the other end may hold this connection for the channel.
  bool has_sent_proof() const noexcept { return step_ == Step::proof; }
  void extend(std::int64_t deadline_ns) noexcept { deadline_ns_ = std::max(deadline_ns_, deadline_ns); }
  std::uint64_t token() const noexcept { return token_; }

  // When connected. Where nothing comes of it, advance() tries again.
  Established take();
  Error error() const;
  std::size_t memory_bytes() const noexcept;

 private:
  enum class Step : std::uint8_t { waiting, connecting, challenge, hello, proof };

  Progress start();
  Progress check_connection();
  Progress another_user();
  Progress read();
  Progress judge_unproven(const Prefix& prefix);
  Progress judge_hello(HelloFault fault);
  Progress judge_proven();
  // This address did not work; the next one is tried.
  Progress soft_failure(const std::string& cause, int code = 0);
  Progress soft_failure(int code);
  // The same, and error() tells it when it was the last that was heard before the deadline.
  Progress refused(std::string cause, std::string remedy = {}, Status status = Status::no_permission);
  Progress fail(Status status, std::string cause, std::string remedy);
  Progress next_target();
  Progress come_back_later();
  Progress unexpected(Arrival arrival);
  std::string object() const;
  const SocketAddress& target() const { return targets_[target_index_]; }
  // Of the one that comes in this step.
  std::size_t message_bytes() const noexcept {
    if (step_ == Step::challenge) return kChallengeBytes;
    return step_ == Step::hello ? kHelloBytes : kProofBytes;
  }
  bool is_peers_own_socket() const { return target().is_unix() && targets_.front().is_unix(); }
  // Nothing but the rank itself is expected here, and it is waited for. The second name of a directory is anybody's.
  bool is_first_unix_socket() const { return target_index_ == 0 && target().is_unix(); }
  bool is_of_directory() const noexcept { return identity_.purpose == Purpose::directory; }
  bool is_of_link() const noexcept { return identity_.purpose == Purpose::transfer; }
  Progress refused_for_key();

  const Identity& identity_;
  Poller& poller_;
  std::uint64_t token_;
  Rank rank_;
  Rank shown_rank_;  // in errors
  std::vector<SocketAddress> targets_;
  Refresh refresh_;
  std::string preamble_;
  std::int64_t deadline_ns_;

  Step step_ = Step::waiting;
  std::int64_t now_ns_ = 0;      // of this advance()
  std::int64_t next_at_ns_ = 0;  // waiting: the next try. Before proof: this address is given up. Proof: kNever
  std::int64_t pause_ns_;
  std::int64_t hello_ns_;    // how long one that listens may say nothing, in this round
  bool was_silent_ = false;  // one did in this round: it may be a rank that computes, so the next round waits longer
  std::size_t target_index_ = 0;
  std::size_t refusal_count_ = 0;  // of this round
  bool is_refused_ = false;        // nothing else was heard in the last round

  Connection connection_;
  std::optional<Handshake> handshake_;
  std::string received_;

  std::size_t told_index_ = ~std::size_t{0};  // of the address that last_cause_ is about
  std::string last_cause_;
  int last_code_ = 0;             // its errno, if there was one
  std::optional<Error> refusal_;  // the first that was heard; anybody may have said it
  std::optional<Error> failure_;  // nothing else can come of it
};

}  // namespace gigabar::secure
