// Whether the NVIDIA driver is there and which one, and whether the libraries that go with the devices are.
#include "doctor/checks_driver.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "base/errors.hpp"
#include "doctor/gpu_facts.hpp"
#include "doctor/pages_gpu.hpp"

namespace gigabar::doctor {
namespace {

// The first driver that has open kernel modules.
constexpr unsigned kFirstOpenBranch = 515;

std::string node_text(const NodeFacts& facts) {
  if (facts.kind != NodeKind::character_device) return facts.kind == NodeKind::missing ? "missing" : "not a device";
  if (facts.can_read && facts.can_write) return "readable and writable";
  return facts.can_read ? "read only" : "permission denied";
}

void read_nodes(const Patient& patient, Findings& findings) {
  for (const char* node : {kControlNode, "/dev/nvidia-uvm"}) findings.reading(node, node_text(patient.files.facts(node)));
  for (const std::string& node : gpu_nodes(patient)) findings.reading(node, node_text(patient.files.facts(node)));
}

void judge_absent_driver(const Patient& patient, Findings& findings, const DriverModule& module) {
  const std::string in = container(patient);
  if (module.state == FileState::unreadable || module.state == FileState::refused) {
    return findings.unknown({}, text(kVersionFile, " is there and could not be read"), text("as root: cat ", kVersionFile));
  }
  if (patient.answers.cuda.is_ok()) {
    return findings.unknown({},
                            "CUDA works, but neither /proc nor /sys tells of the kernel driver (WSL 2, or a sandbox that hides it)",
                            "nothing needs to be done for CUDA; run this on the host to see the driver");
  }
  if (!in.empty()) {
    return findings.fail({}, text("no NVIDIA driver shows inside ", in),
                         "load the driver on the host, and start the container with its GPUs: docker run --gpus all ...");
  }
  findings.fail({}, "the NVIDIA driver is not loaded, though the machine has NVIDIA GPUs or the driver's files",
                "sudo modprobe nvidia; when there is no such module, install the driver (for example: sudo apt install "
                "nvidia-open), and 'sudo dmesg | grep -i nvrm' says why a module would not load");
}

bool is_usable(const Patient& patient, const std::string& node) {
  const NodeFacts facts = patient.files.facts(node);
  return facts.kind == NodeKind::character_device && facts.can_read && facts.can_write;
}

// CUDA needs the unified memory node besides the resource manager's.
void judge_nodes(const Patient& patient, Findings& findings, const DriverModule& module) {
  const std::string driver = module.version.empty() ? "the NVIDIA driver" : "NVIDIA driver " + module.version;
  const Availability nodes = resource_manager_nodes(patient);
  if (!nodes.is_ok()) return findings.fail({}, text(driver, " is loaded, but ", nodes.reason), nodes.remedy);
  if (!is_usable(patient, "/dev/nvidia-uvm")) {
    const std::string in = container(patient);
    if (!in.empty()) {
      return findings.fail({}, text(driver, " is loaded, but /dev/nvidia-uvm is not usable in ", in, ", and CUDA needs it"),
                           "pass it on: docker run --gpus all, or --device /dev/nvidia-uvm");
    }
    return findings.warn({}, text(driver, " is loaded, but /dev/nvidia-uvm is not there or not usable, and CUDA needs it"),
                         "sudo nvidia-modprobe -u -c 0 (CUDA does that itself where nvidia-modprobe is installed setuid)");
  }
  findings.pass({}, text(driver, " is loaded, and ", nodes.reason));
}

// --- libraries

// The kernel's drivers and the file below /etc/libibverbs.d that their provider brings.
const std::map<std::string, std::string, std::less<>>& providers() {
  static const auto* const table = new std::map<std::string, std::string, std::less<>>{{"mlx5_core", "mlx5"},
                                                                                       {"mlx5_ib", "mlx5"},
                                                                                       {"mlx4_core", "mlx4"},
                                                                                       {"mlx4_ib", "mlx4"},
                                                                                       {"bnxt_en", "bnxt_re"},
                                                                                       {"bnxt_re", "bnxt_re"},
                                                                                       {"efa", "efa"},
                                                                                       {"irdma", "irdma"},
                                                                                       {"ice", "irdma"},
                                                                                       {"i40e", "irdma"},
                                                                                       {"idpf", "irdma"},
                                                                                       {"hns3", "hns"},
                                                                                       {"hns_roce_hw_v2", "hns"},
                                                                                       {"cxgb4", "cxgb4"},
                                                                                       {"qede", "qedr"},
                                                                                       {"qedr", "qedr"},
                                                                                       {"erdma", "erdma"},
                                                                                       {"mana", "mana"},
                                                                                       {"ionic", "ionic"},
                                                                                       {"hfi1", "hfi1verbs"},
                                                                                       {"ocrdma", "ocrdma"},
                                                                                       {"be2net", "ocrdma"},
                                                                                       {"vmw_pvrdma", "vmw_pvrdma"},
                                                                                       {"rxe", "rxe"},
                                                                                       {"rdma_rxe", "rxe"},
                                                                                       {"siw", "siw"}};
  return *table;
}

// The library listed the device: its provider works, whatever the files say.
bool is_listed(const Patient& patient, const std::string& device) {
  const auto& listed = patient.answers.rdma_devices;
  return std::any_of(listed.begin(), listed.end(), [&](const RdmaDeviceAnswers& one) { return one.name == device; });
}

struct Providers {
  std::vector<std::string> found, kinds, missing, unknown, wanted;  // devices; kinds and wanted: providers
};

void add_once(std::vector<std::string>& list, const std::string& word) {
  if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
}

Providers look_for_providers(const Patient& patient, Findings& findings, const std::vector<std::string>& devices) {
  const std::vector<std::string> files = patient.files.names("/etc/libibverbs.d");
  findings.reading("/etc/libibverbs.d", files.empty() ? "missing or empty" : joined(files));
  Providers all;
  for (const std::string& device : devices) {
    const std::string driver = rdma_driver(patient, device);
    const auto known = providers().find(driver);
    findings.reading("driver of " + device, driver.empty() ? "not told" : driver);
    const bool is_named = known != providers().end();
    const bool has_file = is_named && std::binary_search(files.begin(), files.end(), known->second + ".driver");
    if (is_listed(patient, device) || has_file) {
      all.found.push_back(device);
      if (is_named) add_once(all.kinds, known->second);
    } else if (!is_named || files.empty()) {
      all.unknown.push_back(device);
    } else {
      all.missing.push_back(device);
      add_once(all.wanted, known->second);
    }
  }
  return all;
}

void tell_missing_providers(Findings& findings, const Providers& all) {
  findings.fail("libibverbs",
                text("libibverbs has no provider '", joined(all.wanted), "' for ", printable(joined(all.missing)),
                     ", so it says that there is no such device"),
                "install the providers: sudo apt install ibverbs-providers (Debian, Ubuntu), sudo dnf install libibverbs (others); "
                "for a vendor's own stack, its user-space package");
}

// The library that finds none of the devices may lack their providers, which is worth more than its own words.
void tell_unusable_verbs(const Patient& patient, Findings& findings, const std::vector<std::string>& devices) {
  const Availability& verbs = patient.answers.verbs;
  if (verbs.code == AvailabilityCode::no_device) {
    const Providers all = look_for_providers(patient, findings, devices);
    if (!all.missing.empty()) return tell_missing_providers(findings, all);
  }
  findings.fail("libibverbs",
                text("the machine has ", devices.size(), devices.size() == 1 ? " RDMA device" : " RDMA devices",
                     ", but libibverbs cannot be used: ", printable(verbs.reason)),
                verbs.remedy.empty() ? "install it: sudo apt install libibverbs1 ibverbs-providers" : verbs.remedy);
}

void tell_not_asked(Findings& findings, const char* subject) {
  findings.unknown(subject, "the capture does not hold what this library said",
                   "capture the machine with 'gigabar topology --capture'");
}

void judge_verbs(const Patient& patient, Findings& findings) {
  const std::vector<std::string> devices = rdma_devices(patient);
  if (devices.empty()) return;
  const Availability& verbs = patient.answers.verbs;
  findings.reading("libibverbs", verbs.is_ok() ? "available " + verbs.reason : verbs.reason);
  if (is_not_asked(verbs)) return tell_not_asked(findings, "libibverbs");
  if (!verbs.is_ok()) return tell_unusable_verbs(patient, findings, devices);
  const Providers all = look_for_providers(patient, findings, devices);
  if (!all.missing.empty()) tell_missing_providers(findings, all);
  if (!all.unknown.empty()) {
    findings.unknown("libibverbs",
                     text("whether libibverbs has a provider for ", printable(joined(all.unknown)), " cannot be told"),
                     "'ibv_devices' lists the devices that have one");
  }
  if (!all.found.empty()) {
    findings.pass("libibverbs", text("libibverbs has a provider for ", printable(joined(all.found)),
                                     all.kinds.empty() ? "" : " (" + joined(all.kinds) + ")"));
  }
}

void judge_cuda(const Patient& patient, Findings& findings) {
  const Availability& cuda = patient.answers.cuda;
  findings.reading("libcuda.so.1", cuda.is_ok() ? "available " + cuda.reason : cuda.reason);
  if (is_not_asked(cuda)) {
    tell_not_asked(findings, "CUDA");
  } else if (cuda.is_ok()) {
    findings.pass("CUDA", text("CUDA's driver library can be used", cuda.reason.empty() ? "" : ": ", printable(cuda.reason)));
  } else {
    findings.fail("CUDA", text("CUDA cannot be used: ", cuda.reason.empty() ? "no reason was told" : printable(cuda.reason)),
                  cuda.remedy.empty() ? "'nvidia-smi' shows whether the driver and its libraries fit together" : cuda.remedy);
  }
  const Availability& nvml = patient.answers.nvml;
  findings.reading("libnvidia-ml.so.1", nvml.is_ok() ? "available " + nvml.reason : nvml.reason);
  if (is_not_asked(nvml)) {
    tell_not_asked(findings, "NVML");
  } else if (nvml.is_ok()) {
    findings.pass("NVML", "NVML can be used");
  } else {
    findings.warn("NVML", text("NVML cannot be used, so much about the GPUs stays unknown: ", printable(nvml.reason)),
                  nvml.remedy.empty() ? "install the driver's libnvidia-ml.so.1 of the same version" : nvml.remedy);
  }
}

}  // namespace

void check_drv_loaded(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.skip(kNoGpu);
  findings.read(patient, kVersionFile);
  read_nodes(patient, findings);
  const DriverModule module = driver_module(patient);
  if (!module.is_loaded) return judge_absent_driver(patient, findings, module);
  judge_nodes(patient, findings, module);
}

void check_drv_flavour(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.skip(kNoGpu);
  findings.read(patient, kVersionFile);
  const DriverModule module = driver_module(patient);
  if (module.is_open == Answer::no) {
    return findings.warn({},
                         text("the proprietary kernel modules ", module.version,
                              " are loaded: GPU memory cannot be exported as a dma-buf, only nvidia-peermem can register it"),
                         "install the open kernel modules (Turing or newer), for example: sudo apt install nvidia-open", true);
  }
  if (module.is_open == Answer::unknown) {
    return findings.unknown({}, "whether the driver's open or proprietary kernel modules are loaded could not be read",
                            text("look on the host with: cat ", kVersionFile));
  }
  if (module.branch == 0) {
    return findings.unknown({}, "the open kernel modules are loaded, but their version could not be read",
                            "'modinfo -F version nvidia' tells it; 515 or newer exports dma-bufs");
  }
  if (module.branch < kFirstOpenBranch) {
    return findings.warn({}, text("the open kernel modules ", module.version, " are older than 515 and export no dma-buf"),
                         "install a newer driver", true);
  }
  findings.pass({}, text("the open kernel modules ", module.version, " are loaded: GPU memory can be exported as a dma-buf"));
}

void check_libs(const Patient& patient, Findings& findings) {
  const bool has_gpu = has_nvidia(patient);
  if (!has_gpu && rdma_devices(patient).empty()) return findings.skip("this machine has neither an NVIDIA GPU nor an RDMA device");
  if (has_gpu) judge_cuda(patient, findings);
  judge_verbs(patient, findings);
}

std::span<const Check> driver_checks() {
  static const std::array<Check, 13> table{{{page::drv_loaded(), check_drv_loaded},
                                            {page::drv_flavour(), check_drv_flavour},
                                            {page::drv_gpus(), check_drv_gpus},
                                            {page::libs(), check_libs},
                                            {page::kern_dmabuf(), check_kern_dmabuf},
                                            {page::mod_peermem(), check_mod_peermem},
                                            {page::mod_peermem_dmesg(), check_mod_peermem_dmesg},
                                            {page::mod_gdrdrv(), check_mod_gdrdrv},
                                            {page::mod_params(), check_mod_params},
                                            {page::drv_grdma_topo(), check_drv_grdma_topo},
                                            {page::drv_dmabuf_log(), check_drv_dmabuf_log},
                                            {page::imex(), check_imex},
                                            {page::gin(), check_gin}}};
  return table;
}

}  // namespace gigabar::doctor
