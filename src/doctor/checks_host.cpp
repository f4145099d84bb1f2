// SPDX-License-Identifier: Apache-2.0
// Checks of the host itself: limits, NUMA, CPU frequency, huge pages.
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <sstream>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/check.hpp"
#include "doctor/checks_pci.hpp"
#include "doctor/gpu_facts.hpp"
#include "doctor/rdma_facts.hpp"

namespace gigabar::doctor {
namespace {

// ---- files of "Name:   value" lines

// The value behind `name` at the start of a line, without white space around it.
std::optional<std::string> value_of(const std::string& content, const std::string& name) {
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return printable(std::string_view(line).substr(name.size()));
  }
  return {};
}

// ---- lim.memlock

constexpr std::uint64_t kUnlimited = UINT64_MAX;
constexpr std::uint64_t kMinLimit = std::uint64_t{64} << 20;   // less does not even hold the buffers of one process
constexpr std::uint64_t kAmpleLimit = std::uint64_t{1} << 30;  // buffers of a usual job; caches of registrations want more

constexpr std::string_view kMemlockRemedy =
    "as root: add '* - memlock unlimited' to /etc/security/limits.conf and log in anew; for a service LimitMEMLOCK=infinity in its "
    "unit; "
    "for a container docker run --ulimit memlock=-1";

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
std::optional<bool> can_lock_any(const Patient& patient, Findings& findings) {
  if (patient.answers.can_lock_memory) {
    findings.reading("CAP_IPC_LOCK of this process", *patient.answers.can_lock_memory ? "yes" : "no");
    return patient.answers.can_lock_memory;
  }
  const FileText status = patient.files.read("/proc/self/status");
  const auto word = value_of(status.content, "CapEff:");
  if (!word) return {};
  std::uint64_t effective = 0;
  const auto [end, error] = std::from_chars(word->data(), word->data() + word->size(), effective, 16);
  if (error != std::errc{} || end != word->data() + word->size()) return {};
  findings.reading("/proc/self/status CapEff", *word);
  constexpr unsigned kIpcLock = 14;
  return (effective >> kIpcLock & 1) != 0;
}

std::optional<std::uint64_t> memlock_limit(const Patient& patient, Findings& findings) {
  if (patient.answers.memlock_bytes) {
    const std::uint64_t bytes = *patient.answers.memlock_bytes;
    findings.reading("getrlimit(RLIMIT_MEMLOCK)", bytes == kUnlimited ? "unlimited" : counted(bytes, "byte"));
    return bytes;
  }
  const FileText limits = patient.files.read("/proc/self/limits");
  const auto line = value_of(limits.content, "Max locked memory");
  findings.reading("/proc/self/limits Max locked memory", line                    ? *line
                                                          : limits.is_present()   ? "not told"
                                                          : limits.reason.empty() ? "missing"
                                                                                  : limits.reason);
  if (!line) return {};
  const std::string soft = line->substr(0, line->find(' '));
  if (soft == "unlimited") return kUnlimited;
  return parse_number(soft, 0, UINT64_MAX);
}

void check_memlock(const Patient& patient, Findings& findings) {
  const auto is_free = can_lock_any(patient, findings);
  if (is_free.value_or(false) && !is_in_other_user_namespace(patient, findings))
    return findings.pass({}, "this process may lock any amount of memory (CAP_IPC_LOCK)");
  const auto limit = memlock_limit(patient, findings);
  const bool has_rdma = !rdma_devices(patient).empty();
  if (!limit) {
    findings.unknown({}, "the limit of locked memory is not told", "see 'ulimit -l' in the shell that starts the program");
  } else if (*limit == kUnlimited) {
    findings.pass({}, "locked memory is not limited");
  } else if (*limit < kMinLimit && has_rdma) {
    findings.fail(
        {}, text("this process may lock ", limit_text(*limit), " only: registering more host memory for RDMA fails with ENOMEM"),
        std::string(kMemlockRemedy));
  } else if (*limit < kMinLimit || (has_rdma && *limit < kAmpleLimit)) {
    findings.warn({}, text("this process may lock ", limit_text(*limit), " only; RDMA and large pinned buffers need more"),
                  std::string(kMemlockRemedy));
  } else {
    findings.pass({}, text("this process may lock ", limit_text(*limit)));
  }
}

// ---- numa.cpu

// What tells the CPUs that this process may run on.
Reading allowed_cpus(const Patient& patient) {
  if (patient.answers.allowed_cpus) return {"sched_getaffinity", *patient.answers.allowed_cpus};
  const FileText status = patient.files.read("/proc/self/status");
  const auto list = value_of(status.content, "Cpus_allowed_list:");
  return {"/proc/self/status Cpus_allowed_list", list                    ? *list
                                                 : status.is_present()   ? "not told"
                                                 : status.reason.empty() ? "missing"
                                                                         : status.reason};
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

std::size_t nodes_with_cpus(const Topology& topology) {
  return static_cast<std::size_t>(std::count_if(topology.numa_nodes.begin(), topology.numa_nodes.end(),
                                                [](const NumaNode& node) { return !node.cpus.empty(); }));
}

// Judges one device; true: the process may run next to it, and nothing was said.
bool is_next_to(const Patient& patient, const Placed& device, const std::vector<int>& allowed, const Reading& list,
                Findings& findings) {
  const auto tell = [&] {
    findings.reading(list.source, list.value);
    findings.reading("numa_node of " + device.subject, std::to_string(device.numa_node));
  };
  if (device.numa_node < 0) {
    tell();
    findings.unknown(
        device.subject, "the machine does not say which of its NUMA nodes the device is on",
        "look for a NUMA or PXM setting in the firmware, in a virtual machine at the host; 'gigabar topology' shows the rest");
    return false;
  }
  const int index = patient.topology.find_numa_node(device.numa_node);
  const auto& nodes = patient.topology.numa_nodes;
  if (index < 0 || nodes[static_cast<std::size_t>(index)].cpus.empty()) {
    tell();
    findings.unknown(device.subject, text("NUMA node ", device.numa_node, ", on which the device is, has no CPUs to compare with"),
                     "see the distances in 'numactl --hardware' for the nearest node with CPUs");
    return false;
  }
  const std::vector<int>& near = nodes[static_cast<std::size_t>(index)].cpus;
  if (std::any_of(near.begin(), near.end(), [&](int cpu) { return std::binary_search(allowed.begin(), allowed.end(), cpu); }))
    return true;
  tell();
  findings.warn(device.subject, text("this process may run on no CPU of NUMA node ", device.numa_node, ", on which the device is"),
                text("start the program with numactl --cpunodebind=", device.numa_node, " --membind=", device.numa_node,
                     " PROGRAM, or bind ranks by device (Slurm: --gpu-bind=closest)"));
  return false;
}

void check_numa_cpu(const Patient& patient, Findings& findings) {
  const std::vector<Placed> devices = placed_devices(patient);
  if (devices.empty()) return findings.skip("this machine has neither a GPU nor an RDMA adapter to be near to");
  const std::size_t nodes = nodes_with_cpus(patient.topology);
  if (nodes == 0) return findings.unknown({}, "the NUMA nodes of this machine are not known", "see 'numactl --hardware'");
  if (nodes == 1) return findings.pass({}, "all CPUs are on one NUMA node, so none is farther from a device than another");
  const Reading list = allowed_cpus(patient);
  constexpr std::size_t kMaxCpus = 65536;
  const NumberList allowed = parse_number_list(list.value, kMaxCpus);
  if (!allowed.is_well_formed || allowed.numbers.empty()) {
    findings.reading(list.source, list.value);
    return findings.unknown({}, "the CPUs that this process may run on are not told",
                            "see 'taskset -cp $$' in the shell that starts the program");
  }
  std::vector<std::string> near;
  for (const Placed& device : devices) {
    if (is_next_to(patient, device, allowed.numbers, list, findings)) near.push_back(device.subject);
  }
  if (near.empty()) return;
  findings.reading(list.source, list.value);
  findings.pass({}, text("this process may run on CPUs next to ", list_text(near)));
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

void check_numa_balance(const Patient& patient, Findings& findings) {
  const std::size_t nodes = patient.topology.numa_nodes.size();
  if (nodes == 1) return findings.skip("this machine has one NUMA node, so the kernel has nowhere to move pages to");
  const FileText setting = findings.read(patient, "/proc/sys/kernel/numa_balancing");
  const auto value = setting.is_present() ? parse_number(printable(setting.content), 0, UINT64_MAX) : std::nullopt;
  if (nodes == 0) return findings.unknown({}, "the NUMA nodes of this machine are not known", "see 'numactl --hardware'");
  if (!value) {
    findings.unknown({},
                     setting.state == FileState::missing
                         ? "the kernel does not say whether it moves pages between NUMA nodes; one built without it never does"
                         : "the kernel's setting for moving pages between NUMA nodes could not be read",
                     "see 'sysctl kernel.numa_balancing' and CONFIG_NUMA_BALANCING in /boot/config-$(uname -r)");
  } else if (*value != 0) {
    findings.warn(
        {},
        text("the kernel moves pages between ", nodes, " NUMA nodes on its own (numa_balancing is ", *value, ")",
             numa_remark(patient)),
        "as root: sysctl -w kernel.numa_balancing=0; to keep it, write kernel.numa_balancing=0 to /etc/sysctl.d/90-numa.conf");
  } else {
    findings.pass({}, text("the kernel leaves pages on their NUMA node", numa_remark(patient)));
  }
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
  for (const auto& [name, count] : governors.counts)
    words.push_back(text(name, " on ", count, ' ', count == 1 ? what.one : what.many));
  return list_text(words);
}

void check_governor(const Patient& patient, Findings& findings) {
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
  if (!governors.counts.empty() && !is_all_performance) {
    findings.warn({}, text("CPUs lower their clock between transfers: governor ", counts),
                  "as root: cpupower frequency-set -g performance; to keep it, the profile of tuned or a unit at boot");
  } else if (governors.refused > 0) {
    findings.unknown(
        {}, text("the governor of ", governors.refused, ' ', governors.refused == 1 ? what.one : what.many, " could not be read"),
        "see 'cpupower frequency-info', as root");
  } else if (is_all_performance) {
    findings.pass({}, text("governor ", counts));
  } else if (const HostAnswer host = host_of(patient); host.host == Host::virtual_machine) {
    read_all(findings, host.readings);
    findings.skip(text("the clock of its CPUs is the host's matter: ", host.statement));
  } else {
    findings.unknown({}, "the kernel does not say how it sets the clock of the CPUs",
                     "see 'cpupower frequency-info', and whether the firmware keeps power management to itself");
  }
}

// ---- huge

// "[madvise]" of "always [madvise] never"; nothing for other text.
std::optional<std::string> chosen_word(const std::string& content) {
  const std::size_t open = content.find('[');
  const std::size_t close = open == std::string::npos ? open : content.find(']', open);
  if (close == std::string::npos) return {};
  return printable(std::string_view(content).substr(open + 1, close - open - 1), 32);
}

void check_huge(const Patient& patient, Findings& findings) {
  const FileText meminfo = patient.files.read("/proc/meminfo");
  const auto total = value_of(meminfo.content, "HugePages_Total:");
  const auto available = value_of(meminfo.content, "HugePages_Free:");
  const auto size = value_of(meminfo.content, "Hugepagesize:");
  const std::string absent = meminfo.is_present() ? "not told" : meminfo.reason.empty() ? "missing" : meminfo.reason;
  findings.reading("/proc/meminfo HugePages_Total, HugePages_Free, Hugepagesize",
                   text(total.value_or(absent), ", ", available.value_or(absent), ", ", size.value_or(absent)));
  const FileText transparent = findings.read(patient, "/sys/kernel/mm/transparent_hugepage/enabled");
  const auto mode = chosen_word(transparent.content);
  const bool has_numbers = total && available && parse_number(*total, 0, UINT64_MAX) && parse_number(*available, 0, UINT64_MAX);
  if (!has_numbers || !mode) {
    findings.unknown({}, has_numbers ? "the setting of transparent huge pages is not told" : "the number of huge pages is not told",
                     has_numbers ? "see CONFIG_TRANSPARENT_HUGEPAGE in /boot/config-$(uname -r); a kernel without it has none"
                                 : "see 'grep Huge /proc/meminfo'");
    return;
  }
  findings.pass({}, text(*available, " of ", *total, " reserved huge pages", size ? text(" of ", *size) : std::string(),
                         " are free; transparent huge pages: ", *mode));
}

// ---- the table

constexpr std::array<Check, 5> kChecks{{
    {.info =
         {.id = "lim.memlock",
          .title = "Limit of locked memory",
          .why = "Registering host memory for RDMA locks it; beyond the limit registration fails with ENOMEM.",
          .what =
              "Pages that a device reads or writes must stay where they are. The kernel counts those that each process locks, and "
              "refuses more than RLIMIT_MEMLOCK unless the process has CAP_IPC_LOCK, and that in the machine's own user namespace: "
              "root of "
              "a container without root's rights has it for nothing. Usual defaults are 64 KiB and 8 MiB.",
          .impact =
              "ibv_reg_mr of host memory fails with ENOMEM ('cannot allocate memory') although memory is free, often only with "
              "the second queue or the larger message. Memory of a GPU is not counted, but the queues and bounce buffers "
              "beside it are.",
          .confirm = "ulimit -l\n"
                     "grep locked /proc/PID/limits\n"
                     "The first in the very shell, batch job or container that starts the program, since batch systems and ssh may "
                     "have limits of their own; the second for a running one.",
          .remedy = "'* - memlock unlimited' in /etc/security/limits.conf, then log in anew.\n"
                    "A service, slurmd too: LimitMEMLOCK=infinity in its unit.\n"
                    "A container: docker run --ulimit memlock=-1, or --cap-add IPC_LOCK",
          .source = "getrlimit(2), capabilities(7); kernel drivers/infiniband/core/umem.c; Open MPI FAQ, locked memory with "
                    "OpenFabrics."},
     .run = check_memlock},
    {.info =
         {.id = "numa.cpu",
          .title = "CPUs next to the devices",
          .why =
              "A thread on the other socket pays for each doorbell, flag and staged copy with a trip across the link between the "
              "sockets.",
          .what = "Each GPU and each adapter hangs on one NUMA node. The check compares the CPUs that this process may run on with "
                  "those of the nodes of its devices.",
          .impact =
              "Latency grows by some tenths of a microsecond for each crossing, and copies through host memory share the link "
              "between the sockets with everything else: half to a third of the rate is usual. A node of -1 means that the "
              "firmware "
              "or the hypervisor does not tell, and programs then guess.",
          .confirm = "gigabar topology\n"
                     "nvidia-smi topo -m\n"
                     "grep . /sys/bus/pci/devices/ADDRESS/{numa_node,local_cpulist}\n"
                     "taskset -cp PID",
          .remedy = "One process: numactl --cpunodebind=NODE --membind=NODE PROGRAM\n"
                    "A job: the binding of its launcher, for example Slurm's --gpu-bind=closest or mpirun --map-by numa.\n"
                    "A container: a wider --cpuset-cpus and --cpuset-mems.",
          .source = "kernel Documentation/ABI/testing/sysfs-bus-pci (numa_node, local_cpulist); numactl(8); NVIDIA GPUDirect RDMA "
                    "documentation, supported systems."},
     .run = check_numa_cpu},
    {.info =
         {.id = "numa.balance",
          .title = "Automatic NUMA balancing",
          .why =
              "The kernel unmaps pages now and then to see who uses them, which stalls threads that poll and moves buffers away.",
          .what =
              "With kernel.numa_balancing=1 the kernel takes away access to parts of a process's memory, and moves a page to the "
              "node from which the next access comes. The nodes themselves follow from the firmware: AMD's NPS setting splits a "
              "package into several, and memory of a coherent GPU or an expander is a node without CPUs.",
          .impact =
              "Polling threads take page faults of some microseconds, which shows as jitter in latency. Pages that are pinned do "
              "not move, those around them do, so buffers and flags may end up on different nodes.",
          .confirm = "sysctl kernel.numa_balancing\n"
                     "grep numa_ /proc/vmstat\n"
                     "numactl --hardware\n"
                     "The second before and after a run: numa_hint_faults and numa_pages_migrated grow when the kernel is at work.",
          .remedy = "sysctl -w kernel.numa_balancing=0\n"
                    "To keep it, the same setting in a file below /etc/sysctl.d. Bind processes and memory instead (numa.cpu).",
          .source = "kernel Documentation/admin-guide/sysctl/kernel.rst (numa_balancing); AMD EPYC tuning guides, NUMA nodes per "
                    "socket."},
     .run = check_numa_balance},
    {.info = {.id = "cpu.governor",
              .title = "Clock of the CPUs",
              .why =
                  "A CPU that lowers its clock between messages answers each of them late, and small messages take twice as long.",
              .what = "The governor of cpufreq decides when a CPU runs at which clock. 'performance' keeps it high; 'powersave', "
                      "'ondemand' and 'schedutil' follow the load.",
              .impact =
                  "Between two messages the load is low, so the clock falls just before it is needed. Copies by the CPU and small "
                  "messages suffer most; large transfers by copy engines and adapters hardly at all.",
              .confirm =
                  "cpupower frequency-info\n"
                  "sort /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor | uniq -c\n"
                  "With intel_pstate, 'powersave' with energy_performance_preference 'performance' comes close to 'performance'.",
              .remedy = "cpupower frequency-set -g performance\n"
                        "tuned-adm profile latency-performance, which also limits deep idle states.\n"
                        "In a virtual machine the host decides.",
              .source =
                  "kernel Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst; rdma performance guides of the adapters' "
                  "vendors."},
     .run = check_governor},
    {.info =
         {.id = "huge",
          .title = "Huge pages",
          .why =
              "Large host buffers in pages of 4 KiB fill the translation caches of CPU and adapter; nothing is broken without huge "
              "pages.",
          .what =
              "Huge pages come from a pool that is reserved (HugePages_Total) or are made by the kernel where it can (transparent "
              "huge pages: always, madvise, never). This check informs; it never fails.",
          .impact = "Pinning a buffer of many small pages takes longer, and an adapter with more translations than its cache holds "
                    "fetches them from host memory, which shows with random accesses over tens of gigabytes.",
          .confirm = "grep Huge /proc/meminfo\n"
                     "cat /sys/kernel/mm/transparent_hugepage/enabled\n"
                     "grep AnonHugePages /proc/PID/smaps_rollup",
          .remedy = "sysctl -w vm.nr_hugepages=N reserves pages of the default size.\n"
                    "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled lets programs ask for transparent ones.",
          .source = "kernel Documentation/admin-guide/mm/hugetlbpage.rst and transhuge.rst."},
     .run = check_huge},
}};

}  // namespace

std::span<const Check> host_checks() { return kChecks; }

}  // namespace gigabar::doctor
