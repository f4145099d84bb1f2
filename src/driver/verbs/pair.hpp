// SPDX-License-Identifier: Apache-2.0
// Queue pairs that are connected by hand: who is behind them was told in some other way. Not on iWARP, which connects by TCP.
#pragma once

#if GIGABAR_HAS_VERBS

#include <cstdint>

#include "driver/verbs/functions.hpp"

namespace gigabar::verbs {

// From a port of this side to a queue pair of a peer's port.
struct PairPath {
  std::uint8_t port = 1;
  ibv_mtu mtu = IBV_MTU_1024;  // of both ports
  std::uint32_t peer_pair = 0;
  // Where the peer's port is: its LID, and on Ethernet its GID and the index of the own one.
  std::uint16_t peer_lid = 0;
  bool is_ethernet = false;
  ibv_gid peer_gid{};
  std::uint8_t gid_index = 0;
  std::uint8_t reads = 1;  // and atomics under way, each way
  int access = 0;          // of the peer, IBV_ACCESS_REMOTE_*
};

// The call that failed and its errno; null: none did.
struct PairFailure {
  const char* call = nullptr;
  int code = 0;
};

// Brings a new reliable queue pair to where it sends.
PairFailure connect_pair(ibv_qp* pair, const PairPath& path);

}  // namespace gigabar::verbs

#endif
