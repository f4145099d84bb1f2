// SPDX-License-Identifier: Apache-2.0
#include "streams/ends.hpp"

#include <algorithm>
#include <cstring>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "gigabar/copy.hpp"
#include "memory/runtime.hpp"
#include "platform/numa.hpp"
#include "streams/plan.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kFlagBytes = 4096;                    // one page, of which the flag is the first word
constexpr std::size_t kChaseStride = 128;                   // one link per line of the GPU's L2
constexpr std::size_t kPieceBytes = std::size_t{64} << 20;  // of host memory, between two looks at whether to go on
constexpr std::size_t kCopyBytes = std::size_t{8} << 20;    // of device memory that goes through the host, likewise

// The node to bind host pages to; -1: none, the system chooses.
int node_for(const Transfer& transfer, const StreamPlace& place, std::span<const DeviceInfo> devices) {
  if (place.numa_node >= 0) return place.numa_node;
  const int nearest = nearest_device(transfer);
  if (place.numa_node == StreamPlace::kAnyNode || nearest < 0 || numa_nodes().empty()) return -1;
  return devices[static_cast<std::size_t>(nearest)].numa_node;
}

Error corrupted(std::size_t index, const Transfer& transfer, const PatternMismatch& mismatch) {
  return make_error(Status::verification_failed, "run streams", describe_transfer(index, transfer),
                    text("the destination is wrong at byte ", mismatch.offset_bytes, ": expected ", hex_text(mismatch.expected),
                         ", found ", hex_text(mismatch.found)),
                    "run the transfer alone and with another executor; check the system log for PCIe, ECC and IOMMU errors");
}

// Compares what look(offset, bytes) shows, in pieces that begin at whole words.
template <class Look>
Result<std::optional<PatternMismatch>> check_pieces(std::size_t bytes, std::size_t piece_bytes, std::uint64_t seed,
                                                    const GiveUp& give_up, const Look& look) {
  for (std::size_t at = 0; at < bytes && !give_up(); at += piece_bytes) {
    const std::size_t length = std::min(piece_bytes, bytes - at);
    const Result<const std::byte*> seen = look(at, length);
    if (!seen) return seen.error();
    if (const auto mismatch = check_pattern(*seen, length, seed, at / 8)) return mismatch;
  }
  return std::optional<PatternMismatch>{};
}

// Write-combined memory is not cached: ordinary loads of it take a trip to memory each, streaming loads one per line.
Result<std::optional<PatternMismatch>> check_write_combined(const std::byte* memory, std::size_t bytes, std::uint64_t seed,
                                                            const GiveUp& give_up) {
  const auto& kernels = detail::active_kernels(MappingType::write_combined).load;
  constexpr std::size_t kLoadBytes = std::size_t{256} << 10;
  std::vector<std::byte> piece(std::min(bytes, kLoadBytes));
  return check_pieces(bytes, kLoadBytes, seed, give_up, [&](std::size_t at, std::size_t length) -> const std::byte* {
    detail::fence_before_loads(memory + at, length);
    kernels[detail::size_class(length)].load(std::memory_order_relaxed)(piece.data(), memory + at, length);
    detail::fence_after_loads();
    return piece.data();
  });
}

// By the CPU: host memory where it lies, a device's by the copy engine, through a piece of host memory.
class HostSide final : public DeviceCode {
 public:
  Result<void> fill(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed, const GiveUp& give_up) override {
    return write(device, address, bytes, give_up,
                 [seed](std::byte* piece, std::size_t at, std::size_t length) { fill_pattern(piece, length, seed, at / 8); });
  }

  Result<void> poison(int device, std::uintptr_t address, std::size_t bytes, const GiveUp& give_up) override {
    return write(device, address, bytes, give_up,
                 [](std::byte* piece, std::size_t, std::size_t length) { fill_poison(piece, length); });
  }

  Result<std::optional<PatternMismatch>> check(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed,
                                               const GiveUp& give_up) override {
    using Seen = Result<const std::byte*>;
    if (device == StreamPlace::kHost) {
      const auto* const memory = reinterpret_cast<const std::byte*>(address);
      return check_pieces(bytes, kPieceBytes, seed, give_up, [=](std::size_t at, std::size_t) { return Seen(memory + at); });
    }
    std::vector<std::byte> piece(std::min(bytes, kCopyBytes));
    return check_pieces(bytes, kCopyBytes, seed, give_up, [&](std::size_t at, std::size_t length) {
      Result<void> copied = engine_copy_from(device, piece.data(), address + at, length);
      return copied ? Seen(piece.data()) : Seen(std::move(copied).error());
    });
  }

 private:
  // `make` writes the content of a piece.
  template <class Make>
  static Result<void> write(int device, std::uintptr_t address, std::size_t bytes, const GiveUp& give_up, const Make& make) {
    const bool is_host = device == StreamPlace::kHost;
    const std::size_t piece_bytes = is_host ? kPieceBytes : kCopyBytes;
    std::vector<std::byte> piece(is_host ? 0 : std::min(bytes, piece_bytes));
    for (std::size_t at = 0; at < bytes && !give_up(); at += piece_bytes) {
      const std::size_t length = std::min(piece_bytes, bytes - at);
      make(is_host ? reinterpret_cast<std::byte*>(address + at) : piece.data(), at, length);
      if (is_host) continue;
      if (Result<void> copied = engine_copy_to(device, address + at, piece.data(), length); !copied) return copied;
    }
    return {};
  }
};

DeviceCode& code_of(const End& end, DeviceCode* code) { return end.host ? host_side_device_code() : *code; }

}  // namespace

std::size_t Ends::bytes() const noexcept { return transfer_->executor == StreamExecutor::flag ? kFlagBytes : transfer_->bytes; }

void Ends::tell_placement(const HostMemory& host, int asked_node, std::vector<std::string>& warnings) {
  if (numa_nodes().empty()) {
    host_placement_ = "this machine has no NUMA";
    return;
  }
  const PagePlacement placement = placement_of_pages(host.address(), host.bytes());
  std::size_t known = 0;
  for (const auto& [node, pages] : placement.pages_by_node) known += pages;
  if (known == 0) {
    host_placement_ = "unknown: the kernel does not tell for the driver's own pages";
    return;
  }
  std::size_t most = 0;
  for (const auto& [node, pages] : placement.pages_by_node) {
    if (pages > most) host_numa_node_ = node;
    most = std::max(most, pages);
    host_placement_ +=
        text(host_placement_.empty() ? "" : ", ", "node ", node, " (", pages, " of ", counted(placement.asked_pages, "page"), ")");
  }
  if (asked_node >= 0 && (host_numa_node_ != asked_node || most != known)) {
    warnings.push_back(
        text(describe_transfer(index_, *transfer_), ": pages were bound to node ", asked_node, " but are on ", host_placement_));
  }
}

Result<void> Ends::allocate_end(const StreamPlace& place, End& end, std::span<const DeviceInfo> devices,
                                std::vector<std::string>& warnings) {
  if (!place.is_host()) {
    auto memory = DeviceMemory::allocate(place.device, bytes());
    if (!memory) return Error(failure_of(index_, *transfer_, memory.error().record()));
    end.device.emplace(std::move(memory).value());
    return {};
  }
  int node = node_for(*transfer_, place, devices);
  auto memory = HostMemory::allocate(bytes(), {.numa_node = node, .pages = place.pages});
  if (!memory && place.numa_node == StreamPlace::kNearestNode && node >= 0) {
    auto elsewhere = HostMemory::allocate(bytes(), {.numa_node = -1, .pages = place.pages});
    if (elsewhere) {
      warnings.push_back(text(describe_transfer(index_, *transfer_), ": host memory is not on the nearest node ", node, ": ",
                              memory.error().record().cause));
      node = -1;
      memory = std::move(elsewhere);
    }
  }
  if (!memory) return Error(failure_of(index_, *transfer_, memory.error().record()));
  end.host.emplace(std::move(memory).value());
  tell_placement(*end.host, node, warnings);
  return {};
}

Result<Ends> Ends::allocate(std::size_t index, const Transfer& transfer, std::span<const DeviceInfo> devices,
                            std::vector<std::string>& warnings, const GiveUp& give_up) {
  Ends ends(index, transfer);
  Result<void> done = ends.allocate_end(transfer.source, ends.source_, devices, warnings);
  if (done && give_up()) return ends;
  // The pointer chase only reads.
  if (done && transfer.executor != StreamExecutor::pointer_chase) {
    done = ends.allocate_end(transfer.destination, ends.destination_, devices, warnings);
  }
  if (!done) return std::move(done).error();
  if (transfer.executor == StreamExecutor::cpu || transfer.executor == StreamExecutor::flag) {
    const End& device_end = ends.source_.device ? ends.source_ : ends.destination_;
    if (device_end.device) {
      auto mapping = map(device_end.address(), ends.bytes());
      if (!mapping) return Error(failure_of(index, transfer, mapping.error().record()));
      ends.mapping_.emplace(std::move(mapping).value());
    }
  }
  return ends;
}

// Links of a chain that ends where it begins: each holds the address of the next one, a prime number of lines further on.
Result<void> Ends::fill_chain() const {
  const std::size_t line_count = bytes() / kChaseStride;
  std::size_t step = 1;
  for (const std::size_t prime : {523U, 127U, 31U, 7U}) {
    if (prime < line_count && line_count % prime != 0) {
      step = prime;
      break;
    }
  }
  std::vector<std::byte> chain(line_count * kChaseStride);
  for (std::size_t line = 0; line < line_count; ++line) {
    const std::byte* const next = source_.address() + (line + step) % line_count * kChaseStride;
    std::memcpy(chain.data() + line * kChaseStride, static_cast<const void*>(&next), sizeof next);
  }
  if (source_.host) {
    std::memcpy(source_.address(), chain.data(), chain.size());
    return {};
  }
  return engine_copy_to(transfer_->source.device, source_.number(), chain.data(), chain.size());
}

Result<void> Ends::fill(DeviceCode* code, const GiveUp& give_up) const {
  if (give_up()) return {};
  if (transfer_->executor == StreamExecutor::pointer_chase) return fill_chain();
  return code_of(source_, code).fill(transfer_->source.device, source_.number(), bytes(), seed(), give_up);
}

Result<void> Ends::poison(DeviceCode* code, const GiveUp& give_up) const {
  return code_of(destination_, code).poison(transfer_->destination.device, destination_.number(), bytes(), give_up);
}

Result<void> Ends::check(DeviceCode* code, const GiveUp& give_up) const {
  const StreamPlace& place = transfer_->destination;
  const auto checked = destination_.host && place.pages == HostPages::write_combined
                           ? check_write_combined(destination_.address(), bytes(), seed(), give_up)
                           : code_of(destination_, code).check(place.device, destination_.number(), bytes(), seed(), give_up);
  if (!checked) return Error(failure_of(index_, *transfer_, checked.error().record()));
  if (*checked) return corrupted(index_, *transfer_, **checked);
  return {};
}

DeviceCode& host_side_device_code() {
  static HostSide code;
  return code;
}

}  // namespace gigabar::inline v0
