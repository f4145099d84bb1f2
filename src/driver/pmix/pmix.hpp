// SPDX-License-Identifier: Apache-2.0
// libpmix.so.2, opened at run time: what a launcher that speaks PMIx (mpirun, Slurm, Flux, PRRTE) says of this process's job, and
// its store of small values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gigabar/status.hpp"

namespace gigabar::pmix {

// ok when the library was opened and has every function that is needed. Threads: any; the first call loads it.
const Availability& availability();

struct Membership {
  std::string name_space;  // the job's name, the same at every rank
  std::uint32_t rank = 0;
  std::uint32_t rank_count = 0;
  std::optional<std::uint32_t> local_rank;   // nothing: the server does not say
  std::optional<std::uint32_t> local_count;  // ranks of the job on this host; the same
};

// Connects to the launcher's server, once for the process; it is left when the process exits. Errors: unavailable (no library, no
// server), timed_out, device_error (the server does not know the job's size). Threads: any. Cost: blocks until the server answers.
Result<Membership> join(std::int64_t deadline_ns);

namespace detail {
struct Question;
}

// One question to the server, under way until it is answered. May be dropped before.
class Fetch {
 public:
  // Nothing: still under way.
  bool has_answer() const;
  // False: the deadline passed first.
  bool wait(std::int64_t deadline_ns) const;
  // Only when has_answer(). Nothing: the rank has not put it yet, ask anew. Errors: peer_lost (the server is gone), bad_file (a
  // value of another type), device_error.
  Result<std::optional<std::string>> answer() const;

 private:
  friend Result<Fetch> fetch(std::uint32_t rank, const std::string& key);
  explicit Fetch(std::shared_ptr<detail::Question> question) noexcept : question_(std::move(question)) {}
  std::shared_ptr<detail::Question> question_;
};

// Only after join(). Neither waits for another rank. `key` has at most 511 bytes. Errors: unavailable (not joined), peer_lost,
// device_error.
Result<void> put(const std::string& key, const std::string& bytes);
Result<Fetch> fetch(std::uint32_t rank, const std::string& key);

}  // namespace gigabar::pmix
