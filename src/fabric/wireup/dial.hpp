// SPDX-License-Identifier: Apache-2.0
// The way to one rank: its addresses one after another, again and again until the deadline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/wireup/channel.hpp"
#include "fabric/wireup/handshake.hpp"
#include "fabric/wireup/poller.hpp"
#include "fabric/wireup/sockets.hpp"

namespace gigabar::fabric::wireup {

class Dial {
 public:
  enum class Progress : std::uint8_t {
    going,      // call advance() at the next event, or at next_ns()
    connected,  // take() the channel's part
    failed      // error() tells why
  };

  // `targets` may be empty: then `hopeless` says why. `token` names its sockets in the poller.
  Dial(const Identity& identity, Poller& poller, std::uint64_t token, Rank rank, std::vector<Target> targets,
       std::int64_t deadline_ns, std::optional<Error> hopeless);

  Progress advance(std::int64_t now_ns);
  std::int64_t next_ns() const noexcept;
  // From here on the other end may hold this connection for the channel.
  bool has_said_proof() const noexcept { return step_ == Step::proof; }
  void extend(std::int64_t deadline_ns) noexcept;
  std::uint64_t token() const noexcept { return token_; }

  Established take();
  Error error() const;
  std::size_t memory_bytes() const noexcept;

 private:
  enum class Step : std::uint8_t { waiting, connecting, challenge, hello, proof };

  Progress start();
  Progress hear_connection();
  // Reads the message of so many bytes, with its prefix, into heard_. Nothing: all of it is there, and it goes on.
  std::optional<Progress> hear(std::size_t bytes, const char* otherwise);
  Progress hear_challenge();
  Progress hear_hello();
  Progress hear_proof();
  Progress judge(const Prefix& prefix);
  // This address did not work; the next one is tried. Final: trying it again would not change it, where it was the rank that
  // answered.
  Progress soft_failure(const std::string& cause, NativeCode native = {});
  Progress final_failure(Status status, std::string cause, std::string remedy);
  Progress final_answer(Status status, std::string cause, std::string remedy);
  Progress fail();
  Progress next_target();
  Progress come_back_later();
  Progress unexpected(Arrival arrival);
  std::string object() const;

  const Identity& identity_;
  Poller& poller_;
  std::uint64_t token_;
  Rank rank_;
  std::vector<Target> targets_;
  std::int64_t deadline_ns_;

  Step step_ = Step::waiting;
  std::int64_t now_ns_ = 0;         // of this advance()
  std::int64_t retry_at_ns_ = 0;    // while waiting
  std::int64_t give_up_at_ns_ = 0;  // of this address, before proof
  std::int64_t pause_ns_;
  std::size_t target_index_ = 0;
  std::size_t final_count_ = 0;        // addresses of this round that failed for good
  std::int64_t doubted_since_ns_ = 0;  // all addresses of every round since have; 0: of the last one not all

  Watched socket_;
  std::optional<Handshake> handshake_;
  std::int64_t process_ = 0;
  std::string heard_;

  std::string last_cause_;
  NativeCode last_native_;
  bool is_final_ = false;  // nothing of it can work
  std::optional<Error> final_error_;
};

}  // namespace gigabar::fabric::wireup
