// SPDX-License-Identifier: Apache-2.0
// Whether the NVIDIA driver is there and which one, whether the libraries that go with the devices are, which kernel modules must
// be there, and with which settings.
#include <algorithm>
#include <array>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/facts.hpp"
#include "platform/device_nodes.hpp"
#include "platform/nvidia.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::size_t kMaxCapabilities = 256;  // two for each MIG instance of a machine

constexpr const char* kUnifiedMemoryNode = "/dev/nvidia-uvm";
constexpr const char* kCapabilitiesFolder = "/dev/nvidia-caps";

// The driver's nodes that are there.
std::vector<NodeReport> driver_nodes(const Patient& patient) {
  std::vector<NodeReport> nodes{look_at_node(patient, kControlNode), look_at_node(patient, kUnifiedMemoryNode)};
  for (const std::string& path : gpu_nodes(patient)) nodes.push_back(look_at_node(patient, path));
  return nodes;
}

// Nodes by which instances of MIG and the fabric manager are reached; a folder holds them.
std::vector<NodeReport> capability_nodes(const Patient& patient) {
  const NodeKind kind = patient.files.facts(kCapabilitiesFolder).kind;
  if (kind == NodeKind::missing) return {};
  if (kind != NodeKind::folder) {
    return {
        {kCapabilitiesFolder, NodeState::not_a_device, "not a folder",
         "is not the folder that the nodes of MIG instances and of the fabric manager have to be in",
         text("sudo rm ", kCapabilitiesFolder, " (in a container: remove its mount); 'sudo nvidia-modprobe -c 0' makes it anew")}};
  }
  std::vector<NodeReport> nodes;
  for (const std::string& name : patient.files.names(kCapabilitiesFolder)) {
    if (nodes.size() == kMaxCapabilities) break;
    if (name.starts_with("nvidia-cap")) nodes.push_back(look_at_node(patient, text(kCapabilitiesFolder, "/", name)));
  }
  return nodes;
}

Ruling judge_absent_driver(const Patient& patient, const DriverModule& module) {
  const std::string in = container(patient);
  if (module.state == FileState::unreadable || module.state == FileState::refused)
    return unknown(text(kVersionFile, " is there and could not be read"), text("as root: cat ", kVersionFile));
  if (patient.answers.cuda.is_ok())
    return unknown("CUDA works, but neither /proc nor /sys tells of the kernel driver (WSL 2, or a sandbox that hides it)",
                   "nothing needs to be done for CUDA; run this on the host to see the driver");
  if (!in.empty())
    return fail(text("no NVIDIA driver shows inside ", in),
                "load the driver on the host, and start the container with its GPUs: docker run --gpus all ...");
  return fail("the NVIDIA driver is not loaded, though the machine has NVIDIA GPUs or the driver's files",
              "sudo modprobe nvidia; when there is no such module, install the driver (for example: sudo apt install nvidia-open), "
              "and 'sudo dmesg | grep -i nvrm' says why a module would not load");
}

// GPUs that the driver has and that no node leads to, as "/dev/nvidia1"; a container is given some on purpose.
std::vector<std::string> missing_gpu_nodes(const Patient& patient) {
  std::vector<std::string> missing;
  if (!container(patient).empty()) return missing;
  for (const std::string& address : patient.files.names(kGpusFolder)) {
    const auto minor = nvidia_minor_in(patient.files.read(text(kGpusFolder, "/", address, "/information")).content);
    if (minor && !patient.files.exists(text("/dev/nvidia", *minor))) missing.push_back(text("/dev/nvidia", *minor));
  }
  return missing;
}

bool is_any_split(const Patient& patient) {
  return std::ranges::any_of(patient.answers.gpus, [](const GpuAnswers& gpu) { return gpu.is_mig_enabled.value_or(false); });
}

void tell_broken_nodes(Findings& findings, const std::string& driver, const std::vector<NodeReport>& nodes, Verdict verdict) {
  for (const NodeReport& node : nodes) {
    if (!node.is_broken()) continue;
    findings.reading(node.path, node.value);
    findings.say(node.path, Ruling{verdict, text(driver, " is loaded, but ", node.statement()), node.remedy});
  }
}

Ruling judge_unified_memory(const Patient& patient, const std::string& driver) {
  const std::string in = container(patient);
  if (!in.empty())
    return fail(text(driver, " is loaded, but /dev/nvidia-uvm is not usable in ", in, ", and CUDA needs it"),
                "pass it on: docker run --gpus all, or --device /dev/nvidia-uvm");
  return warn(text(driver, " is loaded, but /dev/nvidia-uvm is not there or not usable, and CUDA needs it"),
              "sudo nvidia-modprobe -u -c 0 (CUDA does that itself where nvidia-modprobe is installed setuid)");
}

// CUDA needs the unified memory node besides the resource manager's.
MaybeRuling judge_nodes(const Patient& patient, Findings& findings, const DriverModule& module,
                        const std::vector<NodeReport>& nodes) {
  const std::string driver = module.version.empty() ? "the NVIDIA driver" : "NVIDIA driver " + module.version;
  tell_broken_nodes(findings, driver, nodes, Verdict::fail);
  tell_broken_nodes(findings, driver, capability_nodes(patient), is_any_split(patient) ? Verdict::fail : Verdict::warn);
  if (findings.count() > 0) return {};
  const Availability usable = resource_manager_nodes(patient);
  if (!usable.is_ok()) return fail(text(driver, " is loaded, but ", usable.reason), usable.remedy);
  if (const std::vector<std::string> missing = missing_gpu_nodes(patient); !missing.empty())
    return fail(text(driver, " is loaded, but it has GPUs whose nodes are missing: ", joined(missing)),
                "sudo nvidia-modprobe -c NUMBER for each, or run 'nvidia-smi' as root");
  if (!look_at_node(patient, kUnifiedMemoryNode).works()) return judge_unified_memory(patient, driver);
  return pass(driver, " is loaded, and ", usable.reason);
}

// --- libraries

constexpr const char* kVerbs = "libibverbs";

struct Providers {
  std::vector<std::string> found, kinds, missing, unlisted, unknown, wanted;  // devices; kinds and wanted: providers
};

// The device's node works, and still the library that was asked does not list it: its provider's file is there, and it does not
// load.
bool is_passed_over(const Patient& patient, const std::string& device) {
  if (!patient.answers.verbs.is_ok() || is_not_asked(patient.answers.verbs)) return false;
  const std::string node = uverbs_node(patient, device);
  return !node.empty() && look_at_node(patient, node).works();
}

void add_once(std::vector<std::string>& list, const std::string& word) {
  if (std::ranges::find(list, word) == list.end()) list.push_back(word);
}

Providers look_for_providers(const Patient& patient, Findings& findings, const std::vector<std::string>& devices) {
  const std::vector<std::string> files = patient.files.names("/etc/libibverbs.d");
  findings.reading("/etc/libibverbs.d", files.empty() ? "missing or empty" : joined(files));
  Providers all;
  for (const std::string& device : devices) {
    const std::string driver = rdma_driver(patient, device);
    const std::string provider(provider_of(driver));
    findings.reading("driver of " + device, driver.empty() ? "not told" : driver);
    const bool is_named = !provider.empty();
    const bool has_file = is_named && std::ranges::binary_search(files, provider + ".driver");
    // The library listed the device: its provider works, whatever the files say.
    const bool is_listed = answers_of(patient, device) != nullptr;
    if (has_file && !is_listed && is_passed_over(patient, device)) {
      all.unlisted.push_back(device);
    } else if (is_listed || has_file) {
      all.found.push_back(device);
      if (is_named) add_once(all.kinds, provider);
    } else if (!is_named || files.empty()) {
      all.unknown.push_back(device);
    } else {
      all.missing.push_back(device);
      add_once(all.wanted, provider);
    }
  }
  return all;
}

Ruling missing_providers(const Providers& all) {
  return fail(text("libibverbs has no provider '", joined(all.wanted), "' for ", printable(joined(all.missing)),
                   ", so it says that there is no such device"),
              "install the providers: sudo apt install ibverbs-providers (Debian, Ubuntu), sudo dnf install libibverbs (others); "
              "for a vendor's own stack, its user-space package");
}

// The library that finds none of the devices may lack their providers, which is worth more than its own words.
Ruling unusable_verbs(const Patient& patient, Findings& findings, const std::vector<std::string>& devices) {
  const Availability& verbs = patient.answers.verbs;
  if (verbs.code == AvailabilityCode::no_device) {
    const Providers all = look_for_providers(patient, findings, devices);
    if (!all.missing.empty()) return missing_providers(all);
  }
  return fail(text("the machine has ", counted(devices.size(), "RDMA device"),
                   ", but libibverbs cannot be used: ", printable(verbs.reason)),
              verbs.remedy.empty() ? "install it: sudo apt install libibverbs1 ibverbs-providers" : verbs.remedy);
}

// Of a library that nobody asked.
MaybeRuling not_asked(Findings& findings, const char* file, const Availability& library) {
  findings.reading(file, library.is_ok() ? "available " + library.reason : library.reason);
  if (!is_not_asked(library)) return {};
  return unknown("the capture does not hold what this library said", "capture the machine with 'gigabar topology --capture'");
}

MaybeRuling judge_verbs(const Patient& patient, Findings& findings) {
  const std::vector<std::string> devices = rdma_devices(patient);
  if (devices.empty()) return {};
  const Availability& verbs = patient.answers.verbs;
  if (MaybeRuling none = not_asked(findings, kVerbs, verbs)) return none;
  if (!verbs.is_ok()) return unusable_verbs(patient, findings, devices);
  const Providers all = look_for_providers(patient, findings, devices);
  if (!all.missing.empty()) findings.say(kVerbs, missing_providers(all));
  if (!all.unlisted.empty()) {
    const std::string statement =
        text("libibverbs has a provider's file for ", printable(joined(all.unlisted)),
             ", whose node can be opened, and does not list it: the provider does not load or does not fit the kernel's driver");
    findings.say(kVerbs, fail(statement,
                              "'ibv_devices' prints what it cannot load; install the providers of the same release as libibverbs: "
                              "sudo apt install --reinstall ibverbs-providers libibverbs1"));
  }
  if (!all.unknown.empty())
    findings.say(kVerbs, unknown(text("whether libibverbs has a provider for ", printable(joined(all.unknown)), " cannot be told"),
                                 "'ibv_devices' lists the devices that have one"));
  if (all.found.empty()) return {};
  return pass("libibverbs has a provider for ", printable(joined(all.found)),
              all.kinds.empty() ? "" : " (" + joined(all.kinds) + ")");
}

Ruling judge_cuda(const Patient& patient, Findings& findings) {
  const Availability& cuda = patient.answers.cuda;
  if (const MaybeRuling none = not_asked(findings, "libcuda.so.1", cuda)) return *none;
  if (cuda.is_ok()) return pass("CUDA's driver library can be used", cuda.reason.empty() ? "" : ": ", printable(cuda.reason));
  return fail(text("CUDA cannot be used: ", cuda.reason.empty() ? "no reason was told" : printable(cuda.reason)),
              cuda.remedy.empty() ? "'nvidia-smi' shows whether the driver and its libraries fit together" : cuda.remedy);
}

Ruling judge_nvml(const Patient& patient, Findings& findings) {
  const Availability& nvml = patient.answers.nvml;
  if (const MaybeRuling none = not_asked(findings, "libnvidia-ml.so.1", nvml)) return *none;
  if (nvml.is_ok()) return pass("NVML can be used");
  return warn(text("NVML cannot be used, so much about the GPUs stays unknown: ", printable(nvml.reason)),
              nvml.remedy.empty() ? "install the driver's libnvidia-ml.so.1 of the same version" : nvml.remedy);
}

constexpr const char* kGdrdrvNode = "/dev/gdrdrv";
constexpr const char* kImexChannel = "/dev/nvidia-caps-imex-channels/channel0";
constexpr const char* kImexDriver = "nvidia-caps-imex-channels";

// Why nothing needs the modules; nothing: there is a GPU and an RDMA device.
MaybeRuling without_both(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  if (!rdma_devices(patient).empty()) return {};
  return findings.no_device(patient, text("nothing would register GPU memory: ", kNoRdma), kInfinibandFolder);
}

// --- gdrdrv

Ruling judge_no_gdrdrv(const Patient& patient, Findings& findings) {
  const Availability own = resource_manager_nodes(patient);
  findings.reading(kControlNode, own.reason);
  if (own.is_ok())
    return pass("gdrdrv is absent, and Gigabar does not need it: it maps GPU memory through ", kControlNode,
                "; programs linked against GDRCopy's own library do need it");
  return warn(text("gdrdrv is absent and so is the other way to map GPU memory for the CPU (", own.reason, ")"),
              text(own.remedy, "; or load gdrdrv: install gdrdrv-dkms, then sudo modprobe gdrdrv"));
}

// --- mod.params

struct BadSetting {
  const char* name;
  std::string_view value;
  Verdict verdict;
  const char* statement;
};
constexpr std::array<BadSetting, 3> kBadSettings{
    {{"GrdmaPciTopoCheckOverride", "2", Verdict::fail, "the driver is told to refuse every network adapter that wants GPU memory"},
     {"NvLinkDisable", "1", Verdict::warn, "NVLink is switched off, as for a test: GPUs reach each other over PCIe only"},
     {"DmaRemapPeerMmio", "0", Verdict::warn,
      "peer addresses are not mapped through the IOMMU: peer-to-peer fails where it translates"}}};
constexpr const char* kRemoveSetting =
    "remove it from the files in /etc/modprobe.d (grep -r NVreg /etc/modprobe.d), run 'sudo update-initramfs -u' (or 'sudo dracut "
    "-f'), and reboot";

// --- imex

// GPUs of boards whose NVLink leaves the machine are coherent with their CPU and belong to a fabric.
Answer is_of_fabric(const Patient& patient, const Gpu& gpu) {
  if (!gpu.is_coherent) return Answer::no;
  const auto& state = answers_of(patient, gpu).fabric_state;
  if (!state) return Answer::unknown;
  return *state != "not_supported" ? Answer::yes : Answer::no;
}

Ruling judge_channel(const NodeReport& channel, bool is_driver_named) {
  if (channel.state == NodeState::no_permission)
    return fail(text("this user may not read and write ", kImexChannel), text("sudo chmod 666 ", kImexChannel));
  if (!channel.works()) return fail(channel.statement(), channel.remedy);
  if (!is_driver_named)
    return unknown(text(kImexChannel, " is there, but /proc/devices does not name its driver"),
                   text("compare on the host: ls -l ", kImexChannel, "; grep imex /proc/devices"));
  return pass("IMEX channel 0 is there for this user: memory handles of type FABRIC can be made and imported");
}

Ruling judge_no_channel(const Patient& patient, std::optional<std::uint32_t> major) {
  const auto has = [&](Answer answer) {
    return std::ranges::any_of(patient.topology.gpus, [&](const Gpu& gpu) { return is_of_fabric(patient, gpu) == answer; });
  };
  const std::string in = container(patient);
  if (has(Answer::yes) && !in.empty())
    return fail(text("the GPUs belong to an NVLink fabric, but ", in, " has no IMEX channel"),
                "give it one: with the NVIDIA container toolkit, set NVIDIA_IMEX_CHANNELS=0");
  if (has(Answer::yes)) {
    const std::string make = major ? text("sudo mkdir -p /dev/nvidia-caps-imex-channels && sudo mknod -m 666 ", kImexChannel, " c ",
                                          *major, " 0 (until the next boot), or for good")
                                   : std::string("a driver that knows IMEX channels (550 or newer), and");
    return fail("the GPUs belong to an NVLink fabric, but there is no IMEX channel, so FABRIC handles are refused",
                text(make,
                     " the line: options nvidia NVreg_CreateImexChannel0=1 in /etc/modprobe.d/nvidia-imex.conf; then sudo "
                     "systemctl enable --now nvidia-imex"));
  }
  if (has(Answer::unknown))
    return unknown("there is no IMEX channel, and whether the GPUs belong to an NVLink fabric could not be asked",
                   "look with: nvidia-smi -q | grep -A 3 Fabric");
  return skip("no GPU here belongs to an NVLink fabric of several machines");
}

// --- gin

// The driver is willing; a program must be able to open the adapter too, which it often cannot in a container.
Ruling judge_gin_nodes(const Patient& patient, const std::string& driver_reason, Findings& findings) {
  std::optional<NodeReport> broken;
  for (const std::string& path : uverbs_nodes(patient)) {
    NodeReport node = look_at_node(patient, path);
    if (node.works()) return pass(driver_reason, ", which lets a GPU ring an mlx5 adapter's doorbell");
    if (!broken) broken = std::move(node);
  }
  if (broken) {
    findings.reading(broken->path, broken->value);
    return warn(text(driver_reason, ", but ", broken->statement(), ", so no program here can use the adapter"), broken->remedy);
  }
  findings.reading("/dev/infiniband/uverbs*", "missing");
  return warn(text(driver_reason, ", but there is no device node through which a program here could open the adapter"),
              "see 'gigabar doctor --only rdma.dev' for how to have it");
}

}  // namespace

MaybeRuling check_drv_loaded(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  findings.read(patient, kVersionFile);
  const std::vector<NodeReport> nodes = driver_nodes(patient);
  for (const NodeReport& node : nodes) findings.reading(node.path, node.value);
  const DriverModule module = driver_module(patient);
  if (!module.is_loaded) return judge_absent_driver(patient, module);
  return judge_nodes(patient, findings, module, nodes);
}

MaybeRuling check_drv_flavour(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  findings.read(patient, kVersionFile);
  const DriverModule module = driver_module(patient);
  if (module.is_open == Answer::no)
    return warn(text("the proprietary kernel modules ", module.version,
                     " are loaded: GPU memory cannot be exported as a dma-buf, only nvidia-peermem can register it"),
                "install the open kernel modules (Turing or newer), for example: sudo apt install nvidia-open", true);
  if (module.is_open == Answer::unknown)
    return unknown("whether the driver's open or proprietary kernel modules are loaded could not be read",
                   text("look on the host with: cat ", kVersionFile));
  if (module.branch == 0)
    return unknown("the open kernel modules are loaded, but their version could not be read",
                   "'modinfo -F version nvidia' tells it; 515 or newer exports dma-bufs");
  if (module.branch < kFirstOpenBranch)
    return warn(text("the open kernel modules ", module.version, " are older than 515 and export no dma-buf"),
                "install a newer driver", true);
  return pass("the open kernel modules ", module.version, " are loaded: GPU memory can be exported as a dma-buf");
}

MaybeRuling check_libs(const Patient& patient, Findings& findings) {
  const bool has_gpu = has_nvidia(patient);
  if (!has_gpu && rdma_devices(patient).empty())
    return findings.no_end(patient, "this machine has neither an NVIDIA GPU nor an RDMA device");
  if (has_gpu) findings.say("CUDA", judge_cuda(patient, findings));
  if (has_gpu) findings.say("NVML", judge_nvml(patient, findings));
  findings.say(kVerbs, judge_verbs(patient, findings));
  return {};
}

MaybeRuling check_kern_dmabuf(const Patient& patient, Findings& findings) {
  if (MaybeRuling none = without_both(patient, findings)) return none;
  const auto judge = [&](const char* subject, Ruling part, bool needs_reboot) {
    if (part.verdict == Verdict::fail) {
      part.statement += ": GPU memory cannot be registered by dma-buf";
      part.needs_reboot = needs_reboot;
    }
    findings.say(subject, std::move(part));
  };
  judge("kernel", dmabuf_of_kernel(patient, findings), true);
  judge(kVerbs, dmabuf_of_verbs(patient, findings), false);
  return {};
}

MaybeRuling check_mod_peermem(const Patient& patient, Findings& findings) {
  if (MaybeRuling none = without_both(patient, findings)) return none;
  const Ruling loaded = peermem(patient, findings);
  if (loaded.verdict == Verdict::pass)
    return pass("nvidia-peermem is loaded (", loaded.statement, "): ibv_reg_mr can register GPU memory");
  const Ruling instead = dmabuf(patient, findings);
  const bool is_missing = loaded.verdict == Verdict::fail;
  const bool is_there = patient.files.exists("/sys/module/nvidia_peermem") || patient.files.exists("/sys/module/nv_peer_mem");
  if (instead.verdict == Verdict::pass && is_missing && is_there)
    return warn(text(loaded.statement, "; only programs that know dma-bufs can register GPU memory"), loaded.remedy);
  if (instead.verdict == Verdict::pass) return pass("nvidia-peermem is not needed: GPU memory can be registered by dma-buf");
  if (is_missing && instead.verdict == Verdict::fail)
    return fail(text(loaded.statement, ", and dma-buf cannot take its place: ", instead.statement),
                text(loaded.remedy, "; for dma-buf: ", instead.remedy));
  const Ruling& open = is_missing ? instead : loaded;
  return unknown(text("whether an adapter can register GPU memory cannot be told: ", open.statement), open.remedy);
}

MaybeRuling check_mod_peermem_dmesg(const Patient& patient, Findings& findings) {
  if (MaybeRuling none = without_both(patient, findings)) return none;
  if (!patient.answers.kernel_log) {
    findings.reading("the kernel's log", "not readable");
    return unknown("the kernel's log, which says why nvidia-peermem would not load, could not be read",
                   "sudo dmesg | grep -i -E 'peermem|peer_mem'");
  }
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    for (const char* complaint : {"disagrees about version of symbol", "Unknown symbol"}) {
      const std::vector<std::string> lines = log_lines(patient, {module, complaint});
      if (lines.empty()) continue;
      findings.reading("the kernel's log", lines.back());
      return fail(text("the kernel refused ", module, ", which was built against another RDMA stack: ", complaint),
                  "reinstall the NVIDIA driver after DOCA-OFED (or MLNX_OFED), so that the module is built against it (with DKMS: "
                  "sudo dkms autoinstall), then sudo modprobe nvidia-peermem; or use dma-buf");
    }
  }
  return pass("the kernel's log holds no complaint about nvidia-peermem");
}

MaybeRuling check_mod_gdrdrv(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  findings.read(patient, kGdrdrvVersionFile);
  const NodeReport node = look_at_node(patient, kGdrdrvNode);
  findings.reading(kGdrdrvNode, node.value);
  if (node.state == NodeState::missing && !patient.files.exists("/sys/module/gdrdrv")) return judge_no_gdrdrv(patient, findings);
  if (node.state == NodeState::missing) {
    const std::string in = container(patient);
    return warn(text("gdrdrv is loaded, but ", kGdrdrvNode, " is missing", in.empty() ? "" : " in ", in),
                in.empty() ? "sudo mknod -m 666 /dev/gdrdrv c $(awk '$2 == \"gdrdrv\" {print $1}' /proc/devices) 0"
                           : "pass it on: docker run --device /dev/gdrdrv");
  }
  if (node.state == NodeState::no_permission)
    return warn(text("this user may not read and write ", kGdrdrvNode),
                "sudo chmod a+rw /dev/gdrdrv (until the next boot); for good, a udev rule in /etc/udev/rules.d/60-gdrdrv.rules: "
                "KERNEL==\"gdrdrv\", MODE=\"0666\"");
  if (!node.works()) return warn(node.statement(), node.remedy);
  const std::string word = patient.files.word(kGdrdrvVersionFile).value_or("");
  const auto version = version_of(word);
  if (!version)
    return unknown(text(kGdrdrvNode, " is usable, but its version could not be read"),
                   "'modinfo -F version gdrdrv' tells it; 2.5 or newer keeps mappings valid after the memory was freed");
  if (*version < kGdrdrvThatKeeps)
    return warn(text("gdrdrv ", printable(word, 20), " is older than 2.5: an access after the memory was freed kills the program"),
                "install gdrdrv-dkms 2.5 or newer");
  return pass("gdrdrv ", printable(word, 20), " is loaded, and this user may use it");
}

MaybeRuling check_mod_params(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  const auto params = driver_params(patient);
  if (!params) {
    findings.read(patient, kParamsFile);
    return unknown(text(kParamsFile, " could not be read"), text("on the host: cat ", kParamsFile));
  }
  for (const BadSetting& bad : kBadSettings) {
    const std::string value = shown(*params, bad.name);
    findings.reading(text(kParamsFile, ": ", bad.name), value);
    if (value == bad.value)
      findings.say(text("NVreg_", bad.name, "=", bad.value), Ruling{bad.verdict, bad.statement, kRemoveSetting, true});
  }
  if (findings.count() > 0) return {};
  for (const char* name : {"RegistryDwords", "EnableStreamMemOPs", "EnablePCIERelaxedOrderingMode", "EnableResizableBar"}) {
    if (const std::string value = shown(*params, name); value != kNotNamed) findings.reading(text(kParamsFile, ": ", name), value);
  }
  return pass("no setting of the NVIDIA module stands in the way");
}

MaybeRuling check_imex(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  const auto driver = driver_of_node(patient.files, kImexChannel);
  const std::optional<std::uint32_t> major =
      driver && !driver->majors.empty() ? std::optional(driver->majors.front()) : std::nullopt;
  findings.reading("/proc/devices", !driver || !driver->is_told ? "not readable"
                                    : major                     ? text(kImexDriver, " has major number ", *major)
                                                                : text("no ", kImexDriver));
  const NodeReport channel = look_at_node(patient, kImexChannel);
  findings.reading(kImexChannel, channel.value);
  if (channel.state != NodeState::missing) return judge_channel(channel, major.has_value());
  return judge_no_channel(patient, major);
}

MaybeRuling check_gin(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  if (!has_mlx5(patient))
    return findings.no_device(patient,
                              "no NVIDIA ConnectX or BlueField adapter (mlx5) is here, and GPUs can drive no other by themselves",
                              kInfinibandFolder);
  const Ruling driver = gin_of_driver(patient, findings);
  if (driver.verdict == Verdict::pass) return judge_gin_nodes(patient, driver.statement, findings);
  if (driver.verdict == Verdict::unknown)
    return unknown(text("whether a GPU may ring an adapter's doorbell cannot be told: ", driver.statement), driver.remedy);
  return warn(text(driver.statement, ": GPU-initiated networking has to go through a thread of the CPU"), driver.remedy, true);
}

}  // namespace gigabar::doctor
