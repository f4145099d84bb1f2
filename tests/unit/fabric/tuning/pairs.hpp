// SPDX-License-Identifier: Apache-2.0
// Pairs and machines for tests of tuned limits.
#pragma once

#include <string>

#include "fabric/tuning.hpp"

namespace gigabar::fabric {

inline MachineFingerprint some_machine() { return {"a \"processor\" \\ 8", "580.1", {"mlx5_0 0001:0002", "mlx5_1 0001:0003"}}; }

inline TunedPair some_pair(const std::string& device = "GPU-01234567-89ab") {
  TunedPair pair;
  pair.key = {device, TransportKind::verbs, {"mlx5_0/1", "mlx5_1/1"}, false};
  pair.date = "2026-01-02T03:04:05Z";
  pair.gdr_bytes = 32768;
  pair.gdr_read_bytes = kNoLimit;
  pair.chunk_bytes = 524288;
  return pair;
}

inline bool are_equal(const TunedPair& one, const TunedPair& other) {
  return one.key == other.key && one.date == other.date && one.gdr_bytes == other.gdr_bytes &&
         one.gdr_read_bytes == other.gdr_read_bytes && one.chunk_bytes == other.chunk_bytes &&
         one.stripe_bytes == other.stripe_bytes;
}

}  // namespace gigabar::fabric
