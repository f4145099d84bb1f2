// SPDX-License-Identifier: Apache-2.0
// What only the C interface's documents show, member by member, as doctor/members.hpp does for topologies and findings.
#pragma once

#include <optional>

#include "c/json.hpp"
#include "doctor/members.hpp"
#include "gigabar/device.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/mapping.hpp"

namespace gigabar::inline v0 {

void members_of(const PathReport& path, const auto& put) {
  put("path", path.path);
  put("description", path.description);
  members_of(path.availability, put);
}

void members_of(const DriverReport& driver, const auto& put) {
  put("name", driver.name);
  members_of(driver.availability, put);
}

void members_of(const PassedOver& backend, const auto& put) {
  put("backend", name_of(backend.backend));
  members_of(backend.why, put);
}

void members_of(const Setting& setting, const auto& put) {
  put("name", setting.name);
  put("value", setting.value);
  put("source", setting.source);
}

void members_of(const PeerState& peer, const auto& put) {
  put("rank", peer.rank);
  put("is_connected", peer.is_connected);
  put("is_broken", peer.is_broken);
  put("is_same_host", peer.is_same_host);
  put("why", if_told(peer.why));
  put("transport", peer.transport ? std::optional(name_of(*peer.transport)) : std::nullopt);
  put("rails", peer.rails);
  put("memory_bytes", peer.memory_bytes);
}

void members_of(const Explanation::Alternative& other, const auto& put) {
  put("name", other.name);
  put("why_not", other.why_not);
}

void members_of(const Explanation& explanation, const auto& put) {
  put("is_possible", explanation.is_possible);
  put("path", name_of(explanation.path));
  put("transport", explanation.transport ? std::optional(name_of(*explanation.transport)) : std::nullopt);
  put("rails", explanation.rails);
  put("chunk_bytes", explanation.chunk_bytes);
  put("reason", explanation.reason);
  put("alternatives", explanation.alternatives);
}

}  // namespace gigabar::inline v0
