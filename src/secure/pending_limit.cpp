// SPDX-License-Identifier: Apache-2.0
#include "secure/pending_limit.hpp"

#include <algorithm>
#include <utility>

namespace gigabar::secure {

std::string source_of(const SocketAddress& address) {
  constexpr std::size_t kNetworkBytes = 8;  // of an IPv6 address; an IPv4 one has fewer
  return std::string(ip_bytes(address).substr(0, kNetworkBytes));
}

void PendingLimit::add(Id id, std::string source, std::int64_t now_ns) {
  std::size_t& silent_count = silent_counts_[source];  // where there is no memory for the rest: of nobody, which counts for nothing
  all_.emplace(id, Pending{std::move(source), now_ns, false});
  ++silent_count;
}

void PendingLimit::note_hello(Id id) {
  const auto found = all_.find(id);
  if (found == all_.end() || found->second.has_hello) return;
  found->second.has_hello = true;
  const auto counted = silent_counts_.find(found->second.source);
  if (--counted->second == 0) silent_counts_.erase(counted);
}

void PendingLimit::remove(Id id) {
  note_hello(id);  // it is not silent any more
  all_.erase(id);
}

std::optional<PendingLimit::Id> PendingLimit::weakest(std::int64_t now_ns) const {
  if (all_.empty()) return {};
  std::size_t most = 0;
  for (const auto& [source, count] : silent_counts_) most = std::max(most, count);
  const auto is_of_most = [&](const Pending& one) { return !one.has_hello && silent_counts_.at(one.source) == most; };
  auto found = std::ranges::find_if(all_, [&](const auto& entry) { return is_of_most(entry.second); });
  if (found == all_.end()) found = all_.begin();
  const std::int64_t grace_ns = found->second.has_hello ? grace_after_hello_ns_ : grace_before_hello_ns_;
  if (now_ns - found->second.came_ns < grace_ns) return {};
  return found->first;
}

}  // namespace gigabar::secure
