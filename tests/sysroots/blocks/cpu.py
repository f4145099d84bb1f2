# SPDX-License-Identifier: Apache-2.0
"""Processors, caches, NUMA nodes and memory in /sys/devices/system and /proc."""

from .machine import cpu_list, cpu_map

KIB_PER_GIB = 1 << 20

X86_FLAGS = ("fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall "
             "nx pdpe1gb rdtscp lm constant_tsc rep_good nopl nonstop_tsc cpuid pni pclmulqdq ssse3 fma cx16 sse4_1 sse4_2 "
             "x2apic movbe popcnt aes xsave avx f16c rdrand lahf_lm abm fsgsbase bmi1 avx2 smep bmi2 erms rdseed adx smap "
             "clflushopt clwb sha_ni xsaveopt xsavec xgetbv1")
ARM_FEATURES = ("fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3 "
                "sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg dcpodp sve2 bti")


class Model:
    def __init__(self, name, vendor, family, model, mhz, l2_kib, l3_kib, is_arm=False):
        self.name, self.vendor, self.family, self.model, self.mhz = name, vendor, family, model, mhz
        self.l2_kib, self.l3_kib, self.is_arm = l2_kib, l3_kib, is_arm


XEON_4314 = Model("Intel(R) Xeon(R) Silver 4314 CPU @ 2.40GHz", "GenuineIntel", 6, 106, 2400, 1280, 24576)
XEON_8462 = Model("Intel(R) Xeon(R) Platinum 8462Y+", "GenuineIntel", 6, 143, 2800, 2048, 61440)
CORE_11700 = Model("11th Gen Intel(R) Core(TM) i7-11700K @ 3.60GHz", "GenuineIntel", 6, 167, 3600, 512, 16384)
EPYC_9354 = Model("AMD EPYC 9354 32-Core Processor", "AuthenticAMD", 25, 17, 3250, 1024, 32768)
EPYC_7543 = Model("AMD EPYC 7543 32-Core Processor", "AuthenticAMD", 25, 1, 2800, 512, 32768)
NEOVERSE_V2 = Model("Neoverse-V2", "ARM", 8, 0xD4F, 3400, 1024, 116736, is_arm=True)


def memory_line(name, value, unit=""):
    """Of meminfo: a field of 8 behind the 16 of the name."""
    return f"{name + ':':<16}{value:>8}{unit}\n"


class Cpus:
    """`packages` of `nodes_per_package` NUMA nodes of `cores_per_node` cores. First threads are numbered before second ones."""

    def __init__(self, machine, model, packages=1, nodes_per_package=1, cores_per_node=8, threads=2, memory_gib_per_node=64,
                 governor="performance", driver="intel_cpufreq", is_guest=False, far_distance=21):
        self.machine, self.model, self.threads, self.is_guest = machine, model, threads, is_guest
        self.packages, self.nodes_per_package, self.cores_per_node = packages, nodes_per_package, cores_per_node
        self.core_count = packages * nodes_per_package * cores_per_node
        self.count = self.core_count * threads
        self.node_count = packages * nodes_per_package
        self.memory_gib = [memory_gib_per_node] * self.node_count
        self.far_distance = far_distance
        self.governor, self.driver = governor, driver
        machine.cpus = self
        self.write_cpus()
        self.write_nodes()
        self.write_proc()

    # Which CPUs: of a core, a package, a node.

    def core_of(self, cpu):
        return cpu % self.core_count

    def of_core(self, core):
        return {core + self.core_count * thread for thread in range(self.threads)}

    def of_cores(self, first, count):
        return {cpu for core in range(first, first + count) for cpu in self.of_core(core)}

    def of_package(self, package):
        cores = self.cores_per_node * self.nodes_per_package
        return self.of_cores(package * cores, cores)

    def of_node(self, node):
        """Node -1 is "not told": the kernel then prints every CPU. A node without CPUs is near to those of the first node."""
        if node < 0:
            return set(range(self.count))
        if node >= self.packages * self.nodes_per_package:
            return set()
        return self.of_cores(node * self.cores_per_node, self.cores_per_node)

    def write_cpus(self):
        machine, folder = self.machine, "/sys/devices/system/cpu"
        everyone = cpu_list(range(self.count))
        machine.files_in(folder, {"online": everyone, "possible": everyone, "present": everyone, "offline": "",
                                  "kernel_max": "8191"})
        machine.file(f"{folder}/smt/active", "1" if self.threads > 1 else "0")
        for cpu in range(self.count):
            self.write_topology(cpu, f"{folder}/cpu{cpu}/topology")
            self.write_caches(cpu, f"{folder}/cpu{cpu}/cache")
            node = self.core_of(cpu) // self.cores_per_node
            machine.link(f"{folder}/cpu{cpu}/node{node}", f"/sys/devices/system/node/node{node}")
            if cpu:
                machine.file(f"{folder}/cpu{cpu}/online", "1")
            if self.governor:
                machine.files_in(f"{folder}/cpufreq/policy{cpu}", {
                    "scaling_governor": self.governor, "scaling_driver": self.driver, "affected_cpus": str(cpu),
                    "scaling_available_governors": "conservative ondemand userspace powersave performance schedutil ",
                })
                machine.link(f"{folder}/cpu{cpu}/cpufreq", f"{folder}/cpufreq/policy{cpu}")

    def write_topology(self, cpu, folder):
        core = self.core_of(cpu)
        package = core // (self.cores_per_node * self.nodes_per_package)
        siblings, package_cpus = self.of_core(core), self.of_package(package)
        self.machine.files_in(folder, {
            "physical_package_id": str(package), "die_id": "0",
            "core_id": str(core % (self.cores_per_node * self.nodes_per_package)),
            "thread_siblings": cpu_map(siblings, self.count), "thread_siblings_list": cpu_list(siblings),
            "core_cpus": cpu_map(siblings, self.count), "core_siblings": cpu_map(package_cpus, self.count),
            "core_siblings_list": cpu_list(package_cpus), "package_cpus": cpu_map(package_cpus, self.count),
            "die_cpus": cpu_map(package_cpus, self.count),
        })

    def write_caches(self, cpu, folder):
        core = self.core_of(cpu)
        own = self.of_core(core)
        shared = self.of_node(core // self.cores_per_node)
        for index, (level, kind, kib, cpus) in enumerate([(1, "Data", 32, own), (1, "Instruction", 32, own),
                                                          (2, "Unified", self.model.l2_kib, own),
                                                          (3, "Unified", self.model.l3_kib, shared)]):
            self.machine.files_in(f"{folder}/index{index}", {
                "level": str(level), "type": kind, "size": f"{kib}K", "coherency_line_size": "64",
                "shared_cpu_map": cpu_map(cpus, self.count),
            })

    def write_nodes(self):
        folder = "/sys/devices/system/node"
        nodes = cpu_list(range(len(self.memory_gib)))
        cpu_nodes = cpu_list(range(self.node_count))
        self.machine.files_in(folder, {"online": nodes, "possible": nodes, "has_cpu": cpu_nodes, "has_memory": nodes,
                                       "has_normal_memory": cpu_nodes})
        for node, gib in enumerate(self.memory_gib):
            self.write_node(node, gib, f"{folder}/node{node}")

    def write_node(self, node, gib, folder):
        cpus = self.of_node(node)
        kib = gib * KIB_PER_GIB
        self.machine.files_in(folder, {
            "cpumap": cpu_map(cpus, self.count), "cpulist": cpu_list(cpus),
            "distance": " ".join(str(self.distance(node, other)) for other in range(len(self.memory_gib))),
            "meminfo": "".join(f"Node {node} {memory_line(name, value, ' kB')}" for name, value in [
                ("MemTotal", kib), ("MemFree", kib // 2), ("MemUsed", kib - kib // 2)]) + f"Node {node} HugePages_Total:     0\n",
        })
        for pages in ("2048kB", "1048576kB"):
            self.machine.files_in(f"{folder}/hugepages/hugepages-{pages}", {"nr_hugepages": "0", "free_hugepages": "0"})
        for cpu in cpus:
            self.machine.link(f"{folder}/cpu{cpu}", f"/sys/devices/system/cpu/cpu{cpu}")

    def distance(self, node, other):
        if node == other:
            return 10
        if max(node, other) >= self.node_count:
            return 80
        return 12 if node // self.nodes_per_package == other // self.nodes_per_package else self.far_distance

    def add_memory_node(self, gib, possible=None):
        """A NUMA node without CPUs: the memory of a coherent GPU."""
        self.memory_gib.append(gib)
        self.write_nodes()
        if possible:
            self.machine.file("/sys/devices/system/node/possible", possible)

    def write_proc(self):
        describe = self.describe_arm if self.model.is_arm else self.describe_x86
        self.machine.file("/proc/cpuinfo", "".join(describe(cpu) for cpu in range(self.count)))
        kib = sum(self.memory_gib) * KIB_PER_GIB
        self.machine.file("/proc/meminfo", "".join(memory_line(name, value, unit) for name, value, unit in [
            ("MemTotal", kib, " kB"), ("MemFree", kib // 2, " kB"), ("MemAvailable", kib // 10 * 9, " kB"),
            ("Buffers", 10240, " kB"), ("Cached", kib // 4, " kB"), ("SwapTotal", 0, " kB"), ("SwapFree", 0, " kB"),
            ("HugePages_Total", 0, ""), ("HugePages_Free", 0, ""), ("HugePages_Rsvd", 0, ""), ("HugePages_Surp", 0, ""),
            ("Hugepagesize", 2048, " kB")]))
        self.machine.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")

    def describe_x86(self, cpu):
        cores = self.cores_per_node * self.nodes_per_package
        core = self.core_of(cpu)
        model = self.model
        flags = X86_FLAGS + (" hypervisor" if self.is_guest else "") + (" vmx" if model.vendor == "GenuineIntel" else " svm")
        lines = [
            ("processor\t", cpu), ("vendor_id\t", model.vendor), ("cpu family\t", model.family), ("model\t\t", model.model),
            ("model name\t", model.name), ("stepping\t", 6), ("cpu MHz\t\t", f"{model.mhz}.000"),
            ("cache size\t", f"{model.l3_kib} KB"), ("physical id\t", core // cores), ("siblings\t", cores * self.threads),
            ("core id\t\t", core % cores), ("cpu cores\t", cores),
            ("fpu\t\t", "yes"), ("cpuid level\t", 27), ("wp\t\t", "yes"), ("flags\t\t", flags), ("clflush size\t", 64),
            ("cache_alignment\t", 64), ("address sizes\t", "52 bits physical, 57 bits virtual"),
        ]
        return "".join(f"{key}: {value}\n" for key, value in lines) + "power management:\n\n"

    def describe_arm(self, cpu):
        return (f"processor\t: {cpu}\nBogoMIPS\t: 2000.00\nFeatures\t: {ARM_FEATURES}\nCPU implementer\t: 0x41\n"
                f"CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0x{self.model.model:x}\nCPU revision\t: 0\n\n")
