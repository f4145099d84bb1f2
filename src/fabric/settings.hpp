// Every value in effect and who set it: FabricOptions, then the environment, then what was tuned, then the default.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gigabar/fabric.hpp"

namespace gigabar::fabric {

// How a staged operation is cut: so many chunks are under way with a peer.
struct StagingSize {
  std::uint64_t chunk_bytes = 0;
  unsigned chunk_count = 0;
  std::uint64_t bytes() const noexcept { return chunk_bytes * chunk_count; }
};

struct Settings {
  StagingSize staging(TransportKind kind) const noexcept {
    return kind == TransportKind::ucx ? ucx_staging : StagingSize{chunk_bytes, chunk_count};
  }

  std::vector<TransportKind> transports;
  std::vector<std::string> rails;
  unsigned rail_count = 1;
  RailPolicy rail_policy = RailPolicy::first;
  int device = -1;  // -1: none was named; the fabric takes local rank modulo devices
  PathPolicy policy;
  std::uint64_t eager_bytes = 0;
  std::uint64_t gdr_bytes = 0;
  std::uint64_t gdr_read_bytes = 0;
  std::uint64_t kernel_bytes = 0;
  std::uint64_t chunk_bytes = 0;
  unsigned chunk_count = 0;
  StagingSize ucx_staging;
  std::uint64_t stripe_bytes = 0;
  bool stand_in_registration = true;
  int gid_index = -1, traffic_class = -1, service_level = -1;
  bool progress_thread = true;
  std::int64_t connect_timeout_ns = 0;

  std::vector<Setting> table;  // the same as text
};

// Errors: invalid_argument, naming the option or the variable and what is allowed.
Result<Settings> find_settings(const FabricOptions& options);

}  // namespace gigabar::fabric
