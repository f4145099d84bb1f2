// SPDX-License-Identifier: Apache-2.0
// probe.loop: an adapter writes and reads through itself, host memory first, then the memory of each GPU. Data is compared, and the
// rates of GPU memory are held against those of host memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "doctor/facts.hpp"
#include "doctor/probes.hpp"
#include "memory/runtime.hpp"
#include "rdma/rail_order.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::int64_t kProbeNs = 20 * kSecondNs;    // all pairs together
constexpr std::int64_t kTransferNs = 3 * kSecondNs;  // one step of a pair
constexpr std::int64_t kRateNs = kSecondNs / 10;     // about the longest that a rate takes on an adapter that works
constexpr int kRateAttempts = 3;
constexpr unsigned kFewestTransfers = 16, kMaxTransfers = 256;  // of 64 KiB, for a rate
constexpr double kPoorRatio = 0.7;  // of the rate of host memory: below it something lies between GPU and adapter

struct Rates {
  double write_gb_per_s = 0, read_gb_per_s = 0;
};

// Host memory and its registration; the registration goes first.
struct HostBuffer {
  HostMemory memory;
  verbs::Region region;

  unsigned char* data() const { return static_cast<unsigned char*>(memory.address()); }
  void fill(const std::vector<unsigned char>& bytes) const { std::copy(bytes.begin(), bytes.end(), data()); }
  bool holds(const std::vector<unsigned char>& bytes) const { return std::equal(bytes.begin(), bytes.end(), data()); }
};

Result<HostBuffer> make_buffer(const verbs::Device& device, int numa_node) {
  auto memory = HostMemory::allocate(kProbeBytes, {.numa_node = numa_node, .pages = HostPages::pageable});
  if (!memory && numa_node >= 0) return make_buffer(device, -1);  // the node has no memory, or this process may not use it
  if (!memory) return memory.error();
  auto region = device.register_memory(memory->address(), kProbeBytes);
  if (!region) return region.error();
  return HostBuffer{std::move(*memory), std::move(*region)};
}

// A routable RoCE v2 address before a link-local one before what there is.
int gid_index_of(const Nic* nic, unsigned port_number) {
  if (nic == nullptr) return 0;
  const auto port = std::ranges::find(nic->ports, static_cast<int>(port_number), &RdmaPort::number);
  if (port == nic->ports.end() || port->gids.empty()) return 0;
  for (const rdma::GidReach reach : {rdma::GidReach::routed, rdma::GidReach::segment, rdma::GidReach::none}) {
    if (const GidEntry* const entry = rdma::first_gid_v2(port->gids, reach)) return entry->index;
  }
  return port->gids.front().index;
}

// Not that of all pairs: a step that is cut short would look as if the adapter had failed.
std::int64_t step_deadline() { return now_ns() + kTransferNs; }

// An adapter in the probe: its two host buffers, its port, and the rates between the buffers.
struct Adapter {
  verbs::Device device;
  unsigned port = 0;
  int gid_index = 0;
  HostBuffer first, second;
  unsigned rate_count = kMaxTransfers;  // fewer on a slow one (of software)
  Rates host;
};

std::string code_text(const ErrorRecord& record) {
  return record.native.name.empty() ? std::string(name_of(record.status)) : record.native.name;
}

void expect_done(const std::string& step, const Result<void>& done, Findings& findings) {
  if (done) return;
  const ErrorRecord& record = done.record();
  findings.reading(step, code_text(record));
  if (record.status == Status::timed_out)
    throw fail(text(step, " did not complete in time: ", printable(record.cause)),
               "look at the kernel's log (dmesg) for the adapter; check ACS and IOMMU ('gigabar explain pci.acs')");
  constexpr int kRetryExceeded = 12, kRemoteAccess = 10, kLocalProtection = 4;
  const auto code = record.native.domain == NativeDomain::none ? record.native.code : 0;
  std::string remedy = "look at the kernel's log (dmesg) for the adapter and for IOMMU faults";
  if (code == kRetryExceeded) remedy = "check the GID and the MTU ('gigabar explain rdma.gid', 'gigabar explain rdma.mtu')";
  if (code == kRemoteAccess || code == kLocalProtection)
    remedy =
        "the adapter could not reach the memory: check IOMMU and ACS ('gigabar explain iommu.mode', 'gigabar explain pci.acs')";
  throw fail(text(step, " failed: ", printable(record.cause)), remedy);
}

constexpr const char* kWrongDataRemedy =
    "do not use this path: check ACS redirection, the IOMMU's mode and relaxed ordering, in this order ('gigabar explain pci.acs', "
    "'gigabar explain iommu.mode', 'gigabar explain pci.ro')";

// What is written and read, as findings name it.
struct Steps {
  const char* write;
  const char* read;
};
constexpr Steps kHostSteps{"the write of host memory", "the read of host memory"};
constexpr Steps kGpuSteps{"the write into GPU memory", "the read from GPU memory"};

// Transfers between a buffer of the adapter and other memory that is registered with it.
struct Transfers {
  const Steps& steps;
  verbs::Loop& loop;
  const verbs::Region& region;
  Findings& findings;

  void write(const HostBuffer& from, unsigned count = 1) const {
    expect_done(steps.write, loop.write(from.region, region, kProbeBytes, count, step_deadline()), findings);
  }
  void read(const HostBuffer& into, unsigned count = 1) const {
    expect_done(steps.read, loop.read(into.region, region, kProbeBytes, count, step_deadline()), findings);
  }

  // The best rate of several times `count` transfers, since whatever else the machine does can only make them slower.
  using Transfer = void (Transfers::*)(const HostBuffer&, unsigned) const;
  double rate(Transfer transfer, const HostBuffer& buffer, unsigned count) const {
    std::int64_t least_ns = std::numeric_limits<std::int64_t>::max();
    for (int attempt = 0; attempt < kRateAttempts; ++attempt) {
      const std::int64_t begin_ns = now_ns();
      (this->*transfer)(buffer, count);
      least_ns = std::min(least_ns, std::max<std::int64_t>(now_ns() - begin_ns, 1));
    }
    return static_cast<double>(kProbeBytes) * count / static_cast<double>(least_ns);
  }
};

// ---- host memory

void expect_intact_host_data(const Adapter& adapter, const Transfers& transfers) {
  const auto sent = probe_pattern(kProbeBytes, 11);
  adapter.first.fill(sent);
  transfers.write(adapter.first);
  const bool is_written = adapter.second.holds(sent);
  adapter.first.fill(probe_pattern(kProbeBytes, 12));
  transfers.read(adapter.first);
  if (!is_written || !adapter.first.holds(sent))
    throw fail(text("64 KiB of host memory that it ", is_written ? "read" : "wrote", " arrived changed"), kWrongDataRemedy);
}

Ruling measure_host(Adapter& adapter, Findings& findings) {
  auto loop = verbs::Loop::connect(adapter.device, adapter.port, adapter.gid_index);
  if (!loop) {
    const ErrorRecord& record = loop.error().record();
    findings.reading(record.operation, code_text(record));
    throw fail(text("it cannot be connected with itself: ", printable(record.cause)),
               "check its port and its GIDs ('gigabar explain rdma.port', 'gigabar explain rdma.gid')");
  }
  const Transfers transfers{kHostSteps, *loop, adapter.second.region, findings};
  const std::int64_t begin_ns = now_ns();
  expect_intact_host_data(adapter, transfers);
  const std::int64_t transfer_ns = std::max<std::int64_t>((now_ns() - begin_ns) / 2, 1);
  adapter.rate_count = static_cast<unsigned>(std::clamp<std::int64_t>(kRateNs / transfer_ns, kFewestTransfers, kMaxTransfers));
  adapter.host.write_gb_per_s = transfers.rate(&Transfers::write, adapter.first, adapter.rate_count);
  adapter.host.read_gb_per_s = transfers.rate(&Transfers::read, adapter.first, adapter.rate_count);
  return pass("64 KiB of host memory are written and read through it unchanged, at ", short_number(adapter.host.write_gb_per_s),
              " and ", short_number(adapter.host.read_gb_per_s), " GB/s");
}

unsigned active_port(const verbs::Device& device) {
  for (unsigned number = 1; number <= device.port_count(); ++number) {
    if (const auto port = device.port(number); port && port->is_active) return number;
  }
  return 0;
}

Adapter open_adapter(const Patient& patient, const std::string& name) {
  auto device = verbs::Device::open(name);
  if (!device)
    throw unknown(text("it could not be opened, so nothing was tried: ", printable(device.error().record().cause)),
                  "see what rdma.dev says of it ('gigabar explain rdma.dev')");
  const unsigned port = active_port(*device);
  if (port == 0)
    throw unknown("none of its ports is active, so nothing was tried",
                  "see what rdma.port says of it ('gigabar explain rdma.port')");
  const Nic* const nic = nic_of(patient, name);
  const int numa_node = nic != nullptr ? nic->numa_node : -1;
  auto first = make_buffer(*device, numa_node);
  auto second = make_buffer(*device, numa_node);
  if (!first || !second) {
    const Ruling why = explain(patient, meaning_for_host_memory, first ? second.error().record() : first.error().record());
    throw unknown(text("nothing was tried: ", why.statement), why.remedy);
  }
  const int gid_index = gid_index_of(nic, port);
  return {std::move(*device), port, gid_index, std::move(*first), std::move(*second), kMaxTransfers, {}};
}

// ---- GPU memory

// Write into the GPU, read it back, which also pushes the write ahead of it to the memory, and look at what the GPU itself holds.
void expect_intact_gpu_data(const ProbeGpu& gpu, const ProbeMemory& memory, const Adapter& adapter, const Transfers& transfers) {
  const auto sent = probe_pattern(kProbeBytes, 21);
  std::vector<unsigned char> held(kProbeBytes);
  adapter.first.fill(sent);
  adapter.second.fill(probe_pattern(kProbeBytes, 22));
  transfers.write(adapter.first);
  transfers.read(adapter.second);
  expect_done("the GPU's copy engine", engine_copy_from(gpu.device, held.data(), memory.address(), kProbeBytes),
              transfers.findings);
  if (held != sent) throw fail("64 KiB that the adapter wrote into GPU memory arrived changed", kWrongDataRemedy);
  if (!adapter.second.holds(sent)) throw fail("64 KiB that the adapter read from GPU memory arrived changed", kWrongDataRemedy);
}

// Whether no adapter with RDMA is nearer to the GPU than this one.
bool is_nearest(const Patient& patient, const ProbeGpu& gpu, const std::string& name) {
  const int nic = patient.topology.find_nic(name);
  if (gpu.index < 0 || nic < 0) return true;
  const std::vector<int> order = nearest_nics(patient.topology, gpu.index);
  if (order.empty()) return true;
  const Endpoint from{Endpoint::Kind::gpu, gpu.index};
  return route_between(patient.topology, from, {Endpoint::Kind::nic, nic}).relation <=
         route_between(patient.topology, from, {Endpoint::Kind::nic, order.front()}).relation;
}

std::string percent(double part, double whole) { return text(std::lround(100 * part / whole), " %"); }

Ruling judge_rates(const Patient& patient, const ProbeGpu& gpu, const Adapter& adapter, const Rates& rates, Findings& findings) {
  const auto note = [&](const char* what, double rate, double host_rate) {
    findings.reading(what, text(short_number(rate), " GB/s, ", percent(rate, host_rate), " of host memory's"));
  };
  note("write into GPU memory", rates.write_gb_per_s, adapter.host.write_gb_per_s);
  note("read from GPU memory", rates.read_gb_per_s, adapter.host.read_gb_per_s);
  const std::string rates_text =
      text(short_number(rates.write_gb_per_s), " GB/s into and ", short_number(rates.read_gb_per_s), " GB/s out of GPU memory");
  const bool is_write_poor = rates.write_gb_per_s < kPoorRatio * adapter.host.write_gb_per_s;
  const bool is_read_poor = rates.read_gb_per_s < kPoorRatio * adapter.host.read_gb_per_s;
  if (!is_write_poor && !is_read_poor) return pass("data arrive unchanged, at ", rates_text);
  if (!is_nearest(patient, gpu, adapter.device.name()))
    return pass("data arrive unchanged, at ", rates_text, "; slower than host memory, as far as they are apart");
  return warn(text("data arrive unchanged, at ", rates_text, ": ",
                   is_write_poor && is_read_poor ? "both are" : (is_write_poor ? "the way in is" : "the way out is"),
                   " below 0.7 of host memory's rate"),
              "see pci.topo, pci.acs, iommu.mode and pci.ro of this pair; an adapter below the GPU's own PCIe switch is best");
}

Ruling try_pair(const Patient& patient, const ProbeGpu& gpu, const ProbeMemory& memory, const Adapter& adapter,
                Findings& findings) {
  auto region = memory.register_dma_buf(adapter.device);
  const bool is_dma_buf = region.is_ok();
  if (!is_dma_buf) region = memory.register_peer_memory(adapter.device);
  if (!region)
    return unknown("GPU memory cannot be registered, so no transfer was tried",
                   "see what probe.dmabuf and probe.peermem say of this pair");
  findings.reading("GPU memory registered by", is_dma_buf ? "dma-buf" : "peer memory");
  auto loop = verbs::Loop::connect(adapter.device, adapter.port, adapter.gid_index);
  if (!loop) expect_done("connecting the adapter with itself", loop.error(), findings);
  const Transfers transfers{kGpuSteps, *loop, *region, findings};
  expect_intact_gpu_data(gpu, memory, adapter, transfers);
  const double write = transfers.rate(&Transfers::write, adapter.first, adapter.rate_count);
  const double read = transfers.rate(&Transfers::read, adapter.second, adapter.rate_count);
  return judge_rates(patient, gpu, adapter, {write, read}, findings);
}

MaybeRuling try_gpu(const Patient& patient, const ProbeGpu& gpu, const std::vector<Adapter>& adapters, std::int64_t end_ns,
                    Findings& findings) {
  const ProbeMemory memory = ProbeMemory::allocate(gpu);
  for (const Adapter& adapter : adapters) {
    const Nic* const nic = nic_of(patient, adapter.device.name());
    if (nic != nullptr && is_software(*nic)) continue;  // it copies by the CPU
    findings.say_what(pair_subject(gpu, adapter.device.name()), [&] {
      return now_ns() < end_ns ? try_pair(patient, gpu, memory, adapter, findings)
                               : unknown(std::string(kPairLeftOut), "run this probe alone: gigabar doctor --only probe.loop");
    });
  }
  return {};
}

// What keeps an adapter from being connected with itself; nothing: it can be.
MaybeRuling hindrance_of(const std::string& name) {
  const auto device = verbs::Device::open(name);
  if (!device || device->transport() == verbs::Transport::infiniband) return {};
  if (device->transport() == verbs::Transport::iwarp)
    return unknown("it is iWARP, which connects by the RDMA connection manager (rdma_cm) only",
                   "between two hosts: rping -s there, rping -c -a ADDRESS -v -C 10 here");
  return unknown("it has no RC queue pairs (EFA and usNIC have none)",
                 "'gigabar explain rdma.port' tells what can be used instead");
}

}  // namespace

MaybeRuling try_loop(const Patient& patient, Findings& findings) {
  const std::int64_t end_ns = std::min(now_ns() + kProbeNs, patient.end_ns);
  std::vector<std::string> own_connectors;
  std::vector<std::pair<std::string, Ruling>> others;
  for (const std::string& name : probe_rdma_devices(patient, findings)) {
    if (MaybeRuling hindrance = hindrance_of(name)) {
      others.emplace_back(name, std::move(*hindrance));
    } else {
      own_connectors.push_back(name);
    }
  }
  if (own_connectors.empty()) return skip("no RDMA device here can be connected with itself: ", others.front().second.statement);
  for (const auto& [name, hindrance] : others)
    findings.say(printable(name, 64), unknown("not tried: " + hindrance.statement, hindrance.remedy));
  std::vector<Adapter> adapters;
  for (const std::string& name : own_connectors) {
    findings.say_what(name, [&] {
      Adapter adapter = open_adapter(patient, name);
      Ruling ruling = measure_host(adapter, findings);
      adapters.push_back(std::move(adapter));
      return ruling;
    });
  }
  if (adapters.empty()) return {};
  Findings unheard("probe.loop");  // host memory has told already: a machine without GPUs has nothing to add
  unheard.say_what({}, [&]() -> MaybeRuling {
    for (const ProbeGpu& gpu : probe_gpus(patient, unheard))
      findings.say_what(gpu.subject(), [&] { return try_gpu(patient, gpu, adapters, end_ns, findings); });
    return {};
  });
  return {};
}

}  // namespace gigabar::doctor
