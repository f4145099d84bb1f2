// SPDX-License-Identifier: Apache-2.0
// Connections, and what is known of the health of ranks.
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

// Of a lost rank: the next operation connects again. An intact connection stays.
void forget_lost(Rank rank) {
  process().peers[rank].is_corrupt = true;  // whether the time is enough for another connection or not
  if (process().fabric->forget(rank)) forget_remote(rank);
}

}  // namespace

gaspi_return_t pgaspi_connect(const gaspi_rank_t rank, const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (rank >= process().rank_count) return GASPI_ERR_INV_RANK;
    Process& all = process();
    const Remaining time(timeout_of(timeout_ms));
    Result<void> connected = all.fabric->connect(rank, time.left());
    if (connected.status() == Status::peer_lost) {
      forget_lost(rank);
      connected = all.fabric->connect(rank, time.left());
    }
    if (!connected) return code_of(connected.error(), "gaspi_connect");
    all.peers[rank].is_corrupt = false;
    return GASPI_SUCCESS;
  });
}
GASPI_NAMED(gaspi_connect);

gaspi_return_t pgaspi_disconnect(const gaspi_rank_t rank, const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (rank >= process().rank_count) return GASPI_ERR_INV_RANK;
    const Result<void> flushed = process().fabric->flush(rank, timeout_of(timeout_ms));
    if (flushed.status() == Status::timed_out) return GASPI_TIMEOUT;
    if (flushed.status() == Status::peer_lost) forget_lost(rank);
    return GASPI_SUCCESS;
  });
}
GASPI_NAMED(gaspi_disconnect);

gaspi_return_t pgaspi_state_vec_get(gaspi_state_vector_t state_vector) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  if (state_vector == nullptr) return GASPI_ERR_NULLPTR;
  const Process& all = process();
  for (Rank rank = 0; rank < all.rank_count; ++rank)
    state_vector[rank] = all.peers[rank].is_corrupt ? GASPI_STATE_CORRUPT : GASPI_STATE_HEALTHY;
  return GASPI_SUCCESS;
}
GASPI_NAMED(gaspi_state_vec_get);

// The best network that a peer is reached by; between ranks of one host none is used. GPI-2's names have one for memory neither.
gaspi_return_t pgaspi_network_type(gaspi_network_t* const network_type) {
  return when_ready([&]() -> gaspi_return_t {
    gaspi_network_t network = process().config.network;
    for (const PeerState& peer : process().fabric->peers()) {
      if (peer.transport == TransportKind::verbs && network == GASPI_ETHERNET) network = GASPI_IB;
    }
    return store(network_type, network);
  });
}
GASPI_NAMED(gaspi_network_type);
