// SPDX-License-Identifier: Apache-2.0
// The drivers' answers as JSON. An archive comes from elsewhere: it is read with a bound on everything, and keys that this version
// does not know are left aside, so that newer archives can be read.
#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/errors.hpp"
#include "platform/driver_answers.hpp"

namespace gigabar {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxEntries = 4096;
constexpr std::size_t kMaxTextBytes = 4096;

// ---- writing ----

bool is_ascii(const std::string& text) {
  return text.find_first_of('\0') == std::string::npos &&
         std::all_of(text.begin(), text.end(), [](char letter) { return static_cast<unsigned char>(letter) < 0x80; });
}

// What a library says may be of any encoding and length; the document is UTF-8 and bounded.
Json text_json(const std::string& text) {
  if (text.size() <= kMaxTextBytes && is_ascii(text)) return text;
  // A replaced byte becomes three.
  const Json cut = text.substr(0, kMaxTextBytes / 3);
  return Json::parse(cut.dump(-1, ' ', false, Json::error_handler_t::replace));
}

template <class Value>
void put(Json& object, const char* key, const std::optional<Value>& value) {
  if (value) object[key] = *value;
}

void put(Json& object, const char* key, const std::optional<std::string>& value) {
  if (value) object[key] = text_json(*value);
}

void put(Json& object, const char* key, const std::string& value) {
  if (!value.empty()) object[key] = text_json(value);
}

Json json_of(const Availability& availability) {
  return {{"code", std::string(name_of(availability.code))},
          {"reason", text_json(availability.reason)},
          {"remedy", text_json(availability.remedy)}};
}

Json json_of(const nvml::NvLink& link) {
  Json object = {{"is_active", link.is_active}, {"is_switch", link.is_switch}, {"mb_per_s", link.mb_per_s}};
  put(object, "remote_pci", link.remote_pci);
  return object;
}

Json json_of(const GpuAnswers& gpu) {
  Json object = Json::object();
  put(object, "pci", gpu.pci);
  put(object, "uuid", gpu.uuid);
  put(object, "name", gpu.name);
  put(object, "cuda_index", gpu.cuda_index);
  object["cuda_attributes"] = gpu.cuda_attributes;
  put(object, "is_mig_enabled", gpu.is_mig_enabled);
  put(object, "is_persistence_enabled", gpu.is_persistence_enabled);
  put(object, "bar1_total_bytes", gpu.bar1_total_bytes);
  put(object, "bar1_used_bytes", gpu.bar1_used_bytes);
  put(object, "pcie_generation", gpu.pcie_generation);
  put(object, "pcie_width", gpu.pcie_width);
  put(object, "pcie_most_generation", gpu.pcie_most_generation);
  put(object, "pcie_most_width", gpu.pcie_most_width);
  if (gpu.nvlinks) {
    Json links = Json::array();
    for (const nvml::NvLink& link : *gpu.nvlinks) links.push_back(json_of(link));
    object["nvlinks"] = std::move(links);
  }
  put(object, "c2c_links", gpu.c2c_links);
  put(object, "fabric_state", gpu.fabric_state);
  put(object, "clocks_event_reasons", gpu.clocks_event_reasons);
  put(object, "is_row_remap_pending", gpu.is_row_remap_pending);
  put(object, "has_row_remap_failed", gpu.has_row_remap_failed);
  put(object, "is_page_retirement_pending", gpu.is_page_retirement_pending);
  return object;
}

Json json_of(const PeerAnswers& pair) {
  Json object = Json::object();
  put(object, "from", pair.from);
  put(object, "to", pair.to);
  put(object, "can_access", pair.can_access);
  put(object, "read", pair.read);
  put(object, "write", pair.write);
  put(object, "atomics", pair.atomics);
  return object;
}

Json json_of(const RdmaDeviceAnswers& device) {
  Json object = Json::object();
  put(object, "name", device.name);
  put(object, "error", device.error);
  object["active_mtu"] = device.active_mtu;
  return object;
}

template <class Value>
Json array_of(const std::vector<Value>& values) {
  Json array = Json::array();
  for (const Value& value : values) array.push_back(json_of(value));
  return array;
}

// ---- reading ----

// What is wrong, and where: "gpus[3].pcie_width: is not a whole number from 0 to 4294967295".
struct Problem {
  std::string text;
};

[[noreturn]] void refuse(const std::string& place, const std::string& cause) { throw Problem{place + ": " + cause}; }

// A part of the document and where it stands.
class Place {
 public:
  Place(const Json& value, std::string name) : value_(&value), name_(std::move(name)) {}

  // The member of that key; nothing when it is absent.
  std::optional<Place> member(const char* key) const {
    if (!value_->is_object()) refuse(name_, "is not an object");
    const auto found = value_->find(key);
    if (found == value_->end()) return {};
    return Place(*found, name_.empty() ? key : text(name_, ".", key));
  }

  std::vector<Place> entries() const {
    if (!value_->is_array()) refuse(name_, "is not an array");
    expect_bounded();
    std::vector<Place> all;
    for (std::size_t i = 0; i < value_->size(); ++i) all.emplace_back((*value_)[i], text(name_, "[", i, "]"));
    return all;
  }

  std::vector<std::pair<std::string, Place>> members() const {
    if (!value_->is_object()) refuse(name_, "is not an object");
    expect_bounded();
    std::vector<std::pair<std::string, Place>> all;
    for (const auto& item : value_->items()) {
      if (item.key().size() > kMaxTextBytes) refuse(name_, text("has a name longer than ", kMaxTextBytes, " bytes"));
      all.emplace_back(item.key(), Place(item.value(), text(name_, ".", item.key().substr(0, 64))));
    }
    return all;
  }

  void read(bool& to) const {
    if (!value_->is_boolean()) refuse(name_, "is neither true nor false");
    to = value_->get<bool>();
  }

  void read(std::string& to) const {
    if (!value_->is_string()) refuse(name_, "is not a text");
    const auto& content = value_->get_ref<const std::string&>();
    if (content.size() > kMaxTextBytes) refuse(name_, text("is longer than ", kMaxTextBytes, " bytes"));
    to = content;
  }

  void read(std::uint64_t& to) const { to = number(std::numeric_limits<std::uint64_t>::max()); }
  void read(unsigned& to) const { to = static_cast<unsigned>(number(std::numeric_limits<unsigned>::max())); }

  void read(int& to) const {
    const bool is_within = value_->is_number_integer() &&
                           (value_->is_number_unsigned() ? value_->get<std::uint64_t>() <= kMaxInt
                                                         : value_->get<std::int64_t>() >= std::numeric_limits<int>::min());
    if (!is_within) refuse(name_, "is not a whole number of 32 bits");
    to = value_->get<int>();
  }

  void read(Availability& to) const;
  void read(nvml::NvLink& to) const;
  void read(GpuAnswers& to) const;
  void read(PeerAnswers& to) const;
  void read(RdmaDeviceAnswers& to) const;

  template <class Value>
  void read(std::vector<Value>& to) const {
    for (const Place& entry : entries()) {
      Value value{};
      entry.read(value);
      to.push_back(std::move(value));
    }
  }

  // The member of that key, left as it is when absent.
  template <class Value>
  void take(const char* key, Value& to) const {
    if (const auto found = member(key)) found->read(to);
  }

  template <class Value>
  void take(const char* key, std::optional<Value>& to) const {
    if (const auto found = member(key)) {
      Value value{};
      found->read(value);
      to = std::move(value);
    }
  }

  template <class Value>
  void expect(const char* key, Value& to) const {
    const auto found = member(key);
    if (!found) refuse(name_.empty() ? "the answers" : name_, text("has no \"", key, "\""));
    found->read(to);
    // A thing without a name could not be told from another, nor be written again.
    if constexpr (std::is_same_v<Value, std::string>) {
      if (to.empty()) refuse(found->name_, "is empty");
    }
  }

 private:
  static constexpr std::uint64_t kMaxInt = std::numeric_limits<int>::max();

  void expect_bounded() const {
    if (value_->size() > kMaxEntries) refuse(name_, text("has more than ", kMaxEntries, " entries"));
  }

  std::uint64_t number(std::uint64_t most) const {
    const bool is_whole = value_->is_number_unsigned() || (value_->is_number_integer() && value_->get<std::int64_t>() >= 0);
    if (!is_whole || value_->get<std::uint64_t>() > most) refuse(name_, text("is not a whole number from 0 to ", most));
    return value_->get<std::uint64_t>();
  }

  const Json* value_;
  std::string name_;
};

std::optional<AvailabilityCode> availability_code_of(std::string_view name) {
  for (const AvailabilityCode code :
       {AvailabilityCode::ok, AvailabilityCode::disabled, AvailabilityCode::not_built, AvailabilityCode::library_missing,
        AvailabilityCode::entry_point_missing, AvailabilityCode::symbol_missing, AvailabilityCode::driver_too_old,
        AvailabilityCode::driver_unknown, AvailabilityCode::no_device, AvailabilityCode::no_permission,
        AvailabilityCode::not_supported}) {
    if (name == name_of(code)) return code;
  }
  return {};
}

void Place::read(Availability& to) const {
  std::string name;
  expect("code", name);
  const auto code = availability_code_of(name);
  if (!code) refuse(name_ + ".code", "is no code of availability");
  to = {};
  to.code = *code;
  take("reason", to.reason);
  take("remedy", to.remedy);
}

void Place::read(nvml::NvLink& to) const {
  take("is_active", to.is_active);
  take("is_switch", to.is_switch);
  take("remote_pci", to.remote_pci);
  take("mb_per_s", to.mb_per_s);
}

void Place::read(GpuAnswers& to) const {
  expect("pci", to.pci);
  take("uuid", to.uuid);
  take("name", to.name);
  take("cuda_index", to.cuda_index);
  if (const auto attributes = member("cuda_attributes")) {
    for (const auto& [key, value] : attributes->members()) value.read(to.cuda_attributes[key]);
  }
  take("is_mig_enabled", to.is_mig_enabled);
  take("is_persistence_enabled", to.is_persistence_enabled);
  take("bar1_total_bytes", to.bar1_total_bytes);
  take("bar1_used_bytes", to.bar1_used_bytes);
  take("pcie_generation", to.pcie_generation);
  take("pcie_width", to.pcie_width);
  take("pcie_most_generation", to.pcie_most_generation);
  take("pcie_most_width", to.pcie_most_width);
  take("nvlinks", to.nvlinks);
  take("c2c_links", to.c2c_links);
  take("fabric_state", to.fabric_state);
  take("clocks_event_reasons", to.clocks_event_reasons);
  take("is_row_remap_pending", to.is_row_remap_pending);
  take("has_row_remap_failed", to.has_row_remap_failed);
  take("is_page_retirement_pending", to.is_page_retirement_pending);
}

void Place::read(PeerAnswers& to) const {
  expect("from", to.from);
  expect("to", to.to);
  take("can_access", to.can_access);
  take("read", to.read);
  take("write", to.write);
  take("atomics", to.atomics);
}

void Place::read(RdmaDeviceAnswers& to) const {
  expect("name", to.name);
  take("error", to.error);
  take("active_mtu", to.active_mtu);
}

constexpr const char* kNotAsked = "no answer was captured";

}  // namespace

Availability not_asked() {
  return {AvailabilityCode::driver_unknown, kNotAsked, "capture the machine with 'gigabar topology --capture'", {}};
}

bool is_not_asked(const Availability& availability) {
  return availability.code == AvailabilityCode::driver_unknown && availability.reason == kNotAsked;
}

nlohmann::json to_json(const DriverAnswers& answers) {
  Json document = Json::object();
  document["cuda"] = json_of(answers.cuda);
  document["nvml"] = json_of(answers.nvml);
  document["verbs"] = json_of(answers.verbs);
  put(document, "cuda_version", answers.cuda_version);
  put(document, "driver_version", answers.driver_version);
  put(document, "verbs_has_dmabuf", answers.verbs_has_dmabuf);
  document["gpus"] = array_of(answers.gpus);
  document["peers"] = array_of(answers.peers);
  document["rdma_devices"] = array_of(answers.rdma_devices);
  if (answers.kernel_log) {
    Json lines = Json::array();
    for (const std::string& line : *answers.kernel_log) lines.push_back(text_json(line));
    document["kernel_log"] = std::move(lines);
  }
  put(document, "can_lock_memory", answers.can_lock_memory);
  put(document, "memlock_bytes", answers.memlock_bytes);
  put(document, "allowed_cpus", answers.allowed_cpus);
  return document;
}

Result<DriverAnswers> driver_answers_of(const nlohmann::json& document) {
  DriverAnswers answers;
  try {
    const Place all(document, "");
    if (!document.is_object()) refuse("the answers", "are not an object");
    for (Availability* library : {&answers.cuda, &answers.nvml, &answers.verbs}) *library = not_asked();
    all.take("cuda", answers.cuda);
    all.take("nvml", answers.nvml);
    all.take("verbs", answers.verbs);
    all.take("cuda_version", answers.cuda_version);
    all.take("driver_version", answers.driver_version);
    all.take("verbs_has_dmabuf", answers.verbs_has_dmabuf);
    all.take("gpus", answers.gpus);
    all.take("peers", answers.peers);
    all.take("rdma_devices", answers.rdma_devices);
    all.take("kernel_log", answers.kernel_log);
    all.take("can_lock_memory", answers.can_lock_memory);
    all.take("memlock_bytes", answers.memlock_bytes);
    all.take("allowed_cpus", answers.allowed_cpus);
  } catch (const Problem& problem) {
    return make_error(Status::bad_file, "read the drivers' answers", "archive", problem.text, "capture the machine again");
  }
  return answers;
}

}  // namespace gigabar
