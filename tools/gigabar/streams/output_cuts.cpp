// SPDX-License-Identifier: Apache-2.0
// The lines of CUts, for scripts that read them. A device without a PCI address (a stand-in) says so instead of the bus.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "streams/output.hpp"

namespace gigabar::tool::streams {
namespace {

// What CUts can say; other transfers are named in the long form.
enum class Kind : std::uint8_t { direct, peer, other };

Kind kind_of(const Transfer& transfer) {
  if (!moves_data(transfer.executor)) return Kind::other;
  if (!transfer.source.is_host() && !transfer.destination.is_host()) return Kind::peer;
  return transfer.source.is_host() && transfer.destination.is_host() ? Kind::other : Kind::direct;
}

std::string_view direction_of(const Transfer& transfer) { return transfer.source.is_host() ? "Host to Device" : "Device to Host"; }

class CutsOutput : public Output {
 public:
  using Output::Output;

  void before(const Point& point) override {
    if (!point.title.empty()) report_.print("# {}\n", point.title);
    for (const Transfer& transfer : point.plan.transfers) report_.print("{}\n", launch_line(transfer));
    next_dot_ = Clock::time_point::min();
  }

  // A dot each second.
  void during() override {
    if (Clock::now() < next_dot_) return;
    next_dot_ = Clock::now() + std::chrono::seconds(1);
    report_.print(".");
  }

  void after(const Point& point) override {
    report_.print("\n");
    if (point.error) return;  // the command ends with it
    report_.print("{}\n", point.report->was_stopped ? "Interrupted." : "Completed.");
    for (std::size_t i = 0; i < point.report->transfers.size(); ++i) print(point, i);
    for (const std::string& warning : point.report->warnings) fmt::print(stderr, "warning: {}\n", warning);
  }

 private:
  std::string bus_of(int device) const {
    const DeviceInfo* const info = machine_.find(device);
    if (info == nullptr || info->is_stand_in) return "stand-in";
    if (!info->pci) return "unknown";
    if (info->pci->domain != 0) return fmt::format("0x{:04x}:0x{:02x}", info->pci->domain, info->pci->bus);
    return fmt::format("0x{:02x}", info->pci->bus);
  }
  std::string device_text(int device) const { return fmt::format("Device {} ({})", device, bus_of(device)); }

  std::string launch_line(const Transfer& transfer) const {
    switch (kind_of(transfer)) {
      case Kind::direct: {
        const int node = machine_.node_of_host(transfer);
        return fmt::format("Launching {} transfers with {}{}", direction_of(transfer), device_text(device_of(transfer).device),
                           node >= 0 ? fmt::format(" - Host buffer allocated on NUMA node {}", node) : "");
      }
      case Kind::peer:
        return fmt::format("Launching P2P PCIe transfers from {} to {}", device_text(transfer.source.device),
                           device_text(transfer.destination.device));
      case Kind::other: break;
    }
    return fmt::format("Launching transfers {}{}", short_text(transfer), machine_.label());
  }

  std::string result_text(const Transfer& transfer) const {
    switch (kind_of(transfer)) {
      case Kind::direct:
        return fmt::format("Direct transfers ({}) with {}", direction_of(transfer), device_text(device_of(transfer).device));
      case Kind::peer:
        return fmt::format("P2P transfers from {} to {}", device_text(transfer.source.device),
                           device_text(transfer.destination.device));
      case Kind::other: break;
    }
    return fmt::format("Transfers {}{}", short_text(transfer), machine_.label());
  }

  void print(const Point& point, std::size_t index) const {
    const TransferReport& report = point.report->transfers[index];
    std::string figure;
    if (report.latency && !moves_data(report.transfer.executor)) {
      figure = fmt::format("{:.3f} us", report.latency->p50_us);
    } else if (report.life_gb_per_s.samples.empty()) {
      figure = "nothing measured";
    } else {
      figure = fmt::format("{:.3f} GB/s  ({:.2f} seconds)", report.life_gb_per_s.median, report.seconds.median);
    }
    report_.print("Transfer {} - {}: {}{}\n", index, result_text(report.transfer), figure,
                  report.error ? " - failed: " + report.error->message() : "");
  }

  using Clock = std::chrono::steady_clock;
  Clock::time_point next_dot_;
};

}  // namespace

std::unique_ptr<Output> make_cuts_output(Report& report, const Machine& machine) {
  return std::make_unique<CutsOutput>(report, machine);
}

}  // namespace gigabar::tool::streams
