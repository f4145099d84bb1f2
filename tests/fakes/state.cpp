// SPDX-License-Identifier: Apache-2.0
#include "fakes/state.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>

namespace gigabar::fake {
namespace {

// Shared with forked children, so that the parent learns what they did wrong.
struct Violations {
  std::atomic<std::uint32_t> count{0};
  char last[160] = {};
};

Violations& violations() {
  static Violations* const shared = [] {
    void* page = ::mmap(nullptr, sizeof(Violations), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (page) Violations;
  }();
  return *shared;
}

void set_default_gpu(Gpu& gpu, std::uint32_t index) {
  gpu = {};
  const std::uint32_t bus = 0x06 + 0x40 * index;
  std::snprintf(gpu.pci_address, sizeof gpu.pci_address, "0000:%02x:00.0", bus);
  std::snprintf(gpu.name, sizeof gpu.name, "NVIDIA Fake GPU %u", index);
  gpu.gpu_id = bus << 8;
  gpu.device_instance = gpu.told_instance = index;
  gpu.minor = gpu.told_proc_minor = index;
  gpu.told_gpu_id = gpu.gpu_id;
  gpu.memory_bytes = 16 * kGiB;
  gpu.bar1_bytes = 32 * kGiB;
  gpu.numa_node = 0;
}

void set_default_machine(Machine& machine) {
  machine = {};
  machine.gpu_count = 1;
  for (std::uint32_t index = 0; index < kMaxGpus; ++index) set_default_gpu(machine.gpus[index], index);
  std::snprintf(machine.driver_version, sizeof machine.driver_version, "580.159.04");
  machine.cuda_version = 13000;
  machine.dma_buf_supported = 1;
  machine.dma_buf_mmap_supported = -1;
  machine.gdrdrv_version = 0x20006;
  machine.is_gdrdrv_persistent = true;
  machine.has_peer_access = true;
  machine.has_peer_atomics = true;
  machine.bar1_status = 0x1a;
}

std::uint32_t count_of(const State& machine, File::Kind kind) {
  std::uint32_t count = 0;
  for (const auto& [descriptor, file] : machine.files) count += file.kind == kind;
  return count;
}

// A file whose descriptor was closed behind the table is closed here.
void drop_closed_files() {
  std::vector<int> descriptors;
  for (const auto& [descriptor, file] : state().files) descriptors.push_back(descriptor);
  for (const int descriptor : descriptors) find_file(descriptor);
}

void count_kernel_side(State& s, Counts& counts) {
  counts.rm_clients = static_cast<std::uint32_t>(s.clients.size());
  for (const auto& [handle, client] : s.clients) {
    for (const auto& [name, object] : client.objects) {
      counts.rm_devices += object.object_class == 0x80;
      counts.rm_subdevices += object.object_class == 0x2080;
      counts.rm_memory_objects += object.block != nullptr;
    }
  }
  counts.rm_mappings = static_cast<std::uint32_t>(s.mappings.size());
  for (const auto& [linear, mapping] : s.mappings) counts.bar1_used_bytes[mapping.gpu] += mapping.bytes;
  counts.windows = static_cast<std::uint32_t>(s.windows.size());
  counts.gdrdrv_pins = static_cast<std::uint32_t>(s.pins.size());
  counts.control_descriptors = count_of(s, File::Kind::control);
  counts.device_descriptors = count_of(s, File::Kind::device);
  counts.gdrdrv_descriptors = count_of(s, File::Kind::gdrdrv);
  counts.dma_bufs = count_of(s, File::Kind::dma_buf);
  counts.exports = count_of(s, File::Kind::vmm_export);
}

void count_cuda_side(const State& s, Counts& counts) {
  for (const auto& [address, allocation] : s.allocations) {
    counts.host_allocations += allocation.kind == Kind::host_allocated;
    counts.host_registrations += allocation.kind == Kind::host_registered;
    counts.device_allocations += allocation.kind != Kind::host_allocated && allocation.kind != Kind::host_registered;
  }
  counts.vmm_handles = static_cast<std::uint32_t>(s.vmm_handles.size());
  counts.vmm_reservations = static_cast<std::uint32_t>(s.reservations.size());
  counts.streams = static_cast<std::uint32_t>(s.streams.size());
  counts.peers = static_cast<std::uint32_t>(s.peers.size());
  counts.modules = s.module_count;
  counts.kernels = kernels_running();
  counts.context_pushes = s.context_pushes;
  for (std::size_t gpu = 0; gpu < s.memory.size(); ++gpu) counts.memory_used_bytes[gpu] = s.memory[gpu].ranges.used_bytes();
}

}  // namespace

namespace {
thread_local int inside_depth = 0;
}
Inside::Inside() noexcept { ++inside_depth; }
Inside::~Inside() { --inside_depth; }

// Never destroyed: other static objects may still call CUDA while the process ends.
State& state() {
  static State* const instance = [] {
    auto* fresh = new State;
    set_default_machine(fresh->machine);
    violations();
    return fresh;
  }();
  return *instance;
}

Fault* planted_fault(Call call, const char* name, std::uint32_t number, std::uint32_t command) {
  for (Fault& fault : state().machine.faults) {
    if (fault.count == 0 || fault.call != call) continue;
    if (fault.name[0] != '\0' &&
        (call == Call::cuda ? std::strcmp(name, fault.name) != 0 : std::strstr(name, fault.name) == nullptr))
      continue;
    if ((fault.number != 0 && fault.number != number) || (fault.command != 0 && fault.command != command)) continue;
    if (fault.skip > 0) {
      --fault.skip;
      continue;
    }
    if (fault.count != kForEver) --fault.count;
    ++fault.hits;
    return &fault;
  }
  return nullptr;
}

void note_violation(const std::string& text) {
  std::snprintf(violations().last, sizeof violations().last, "%s", text.c_str());
  violations().count.fetch_add(1);
}

}  // namespace gigabar::fake

#define GIGABAR_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

GIGABAR_FAKE_EXPORT bool gigabar_fake_is_inside() { return gigabar::fake::inside_depth > 0; }

GIGABAR_FAKE_EXPORT gigabar::fake::Machine* gigabar_fake_machine() { return &gigabar::fake::state().machine; }

GIGABAR_FAKE_EXPORT void gigabar_fake_counts(gigabar::fake::Counts* counts) {
  using namespace gigabar::fake;
  const std::lock_guard lock(state().mutex);
  drop_closed_files();
  *counts = state().totals;
  count_kernel_side(state(), *counts);
  count_cuda_side(state(), *counts);
  counts->violations = violations().count.load();
  std::snprintf(counts->last_violation, sizeof counts->last_violation, "%s", violations().last);
}

// Not for a process in which a library still uses the machine: everything it was given is gone.
GIGABAR_FAKE_EXPORT void gigabar_fake_reset() {
  using namespace gigabar::fake;
  const std::lock_guard lock(state().mutex);
  State& s = state();
  s.pending.clear();
  for (const auto& [address, window] : s.windows) ::munmap(reinterpret_cast<void*>(address), window.bytes);
  for (const auto& [descriptor, file] : s.files) ::close(descriptor);
  s.windows.clear();
  s.files.clear();
  s.clients.clear();
  s.mappings.clear();
  s.pins.clear();
  s.allocations.clear();
  s.ranges.clear();
  s.vmm_handles.clear();
  s.reservations.clear();
  s.shared_blocks.clear();
  s.cuda_objects.clear();
  s.initialised_in = 0;
  s.totals = {};
  violations().count.store(0);
  set_default_machine(s.machine);
}
