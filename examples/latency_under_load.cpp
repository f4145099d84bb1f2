// SPDX-License-Identifier: Apache-2.0
// A flag's round trip between CPU and GPU 0, alone and while copies run to and from the GPU.
#include <cstdio>
#include <gigabar/streams.hpp>

static int measure(const char* name, const char* transfers) {
  gigabar::Transfer defaults;
  defaults.bytes = std::size_t{16} << 20;
  auto parsed = gigabar::parse_transfers(transfers, defaults, 1);
  if (!parsed) return std::puts(parsed.message().c_str()), 1;
  gigabar::StreamPlan plan;
  plan.repeats = 3;
  plan.transfers = *parsed;
  const auto report = gigabar::run_streams(plan);
  if (!report) return std::puts(report.message().c_str()), 1;  // nothing was run
  for (const gigabar::TransferReport& each : report->transfers) {
    if (each.error) return std::puts(each.error->message().c_str()), 1;
    if (each.latency) std::printf("%s: p50 %.2f us, p99 %.2f us\n", name, each.latency->p50_us, each.latency->p99_us);
  }
  return report->is_ok() ? 0 : 1;
}

int main() {
  const int alone = measure("alone", "host->gpu0 flag iterations=1000");
  if (alone != 0) return alone;
  return measure("under load", "host->gpu0 flag iterations=1000; gpu0->host background; host->gpu0 background");
}
