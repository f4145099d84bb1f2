// SPDX-License-Identifier: Apache-2.0
// What the probes share: checks that do something, on the machine itself.
#include "doctor/probes.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/gpu_facts.hpp"
#include "driver/cuda/cuda.hpp"

namespace gigabar::doctor {
namespace {

constexpr const char* kOnlyHere = "only on the machine itself";

void no_gpu(const Patient& patient, Findings& findings) {
  if (environment("GIGABAR_STAND_IN")) return findings.skip("GIGABAR_STAND_IN asks for stand-ins, which are no GPUs");
  if (patient.topology.gpus.empty()) return findings.no_device(patient, "this machine has no GPU");
  const Availability& cuda = cuda::driver().availability;
  findings.reading("libcuda", cuda.reason);
  findings.unknown({}, text("the machine has GPUs, but this process cannot use CUDA: ", printable(cuda.reason)), cuda.remedy);
}

void no_rdma(const Patient& patient, const std::string& cause, const std::string& remedy, Findings& findings) {
  if (std::ranges::all_of(patient.topology.nics, &std::string::empty, &Nic::rdma_device))
    return findings.no_device(patient, kNoRdma, kInfinibandFolder);
  findings.reading("libibverbs", cause);
  findings.unknown({}, text("the machine has RDMA devices, but this process cannot use them: ", printable(cause)), remedy);
}

}  // namespace

std::vector<ProbeGpu> probe_gpus(const Patient& patient, Findings& findings) {
  std::vector<ProbeGpu> gpus;
  if (!patient.is_live) {
    findings.skip(kOnlyHere);
    return gpus;
  }
  const auto all = devices();
  if (!all) {
    const ErrorRecord& record = all.error().record();
    findings.unknown({}, text("the GPUs of this process cannot be listed: ", printable(record.cause)), record.remedy);
    return gpus;
  }
  for (const DeviceInfo& device : *all) {
    if (device.is_stand_in || !device.pci) continue;
    const auto& known = patient.topology.gpus;
    const auto found = std::ranges::find(known, *device.pci, &Gpu::address);
    gpus.push_back({device.index, *device.pci, found == known.end() ? -1 : static_cast<int>(found - known.begin())});
  }
  if (gpus.empty()) no_gpu(patient, findings);
  return gpus;
}

std::vector<std::string> probe_rdma_devices(const Patient& patient, Findings& findings) {
  if (!patient.is_live) {
    findings.skip(kOnlyHere);
    return {};
  }
  auto names = verbs::device_names();
  if (!names) {
    no_rdma(patient, names.error().record().cause, names.error().record().remedy, findings);
    return {};
  }
  if (names->empty())
    no_rdma(patient, "libibverbs finds none",
            "install the devices' provider libraries (package ibverbs-providers), and in a container pass /dev/infiniband",
            findings);
  return std::move(*names);
}

std::string pair_subject(const ProbeGpu& gpu, const std::string& rdma_device) {
  return text(gpu.subject(), " and ", printable(rdma_device, 64));
}

std::vector<unsigned char> probe_pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> pattern(bytes);
  std::uint32_t state = 0x9e3779b9U * (seed + 1);
  for (unsigned char& byte : pattern) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator: the upper bits vary
    byte = static_cast<unsigned char>(state >> 24);
  }
  return pattern;
}

std::string short_number(double number) { return rounded(number, number < 10 ? 2 : 1); }

void cannot_allocate(const ProbeGpu& gpu, const std::string& cause, const std::string& remedy, Findings& findings) {
  findings.unknown(gpu.subject(), text("GPU memory for the probe could not be allocated: ", printable(cause)),
                   remedy.empty() ? "see who uses the GPU (nvidia-smi), and try again when it has memory to spare" : remedy);
}

}  // namespace gigabar::doctor
