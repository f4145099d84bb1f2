// SPDX-License-Identifier: Apache-2.0
// The environment that a launcher leaves, made by a test.
#pragma once

#include <unistd.h>

#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/scoped_environment.hpp"

namespace gigabar::test {

using Variable = std::pair<std::string, std::string>;

// While this lives, of all variables that launchers set and that find_job() reads only these are set.
class Launched {
 public:
  Launched(std::initializer_list<Variable> variables) {
    for (const std::string& name : names_to_unset()) change(name, nullptr);
    for (const auto& [name, value] : variables) set(name, value);
  }
  ~Launched() {
    while (!scopes_.empty()) scopes_.pop_back();  // the last first
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  void set(const std::string& name, const std::string& value) { change(name, value.c_str()); }

 private:
  void change(const std::string& name, const char* value) {
    names_.push_back(name);
    scopes_.push_back(std::make_unique<ScopedEnvironment>(names_.back().c_str(), value));
  }

  static std::vector<std::string> names_to_unset() {
    std::vector<std::string> names;
    for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
      const std::string_view name = std::string_view(*variable).substr(0, std::string_view(*variable).find('='));
      for (const std::string_view start :
           {"RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GIGABAR_INTERFACES", "TORCHELASTIC_", "GIGABAR_JOB_", "GIGABAR_MASTER_PORT",
            "GIGABAR_LAUNCHER", "PMIX_", "PMI_", "PALS_", "OMPI_", "MV2_", "MVP_", "FLUX_", "JSM_", "SLURM_"})
        if (name.starts_with(start)) {
          names.emplace_back(name);
          break;
        }
    }
    return names;
  }

  std::deque<std::string> names_;  // scopes keep their addresses
  std::vector<std::unique_ptr<ScopedEnvironment>> scopes_;
};

}  // namespace gigabar::test
