// SPDX-License-Identifier: Apache-2.0
// A node of GPUs as `gigabar preflight` measures it, with faults to plant: what its streams report, and how it is judged.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "preflight/preflight.hpp"

namespace gigabar::tool::preflight::test {

class Node {
 public:
  explicit Node(int gpu_count, std::uint64_t seed = 1) : random_(seed) {
    for (int i = 0; i < gpu_count; ++i) {
      DeviceInfo device;
      device.index = i;
      device.pci = PciAddress::parse(address_of(i));
      devices.push_back(device);
      Gpu gpu;
      gpu.address = *device.pci;
      gpu.nvlinks_active = gpu.nvlinks_total = 18;
      examination.topology.gpus.push_back(gpu);
    }
    for (const CheckInfo& check : checks()) find(std::string(check.id), "", Verdict::pass);
  }

  static std::string address_of(int gpu) { return fmt::format("0000:{:02x}:00.0", 0x10 + gpu); }

  void find(std::string check, std::string subject, Verdict verdict, std::string statement = "a statement",
            std::string remedy = "a remedy") {
    examination.findings.push_back({std::move(check), std::move(subject), verdict, std::move(statement), {}, std::move(remedy)});
  }
  // A path that carries `share` of its healthy rate.
  void slow_down(int source, int destination, double share) { shares[{source, destination}] = share; }
  void break_path(int source, int destination, Status status) { errors[{source, destination}] = status; }

  Result<StreamReport> run(const StreamPlan& plan) {
    StreamReport report;
    for (const Transfer& transfer : plan.transfers) {
      const std::pair ends{transfer.source.device, transfer.destination.device};
      const auto error = errors.find(ends);
      if (error != errors.end() && error->second == Status::out_of_memory) return failure(error->second);
      report.transfers.push_back(report_of(transfer, plan.transfers.size()));
      if (error != errors.end()) {
        report.transfers.back().error = failure(error->second).record();
        report.transfers.back().is_verified = false;
      }
    }
    return report;
  }

  Judgement judge() {
    int begun = 0;
    paths = measure_paths({.devices = devices,
                           .criteria = criteria,
                           .time = {[&] { return static_cast<double>(begun); }, 1000},
                           .tell = [](const std::string&) {},
                           .run =
                               [&](const StreamPlan& plan) {
                                 begun += plan_cost;
                                 ++run_count;
                                 return run(plan);
                               },
                           .load_of = [&](const Path& path) { return loads[{path.source, path.destination}]; }});
    Evidence evidence{examination, available, criteria, paths};
    evidence.device_count = devices.size();
    evidence.ignored = ignored;
    evidence.is_strict = is_strict;
    return preflight::judge(evidence);
  }

  using Ends = std::pair<int, int>;
  std::vector<DeviceInfo> devices;
  Examination examination;
  Criteria criteria;
  std::vector<PathReport> available;
  std::vector<std::string> ignored;
  bool is_strict = false;
  double shared_uplink = 1;  // what a path to the host keeps while others run
  bool are_links_known = true;
  int plan_cost = 0;  // of the 1000 units of time
  int run_count = 0;
  std::map<Ends, double> shares;
  std::map<Ends, Status> errors;
  std::map<Ends, std::string> loads;
  std::vector<Path> paths;

 private:
  static Error failure(Status status) {
    ErrorRecord record;
    record.status = status;
    record.operation = "run streams";
    record.cause = status == Status::verification_failed ? "the destination is wrong at byte 4096"
                                                         : fmt::format("planted {}", gigabar::name_of(status));
    return Error(std::move(record));
  }

  TransferReport report_of(const Transfer& transfer, std::size_t beside_count) {
    TransferReport told;
    told.transfer = transfer;
    const bool is_peer = !transfer.source.is_host() && !transfer.destination.is_host();
    if (are_links_known) {
      told.link = is_peer ? StreamLink{"NVLink 18 x 26.6 GB/s", 478.1, ""} : StreamLink{"PCIe 5.0 x16", 63.0, ""};
    } else {
      told.link.reason = "no file tells it";
    }
    // What two H200 show, with more noise than they have.
    std::uniform_real_distribution<double> healthy(is_peer ? 0.75 : 0.78, is_peer ? 0.85 : 0.90);
    const auto found = shares.find({transfer.source.device, transfer.destination.device});
    double rate = (is_peer ? 478.1 : 63.0) * healthy(random_) * (found == shares.end() ? 1 : found->second);
    if (!is_peer && beside_count > 1) rate *= shared_uplink;
    told.life_gb_per_s = {rate, rate * 0.99, rate * 1.01, {rate * 0.99, rate * 1.01}};
    told.is_verified = true;
    told.path = "copy engine";
    return told;
  }

  std::mt19937_64 random_;
};

}  // namespace gigabar::tool::preflight::test
