// SPDX-License-Identifier: Apache-2.0
// Says what a message of another program means, what to do, and which checks of the doctor tell more.
#include <cstdio>
#include <gigabar/doctor.hpp>

int main(int count, char** words) {
  const gigabar::Diagnosis diagnosis = gigabar::diagnose(count > 1 ? words[1]
                                                                   : "NCCL WARN Call to ibv_create_cq failed with error "
                                                                     "Cannot allocate memory");
  for (const gigabar::TellingLine& line : diagnosis.lines) {
    std::printf("line %zu: %s\n  means: %s\n  remedy: %s\n", line.number, line.text.c_str(),
                std::string(line.symptom->means).c_str(), std::string(line.symptom->remedy).c_str());
  }
  for (const std::string_view id : diagnosis.checks) {
    if (const gigabar::CheckInfo* check = gigabar::find_check(id)) {
      std::printf("check %s: %s\n", std::string(id).c_str(), std::string(check->title).c_str());
    }
  }
  return diagnosis.lines.empty() ? 1 : 0;
}
