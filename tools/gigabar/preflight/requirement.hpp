// SPDX-License-Identifier: Apache-2.0
// What a job needs of a node, as `--require` has it:
//
//   LIST   TERM, separated by commas
//   TERM   NAME              a check of the doctor or a group of them, which must pass; or a path that must be available
//          NAME>=NUMBER      gpus, nics, nvlink (active links of each GPU)
//          KIND>=SHARE       host->gpu, gpu->host, gpu->gpu: of the link's rate, above 0 and at most 1
//          KIND>=NUMBERGB/s  the same as a rate
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/status.hpp"

namespace gigabar::tool::preflight {

struct Requirement {
  enum class Kind { check, available, count, rate } kind = Kind::check;
  std::string text;          // as typed, without spaces around it
  std::string name;          // "pci.acs", "gdr", "nvlink", "host->gpu"
  double least = 0;          // of a count or a rate
  bool is_gb_per_s = false;  // `least` of a rate; otherwise it is a share of the link's rate
};

// Whether a name of several parts ("pci.acs") is that one, or of the group ("pci").
inline bool is_of(std::string_view name, std::string_view wanted) {
  return name == wanted || (name.starts_with(wanted) && name.substr(wanted.size()).starts_with('.'));
}

// The names of availability(), which a requirement may also name by their first part.
std::span<const std::string_view> available_names();

// Errors: invalid_argument; the object is "--require:COLUMN", the cause quotes the term, the remedy says what can stand there.
Result<std::vector<Requirement>> parse_requirements(std::string_view text);

}  // namespace gigabar::tool::preflight
