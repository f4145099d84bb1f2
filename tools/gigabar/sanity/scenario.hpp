// SPDX-License-Identifier: Apache-2.0
// A scenario is one behaviour that programs rely on. It runs in a process of its own; it passes by returning, fails by fail() of
// support/failure.hpp, and is waived, with the reason, by waive().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gdrapi.h"
#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "support/gdr_session.hpp"

namespace gigabar::tool {

struct Context {
  DeviceInfo device;
  DeviceAllocator allocator;
  std::size_t device_count;
};

struct Scenario {
  std::string_view name;
  std::string_view what;    // one sentence: what is true when it passes
  std::string_view covers;  // GDRCopy's tests that name this behaviour, separated by spaces; may be empty
  void (*run)(const Context&);
  DeviceAllocator allocator = DeviceAllocator::cuda_malloc;
  bool is_extended = false;  // long: only with -e or by name
};

std::span<const Scenario> scenarios();

// What a scenario's second program does (fork_socket_* scenarios): never returns a value, ends like a scenario.
void run_peer(int socket, const Context& context);

struct Waived {
  std::string reason;
};
[[noreturn]] void waive(const std::string& reason);

// Fails with `what` as the sentence when `is_true` is not.
void expect(bool is_true, const std::string& what);
// gdrapi.h functions: the code must be the expected one.
void expect_code(int code, int expected, const std::string& call);

// The session of a scenario; fails with the reason when gdr_open does not work.
std::unique_ptr<GdrSession> open_session();

DeviceMemory allocate(const Context& context, std::size_t bytes);

// The device's memory by the copy engine: what the GPU itself holds, whatever the CPU's mapping shows. Done on return.
class EngineView {
 public:
  explicit EngineView(const DeviceMemory& memory);
  void write(std::size_t offset_bytes, std::span<const std::byte> source) const;
  void read(std::size_t offset_bytes, std::span<std::byte> destination) const;

 private:
  Mapping mapping_;
};

// A pinned and mapped range through gdrapi.h; unmapped and unpinned at the end if it still is.
class GdrBuffer {
 public:
  GdrBuffer(gdr_t g, const void* address, std::size_t bytes, std::uint32_t pin_flags = GDR_PIN_FLAG_DEFAULT,
            int map_flags = GDR_MAP_FLAG_DEFAULT);
  GdrBuffer(const GdrBuffer&) = delete;
  GdrBuffer& operator=(const GdrBuffer&) = delete;
  ~GdrBuffer();

  std::byte* address() const noexcept { return address_; }  // of the first byte asked for
  gdr_mh_t handle() const noexcept { return handle_; }
  gdr_info_t info() const;
  void write(std::size_t offset_bytes, std::span<const std::byte> source) const;
  void read(std::size_t offset_bytes, std::span<std::byte> destination) const;
  void unmap();
  void unpin();
  void forget() noexcept { is_mapped_ = is_pinned_ = false; }  // after gdr_close

 private:
  gdr_t g_;
  std::size_t map_bytes_ = 0;
  gdr_mh_t handle_{};
  void* start_ = nullptr;  // what gdr_map gave: the start of the first GPU page
  std::byte* address_ = nullptr;
  bool is_pinned_ = false;
  bool is_mapped_ = false;
};

// Writes a new pattern through the buffer and compares what the GPU holds; then the other way round.
void expect_both_ways(const GdrBuffer& buffer, const EngineView& view, std::size_t offset_in_memory, std::size_t bytes);

// Whether a one-byte load from there is answered with a signal.
bool load_faults(const std::byte* address);

// How a forked child ended. It has default signal actions, no core file and 20 s. `meanwhile` runs in the parent.
struct ChildEnd {
  bool was_signalled;
  int number;  // of the signal, or the exit status
};
ChildEnd run_in_child(const std::function<int()>& body, const std::function<void()>& meanwhile = {});
// The child must have been ended by SIGSEGV or SIGBUS.
void expect_fault(const ChildEnd& end, const std::string& what);

// The scenarios, by file.
void attributes(const Context&);
void pin_map_unmap(const Context&);
void pin_map_v2(const Context&);
void force_pcie(const Context&);
void tokens_refused(const Context&);
void unaligned_addresses(const Context&);
void small_buffers_in_one_page(const Context&);
void thread_pins(const Context&);
void many_threads(const Context&);
void wrong_calls_refused(const Context&);
void wrong_memory_refused(const Context&);
void more_than_4_gib(const Context&);
void two_devices(const Context&);

void data_small(const Context&);
void data_large(const Context&);
void data_v2(const Context&);
void data_force_pcie(const Context&);
void mixed_mappings(const Context&);
void no_stale_reads(const Context&);
void publish_data_then_flag(const Context&);

void access_after_free(const Context&);
void access_after_close(const Context&);
void two_mappings(const Context&);
void freed_and_allocated_again(const Context&);
void leaks(const Context&);

void fork_child_touches_mapping(const Context&);
void fork_access_after_free(const Context&);
void fork_child_maps_parents_pin(const Context&);
void fork_child_pins_parents_memory(const Context&);
void fork_child_ends_parents_session(const Context&);
void fork_inherits_when_asked(const Context&);
void socket_peer_maps(const Context&);
void socket_peer_pins(const Context&);

}  // namespace gigabar::tool
