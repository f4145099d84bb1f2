// SPDX-License-Identifier: Apache-2.0
// Checks of the host itself: whether it is a virtual machine, limits, NUMA, CPU frequency, huge pages.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/hexadecimal.hpp"
#include "base/options.hpp"
#include "doctor/facts.hpp"

namespace gigabar::doctor {
namespace {

// A field of a file as a reading: its value, or why there is none.
Reading field_reading(const FileText& file, const std::string& path, std::string_view name) {
  const auto value = field_of(file.content, name);
  return {text(path, " ", name), value ? *value : file.is_present() ? "not told" : value_of(file)};
}

// ---- lim.memlock

constexpr std::uint64_t kUnlimited = UINT64_MAX;
constexpr std::uint64_t kMinLimit = std::uint64_t{64} << 20;   // less does not even hold the buffers of one process
constexpr std::uint64_t kAmpleLimit = std::uint64_t{1} << 30;  // buffers of a usual job; caches of registrations want more

constexpr const char* kMemlockRemedy =
    "as root: add '* - memlock unlimited' to /etc/security/limits.conf and log in anew; for a service LimitMEMLOCK=infinity in its "
    "unit; for a container docker run --ulimit memlock=-1";

std::string limit_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  return bytes < kMiB ? text(bytes / 1024, " KiB") : size_text(bytes);
}

// The kernel asks for the right in the first user namespace of the machine: what a process has in its own, as root of a container
// without root's rights, does not count. Source: user_namespaces(7): there the map is "0 0 4294967295".
bool is_in_other_user_namespace(const Patient& patient, Findings& findings) {
  const FileText map = patient.files.read("/proc/self/uid_map");
  if (!map.is_present()) return false;
  std::istringstream words(map.content);
  std::uint64_t first = 0, outside = 0, count = 0;
  const bool is_own = static_cast<bool>(words >> first >> outside >> count) && first == 0 && outside == 0 && count == UINT32_MAX;
  if (!is_own) findings.reading("/proc/self/uid_map", "not that of the machine's first user namespace");
  return !is_own;
}

// CAP_IPC_LOCK, with which the kernel asks for no limit: bit 14 of the effective set. Source: capabilities(7).
bool can_lock_any(const Patient& patient, Findings& findings) {
  if (const auto& told = patient.answers.can_lock_memory) {
    findings.reading("CAP_IPC_LOCK of this process", yes_or_no(told));
    return *told;
  }
  const auto word = field_of(patient.files.read("/proc/self/status").content, "CapEff");
  const auto effective = hexadecimal<std::uint64_t>(word.value_or(""));
  if (!effective) return false;
  findings.reading("/proc/self/status CapEff", *word);
  constexpr unsigned kIpcLock = 14;
  return (*effective >> kIpcLock & 1) != 0;
}

std::optional<std::uint64_t> memlock_limit(const Patient& patient, Findings& findings) {
  if (patient.answers.memlock_bytes) {
    const std::uint64_t bytes = *patient.answers.memlock_bytes;
    findings.reading("getrlimit(RLIMIT_MEMLOCK)", bytes == kUnlimited ? "unlimited" : counted(bytes, "byte"));
    return bytes;
  }
  const Reading limit = field_reading(patient.files.read("/proc/self/limits"), "/proc/self/limits", "Max locked memory");
  findings.readings({limit});
  const std::string soft = limit.value.substr(0, limit.value.find(' '));
  return soft == "unlimited" ? kUnlimited : parse_number(soft, 0, UINT64_MAX);
}

// ---- numa.cpu

// What tells the CPUs that this process may run on.
Reading allowed_cpus(const Patient& patient) {
  if (patient.answers.allowed_cpus) return {"sched_getaffinity", *patient.answers.allowed_cpus};
  return field_reading(patient.files.read("/proc/self/status"), "/proc/self/status", "Cpus_allowed_list");
}

// A device whose data the CPU touches, and where it is.
struct Placed {
  std::string subject;
  int numa_node = -1;
};

std::vector<Placed> placed_devices(const Patient& patient) {
  std::vector<Placed> devices;
  for (const Gpu& gpu : patient.topology.gpus) devices.push_back({subject_of(gpu), gpu.numa_node});
  for (const Nic& nic : patient.topology.nics) {
    if (nic.pci >= 0 && !nic.rdma_device.empty()) devices.push_back({printable(nic.name, 64), nic.numa_node});
  }
  return devices;
}

bool has_cpus(const NumaNode& node) { return !node.cpus.empty(); }

std::size_t nodes_with_cpus(const Topology& topology) {
  return static_cast<std::size_t>(std::ranges::count_if(topology.numa_nodes, has_cpus));
}

// Nothing: the process may run next to the device.
MaybeRuling judge_place(const Patient& patient, const Placed& device, const std::vector<int>& allowed, const Reading& list,
                        Findings& findings) {
  const int number = device.numa_node, index = patient.topology.find_numa_node(number);
  const NumaNode none;
  const NumaNode& node = index < 0 ? none : patient.topology.numa_nodes[static_cast<std::size_t>(index)];
  const auto is_allowed = [&](int cpu) { return std::ranges::binary_search(allowed, cpu); };
  if (number >= 0 && std::ranges::any_of(node.cpus, is_allowed)) return {};
  findings.readings({list, {"numa_node of " + device.subject, text(number)}});
  if (number < 0)
    return unknown(
        "the machine does not say which of its NUMA nodes the device is on",
        "look for a NUMA or PXM setting in the firmware, in a virtual machine at the host; 'gigabar topology' shows the rest");
  if (!has_cpus(node))
    return unknown(text("NUMA node ", number, ", on which the device is, has no CPUs to compare with"),
                   "see the distances in 'numactl --hardware' for the nearest node with CPUs");
  return warn(text("this process may run on no CPU of NUMA node ", number, ", on which the device is"),
              text("start the program with numactl --cpunodebind=", number, " --membind=", number,
                   " PROGRAM, or bind ranks by device (Slurm: --gpu-bind=closest)"));
}

// ---- numa.balance

// What else is unusual in the nodes; empty: nothing.
std::string numa_remark(const Patient& patient) {
  std::set<int> packages;
  std::vector<std::string> without_cpus;
  for (const NumaNode& node : patient.topology.numa_nodes) {
    if (node.cpus.empty()) {
      without_cpus.push_back(std::to_string(node.index));
    } else if (node.package >= 0) {
      packages.insert(node.package);
    }
  }
  std::string remark;
  const std::size_t nodes = nodes_with_cpus(patient.topology);
  const bool is_amd = cpu_facts(patient).vendor == "AuthenticAMD";
  if (is_amd && !packages.empty() && nodes > packages.size()) {
    remark += text("; ", counted(nodes, "node"), " on ", counted(packages.size(), "package"),
                   " (NPS above 1 in the firmware): a device is near to a part of its package only");
  }
  if (!without_cpus.empty()) {
    remark += text("; node", without_cpus.size() == 1 ? " " : "s ", list_text(without_cpus),
                   without_cpus.size() == 1 ? " has" : " have", " memory only");
  }
  return remark;
}

// ---- cpu.governor

struct Governors {
  std::map<std::string, std::size_t> counts;
  std::size_t refused = 0;
  std::string reason;  // of the first refused
};

bool is_numbered(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) && parse_number(name.substr(prefix.size()), 0, 65535).has_value();
}

Governors read_governors(const Patient& patient, const std::string& folder, std::string_view prefix, const std::string& file) {
  Governors governors;
  for (const std::string& name : patient.files.names(folder)) {
    if (!is_numbered(name, prefix)) continue;
    const FileText governor = patient.files.read(text(folder, "/", name, file));
    if (governor.is_present()) {
      ++governors.counts[printable(governor.content, 32)];
    } else if (governor.state != FileState::missing && governors.refused++ == 0) {
      governors.reason = governor.reason;
    }
  }
  return governors;
}

struct Noun {
  std::string_view one, many;
};

std::string counts_text(const Governors& governors, const Noun& what) {
  std::vector<std::string> words;
  for (const auto& [name, count] : governors.counts) words.push_back(text(name, " on ", counted(count, what.one, what.many)));
  return list_text(words);
}

// ---- huge

// "[madvise]" of "always [madvise] never"; nothing for other text.
std::optional<std::string> chosen_word(const std::string& content) {
  const std::size_t open = content.find('[');
  const std::size_t close = open == std::string::npos ? open : content.find(']', open);
  if (close == std::string::npos) return {};
  return printable(std::string_view(content).substr(open + 1, close - open - 1), 32);
}

}  // namespace

MaybeRuling check_vm_detect(const Patient& patient, Findings& findings) {
  const HostAnswer answer = host_of(patient);
  findings.readings(answer.readings);
  if (answer.host == Host::bare_metal) return pass(answer.statement);
  if (answer.host == Host::unknown)
    return unknown(answer.statement, "ask 'systemd-detect-virt', or read /sys/class/dmi/id/product_name as root");
  return warn(answer.statement + "; whether devices reach each other directly is decided by the host",
              "run 'gigabar doctor' on the host too; for direct traffic between passed-through devices the host needs ACS with "
              "translated requests let through, and ATS enabled in GPU and NIC");
}

MaybeRuling check_lim_memlock(const Patient& patient, Findings& findings) {
  if (can_lock_any(patient, findings) && !is_in_other_user_namespace(patient, findings))
    return pass("this process may lock any amount of memory (CAP_IPC_LOCK)");
  const auto limit = memlock_limit(patient, findings);
  const bool has_rdma = !rdma_devices(patient).empty();
  if (!limit) return unknown("the limit of locked memory is not told", "see 'ulimit -l' in the shell that starts the program");
  if (*limit == kUnlimited) return pass("locked memory is not limited");
  if (*limit < kMinLimit && has_rdma)
    return fail(
        text("this process may lock ", limit_text(*limit), " only: registering more host memory for RDMA fails with ENOMEM"),
        kMemlockRemedy);
  if (*limit < kMinLimit || (has_rdma && *limit < kAmpleLimit))
    return warn(text("this process may lock ", limit_text(*limit), " only; RDMA and large pinned buffers need more"),
                kMemlockRemedy);
  return pass("this process may lock ", limit_text(*limit));
}

MaybeRuling check_numa_cpu(const Patient& patient, Findings& findings) {
  const std::vector<Placed> devices = placed_devices(patient);
  if (devices.empty()) return findings.no_end(patient, "this machine has neither a GPU nor an RDMA adapter to be near to");
  const std::size_t nodes = nodes_with_cpus(patient.topology);
  if (nodes == 0) return unknown("the NUMA nodes of this machine are not known", "see 'numactl --hardware'");
  if (nodes == 1) return pass("all CPUs are on one NUMA node, so none is farther from a device than another");
  const Reading list = allowed_cpus(patient);
  constexpr std::size_t kMaxCpus = 65536;
  const NumberList allowed = parse_number_list(list.value, kMaxCpus);
  if (!allowed.is_well_formed || allowed.numbers.empty()) {
    findings.reading(list.source, list.value);
    return unknown("the CPUs that this process may run on are not told",
                   "see 'taskset -cp $$' in the shell that starts the program");
  }
  std::vector<std::string> near;
  for (const Placed& device : devices) {
    MaybeRuling ruling = judge_place(patient, device, allowed.numbers, list, findings);
    if (!ruling) near.push_back(device.subject);
    findings.say(device.subject, std::move(ruling));
  }
  if (near.empty()) return {};
  findings.reading(list.source, list.value);
  return pass("this process may run on CPUs next to ", list_text(near));
}

MaybeRuling check_numa_balance(const Patient& patient, Findings& findings) {
  const std::size_t nodes = patient.topology.numa_nodes.size();
  if (nodes == 1) return skip("this machine has one NUMA node, so the kernel has nowhere to move pages to");
  const FileText setting = findings.read(patient, "/proc/sys/kernel/numa_balancing");
  const auto value = setting.is_present() ? parse_number(printable(setting.content), 0, UINT64_MAX) : std::nullopt;
  if (nodes == 0) return unknown("the NUMA nodes of this machine are not known", "see 'numactl --hardware'");
  if (!value)
    return unknown(setting.state == FileState::missing
                       ? "the kernel does not say whether it moves pages between NUMA nodes; one built without it never does"
                       : "the kernel's setting for moving pages between NUMA nodes could not be read",
                   "see 'sysctl kernel.numa_balancing' and CONFIG_NUMA_BALANCING in /boot/config-$(uname -r)");
  if (*value != 0)
    return warn(
        text("the kernel moves pages between ", nodes, " NUMA nodes on its own (numa_balancing is ", *value, ")",
             numa_remark(patient)),
        "as root: sysctl -w kernel.numa_balancing=0; to keep it, write kernel.numa_balancing=0 to /etc/sysctl.d/90-numa.conf");
  return pass("the kernel leaves pages on their NUMA node", numa_remark(patient));
}

MaybeRuling check_cpu_governor(const Patient& patient, Findings& findings) {
  const std::string folder = "/sys/devices/system/cpu";
  Governors governors = read_governors(patient, folder, "cpu", "/cpufreq/scaling_governor");
  Noun what{"CPU", "CPUs"};
  std::string source = folder + "/cpu*/cpufreq/scaling_governor";
  if (governors.counts.empty() && governors.refused == 0) {
    governors = read_governors(patient, folder + "/cpufreq", "policy", "/scaling_governor");
    what = {"group of CPUs", "groups of CPUs"};
    source = folder + "/cpufreq/policy*/scaling_governor";
  }
  const std::string counts = counts_text(governors, what);
  findings.reading(source, !counts.empty() ? counts : governors.refused > 0 ? governors.reason : "missing");
  const bool is_all_performance = governors.counts.size() == 1 && governors.counts.contains("performance");
  if (!governors.counts.empty() && !is_all_performance)
    return warn(text("CPUs lower their clock between transfers: governor ", counts),
                "as root: cpupower frequency-set -g performance; to keep it, the profile of tuned or a unit at boot");
  if (governors.refused > 0)
    return unknown(text("the governor of ", counted(governors.refused, what.one, what.many), " could not be read"),
                   "see 'cpupower frequency-info', as root");
  if (is_all_performance) return pass("governor ", counts);
  if (const HostAnswer host = host_of(patient); host.host == Host::virtual_machine) {
    findings.readings(host.readings);
    return skip("the clock of its CPUs is the host's matter: ", host.statement);
  }
  return unknown("the kernel does not say how it sets the clock of the CPUs",
                 "see 'cpupower frequency-info', and whether the firmware keeps power management to itself");
}

MaybeRuling check_huge(const Patient& patient, Findings& findings) {
  const FileText meminfo = patient.files.read("/proc/meminfo");
  const auto total = field_of(meminfo.content, "HugePages_Total");
  const auto available = field_of(meminfo.content, "HugePages_Free");
  const auto size = field_of(meminfo.content, "Hugepagesize");
  const std::string absent = meminfo.is_present() ? "not told" : value_of(meminfo);
  findings.reading("/proc/meminfo HugePages_Total, HugePages_Free, Hugepagesize",
                   text(total.value_or(absent), ", ", available.value_or(absent), ", ", size.value_or(absent)));
  const FileText transparent = findings.read(patient, "/sys/kernel/mm/transparent_hugepage/enabled");
  const auto mode = chosen_word(transparent.content);
  const bool has_numbers = total && available && parse_number(*total, 0, UINT64_MAX) && parse_number(*available, 0, UINT64_MAX);
  if (!has_numbers || !mode)
    return unknown(has_numbers ? "the setting of transparent huge pages is not told" : "the number of huge pages is not told",
                   has_numbers ? "see CONFIG_TRANSPARENT_HUGEPAGE in /boot/config-$(uname -r); a kernel without it has none"
                               : "see 'grep Huge /proc/meminfo'");
  return pass(*available, " of ", *total, " reserved huge pages", size ? text(" of ", *size) : std::string(),
              " are free; transparent huge pages: ", *mode);
}

}  // namespace gigabar::doctor
