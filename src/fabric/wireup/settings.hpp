// What tests change about a Wireup; everybody else takes it as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fabric/wireup/handshake.hpp"
#include "fabric/wireup/wireup.hpp"

namespace gigabar::fabric::wireup {

struct Settings {
  std::uint32_t version = kProtocolVersion;
  bool has_unix = true;
  bool has_tcp = true;
  std::int64_t handshake_ns = 5'000'000'000;  // for strangers
  std::size_t most_unfinished = 64;           // handshakes of strangers
};

Result<std::unique_ptr<Wireup>> open_wireup(const Job& job, const Settings& settings);

}  // namespace gigabar::fabric::wireup
