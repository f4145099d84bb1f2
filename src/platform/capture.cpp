// SPDX-License-Identifier: Apache-2.0
#include "platform/system_archive.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "platform/pci_config.hpp"
#include "platform/system_sources.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kMaxVisits = std::size_t{1} << 18;
// /proc/cpuinfo has about 2 KiB for each processor, /proc/kallsyms about 100 bytes for each symbol of the kernel.
constexpr std::size_t kMaxCpuBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxSymbolBytes = std::size_t{64} << 20;

std::string only_existence(const std::string& /*content*/) { return {}; }

// Lines of `content` that `is_wanted`.
template <class Wanted>
std::string lines_of(const std::string& content, const Wanted& is_wanted) {
  std::string kept;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = std::min(content.find('\n', at), content.size() - 1) + 1;
    const std::string_view line = std::string_view(content).substr(at, end - at);
    if (is_wanted(line)) kept += line;
    at = end;
  }
  return kept;
}

// The one symbol that tells whether the kernel's RDMA stack can be given GPU memory by a module. Addresses of the kernel are
// nobody's business.
std::string peer_memory_symbols(const std::string& content) {
  std::string kept = lines_of(
      content, [](std::string_view line) { return line.find("ib_register_peer_memory_client") != std::string_view::npos; });
  bool is_in_address = true;
  for (char& letter : kept) {
    if (letter == '\n') is_in_address = true;
    if (letter == ' ') is_in_address = false;
    if (is_in_address && letter != '\n') letter = '0';
  }
  return kept;
}

// Of /proc/self/status: what the process may do and where it may run, not what it is called.
std::string rights_and_places(const std::string& content) {
  return lines_of(content, [](std::string_view line) {
    return line.starts_with("Cpus_allowed") || line.starts_with("Mems_allowed") || line.starts_with("Cap") ||
           line.starts_with("Uid:") || line.starts_with("NoNewPrivs") || line.starts_with("Seccomp:");
  });
}

// Of /proc/self/uid_map: whether it is that of the machine's first user namespace, not who is who.
std::string kind_of_uid_map(const std::string& content) {
  const std::vector<std::string_view> words = words_of(content, " ");
  const bool is_first = words.size() == 3 && words[0] == "0" && words[1] == "0" && words[2] == "4294967295\n";
  return is_first ? content : "mapped\n";
}

// Of /proc/self/mounts: what kind of file system the root is (a container's is an overlay), not what else is mounted from where.
std::string root_mount(const std::string& content) {
  std::string kept;
  for (const std::string_view line : words_of(content, "\n")) {
    const std::vector<std::string_view> words = words_of(line, " ");
    if (words.size() > 2 && words[1] == "/") kept += text("root / ", words[2], "\n");
  }
  return kept;
}

// hwloc's programs can show the machine of an unpacked archive (HWLOC_FSROOT): what its Linux backend opens is in here. Left out on
// purpose: serial numbers, UUIDs of boards, MAC addresses (a RoCE GID can hold one), node descriptions (the host's name) and
// resource files (reading one can act on the device).
constexpr auto kPatterns = std::to_array<CapturePattern>({
    // Processors and memory
    {"/sys/devices/system/cpu", "online possible present offline kernel_max isolated nohz_full"},
    {"/sys/devices/system/cpu/smt", "active control"},
    {"/sys/devices/system/cpu/cpu*", "online node* cpu_capacity"},
    {"/sys/devices/system/cpu/cpu*/topology",
     "physical_package_id die_id cluster_id core_id book_id drawer_id core_cpus core_siblings thread_siblings die_cpus "
     "package_cpus cluster_cpus book_siblings drawer_siblings core_cpus_list thread_siblings_list package_cpus_list die_cpus_list "
     "cluster_cpus_list"},
    {"/sys/devices/system/cpu/cpu*/cache/index*",
     "id level type size shared_cpu_map shared_cpu_list coherency_line_size number_of_sets physical_line_partition "
     "ways_of_associativity"},
    {"/sys/devices/system/cpu/cpu*/cpufreq",
     "base_frequency cpuinfo_max_freq cpuinfo_min_freq scaling_governor scaling_driver scaling_max_freq "
     "energy_performance_preference"},
    {"/sys/devices/system/cpu/cpufreq", "boost"},
    {"/sys/devices/system/cpu/cpufreq/policy*", "base_frequency cpuinfo_max_freq related_cpus scaling_governor scaling_driver"},
    {"/sys/devices/system/cpu/cpu*/acpi_cppc", "nominal_perf highest_perf"},
    {"/sys/devices/system/cpu/cpuidle", "current_driver current_governor"},
    {"/sys/devices/system/cpu/cpu0/cpuidle/state*", "name latency disable"},
    {"/sys/devices/system/cpu/intel_pstate", "status no_turbo"},
    {"/sys/devices/system/cpu/amd_pstate", "status"},
    {"/sys/devices/cpu_*", "cpus"},
    {"/sys/devices/system/node", "online possible has_cpu has_memory has_normal_memory"},
    {"/sys/devices/system/node/node*", "meminfo cpulist cpumap distance"},
    {"/sys/devices/system/node/node*/hugepages/*", "nr_hugepages free_hugepages"},
    {"/sys/devices/system/node/node*/access*/initiators", "read_bandwidth write_bandwidth read_latency write_latency node*"},
    {"/sys/devices/system/node/node*/memory_side_cache/index*", "size line_size indexing"},
    {"/sys/kernel/mm/hugepages/*", "nr_hugepages free_hugepages resv_hugepages"},
    {"/sys/kernel/mm/transparent_hugepage", "enabled defrag"},
    {"/sys/kernel/mm", "memory_peers"},
    {"/sys/kernel/mm/memory_peers/*", "version"},

    // The PCI tree
    {"/sys/bus/cpu/devices", "*"},
    {"/sys/bus/node/devices", "*"},
    {"/sys/bus/pci/devices", "*"},
    {"/sys/bus/pci/slots/*", "address"},
    {"/sys/bus/pci/devices/*",
     "vendor device subsystem_vendor subsystem_device class revision numa_node local_cpus local_cpulist current_link_speed "
     "current_link_width max_link_speed max_link_width enable resource driver iommu_group iommu physfn msi_bus power_state "
     "ari_enabled sriov_numvfs reset_method aer_dev_correctable aer_dev_nonfatal aer_dev_fatal"},
    {"/sys/bus/pci/devices/*", "config", without_serial_number},
    {"/sys/bus/pci/devices/*/power", "control runtime_status"},
    {"/sys/bus/pci/devices/*/p2pmem", "size available published"},
    {"/sys/bus/pci/devices/*/net", "*"},
    {"/sys/bus/pci/devices/*/infiniband", "*"},
    {"/sys/module/pci*/parameters", "*"},
    {"/sys/class/iommu", "*"},
    {"/sys/kernel/iommu_groups", "*"},
    {"/sys/kernel/iommu_groups/*", "type"},
    {"/sys/kernel/iommu_groups/*/devices", "*"},
    {"/sys/firmware/acpi", "pm_profile"},
    {"/sys/hypervisor", "type"},

    // Network and RDMA devices
    {"/sys/class/net", "*"},
    {"/sys/class/net/*", "device type mtu speed operstate carrier duplex dev_port dev_id address_len flags phys_port_name"},
    {"/sys/class/net/*/device", "vendor device class numa_node local_cpulist driver"},
    {"/sys/class/net/*/ecn/*/enable", "*"},
    {"/sys/class/net/*/qos", "*"},
    {"/sys/class/infiniband", "*"},
    {"/sys/class/infiniband/*", "device node_type hca_type fw_ver hw_rev board_id parent"},
    {"/sys/class/infiniband/*/device", "vendor device class numa_node local_cpulist driver"},
    {"/sys/class/infiniband/*/ports/*", "state phys_state rate link_layer lid lid_mask_count cap_mask"},
    {"/sys/class/infiniband/*/ports/*/gids", "*"},
    {"/sys/class/infiniband/*/ports/*/pkeys", "*"},
    {"/sys/class/infiniband/*/ports/*/gid_attrs/types", "*"},
    {"/sys/class/infiniband/*/ports/*/gid_attrs/ndevs", "*"},
    {"/sys/class/infiniband/*/ports/*/counters", "*"},
    {"/sys/class/infiniband/*/ports/*/hw_counters", "*"},
    {"/sys/class/infiniband/*/tc/*", "traffic_class"},
    {"/sys/class/infiniband/*/hw_counters", "*"},
    {"/sys/class/infiniband_verbs", "*"},
    {"/sys/class/infiniband_verbs/*", "ibdev dev device abi_version"},
    {"/sys/class/misc/rdma_cm", "dev"},
    {"/sys/class/drm", "card* render*"},
    {"/sys/class/drm/*", "device"},
    {"/sys/class/dma/*", "device"},
    {"/sys/class/dmi/id", "sys_vendor product_name product_family bios_vendor board_vendor board_name chassis_type"},

    // Drivers: which there are, and more of some
    {"/sys/module", "*"},
    {"/sys/module/{}", "version srcversion refcnt initstate"},
    {"/sys/module/{}/parameters", "*"},
    {"/proc/driver/nvidia", "version params registry"},
    {"/proc/driver/nvidia/gpus/*", "information power"},
    {"/proc/driver/nvidia-nvswitch/devices/*", "information"},
    {"/proc/driver/nvidia/capabilities", "fabric-imex-mgmt"},

    // Nodes, and what says that this is a container
    {"/dev", "nvidia* gdrdrv"},
    {"/dev/nvidia-caps", "nvidia-cap*"},
    {"/dev/nvidia-caps-imex-channels", "*"},
    {"/dev/infiniband", "*"},
    {"/", ".dockerenv", only_existence},
    {"/run", ".containerenv", only_existence},
    {"/run/systemd", "container"},

    // The kernel and this process
    {"/proc", "cpuinfo", nullptr, kMaxCpuBytes},
    {"/proc", "meminfo version cmdline devices misc config.gz"},
    {"/proc", "kallsyms", peer_memory_symbols, kMaxSymbolBytes},
    {"/proc/self", "limits"},
    {"/proc/self", "uid_map", kind_of_uid_map},
    {"/proc/self", "status", rights_and_places},
    {"/proc/self", "mounts", root_mount},
    {"/proc/sys/kernel", "osrelease numa_balancing dmesg_restrict"},
    {"/proc/sys/vm", "nr_hugepages nr_overcommit_hugepages overcommit_memory max_map_count zone_reclaim_mode"},
    {"/proc/sys/net/ipv4", "tcp_ecn"},
    {"/boot", "config-{}"},
    {"/etc", "os-release"},
    {"/etc/libibverbs.d", "*.driver"},
    {"/etc/modprobe.d", "nvidia*.conf mlx*.conf gdrdrv*.conf"},
});

// "{}" in the table: of a path, these modules; of a name, the release of the running kernel.
constexpr auto kModules =
    std::to_array<std::string_view>({"nvidia",    "nvidia_uvm", "nvidia_peermem", "nv_peer_mem", "nvidia_drm", "nvidia_modeset",
                                     "nvidia_fs", "gdrdrv",     "ib_core",        "ib_uverbs",   "rdma_cm",    "rdma_ucm",
                                     "ib_umad",   "mlx5_ib",    "mlx5_core",      "mlx4_ib",     "mlx4_core",  "mlx_compat",
                                     "irdma",     "ice",        "bnxt_re",        "bnxt_en",     "efa",        "hns_roce_hw_v2",
                                     "erdma",     "mana_ib",    "qedr",           "cxgb4",       "iw_cxgb4",   "ionic_rdma",
                                     "rdma_rxe",  "siw",        "hfi1",           "nouveau",     "vfio_pci",   "vfio_iommu_type1",
                                     "iommu"});

std::string with(std::string_view pattern, std::string_view value) {
  std::string filled(pattern);
  if (const std::size_t at = filled.find("{}"); at != std::string::npos) filled.replace(at, 2, value);
  return filled;
}

bool may_be_captured(const std::string& path) {
  constexpr auto kRoots = std::to_array<std::string_view>({"/sys", "/proc", "/dev", "/etc", "/boot", "/run", "/usr/lib", "/usr"});
  if (path == "/.dockerenv") return true;
  return std::any_of(kRoots.begin(), kRoots.end(), [&path](std::string_view root) {
    return path == root || (root != "/usr" && path.starts_with(root) && path.size() > root.size() && path[root.size()] == '/');
  });
}

// The walk: real paths, each looked at once.
class Walk {
 public:
  Walk(const SystemFiles& files, const std::function<void(Captured&&)>& visit) : files_(files), visit_(visit) {}

  void take(const CapturePattern& pattern, const std::string& folder) {
    std::vector<std::string> levels;
    for (const std::string_view part : words_of(folder, "/")) levels.emplace_back(part);
    const bool has_release = pattern.names.find("{}") != std::string_view::npos;
    levels.push_back(with(pattern.names, has_release ? kernel_release() : std::string()));
    expand(pattern, "", levels);
  }

 private:
  bool is_over() const { return visits_ >= kMaxVisits || bytes_ >= kMaxArchiveBytes; }

  // What `pattern` matches in a real folder.
  std::vector<std::string> candidates(const std::string& folder, const std::string& pattern) {
    if (pattern.find('*') == std::string::npos) return {pattern};
    FolderNames listed = files_.list(folder);
    if (!listed.reason.empty()) {
      tell_folder(folder);
      tell({Captured::Kind::hidden, folder, std::move(listed.reason), {}});
    }
    std::erase_if(listed.names,
                  [&pattern](const std::string& name) { return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) != 0; });
    return std::move(listed.names);
  }

  void tell(Captured&& found) {
    if (told_.emplace(found.kind, found.path).second) visit_(std::move(found));
  }
  void tell_folder(const std::string& path) {
    if (files_.facts(path).kind == NodeKind::folder) tell({Captured::Kind::folder, path, {}, {}});
  }

  // What `levels`, words of patterns, match below a real folder; empty: the root.
  void expand(const CapturePattern& pattern, const std::string& folder, std::span<const std::string> levels) {
    if (levels.empty()) return take_node(pattern, folder);
    if (levels.size() == 1 && !folder.empty()) tell_folder(folder);
    for (const std::string_view name : words_of(levels.front(), " ")) {
      for (const std::string& candidate : candidates(folder.empty() ? "/" : folder, std::string(name))) {
        if (is_over()) return;
        if (const auto real = settle(text(folder, "/", candidate), 0)) expand(pattern, *real, levels.subspan(1));
      }
    }
  }

  // "unknown" when it could not be a part of a file's name, or is a pattern itself.
  std::string kernel_release() const {
    const std::string release = files_.word("/proc/sys/kernel/osrelease").value_or("unknown");
    constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._+-~";
    return release.find_first_not_of(kLetters) == std::string::npos ? release : "unknown";
  }

  void take_node(const CapturePattern& pattern, const std::string& real) {
    if (!taken_.insert(real).second) return;
    NodeFacts facts = files_.facts(real);
    if (facts.kind == NodeKind::character_device) {
      facts.open_errno = files_.open_errno(real);
      tell({Captured::Kind::device, real, {}, facts});
    }
    if (facts.kind == NodeKind::folder) tell({Captured::Kind::folder, real, {}, {}});
    if (facts.kind != NodeKind::file) return;
    FileText text = files_.read(real, pattern.most_bytes);
    if (text.is_present() && pattern.change != nullptr) text.content = pattern.change(text.content);
    bytes_ += text.content.size() + real.size();
    if (text.state == FileState::missing) return;
    if (text.is_present()) return tell({Captured::Kind::file, real, std::move(text.content), {}});
    tell({Captured::Kind::hidden, real, std::move(text.reason), {}});
  }

  // The real path of `path`, whose folder is real already; tells of each link on the way. Nothing when it leads
  // nowhere, in a circle, or to where nothing is captured.
  std::optional<std::string> settle(const std::string& path, unsigned links) {
    if (const auto known = settled_.find(path); known != settled_.end()) return known->second;
    ++visits_;
    settled_[path] = {};  // what a circle of links finds
    if (!may_be_captured(path) || links > kMaxLinks) return {};
    // A link whose target is another one for each process.
    const bool is_self = path == "/proc/self";
    std::optional<std::string> target = is_self ? std::nullopt : files_.link_target(path);
    std::string real = path;
    if (target) {
      real = target->starts_with('/') ? "" : path.substr(0, path.rfind('/'));
      for (const std::string_view part : words_of(*target, "/")) {
        if (part == ".") continue;
        if (part == "..") {
          real.erase(std::min(real.rfind('/'), real.size()));
          continue;
        }
        const auto next = settle(text(real, "/", part), links + 1);
        if (!next) return {};
        real = *next;
      }
      // The kernel's links stay in /sys.
      if (real.empty() || (path.starts_with("/sys/") && !real.starts_with("/sys/"))) return {};
      tell({Captured::Kind::link, path, std::move(*target), {}});
      // A link alone is worth nothing: what it names has to be there.
      tell_folder(real);
    } else if (!files_.exists(path)) {
      // Whether it is there is not known when this user may not search a folder above it.
      FileText hidden = files_.read(path);
      if (hidden.state == FileState::unreadable) tell({Captured::Kind::hidden, path, std::move(hidden.reason), {}});
      return {};
    }
    settled_[path] = real;
    return real;
  }

  const SystemFiles& files_;
  const std::function<void(Captured&&)>& visit_;
  std::map<std::string, std::optional<std::string>> settled_;
  std::set<std::string> taken_;
  std::set<std::pair<Captured::Kind, std::string>> told_;
  std::size_t visits_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace

std::span<const CapturePattern> capture_patterns() { return kPatterns; }

void visit_captured(const SystemFiles& files, const std::function<void(Captured&&)>& visit) {
  Walk walk(files, visit);
  for (const CapturePattern& pattern : kPatterns) {
    if (pattern.folder.find("{}") == std::string_view::npos) {
      walk.take(pattern, std::string(pattern.folder));
      continue;
    }
    for (const std::string_view module : kModules) walk.take(pattern, with(pattern.folder, module));
  }
}

}  // namespace gigabar::inline v0
