// What the environment says about a launcher, for what has to be known before the fabric is open.
#pragma once

#include <cstdlib>
#include <string>

#include "support/plain_text.hpp"

namespace gigabar::tool::ranks {

// A launcher has started this process, or has at least left part of what makes a rank: then the fabric says what is missing.
inline bool is_under_launcher() {
  for (const char* const name : {"PMIX_RANK", "RANK", "WORLD_SIZE"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

// The rank's number as the launcher wrote it; "0" when nobody says. Rank 0 speaks, also before the fabric is open.
inline std::string rank_by_environment() {
  for (const char* const name : {"PMIX_RANK", "RANK"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) return plain(value);
  }
  return "0";
}

}  // namespace gigabar::tool::ranks
