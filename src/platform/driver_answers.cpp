// SPDX-License-Identifier: Apache-2.0
// What the libraries and the kernel of a machine say: asked, written as JSON and read.
#include "platform/driver_answers.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/hexadecimal.hpp"
#include "base/json.hpp"
#include "base/options.hpp"
#include "driver/cuda/cuda.hpp"
#include "driver/nvml/nvml.hpp"
#include "driver/verbs/verbs.hpp"
#include "platform/nvidia.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr json::Limits kLimits{
    .whole = "the answers", .is_exact = false, .depth = 16, .values = std::size_t{1} << 20, .entries = 4096, .text_bytes = 4096};

constexpr const char* kNotAsked = "no answer was captured";
constexpr unsigned kMaxPorts = 255;  // a port's number has eight bits
constexpr std::size_t kMaxLogBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxLogLines = 4096;  // of those that are kept, the newest
constexpr std::size_t kMaxLineBytes = 1024;
constexpr int kMaxLostRecords = 1000;  // records that the kernel overwrote while they were read

// ---- GPUs ----

GpuAnswers& gpu_at(DriverAnswers& answers, const std::string& pci) {
  const auto known = std::ranges::find(answers.gpus, pci, &GpuAnswers::pci);
  if (known != answers.gpus.end()) return *known;
  GpuAnswers& gpu = answers.gpus.emplace_back();
  gpu.pci = pci;
  return gpu;
}

void ask_nvml_of(GpuAnswers& gpu) {
  std::string name = std::move(gpu.name), uuid = std::move(gpu.uuid);
  static_cast<nvml::DeviceFacts&>(gpu) = nvml::facts(gpu.pci);
  if (!name.empty()) gpu.name = std::move(name);  // CUDA's
  if (!uuid.empty()) gpu.uuid = std::move(uuid);
  if (const auto bar1 = nvml::bar1(gpu.pci)) {
    gpu.bar1_total_bytes = bar1->total_bytes;
    gpu.bar1_used_bytes = bar1->used_bytes;
  }
  if (const auto link = nvml::pcie_link(gpu.pci)) {
    gpu.pcie_generation = link->generation;
    gpu.pcie_width = link->width;
  }
  gpu.nvlinks = nvml::nvlinks(gpu.pci);
  if (const auto c2c = nvml::c2c_links(gpu.pci)) gpu.c2c_links = c2c->active_count;
}

#if GIGABAR_HAS_CUDA

constexpr std::array<std::pair<const char*, CUdevice_attribute>, 7> kAttributes = {{
    {"gpu_direct_rdma", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED},
    {"dma_buf", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED},
    {"vmm", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    {"integrated", CU_DEVICE_ATTRIBUTE_INTEGRATED},
    {"gpu_direct_rdma_writes_ordering", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING},
    {"flush_writes_options", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS},
    {"host_native_atomics", CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED},
}};

void ask_cuda_of(const cuda::Functions& functions, CUdevice device, GpuAnswers& gpu) {
  gpu.name = cuda::name_of(functions, device);
  gpu.uuid = cuda::uuid_of(functions, device);
  for (const auto& [key, attribute] : kAttributes) {
    int value = 0;
    if (functions.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS) gpu.cuda_attributes[key] = value;
  }
}

void ask_cuda(DriverAnswers& answers) {
  const cuda::Driver& driver = cuda::driver();
  if (driver.version > 0) answers.cuda_version = driver.version;
  if (!driver.availability.is_ok()) return;
  int count = 0;
  if (driver.functions.cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  for (int index = 0; index < count && answers.gpus.size() < nvml::kMaxDevices; ++index) {
    CUdevice device = 0;
    if (driver.functions.cuDeviceGet(&device, index) != CUDA_SUCCESS) continue;
    const auto address = cuda::address_of(driver.functions, device);
    if (!address) continue;
    GpuAnswers& gpu = gpu_at(answers, address->to_string());
    if (gpu.cuda_index) continue;  // another instance of the same GPU (MIG) came first
    gpu.cuda_index = index;
    ask_cuda_of(driver.functions, device, gpu);
  }
}

std::optional<bool> can_access(const GpuAnswers& from, const GpuAnswers& to) {
  const cuda::Functions& cuda = cuda::driver().functions;
  if (!from.cuda_index || !to.cuda_index || cuda.cuDeviceCanAccessPeer == nullptr) return {};
  CUdevice first = 0, second = 0;
  int can = 0;
  if (cuda.cuDeviceGet(&first, *from.cuda_index) != CUDA_SUCCESS || cuda.cuDeviceGet(&second, *to.cuda_index) != CUDA_SUCCESS ||
      cuda.cuDeviceCanAccessPeer(&can, first, second) != CUDA_SUCCESS)
    return {};
  return can != 0;
}

#else

void ask_cuda(DriverAnswers&) {}
std::optional<bool> can_access(const GpuAnswers&, const GpuAnswers&) { return {}; }

#endif

void ask_peers(DriverAnswers& answers) {
  for (const GpuAnswers& from : answers.gpus) {
    for (const GpuAnswers& to : answers.gpus) {
      if (&from == &to) continue;
      PeerAnswers pair;
      pair.from = from.pci;
      pair.to = to.pci;
      pair.can_access = can_access(from, to);
      pair.read = nvml::peer_status(from.pci, to.pci, nvml::PeerCapability::read);
      pair.write = nvml::peer_status(from.pci, to.pci, nvml::PeerCapability::write);
      pair.atomics = nvml::peer_status(from.pci, to.pci, nvml::PeerCapability::atomics);
      if (pair.can_access || pair.read || pair.write || pair.atomics) answers.peers.push_back(std::move(pair));
    }
  }
}

void ask_gpus(DriverAnswers& answers) {
  answers.cuda = cuda::driver().availability;
  answers.nvml = nvml::availability();
  answers.driver_version = nvidia_driver_version();
  for (const std::string& pci : nvml::devices()) gpu_at(answers, pci);
  ask_cuda(answers);
  for (GpuAnswers& gpu : answers.gpus) ask_nvml_of(gpu);
  ask_peers(answers);
}

// ---- RDMA devices ----

RdmaDeviceAnswers ask_rdma_device(const std::string& name) {
  RdmaDeviceAnswers answers;
  answers.name = name;
  const auto device = verbs::Device::open(name);
  if (!device) {
    const ErrorRecord& record = device.error().record();
    answers.error = record.native.name.empty() ? record.cause : text(record.cause, " (", record.native.name, ")");
    return answers;
  }
  for (unsigned number = 1; number <= std::min(device->port_count(), kMaxPorts); ++number) {
    const auto port = device->port(number);
    answers.active_mtu.push_back(port ? port->active_mtu_bytes : 0);
  }
  return answers;
}

void ask_verbs(DriverAnswers& answers) {
  answers.verbs = verbs::availability();
  answers.verbs_has_dmabuf = verbs::has_dmabuf();
  if (!answers.verbs.is_ok()) return;
  const auto names = verbs::device_names();
  if (!names) {
    const ErrorRecord& record = names.error().record();
    answers.verbs = {AvailabilityCode::no_device, record.cause, record.remedy, record.native};
    return;
  }
  for (const std::string& name : *names) answers.rdma_devices.push_back(ask_rdma_device(name));
  if (names->empty())
    answers.verbs = {AvailabilityCode::no_device, "libibverbs is installed but finds no RDMA device",
                     "check 'rdma link' and /sys/class/infiniband; in a container, that /dev/infiniband was passed in"};
}

// ---- kernel ----

bool is_of_interest(std::string_view line) {
  // /proc/cmdline tells that one.
  if (line.find("ommand line:") != std::string_view::npos) return false;
  constexpr std::array<std::string_view, 13> kWords = {"NVRM",          "Xid",      "nvidia", "mlx5",
                                                       "infiniband",    "ib_",      "DMAR",   "AMD-Vi",
                                                       "iommu",         "pcieport", "AER:",   "disagrees about version of symbol",
                                                       "Unknown symbol"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return line.find(word) != std::string_view::npos; });
}

// Everything that can be read without waiting; nothing when the log may not be read.
std::optional<std::string> read_log(const std::string& path) {
  const Descriptor log(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!log.is_open()) return {};
  std::string content;
  std::array<char, 16384> piece{};  // a record of the kernel has at most 8 KiB; a smaller buffer is refused
  for (int lost_count = 0; content.size() < kMaxLogBytes && lost_count < kMaxLostRecords;) {
    const ssize_t bytes = ::read(log.get(), piece.data(), piece.size());
    if (bytes > 0) {
      content.append(piece.data(), static_cast<std::size_t>(bytes));
    } else if (bytes < 0 && (errno == EPIPE || errno == EINTR)) {
      ++lost_count;
    } else if (bytes < 0 && errno != EAGAIN && content.empty()) {
      return {};
    } else {
      break;
    }
  }
  return content;
}

// Records are "level,number,microseconds,flags;text", lines that begin with a space belong to the record before. What is not
// printable comes escaped; other bytes are replaced.
// Source: kernel, Documentation/ABI/testing/dev-kmsg.
std::vector<std::string> lines_of_interest(const std::string& content) {
  std::vector<std::string> lines;
  for (const std::string_view record : words_of(content, "\n")) {
    const std::size_t begin = record.find(';');
    if (record.starts_with(' ') || begin == std::string_view::npos || !is_of_interest(record)) continue;
    std::string line(record.substr(begin + 1, kMaxLineBytes));
    std::replace_if(line.begin(), line.end(), [](char letter) { return letter < 0x20 || letter == 0x7f; }, '?');
    lines.push_back(std::move(line));
  }
  if (lines.size() > kMaxLogLines) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kMaxLogLines));
  return lines;
}

// The value of "Key:\tvalue" in /proc/self/status.
std::optional<std::string> value_in(const std::string& status, const std::string& key) {
  for (const std::string_view line : words_of(status, "\n")) {
    if (!line.starts_with(key + ":")) continue;
    const std::size_t begin = line.find_first_not_of(" \t", key.size() + 1);
    if (begin != std::string_view::npos) return std::string(line.substr(begin, line.find_last_not_of(" \t") + 1 - begin));
  }
  return {};
}

std::optional<bool> has_capability(const std::string& status, unsigned number) {
  const auto mask = hexadecimal<std::uint64_t>(value_in(status, "CapEff").value_or(""));
  if (!mask) return {};
  return (*mask >> number & 1) != 0;
}

void ask_kernel(DriverAnswers& answers) {
  if (const auto log = read_log(platform_roots().dev + "/kmsg")) answers.kernel_log = lines_of_interest(*log);
  constexpr unsigned kCapIpcLock = 14;  // capability(7)
  if (const auto status = read_small_file(platform_roots().proc + "/self/status")) {
    answers.can_lock_memory = has_capability(*status, kCapIpcLock);
    answers.allowed_cpus = value_in(*status, "Cpus_allowed_list");
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    answers.memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : static_cast<std::uint64_t>(limit.rlim_cur);
}

}  // namespace

DriverAnswers ask_drivers() {
  DriverAnswers answers;
  ask_gpus(answers);
  ask_verbs(answers);
  ask_kernel(answers);
  return answers;
}

// ---- as JSON. An archive comes from elsewhere, perhaps from a newer Gigabar: keys that this one does not know are left aside.

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
  return {AvailabilityCode::driver_unknown, kNotAsked, "capture the machine with 'gigabar topology --capture'"};
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
