// What users see, and which checks to look at first. The words are those of programs' messages and of users' reports.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "gigabar/doctor.hpp"

namespace gigabar {
namespace {

using Words = std::string_view;

// Phrases of one symptom. They are compared without regard to punctuation: "errno 14" is found in "errno=14" and in "(errno: 14)".
constexpr std::array<Words, 25> kBadAddressWords{"errno 14",
                                                 "error 14",
                                                 "bad address",
                                                 "efault",
                                                 "cannot register",
                                                 "can't register",
                                                 "couldn't allocate mr",
                                                 "could not register",
                                                 "failed to register",
                                                 "registration failed",
                                                 "register gpu memory",
                                                 "reg_mr",
                                                 "peermem not loaded",
                                                 "nv_peer_mem",
                                                 "not registered",
                                                 "memory registration",
                                                 "geforce",
                                                 "peer memory client",
                                                 "cannot register gpu memory",
                                                 "gpudirect is off",
                                                 "gpudirect off",
                                                 "gpudirect disabled",
                                                 "gpudirect rdma is not used",
                                                 "gpudirect rdma not used",
                                                 "gdr 0"};
constexpr std::array<Words, 9> kBadAddressChecks{"mod.peermem", "gpu.rdma",    "mod.peermem.dmesg", "trial.peermem", "trial.dmabuf",
                                                 "drv.flavour", "kern.dmabuf", "drv.loaded",        "trial.host"};

constexpr std::array<Words, 19> kUnsupportedWords{"errno 93",
                                                  "errno 95",
                                                  "error 93",
                                                  "error 95",
                                                  "eprotonosupport",
                                                  "eopnotsupp",
                                                  "protocol not supported",
                                                  "operation not supported",
                                                  "dma-buf",
                                                  "dmabuf",
                                                  "dma-buf not supported",
                                                  "dma-buf unsupported",
                                                  "reg_dmabuf_mr",
                                                  "cannot register",
                                                  "cannot register gpu memory",
                                                  "couldn't allocate mr",
                                                  "closed module",
                                                  "proprietary module",
                                                  "old kernel"};
constexpr std::array<Words, 7> kUnsupportedChecks{"drv.flavour",  "kern.dmabuf", "libs",    "gpu.rdma",
                                                  "trial.dmabuf", "mod.peermem", "rdma.dev"};

constexpr std::array<Words, 11> kTopologyWords{"errno 524",
                                               "error 524",
                                               "enotsupp",
                                               "cannot register gpu memory",
                                               "couldn't allocate mr",
                                               "topology not supported",
                                               "pci topology not supported",
                                               "dma-buf attach failed",
                                               "force_pcie",
                                               "grace",
                                               "ampere altra"};
constexpr std::array<Words, 6> kTopologyChecks{"drv.grdma_topo", "drv.dmabuf.log", "mod.params",
                                               "pci.topo",       "iommu.group",    "trial.dmabuf"};

constexpr std::array<Words, 8> kNoMemoryWords{"errno 12",      "error 12", "enomem",        "cannot allocate memory",
                                              "out of memory", "memlock",  "locked memory", "bar1 full"};
constexpr std::array<Words, 5> kNoMemoryChecks{"lim.memlock", "bar1.used", "bar1.size", "trial.host", "trial.mapping"};

constexpr std::array<Words, 9> kNoDeviceWords{"no rdma device",        "no rdma devices",  "no ib devices",
                                              "no device found",       "no devices found", "no infiniband",
                                              "failed to open device", "uverbs",           "ibv_get_device_list"};
constexpr std::array<Words, 4> kNoDeviceChecks{"rdma.dev", "libs", "rdma.port", "vm.detect"};

constexpr std::array<Words, 11> kModprobeWords{"modprobe",
                                               "insmod",
                                               "nvidia-peermem invalid argument",
                                               "invalid argument",
                                               "could not insert",
                                               "unknown symbol",
                                               "disagrees about version of symbol",
                                               "peermem does not load",
                                               "peermem will not load",
                                               "ib_register_peer_memory_client",
                                               "peerdirect_support"};
constexpr std::array<Words, 4> kModprobeChecks{"mod.peermem.dmesg", "mod.peermem", "kern.dmabuf", "trial.dmabuf"};

constexpr std::array<Words, 14> kRetryWords{"retry exceeded",   "retry counter exceeded",
                                            "retries exceeded", "transport retry",
                                            "retry_exc_err",    "ibv_wc_retry_exc_err",
                                            "status 12",        "wc 12",
                                            "vendor 129",       "vendor err 129",
                                            "vendor error 129", "vendor_err 0x81",
                                            "wrong gid",        "packet loss"};
constexpr std::array<Words, 5> kRetryChecks{"rdma.gid", "rdma.mtu", "rdma.port", "rdma.qos", "rdma.counters"};

constexpr std::array<Words, 10> kHalfWords{"half",          "half rate",   "half of host",         "half the rate",         "50%",
                                           "twice as slow", "same socket", "gpu slower than host", "host memory is faster", "1/2"};
constexpr std::array<Words, 8> kHalfChecks{"pci.acs",        "pci.topo", "pci.mps",       "pci.ro",
                                           "pci.bottleneck", "pci.link", "pci.vendorp2p", "iommu.mode"};

constexpr std::array<Words, 11> kThirdWords{
    "third",        "a third",        "one third",    "1/3",         "33%", "three times slower",
    "cross socket", "across sockets", "other socket", "translation", "qpi"};
constexpr std::array<Words, 5> kThirdChecks{"pci.topo", "iommu.mode", "numa.cpu", "pci.acs", "iommu.group"};

constexpr std::array<Words, 14> kSlowWords{"slow",
                                           "everything is slow",
                                           "all pairs",
                                           "all sizes",
                                           "low bandwidth",
                                           "low rate",
                                           "low throughput",
                                           "bandwidth is low",
                                           "rate is low",
                                           "bad performance",
                                           "poor performance",
                                           "throttl",
                                           "down-trained",
                                           "gen1"};
constexpr std::array<Words, 10> kSlowChecks{"pci.link", "pci.bottleneck", "gpu.throttle", "cpu.governor",  "trial.link",
                                            "pci.topo", "numa.cpu",       "rdma.mtu",     "rdma.counters", "numa.balance"};

constexpr std::array<Words, 11> kLatencyWords{"latency",  "small messages", "small message", "small transfers",
                                              "large ok", "microseconds",   "jitter",        "gdrcopy",
                                              "inline",   "eager",          "late"};
constexpr std::array<Words, 7> kLatencyChecks{"mod.gdrdrv",   "trial.mapping", "cpu.governor", "numa.cpu",
                                              "numa.balance", "gin",           "gpu.persist"};

constexpr std::array<Words, 18> kOneWayWords{
    "one direction",  "one way only",      "only one way", "works one way", "direction only",  "reads fail",
    "read fails",     "writes work",       "write works",  "read is slow",  "reads are slow",  "asymmetric",
    "unidirectional", "reads unsupported", "reads are",    "writes fine",   "writes are fast", "writes are fine"};
constexpr std::array<Words, 5> kOneWayChecks{"pci.vendorp2p", "gpu.p2p", "pci.acs", "iommu.mode", "trial.loop"};

constexpr std::array<Words, 14> kWrongWords{
    "wrong data", "wrong result",        "wrong results", "corrupt",  "garbage",       "stale",    "data mismatch",
    "mismatch",   "verification failed", "incorrect",     "old data", "data is wrong", "bad data", "nan"};
constexpr std::array<Words, 6> kWrongChecks{"iommu.mode", "pci.acs", "pci.ro", "trial.loop", "gpu.rdma", "gpu.ecc"};

constexpr std::array<Words, 13> kHangWords{"hang",
                                           "hung",
                                           "stuck",
                                           "deadlock",
                                           "freezes",
                                           "never returns",
                                           "never finishes",
                                           "no progress",
                                           "first kernel",
                                           "does not start",
                                           "blocks for ever",
                                           "blocks forever",
                                           "system not yet initialized"};
constexpr std::array<Words, 7> kHangChecks{"pci.acs", "imex", "nvlink", "gpu.p2p", "iommu.mode", "drv.gpus", "gpu.mig"};

constexpr std::array<Symptom, 14> kSymptoms{{
    {.text = "cannot register GPU memory: errno 14 (EFAULT, bad address)",
     .words = kBadAddressWords,
     .checks = kBadAddressChecks,
     .hint = "The RDMA driver took the address for one of host memory; a pointer of another CUDA context looks the same."},
    {.text = "cannot register GPU memory: errno 93 or errno 95 (protocol or operation not supported), dma-buf unsupported",
     .words = kUnsupportedWords,
     .checks = kUnsupportedChecks,
     .hint = "A dma-buf needs the open kernel modules, CUDA 11.7, kernel 5.12 and rdma-core 34, or newer; the oldest of the four "
             "decides."},
    {.text = "cannot register GPU memory: errno 524 (ENOTSUPP), PCI topology not supported",
     .words = kTopologyWords,
     .checks = kTopologyChecks,
     .hint = "NVIDIA's driver refused the pair of GPU and adapter by its own rule; the kernel's log has its sentence."},
    {.text = "modprobe nvidia-peermem: invalid argument",
     .words = kModprobeWords,
     .checks = kModprobeChecks,
     .hint = "The module was built without the peer memory symbols of the RDMA drivers in use, or has a wrong value of "
             "peerdirect_support or persistent_api_support."},
    {.text = "transport retry exceeded (status 12, vendor error 129)",
     .words = kRetryWords,
     .checks = kRetryChecks,
     .hint =
         "Packets do not arrive or their answers do not: the GID index and version first, then MTU, firewall, PFC and routing."},
    {.text = "the GPU reaches half of the rate of host memory, on the same socket",
     .words = kHalfWords,
     .checks = kHalfChecks,
     .hint = "Compare writes with reads: where only reads are slow, the root complex is the cause rather than ACS."},
    {.text = "the GPU reaches a third (1/3) of the rate of host memory",
     .words = kThirdWords,
     .checks = kThirdChecks,
     .hint = "This is what a path across sockets or through a translating IOMMU gives."},
    {.text = "slow: all pairs have a low rate at all sizes",
     .words = kSlowWords,
     .checks = kSlowChecks,
     .hint = "An idle GPU lowers its link, so read link speeds while data flows."},
    {.text = "large transfers are fast, but small messages have a latency 10 microseconds higher",
     .words = kLatencyWords,
     .checks = kLatencyChecks,
     .hint = "Small messages then go through a copy engine or a staging buffer instead of a mapping or inline data."},
    {.text = "works in one direction only",
     .words = kOneWayWords,
     .checks = kOneWayChecks,
     .hint = "Root complexes may forward writes between devices and refuse reads; let the side that has the data write it."},
    {.text = "wrong data: corrupt or stale after a transfer",
     .words = kWrongWords,
     .checks = kWrongChecks,
     .hint =
         "Also ask whether a flag is polled while the data before it may arrive later (relaxed ordering), and whether the GPU's "
         "writes are flushed."},
    {.text = "hangs at the first kernel or the first collective",
     .words = kHangWords,
     .checks = kHangChecks,
     .hint = "On NVSwitch machines look at the fabric manager, across machines of one NVLink domain at IMEX."},
    {.text = "cannot register memory: errno 12 (ENOMEM, cannot allocate memory)",
     .words = kNoMemoryWords,
     .checks = kNoMemoryChecks,
     .hint = "Host memory meets the limit of locked memory, GPU memory the size of the BAR1 aperture."},
    {.text = "no RDMA device is found",
     .words = kNoDeviceWords,
     .checks = kNoDeviceChecks,
     .hint = "A device that is in /sys/class/infiniband and not in ibv_devices lacks its device node or its provider library."},
}};

// Lower case; whatever is neither letter nor digit is one space, with one at each end.
std::string plain(std::string_view sentence) {
  std::string line = " ";
  for (const char letter : sentence) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 && byte < 0x80) {
      line += static_cast<char>(std::tolower(byte));
    } else if (line.back() != ' ') {
      line += ' ';
    }
  }
  if (line.back() != ' ') line += ' ';
  return line;
}

// Whether the phrase begins with a word of the line. A last word may go on, as "hang" in "hangs", but not a number.
bool has_phrase(const std::string& line, Words phrase) {
  std::string wanted = plain(phrase);
  if (wanted.size() <= 2) return false;
  const bool ends_with_digit = std::isdigit(static_cast<unsigned char>(wanted[wanted.size() - 2])) != 0;
  const bool is_short = wanted.size() <= 5;  // "nan", "qpi": as a whole word only
  if (!ends_with_digit && !is_short) wanted.pop_back();
  return line.find(wanted) != std::string::npos;
}

// The sum of the lengths of what was found: longer phrases say more, and a number says most.
std::size_t score_of(const Symptom& symptom, const std::string& line) {
  constexpr std::size_t kForNumber = 5;
  std::size_t score = 0;
  for (const Words phrase : symptom.words) {
    const bool is_number = std::isdigit(static_cast<unsigned char>(phrase.back())) != 0;
    if (has_phrase(line, phrase)) score += phrase.size() * (is_number ? kForNumber : 1);
  }
  return score;
}

}  // namespace

std::span<const Symptom> symptoms() { return kSymptoms; }

const Symptom* match_symptom(std::string_view sentence) {
  constexpr std::size_t kMostLetters = 4096;  // a sentence, not a log
  const std::string line = plain(sentence.substr(0, kMostLetters));
  const Symptom* best = nullptr;
  std::size_t most = 0;
  for (const Symptom& symptom : kSymptoms) {
    const std::size_t score = score_of(symptom, line);
    if (score <= most) continue;
    best = &symptom;
    most = score;
  }
  return best;
}

}  // namespace gigabar
