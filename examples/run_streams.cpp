// SPDX-License-Identifier: Apache-2.0
// Copies in both directions between GPU 0 and the host at once, and a flag's round trip meanwhile; says how fast each was and
// whether the data arrived. On a machine without a GPU the device is a stand-in: host memory that plays one.
#include <cstdio>
#include <gigabar/streams.hpp>

int main() {
  gigabar::Transfer defaults;
  defaults.bytes = std::size_t{16} << 20;
  defaults.iterations = 50;

  gigabar::StreamPlan plan;
  plan.repeats = 3;
  auto transfers = gigabar::parse_transfers("gpu0->host; host->gpu0; host->gpu0 flag iterations=1000", defaults, 1);
  if (!transfers) return std::puts(transfers.error().message().c_str()), 1;
  plan.transfers = *transfers;

  const auto report = gigabar::run_streams(plan);
  if (!report) return std::puts(report.error().message().c_str()), 1;  // nothing was run

  for (const gigabar::TransferReport& each : report->transfers) {
    const std::string name = to_string(each.transfer);
    if (each.error) {
      std::printf("%s: %s\n", name.c_str(), each.error->message().c_str());
    } else if (each.latency) {
      std::printf("%s: p50 %.2f us, p99 %.2f us; %s\n", name.c_str(), each.latency->p50_us, each.latency->p99_us,
                  each.path.c_str());
    } else {
      std::printf("%s: %.1f GB/s beside the others, %s; %s, %s\n", name.c_str(), each.window_gb_per_s.median,
                  each.is_verified ? "verified" : "not verified", each.path.c_str(), each.link.name.c_str());
    }
  }
  for (const std::string& warning : report->warnings) std::puts(warning.c_str());
  return report->is_ok() ? 0 : 1;
}
