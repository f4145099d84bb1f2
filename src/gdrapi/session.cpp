// SPDX-License-Identifier: Apache-2.0
#include "gdrapi/session.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/cycles.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/rounding.hpp"
#include "gdrapi.h"
#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "mapping/access.hpp"
#include "mapping/backend.hpp"
#include "memory/runtime.hpp"

namespace gigabar::gdrapi {
namespace {

// cuMemAlloc aligns every allocation to this (CUDA C++ Programming Guide, "Device Memory Accesses").
constexpr std::size_t kAllocationAlignment = 256;

// Early enough that a program's first pin finds time to compare the clocks over.
const CycleMoment loaded_at;

struct Reasons {
  std::string sentences;
  bool has_no_permission = false;

  void add(std::string_view what, const Availability& why) {
    sentences += text(sentences.empty() ? "" : "; ", what, ": ", name_of(why.code), ": ", why.reason);
    has_no_permission |= why.code == AvailabilityCode::no_permission;
  }
};

// GDRCopy's variable for one backend, then Gigabar's for any.
Result<std::optional<MappingBackend>> required_backend() {
  if (environment("GDRCOPY_USE_DMABUF_MMAP") == "1") return std::optional(MappingBackend::dmabuf);
  return backend_of_environment("gdr_open");
}

// The backend that pins on `device` will take; nothing, and the reasons, when there is none.
std::optional<MappingBackend> best_backend(const DeviceInfo& device, const Session& session, Reasons& reasons) {
  const Result<std::vector<BackendReport>> reports = mapping_backends(device.index);
  if (!reports) {
    reasons.sentences += reports.error().message();
    return {};
  }
  for (const BackendReport& report : reports.value()) {
    if (session.required && report.backend != *session.required) continue;
    if (report.backend == MappingBackend::host && !device.is_stand_in) continue;  // maps host memory, which is never pinned here
    if (report.availability.is_ok()) return report.backend;
    reasons.add(text("device ", device.index, " ", name_of(report.backend)), report.availability);
  }
  return {};
}

// Unless the driver says that it is not: then FORCE_PCIE is not promised.
bool is_coherent(int device) {
  const Result<Runtime*> runtime = active_runtime();
  if (!runtime) return true;
  const Result<DeviceTraits> traits = runtime.value()->traits(device);
  return !traits || traits.value().is_coherent;
}

std::uintptr_t page_start(std::uintptr_t address) { return address & GPU_PAGE_MASK; }

bool can_be_pinned(const Session& session, const PointerInfo& info) {
  return is_cuda_device_memory(info.kind) || (info.kind == MemoryKind::stand_in && session.has_stand_ins);
}

std::uintptr_t end_of(const PointerInfo& allocation) { return allocation.base + allocation.length_bytes; }

// Whether `end` lies in the allocation's GPU pages.
bool reaches(const PointerInfo& allocation, std::uintptr_t end) {
  return page_start(end - 1) <= page_start(end_of(allocation) - 1);
}

// The allocation that [address, end) is about. A caller that rounds its buffer to GPU pages passes a page's start, which may lie in
// another allocation or in none: then it is the first one in that page that reaches the end.
Result<PointerInfo> find_allocation(const Session& session, std::uintptr_t address, std::uintptr_t end) {
  Result<PointerInfo> best = describe(reinterpret_cast<const void*>(address));
  if (!best || address != page_start(address)) return best;
  const std::uintptr_t page_end = std::min(end, address + GPU_PAGE_SIZE);
  Result<PointerInfo> next = best;
  while (next) {
    const bool is_candidate = can_be_pinned(session, next.value());
    if (is_candidate && reaches(next.value(), end)) return next;
    if (is_candidate && !can_be_pinned(session, best.value())) best = next;
    const std::uintptr_t past = is_candidate ? end_of(next.value()) : next->address + 1;
    const std::uintptr_t following = round_up(past, kAllocationAlignment);
    if (following >= page_end) return best;
    next = describe(reinterpret_cast<const void*>(following));
  }
  return next;
}

}  // namespace

int errno_of(Status status) noexcept {
  switch (status) {
    case Status::ok: return 0;
    case Status::invalid_argument:
    case Status::out_of_range:
    case Status::not_supported: return EINVAL;
    case Status::unavailable: return ENODEV;
    case Status::no_permission:
    case Status::foreign_process: return EACCES;
    case Status::out_of_memory:
    case Status::out_of_bar1: return ENOMEM;
    case Status::out_of_descriptors: return EMFILE;
    case Status::busy: return EBUSY;
    case Status::timed_out: return ETIMEDOUT;
    case Status::verification_failed:
    case Status::bad_file:
    case Status::peer_lost:
    case Status::device_error: break;
  }
  return EIO;
}

Result<Session> open_session() {
  Session session;
  session.process_generation = detail::process_generation();
  const Result<int> stand_in_count = forced_stand_in_count();
  if (!stand_in_count) return stand_in_count.error();
  session.has_stand_ins = stand_in_count.value() > 0;
  const Result<std::optional<MappingBackend>> required = required_backend();
  if (!required) return required.error();
  session.required = required.value();

  Result<std::vector<DeviceInfo>> found = devices();
  if (!found) return std::move(found).error();
  Reasons reasons;
  std::size_t mappable_count = 0;
  std::size_t dmabuf_count = 0;
  for (const DeviceInfo& device : found.value()) {
    if (device.is_stand_in && !session.has_stand_ins) continue;
    const auto backend = best_backend(device, session, reasons);
    if (!backend) continue;
    ++mappable_count;
    if (*backend == MappingBackend::dmabuf) ++dmabuf_count;
    session.has_coherent_link |= is_coherent(device.index);
  }
  if (mappable_count == 0) {
    for (const DriverReport& driver : drivers()) {
      if (!driver.availability.is_ok()) reasons.add(driver.name, driver.availability);
    }
    return make_error(reasons.has_no_permission ? Status::no_permission : Status::unavailable, "gdr_open", "",
                      text("no GPU whose memory the CPU can map: ", reasons.sentences),
                      "GIGABAR_STAND_IN=1 lets host memory play a GPU, for tests; gigabar/stand_in.h allocates it");
  }
  session.uses_dmabuf = dmabuf_count == mappable_count;
  return session;
}

Result<Pin> make_pin(const Session& session, std::uintptr_t address, std::size_t bytes, std::uint32_t flags) {
  const CycleMoment started;
  const auto refuse = [&](Status status, std::string cause, std::string remedy = {}) {
    return make_error(status, "gdr_pin_buffer", range_text(address, bytes), std::move(cause), std::move(remedy));
  };
  if ((flags & ~std::uint32_t{GDR_PIN_FLAG_FORCE_PCIE}) != 0) return refuse(Status::invalid_argument, "unknown flags");
  if (address == 0) return refuse(Status::invalid_argument, "the address is 0");
  if (bytes == 0) return refuse(Status::invalid_argument, "the size is 0");
  std::uintptr_t end = 0;
  if (__builtin_add_overflow(address, bytes, &end) || end > page_start(~std::uintptr_t{0})) {
    return refuse(Status::out_of_range, "the range leaves the address space");
  }

  Result<PointerInfo> allocation = find_allocation(session, address, end);
  if (!allocation) return std::move(allocation).error();
  if (!can_be_pinned(session, allocation.value())) {
    return refuse(Status::invalid_argument,
                  text("this is ", name_of(allocation->kind), " memory, not GPU memory that can be pinned"));
  }
  // Callers that round up to GPU pages mean the allocation's last page, whether or not the block of GPU memory fills it. What lies
  // in further pages is asked for in earnest.
  const std::uintptr_t begin = allocation->address;
  const std::uintptr_t reached = reaches(allocation.value(), end) ? std::min(end, end_of(allocation.value())) : end;
  MapOptions options;
  options.backend = session.required;
  Result<Mapping> mapping = map_pages(reinterpret_cast<const void*>(begin), reached - begin, GPU_PAGE_SIZE, options);
  if (!mapping) return std::move(mapping).error();
  if ((flags & GDR_PIN_FLAG_FORCE_PCIE) != 0 && mapping->type() == MappingType::cached) {
    return refuse(Status::not_supported, "the CPU reaches this memory coherently, not through PCIe",
                  "leave GDR_PIN_FLAG_FORCE_PCIE out");
  }
  const std::size_t lead_bytes = address - std::min(address, mapping->device_address());
  const CycleMoment finished;
  const std::size_t page_bytes = page_start(end - 1) + GPU_PAGE_SIZE - page_start(address);
  return Pin{std::move(mapping).value(), page_bytes, lead_bytes, finished.cycles - started.cycles,
             cycles_per_ms(loaded_at, finished)};
}

}  // namespace gigabar::gdrapi
