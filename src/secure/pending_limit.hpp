// SPDX-License-Identifier: Apache-2.0
// Connections that have not proved the job's key yet, and which of them makes room for the next one.
//
// Nobody has a place of his own as long as there is room. When there is none, one that has not shown the key goes, of the source
// that has most of those: who fills the room from one address cannot keep those of other addresses out. Of several such sources the
// oldest one goes, so that a flood from many addresses puts out its own. Who has shown the key is no stranger: the oldest goes when
// all have. Each has a moment to speak before it may be put out, so that ranks that all come at once are not taken for a flood.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "secure/sockets.hpp"

namespace gigabar::secure {

// Where a connection comes from: an IPv4 address, or the network part of an IPv6 address, since one host may use all of the rest.
std::string source_of(const SocketAddress& address);

class PendingLimit {
 public:
  using Id = std::uint64_t;  // ascending: a later one has come later

  PendingLimit(std::size_t max_count, std::int64_t grace_before_hello_ns, std::int64_t grace_after_hello_ns) noexcept
      : max_count_(max_count), grace_before_hello_ns_(grace_before_hello_ns), grace_after_hello_ns_(grace_after_hello_ns) {}

  // Throws std::bad_alloc; it is not there then.
  void add(Id id, std::string source, std::int64_t now_ns);
  // It has shown the key.
  void note_hello(Id id);
  // No effect when it is not there.
  void remove(Id id);
  std::size_t count() const noexcept { return all_.size(); }
  bool is_full() const noexcept { return all_.size() >= max_count_; }
  // Who has to go when the next one comes. Nothing: that one has not had its moment yet.
  std::optional<Id> weakest(std::int64_t now_ns) const;

 private:
  struct Pending {
    std::string source;
    std::int64_t came_ns = 0;
    bool has_hello = false;
  };

  std::size_t max_count_;
  std::int64_t grace_before_hello_ns_, grace_after_hello_ns_;
  std::map<Id, Pending> all_;
  std::map<std::string, std::size_t> silent_counts_;  // by source: those that have not shown the key
};

}  // namespace gigabar::secure
