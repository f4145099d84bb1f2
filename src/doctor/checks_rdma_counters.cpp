// SPDX-License-Identifier: Apache-2.0
// rdma.counters: errors of the wire and of the transport, and whether they grow.
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/check.hpp"
#include "doctor/rdma_facts.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::chrono::milliseconds kBetweenReadings{200};

// Below the folder of a port. Drivers name what they count differently; those of a driver that has others are missing.
// Source: kernel, Documentation/ABI/stable/sysfs-class-infiniband, and the counters of mlx5, bnxt_re and rxe.
constexpr std::string_view kSymbolErrors = "counters/symbol_error";
constexpr std::array<std::string_view, 14> kCounters{kSymbolErrors,
                                                     "counters/link_downed",
                                                     "hw_counters/out_of_sequence",
                                                     "hw_counters/packet_seq_err",
                                                     "hw_counters/local_ack_timeout_err",
                                                     "hw_counters/rnr_nak_retry_err",
                                                     "hw_counters/out_of_buffer",
                                                     "hw_counters/to_retransmits",
                                                     "hw_counters/seq_err_naks_rcvd",
                                                     "hw_counters/max_retry_exceeded",
                                                     "hw_counters/out_of_seq_request",
                                                     "hw_counters/rcvd_seq_err",
                                                     "hw_counters/retry_exceeded_err",
                                                     "hw_counters/retry_rnr_exceeded_err"};

struct Counter {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

struct PortCounters {
  std::map<std::string_view, Counter> told;
  std::map<std::string_view, std::string> refused;  // there, but not readable or not a number, with the reason
};

std::optional<std::uint64_t> number_in(const FileText& file) { return parse_number(printable(file.content, 40), 0, UINT64_MAX); }

PortCounters read_first(const Patient& patient, const RdmaPortView& view) {
  PortCounters counters;
  for (const std::string_view name : kCounters) {
    const FileText file = patient.files.read(text(view.folder(), "/", name));
    if (file.state == FileState::missing) continue;
    const auto value = file.is_present() ? number_in(file) : std::nullopt;
    if (value) {
      counters.told[name] = {*value, *value};
    } else {
      counters.refused[name] = file.is_present() ? text("'", printable(file.content, 40), "'") : file.reason;
    }
  }
  return counters;
}

void read_again(const Patient& patient, const RdmaPortView& view, PortCounters& counters) {
  for (auto& [name, counter] : counters.told) {
    const auto value = number_in(patient.files.read(text(view.folder(), "/", name)));
    // Somebody may have cleared the counters in between: then there is no growth to speak of.
    if (value) counter.last = std::max(*value, counter.first);
  }
}

std::string_view last_part(std::string_view name) { return name.substr(name.find('/') + 1); }

std::string remedy_for(const PortCounters& counters, bool has_growth) {
  const auto is_set = [&](std::string_view name) {
    const auto found = counters.told.find(name);
    return found != counters.told.end() && found->second.last != 0;
  };
  std::vector<std::string> parts;
  if (is_set(kSymbolErrors) || is_set("counters/link_downed")) parts.emplace_back("clean, seat or change cable and transceiver");
  const bool is_starved = is_set("hw_counters/out_of_buffer") || is_set("hw_counters/rnr_nak_retry_err") ||
                          is_set("hw_counters/retry_rnr_exceeded_err");
  if (is_starved) parts.emplace_back("post more receive buffers");
  const bool is_lossy = std::ranges::any_of(counters.told, [](const auto& entry) {
    return entry.second.last != 0 && entry.first.starts_with("hw_") && entry.first.find("rnr") == std::string_view::npos &&
           entry.first != "hw_counters/out_of_buffer";
  });
  if (is_lossy) parts.emplace_back("look for lost packets: rdma.qos, rdma.mtu, and the counters of the switches");
  return (has_growth ? "" : "read them again after a transfer (gigabar doctor --only rdma.counters); if they grow: ") +
         joined(parts, "; ");
}

void tell_readings(const RdmaPortView& view, const PortCounters& counters, Findings& findings) {
  for (const auto& [name, counter] : counters.told) {
    findings.reading(text(view.folder(), "/", name),
                     counter.first == counter.last ? text(counter.first) : text(counter.first, ", then ", counter.last));
  }
  for (const auto& [name, reason] : counters.refused) findings.reading(text(view.folder(), "/", name), reason);
  if (counters.told.empty() && counters.refused.empty()) findings.reading(view.folder() + "/counters/*, hw_counters/*", "missing");
}

void judge_counters(const RdmaPortView& view, const PortCounters& counters, Findings& findings) {
  tell_readings(view, counters, findings);
  std::vector<std::string> grown, totals;
  bool do_symbols_grow = false;
  for (const auto& [name, counter] : counters.told) {
    const std::uint64_t growth = counter.last - counter.first;
    if (growth != 0) grown.push_back(text(last_part(name), " by ", growth));
    if (counter.last != 0) totals.push_back(text(last_part(name), " ", counter.last));
    do_symbols_grow |= growth != 0 && name == kSymbolErrors;
  }
  if (!grown.empty()) {
    findings.say(view.subject(), do_symbols_grow ? Verdict::fail : Verdict::warn,
                 text("errors grow right now, within ", kBetweenReadings.count(), " ms: ", list_text(grown)),
                 remedy_for(counters, true));
  } else if (!totals.empty()) {
    findings.warn(
        view.subject(),
        text("totals since the driver was loaded or the counters were cleared: ", list_text(totals), "; only their growth counts"),
        remedy_for(counters, false));
  } else if (counters.told.empty()) {
    findings.unknown(
        view.subject(),
        counters.refused.empty() ? "this driver has none of the known error counters" : "its error counters cannot be read",
        "see 'rdma statistic show' and 'ethtool -S DEVICE', as root where they refuse");
  } else if (!counters.refused.empty()) {
    findings.unknown(view.subject(), text(counters.refused.size(), " of its error counters cannot be read; the others are zero"),
                     "run as root, or see 'rdma statistic show'");
  } else {
    findings.pass(view.subject(), text("its ", counters.told.size(), " error counters are zero"));
  }
}

}  // namespace

void check_rdma_counters(const Patient& patient, Findings& findings) {
  const std::vector<RdmaPortView> ports = rdma_ports(patient, findings);
  std::vector<PortCounters> counters;
  for (const RdmaPortView& view : ports) counters.push_back(read_first(patient, view));
  if (patient.is_live && std::ranges::any_of(counters, [](const PortCounters& port) { return !port.told.empty(); })) {
    std::this_thread::sleep_for(kBetweenReadings);
    for (std::size_t i = 0; i < counters.size(); ++i) read_again(patient, ports[i], counters[i]);
  }
  for (std::size_t i = 0; i < counters.size(); ++i) judge_counters(ports[i], counters[i], findings);
}

}  // namespace gigabar::doctor
