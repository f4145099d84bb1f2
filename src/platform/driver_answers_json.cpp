// SPDX-License-Identifier: Apache-2.0
// The drivers' answers as JSON. An archive comes from elsewhere, perhaps from a newer Gigabar: keys that this one does not know are
// left aside.
#include "base/errors.hpp"
#include "base/json.hpp"
#include "platform/driver_answers.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr json::Limits kLimits{
    .whole = "the answers", .is_exact = false, .depth = 16, .values = std::size_t{1} << 20, .entries = 4096, .text_bytes = 4096};

constexpr const char* kNotAsked = "no answer was captured";

}  // namespace

template <>
struct json::Fields<Availability> {
  static void each(auto& field, auto& availability) {
    using enum AvailabilityCode;
    field.needed("code", availability.code,
                 OneOf{std::array{ok, disabled, not_built, library_missing, entry_point_missing, symbol_missing, driver_too_old,
                                  driver_unknown, no_device, no_permission, not_supported}});
    field("reason", availability.reason);
    field("remedy", availability.remedy);
  }
};

template <>
struct json::Fields<nvml::NvLink> {
  static void each(auto& field, auto& link) {
    field("is_active", link.is_active);
    field("is_switch", link.is_switch);
    field("remote_pci", link.remote_pci);
    field("mb_per_s", link.mb_per_s);
  }
};

template <>
struct json::Fields<GpuAnswers> {
  static void each(auto& field, auto& gpu) {
    field.needed("pci", gpu.pci);
    field("uuid", gpu.uuid);
    field("name", gpu.name);
    field("cuda_index", gpu.cuda_index);
    field("cuda_attributes", gpu.cuda_attributes);
    field("is_mig_enabled", gpu.is_mig_enabled);
    field("is_persistence_enabled", gpu.is_persistence_enabled);
    field("bar1_total_bytes", gpu.bar1_total_bytes);
    field("bar1_used_bytes", gpu.bar1_used_bytes);
    field("pcie_generation", gpu.pcie_generation);
    field("pcie_width", gpu.pcie_width);
    field("pcie_most_generation", gpu.pcie_most_generation);
    field("pcie_most_width", gpu.pcie_most_width);
    field("nvlinks", gpu.nvlinks);
    field("c2c_links", gpu.c2c_links);
    field("fabric_state", gpu.fabric_state);
    field("clocks_event_reasons", gpu.clocks_event_reasons);
    field("is_row_remap_pending", gpu.is_row_remap_pending);
    field("has_row_remap_failed", gpu.has_row_remap_failed);
    field("is_page_retirement_pending", gpu.is_page_retirement_pending);
  }
};

template <>
struct json::Fields<PeerAnswers> {
  static void each(auto& field, auto& pair) {
    field.needed("from", pair.from);
    field.needed("to", pair.to);
    field("can_access", pair.can_access);
    field("read", pair.read);
    field("write", pair.write);
    field("atomics", pair.atomics);
  }
};

template <>
struct json::Fields<RdmaDeviceAnswers> {
  static void each(auto& field, auto& device) {
    field.needed("name", device.name);
    field("error", device.error);
    field("active_mtu", device.active_mtu);
  }
};

template <>
struct json::Fields<DriverAnswers> {
  static void each(auto& field, auto& answers) {
    field("cuda", answers.cuda);
    field("nvml", answers.nvml);
    field("verbs", answers.verbs);
    field("cuda_version", answers.cuda_version);
    field("driver_version", answers.driver_version);
    field("verbs_has_dmabuf", answers.verbs_has_dmabuf);
    field("gpus", answers.gpus);
    field("peers", answers.peers);
    field("rdma_devices", answers.rdma_devices);
    field("kernel_log", answers.kernel_log);
    field("can_lock_memory", answers.can_lock_memory);
    field("memlock_bytes", answers.memlock_bytes);
    field("allowed_cpus", answers.allowed_cpus);
  }
};

Availability not_asked() {
  return {AvailabilityCode::driver_unknown, kNotAsked, "capture the machine with 'gigabar topology --capture'", {}};
}

bool is_not_asked(const Availability& availability) {
  return availability.code == AvailabilityCode::driver_unknown && availability.reason == kNotAsked;
}

DriverAnswers no_answers() {
  DriverAnswers answers;
  answers.cuda = answers.nvml = answers.verbs = not_asked();
  return answers;
}

std::string to_json(const DriverAnswers& answers) { return json::to_text(answers, kLimits); }

DriverAnswers read_answers(const json::Value& from) {
  DriverAnswers answers = no_answers();
  json::read(from.within(kLimits), answers);
  return answers;
}

Result<DriverAnswers> driver_answers_of(std::string_view content) {
  try {
    DriverAnswers answers;
    json::parse(content, kLimits, [&](const json::Value& document) { answers = read_answers(document); });
    return answers;
  } catch (const json::Problem& problem) {
    return make_error(Status::bad_file, "read the drivers' answers", "archive", problem.text(), "capture the machine again");
  }
}

}  // namespace gigabar::inline v0
