// SPDX-License-Identifier: Apache-2.0
// A scenario is one behaviour that programs rely on. It runs in a process of its own, of `gigabar sanity` on a user's machine or of
// a test program; it passes by returning, fails by fail() of support/failure.hpp, and is waived, with the reason, by waive().
#pragma once

#include <cstddef>
#include <memory>
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
#include "support/in_child.hpp"

namespace gigabar::tool {

// The words that start this program as the peer of a scenario: it calls run_peer() with the socket.
using PeerWords = std::vector<std::string> (*)(int socket, int device);

struct Context {
  Context(const DeviceInfo& on, PeerWords words);

  DeviceInfo device;
  PeerWords peer_words;
  std::size_t device_count;
  DeviceAllocator allocator = DeviceAllocator::cuda_malloc;
};

struct Scenario {
  std::string name;
  std::string_view what;    // one sentence: what is true when it passes
  std::string_view covers;  // GDRCopy's tests that name this behaviour, separated by spaces; may be empty
  void (*run)(const Context&);
  DeviceAllocator allocator = DeviceAllocator::cuda_malloc;
  bool is_extended = false;  // long: only with -e or by name
};

std::span<const Scenario> scenarios();

struct Verdict {
  std::string word;  // "pass", "fail", "waived"
  std::string reason;
};
// Runs it here, with its allocator.
Verdict judge(const Scenario& scenario, Context context);

// What a scenario's second program does (socket_peer_* scenarios): ends like a scenario.
void run_peer(int socket, const DeviceInfo& device);

// --- For the scenarios

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

using test::ChildEnd;
using test::run_in_child;
// The child must have been ended by SIGSEGV or SIGBUS.
void expect_fault(const ChildEnd& end, const std::string& what);
// The child must have returned 0; else it was its check of the number that it returned that failed.
void expect_refusals(const ChildEnd& end, const std::string& what);

// The scenarios, by file.
class Table {
 public:
  // With `covers_vmm` also NAME_vmm: the same for cuMemCreate memory.
  void add(const char* name, const char* what, void (*run)(const Context&), const char* covers = "",
           const char* covers_vmm = nullptr);
  Scenario& last() { return all.back(); }

  std::vector<Scenario> all;
};
void add_basic(Table& table);
void add_data(Table& table);
void add_lifetime(Table& table);
void add_processes(Table& table);
void add_leaks(Table& table);

}  // namespace gigabar::tool
