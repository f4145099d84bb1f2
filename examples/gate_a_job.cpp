// SPDX-License-Identifier: Apache-2.0
// Runs the doctor's checks before a job: 0 when nothing fails, 1 with one line for each failure. Checks that map, copy or register
// something are left out, so that it takes less than a second.
#include <cstdio>
#include <gigabar/doctor.hpp>

int main() {
  gigabar::ExamineOptions options;
  options.with_probes = false;
  options.deadline = std::chrono::seconds(10);
  const auto examination = gigabar::examine(gigabar::Machine::here(), options);
  if (!examination) return std::puts(examination.message().c_str()), 2;

  for (const gigabar::Finding& finding : examination->findings) {
    if (finding.verdict != gigabar::Verdict::fail) continue;
    std::printf("%s %s: %s; %s\n", finding.check.c_str(), finding.subject.c_str(), finding.statement.c_str(),
                finding.remedy.c_str());
  }
  std::printf("%zu FAIL, %zu WARN, %zu UNKNOWN, %zu PASS\n", examination->count(gigabar::Verdict::fail),
              examination->count(gigabar::Verdict::warn), examination->count(gigabar::Verdict::unknown),
              examination->count(gigabar::Verdict::pass));
  return examination->count(gigabar::Verdict::fail) == 0 ? 0 : 1;
}
