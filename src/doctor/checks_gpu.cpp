// SPDX-License-Identifier: Apache-2.0
// Each GPU by itself: what it can do for GPUDirect, its settings, its health, and the aperture that others see it through.
#include "doctor/checks_gpu.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/gpu_facts.hpp"
#include "doctor/pages_gpu.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSmallBar1 = 256 * kMiB;  // what a GPU has without Resizable BAR
constexpr std::uint64_t kMinFree = 16 * kMiB;     // one buffer of a communication library
constexpr std::uint64_t kFewFree = 8;             // less than one part in this many is little

std::string yes_or_no(const std::optional<bool>& fact) { return !fact ? "not told" : *fact ? "yes" : "no"; }

std::string number_or_none(const std::optional<int>& number) { return number ? std::to_string(*number) : "not told"; }

// --- gpu.rdma

Reading attribute_reading(const Gpu& gpu, const char* name, const std::optional<int>& value) {
  return {text("cuDeviceGetAttribute(", name, ") of ", gpu.address.to_string()), number_or_none(value)};
}

std::string abilities(const GpuAnswers* answers) {
  const auto dma_buf = cuda_attribute(answers, "dma_buf");
  const auto ordering = cuda_attribute(answers, "gpu_direct_rdma_writes_ordering");
  std::string line = !dma_buf        ? "; whether by dma-buf is not told"
                     : *dma_buf != 0 ? ", by dma-buf too"
                                     : ", but only through nvidia-peermem: it exports no dma-buf";
  // CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER is 100; below that a flush is needed before the GPU may read what arrived.
  if (ordering) line += *ordering >= 100 ? "; what arrives is visible to it in order" : "; what arrives needs a flush first";
  return line;
}

void judge_rdma(PerGpu& all, const Gpu& gpu, const GpuAnswers* answers) {
  const auto able = cuda_attribute(answers, "gpu_direct_rdma");
  std::vector<Reading> readings{
      attribute_reading(gpu, "GPU_DIRECT_RDMA_SUPPORTED", able),
      attribute_reading(gpu, "DMA_BUF_SUPPORTED", cuda_attribute(answers, "dma_buf")),
      attribute_reading(gpu, "GPU_DIRECT_RDMA_WRITES_ORDERING", cuda_attribute(answers, "gpu_direct_rdma_writes_ordering"))};
  if (!able) {
    return all.add(gpu, Verdict::unknown, "CUDA did not say whether other devices can reach this GPU's memory",
                   "run this where CUDA works, in the same container and as the same user as the program", std::move(readings));
  }
  if (*able != 0) {
    return all.add(gpu, Verdict::pass, "other devices can reach this GPU's memory (GPUDirect RDMA)" + abilities(answers), {},
                   std::move(readings));
  }
  const bool is_integrated = cuda_attribute(answers, "integrated").value_or(0) != 0;
  if (is_integrated) {
    return all.add(gpu, Verdict::fail, "this integrated GPU shares the CPU's memory and supports no GPUDirect RDMA",
                   "allocate with cudaHostAlloc and register that as host memory", std::move(readings));
  }
  all.add(gpu, Verdict::fail, "this GPU does not support GPUDirect RDMA (GeForce boards do not)",
          "move data through pinned host memory, in chunks that overlap; data-centre and professional boards support it",
          std::move(readings));
}

// --- gpu.ecc

struct Xid {
  std::uint64_t number;
  const char* meaning;
};
constexpr std::array<Xid, 14> kXids{{{13, "an exception in a kernel, usually the program's fault"},
                                     {31, "a memory fault, usually the program's fault"},
                                     {43, "a channel was stopped after a program's fault"},
                                     {45, "a program was ended while it used the GPU"},
                                     {48, "an uncorrectable memory error"},
                                     {61, "the GPU's firmware halted"},
                                     {63, "a memory row is to be remapped"},
                                     {64, "remapping a memory row failed"},
                                     {74, "an NVLink error"},
                                     {79, "the GPU has fallen off the bus"},
                                     {94, "a contained memory error"},
                                     {95, "an uncontained memory error"},
                                     {119, "the GPU's system processor did not answer"},
                                     {149, "an NVLink error"}}};

std::string meaning_of(std::uint64_t number) {
  const auto found = std::find_if(kXids.begin(), kXids.end(), [number](const Xid& xid) { return xid.number == number; });
  return found == kXids.end() ? "" : text(" (", found->meaning, ")");
}

// "NVRM: Xid (PCI:0000:3b:00): 79, pid=..." gives 79.
std::optional<std::uint64_t> xid_in(const std::string& line) {
  const std::size_t at = line.find("Xid (");
  const std::size_t closed = at == std::string::npos ? at : line.find("): ", at);
  if (closed == std::string::npos) return {};
  std::uint64_t number = 0;
  const char* const begin = line.data() + closed + 3;
  if (std::from_chars(begin, line.data() + line.size(), number).ec != std::errc{}) return {};
  return number;
}

struct Xids {
  std::vector<std::string> numbers;  // each once, with its meaning
  std::string last_line;
};

Xids xids_of(const Patient& patient, const Gpu& gpu) {
  const std::string address = gpu.address.to_string();
  Xids all;
  for (const std::string& line : log_lines(patient, {"NVRM: Xid", "PCI:" + address.substr(0, address.find('.'))})) {
    const auto number = xid_in(line);
    if (!number) continue;
    const std::string named = text(*number, meaning_of(*number));
    if (std::find(all.numbers.begin(), all.numbers.end(), named) == all.numbers.end() && all.numbers.size() < 8) {
      all.numbers.push_back(named);
    }
    all.last_line = line;
  }
  return all;
}

std::vector<Reading> memory_readings(const Gpu& gpu, const GpuAnswers* answers) {
  const GpuAnswers none;
  const GpuAnswers& told = answers == nullptr ? none : *answers;
  const std::string of = " of " + gpu.address.to_string();
  return {{"nvmlDeviceGetRemappedRows: pending" + of, yes_or_no(told.is_row_remap_pending)},
          {"nvmlDeviceGetRemappedRows: failure" + of, yes_or_no(told.has_row_remap_failed)},
          {"nvmlDeviceGetRetiredPagesPendingStatus" + of, yes_or_no(told.is_page_retirement_pending)}};
}

// Says it when the memory is ill.
bool tell_ill_memory(PerGpu& all, const Gpu& gpu, const GpuAnswers& answers, const std::vector<Reading>& readings) {
  const std::string reset =
      text("stop the programs on it, then: sudo nvidia-smi --gpu-reset -i ", gpu.address.to_string(), " (or reboot)");
  if (answers.has_row_remap_failed.value_or(false)) {
    all.add(gpu, Verdict::fail, "remapping a broken row of this GPU's memory failed",
            "take the GPU out of use and ask its maker for a replacement; 'nvidia-smi -q -d ROW_REMAPPER' is the evidence",
            readings);
    return true;
  }
  if (answers.is_row_remap_pending.value_or(false)) {
    all.add(gpu, Verdict::fail, "a broken row of this GPU's memory waits to be remapped: until then it may be used", reset,
            readings);
    return true;
  }
  if (answers.is_page_retirement_pending.value_or(false)) {
    all.add(gpu, Verdict::fail, "a broken page of this GPU's memory waits to be retired: until then it may be used", reset,
            readings);
    return true;
  }
  return false;
}

void judge_memory(PerGpu& all, const Patient& patient, const Gpu& gpu, const GpuAnswers* answers) {
  std::vector<Reading> readings = memory_readings(gpu, answers);
  const bool is_told =
      answers != nullptr && (answers->is_row_remap_pending || answers->has_row_remap_failed || answers->is_page_retirement_pending);
  const Xids xids = xids_of(patient, gpu);
  readings.push_back({"the kernel's log: Xid", !patient.answers.kernel_log ? "not readable"
                                               : xids.last_line.empty()    ? "none"
                                                                           : xids.last_line});
  if (is_told && tell_ill_memory(all, gpu, *answers, readings)) return;
  if (!xids.numbers.empty()) {
    return all.add(gpu, Verdict::warn, text("since the machine started the driver reported Xid ", joined(xids.numbers)),
                   "sudo dmesg | grep Xid shows when; NVIDIA's 'Xid Errors' page has each number's remedy", std::move(readings));
  }
  if (!is_told) {
    return all.add(gpu, Verdict::unknown, "NVML did not say whether rows or pages of this GPU's memory are broken",
                   "'nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT' shows what the board knows; boards without ECC know nothing",
                   std::move(readings));
  }
  all.add(gpu, Verdict::pass,
          text("no row or page of this GPU's memory waits for repair", patient.answers.kernel_log
                                                                           ? ", and no Xid is in the kernel's log"
                                                                           : "; the kernel's log could not be read for Xid errors"),
          {}, std::move(readings));
}

// --- gpu.throttle

struct Clock {
  std::uint64_t bit;
  const char* name;
  bool is_bad;
};
// NVML's nvmlClocksEventReason*
constexpr std::array<Clock, 9> kClocks{{{0x1, "idle", false},
                                        {0x2, "application clocks", false},
                                        {0x4, "software power cap", false},
                                        {0x8, "hardware slowdown", true},
                                        {0x10, "sync boost", false},
                                        {0x20, "software thermal slowdown", true},
                                        {0x40, "hardware thermal slowdown", true},
                                        {0x80, "hardware power brake", true},
                                        {0x100, "display clocks", false}}};

void judge_clocks(PerGpu& all, const Gpu& gpu, const GpuAnswers* answers) {
  const std::string source = "nvmlDeviceGetCurrentClocksEventReasons of " + gpu.address.to_string();
  if (answers == nullptr || !answers->clocks_event_reasons) {
    return all.add(gpu, Verdict::unknown, "NVML did not say what holds this GPU's clocks", "nvidia-smi -q -d PERFORMANCE",
                   {{source, "not told"}});
  }
  std::vector<std::string> bad;
  std::vector<std::string> names;
  for (const Clock& clock : kClocks) {
    if ((*answers->clocks_event_reasons & clock.bit) == 0) continue;
    names.emplace_back(clock.name);
    if (clock.is_bad) bad.emplace_back(clock.name);
  }
  std::vector<Reading> readings{{source, text(hex_text(*answers->clocks_event_reasons), names.empty() ? "" : ": ", joined(names))}};
  if (!bad.empty()) {
    return all.add(
        gpu, Verdict::warn, text("this GPU is slowed down right now: ", joined(bad)),
        "check cooling, power cables and the chassis's power budget; 'nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE' tells more",
        std::move(readings));
  }
  all.add(gpu, Verdict::pass, text("nothing slows this GPU down", names.empty() ? "" : "; its clocks follow: ", joined(names)), {},
          std::move(readings));
}

// --- bar1

// Size of one line "start end flags" of /sys/.../resource; 0 for an empty one.
std::uint64_t size_of_line(const std::string& line) {
  std::istringstream words(line);
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  if (!(words >> std::hex >> start >> end) || end <= start || end == ~std::uint64_t{0}) return 0;
  return end - start + 1;
}

// BAR0 holds registers and takes one line, or two where it is 64 bits wide; the next that is not empty is the aperture.
std::uint64_t bar1_of_resource(const std::string& resource) {
  std::istringstream lines(resource);
  std::string line;
  std::getline(lines, line);
  for (int i = 0; i < 2 && std::getline(lines, line); ++i) {
    if (const std::uint64_t size = size_of_line(line)) return size;
  }
  return 0;
}

struct Bar1 {
  std::optional<std::uint64_t> bytes;
  std::vector<Reading> readings;
};

Bar1 bar1_of(const Patient& patient, const Gpu& gpu, const GpuAnswers* answers) {
  if (answers != nullptr && answers->bar1_total_bytes) {
    return {answers->bar1_total_bytes,
            {{"nvmlDeviceGetBAR1MemoryInfo of " + gpu.address.to_string(), size_text(*answers->bar1_total_bytes)}}};
  }
  const std::string path = pci_folder(gpu.address) + "/resource";
  const FileText resource = patient.files.read(path);
  if (!resource.is_present()) return {{}, {{path, resource.state == FileState::missing ? "missing" : resource.reason}}};
  const std::uint64_t bytes = bar1_of_resource(resource.content);
  Bar1 bar1;
  if (bytes != 0) bar1.bytes = bytes;
  bar1.readings = {{path, bytes == 0 ? "no second region" : "second region of " + size_text(bytes)}};
  return bar1;
}

}  // namespace

void check_gpu_rdma(const Patient& patient, Findings& findings) {
  PerGpu all;
  for (const Gpu& gpu : gpus_to_check(patient, findings)) judge_rdma(all, gpu, answers_of(patient, gpu));
  all.say_to(findings);
}

void check_gpu_persist(const Patient& patient, Findings& findings) {
  PerGpu all;
  for (const Gpu& gpu : gpus_to_check(patient, findings)) {
    const GpuAnswers* answers = answers_of(patient, gpu);
    const std::optional<bool>* const is_on = answers != nullptr ? &answers->is_persistence_enabled : nullptr;
    const bool is_told = is_on != nullptr && is_on->has_value();
    std::vector<Reading> readings{
        {"nvmlDeviceGetPersistenceMode of " + gpu.address.to_string(), yes_or_no(is_told ? *is_on : std::nullopt)}};
    if (!is_told) {
      all.add(gpu, Verdict::unknown, "NVML did not say whether persistence mode is on", "nvidia-smi -q | grep Persistence",
              std::move(readings));
    } else if (**is_on) {
      all.add(gpu, Verdict::pass, "persistence mode is on: the driver keeps this GPU ready between programs", {},
              std::move(readings));
    } else {
      all.add(gpu, Verdict::warn,
              "persistence mode is off: the first program of each run waits for the GPU's start, and settings are lost",
              "sudo systemctl enable --now nvidia-persistenced; or, until the next boot: sudo nvidia-smi -pm 1",
              std::move(readings));
    }
  }
  all.say_to(findings);
}

void check_gpu_mig(const Patient& patient, Findings& findings) {
  PerGpu all;
  for (const Gpu& gpu : gpus_to_check(patient, findings)) {
    const GpuAnswers* answers = answers_of(patient, gpu);
    const std::optional<bool>* const is_on = answers != nullptr ? &answers->is_mig_enabled : nullptr;
    const bool is_told = is_on != nullptr && is_on->has_value();
    std::vector<Reading> readings{
        {"nvmlDeviceGetMigMode of " + gpu.address.to_string(), yes_or_no(is_told ? *is_on : std::nullopt)}};
    if (is_told && **is_on) {
      all.add(gpu, Verdict::warn, "MIG is on: no peer access to or from this GPU's instances, and CUDA sees one of them at a time",
              "to use the whole GPU, with no program on it: sudo nvidia-smi -mig 0", std::move(readings));
    } else if (is_told) {
      all.add(gpu, Verdict::pass, "MIG is off: the GPU is used as a whole", {}, std::move(readings));
    } else if (answers != nullptr && answers->is_persistence_enabled) {
      all.add(gpu, Verdict::pass, "NVML knows this GPU and reports no MIG mode for it, as for boards without MIG", {},
              std::move(readings));
    } else {
      all.add(gpu, Verdict::unknown, "NVML did not say whether MIG is on", "nvidia-smi --query-gpu=mig.mode.current --format=csv",
              std::move(readings));
    }
  }
  all.say_to(findings);
}

void check_gpu_ecc(const Patient& patient, Findings& findings) {
  PerGpu all;
  for (const Gpu& gpu : gpus_to_check(patient, findings)) judge_memory(all, patient, gpu, answers_of(patient, gpu));
  all.say_to(findings);
}

void check_gpu_throttle(const Patient& patient, Findings& findings) {
  PerGpu all;
  for (const Gpu& gpu : gpus_to_check(patient, findings)) judge_clocks(all, gpu, answers_of(patient, gpu));
  all.say_to(findings);
}

void check_bar1_size(const Patient& patient, Findings& findings) {
  PerGpu all;
  for (const Gpu& gpu : gpus_to_check(patient, findings)) {
    Bar1 bar1 = bar1_of(patient, gpu, answers_of(patient, gpu));
    if (!bar1.bytes) {
      all.add(gpu, Verdict::unknown, "the size of this GPU's BAR1 aperture could not be read",
              text("nvidia-smi -q -d MEMORY, or: lspci -vs ", gpu.address.to_string()), std::move(bar1.readings));
    } else if (*bar1.bytes <= kSmallBar1 && !gpu.is_coherent) {
      all.add(gpu, Verdict::warn,
              text("this GPU's BAR1 aperture is only ", size_text(*bar1.bytes),
                   ": no more of its memory can be mapped or registered at a time"),
              "enable 'Above 4G Decoding' and 'Resizable BAR' in the firmware's set-up, then reboot; or register less at a time",
              std::move(bar1.readings));
    } else {
      all.add(gpu, Verdict::pass, text("this GPU's BAR1 aperture is ", size_text(*bar1.bytes)), {}, std::move(bar1.readings));
    }
  }
  all.say_to(findings);
}

void check_bar1_used(const Patient& patient, Findings& findings) {
  PerGpu all;
  for (const Gpu& gpu : gpus_to_check(patient, findings)) {
    const GpuAnswers* answers = answers_of(patient, gpu);
    const std::string source = "nvmlDeviceGetBAR1MemoryInfo of " + gpu.address.to_string();
    if (answers == nullptr || !answers->bar1_total_bytes || !answers->bar1_used_bytes || *answers->bar1_total_bytes == 0) {
      all.add(gpu, Verdict::unknown, "NVML did not say how much of this GPU's BAR1 aperture is in use", "nvidia-smi -q -d MEMORY",
              {{source, "not told"}});
      continue;
    }
    const std::uint64_t total = *answers->bar1_total_bytes;
    const std::uint64_t free_bytes = total - std::min(total, *answers->bar1_used_bytes);
    const std::string share = text(size_text(free_bytes), " of ", size_text(total));
    const std::vector<Reading> readings{
        {source, text("total ", size_text(total), ", used ", size_text(*answers->bar1_used_bytes))}};
    const std::string remedy =
        "end the programs that hold mappings (nvidia-smi and 'sudo fuser -v /dev/nvidia*' list them), or pin less at a time";
    if (free_bytes < kMinFree) {
      all.add(gpu, Verdict::fail, text("this GPU's BAR1 aperture is full: ", share, " is free"), remedy, readings);
    } else if (free_bytes < total / kFewFree) {
      all.add(gpu, Verdict::warn, text("little of this GPU's BAR1 aperture is left: ", share, " is free"), remedy, readings);
    } else {
      all.add(gpu, Verdict::pass, text(share, " of this GPU's BAR1 aperture is free"), {}, readings);
    }
  }
  all.say_to(findings);
}

std::span<const Check> gpu_checks() {
  static const std::array<Check, 9> table{{{page::gpu_rdma(), check_gpu_rdma},
                                           {page::gpu_persist(), check_gpu_persist},
                                           {page::gpu_mig(), check_gpu_mig},
                                           {page::gpu_ecc(), check_gpu_ecc},
                                           {page::gpu_throttle(), check_gpu_throttle},
                                           {page::gpu_p2p(), check_gpu_p2p},
                                           {page::nvlink(), check_nvlink},
                                           {page::bar1_size(), check_bar1_size},
                                           {page::bar1_used(), check_bar1_used}}};
  return table;
}

}  // namespace gigabar::doctor
