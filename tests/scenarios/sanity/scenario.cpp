// SPDX-License-Identifier: Apache-2.0
#include "scenarios/sanity/scenario.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>

#include "base/counted.hpp"
#include "support/failure.hpp"
#include "support/pattern.hpp"

namespace gigabar::tool {

namespace {
struct Waived {
  std::string reason;
};
}  // namespace

void Table::add(const char* name, const char* what, void (*run)(const Context&), const char* covers, const char* covers_vmm) {
  all.push_back({name, what, covers, run});
  if (covers_vmm == nullptr) return;
  all.push_back({std::string(name) + "_vmm", "the same for cuMemCreate memory", covers_vmm, run, DeviceAllocator::vmm});
}

std::span<const Scenario> scenarios() {
  static const Table table = [] {
    Table made;
    for (const auto add : {add_basic, add_data, add_lifetime, add_processes, add_leaks}) add(made);
    return made;
  }();
  return table.all;
}

Context::Context(const DeviceInfo& on, PeerWords words) : device(on), peer_words(words), device_count(take(devices()).size()) {
  ask_for_stand_ins(device, device_count);
}

Verdict judge(const Scenario& scenario, Context context) {
  context.allocator = scenario.allocator;
  try {
    scenario.run(context);
    return {"pass", ""};
  } catch (const Waived& waived) {
    return {"waived", waived.reason};
  } catch (const std::exception& failure) {
    return {"fail", failure.what()};
  }
}

void waive(const std::string& reason) { throw Waived{reason}; }

void expect(bool is_true, const std::string& what) {
  if (!is_true) fail(what);
}

void expect_code(int code, int expected, const std::string& call) {
  if (code != expected) {
    fail(fmt::format("{} returned {} ({}), expected {} ({})", call, code, std::strerror(code), expected,
                     expected == 0 ? "success" : std::strerror(expected)));
  }
}

std::unique_ptr<GdrSession> open_session() {
  auto session = std::make_unique<GdrSession>(gdr_open());
  if (*session == nullptr) fail(fmt::format("gdr_open: {}", std::strerror(errno)));
  return session;
}

DeviceMemory allocate(const Context& context, std::size_t bytes) {
  return take(DeviceMemory::allocate(context.device.index, bytes, context.allocator));
}

EngineView::EngineView(const DeviceMemory& memory) : mapping_(take(map(memory.address(), memory.bytes()))) {}

void EngineView::write(std::size_t offset_bytes, std::span<const std::byte> source) const {
  take(copy(MappedPlace{mapping_, offset_bytes}, source.data(), source.size(), CopyMethod::copy_engine));
}

void EngineView::read(std::size_t offset_bytes, std::span<std::byte> destination) const {
  take(copy(destination.data(), MappedPlace{mapping_, offset_bytes}, destination.size(), CopyMethod::copy_engine));
}

GdrBuffer::GdrBuffer(gdr_t g, const void* address, std::size_t bytes, std::uint32_t pin_flags, int map_flags) : g_(g) {
  const auto device_address = reinterpret_cast<unsigned long>(address);
  expect_code(gdr_pin_buffer_v2(g_, device_address, bytes, pin_flags, &handle_), 0,
              fmt::format("gdr_pin_buffer_v2 of {}", counted(bytes, "byte")));
  is_pinned_ = true;
  const gdr_info_t pinned = info();
  const std::size_t lead = device_address - pinned.va;
  map_bytes_ = lead + bytes;
  const int code = gdr_map_v2(g_, handle_, &start_, map_bytes_, map_flags);
  if (code != 0) {
    gdr_unpin_buffer(g_, handle_);
    expect_code(code, 0, fmt::format("gdr_map_v2 of {}", counted(map_bytes_, "byte")));
  }
  is_mapped_ = true;
  address_ = static_cast<std::byte*>(start_) + lead;
}

GdrBuffer::~GdrBuffer() {
  if (is_mapped_) gdr_unmap(g_, handle_, start_, map_bytes_);
  if (is_pinned_) gdr_unpin_buffer(g_, handle_);
}

gdr_info_t GdrBuffer::info() const {
  gdr_info_t info{};
  expect_code(gdr_get_info(g_, handle_, &info), 0, "gdr_get_info");
  return info;
}

void GdrBuffer::write(std::size_t offset_bytes, std::span<const std::byte> source) const {
  expect_code(gdr_copy_to_mapping(handle_, address_ + offset_bytes, source.data(), source.size()), 0,
              fmt::format("gdr_copy_to_mapping of {}", counted(source.size(), "byte")));
}

void GdrBuffer::read(std::size_t offset_bytes, std::span<std::byte> destination) const {
  expect_code(gdr_copy_from_mapping(handle_, destination.data(), address_ + offset_bytes, destination.size()), 0,
              fmt::format("gdr_copy_from_mapping of {}", counted(destination.size(), "byte")));
}

void GdrBuffer::unmap() {
  is_mapped_ = false;
  expect_code(gdr_unmap(g_, handle_, start_, map_bytes_), 0, "gdr_unmap");
}

void GdrBuffer::unpin() {
  is_mapped_ = is_pinned_ = false;
  expect_code(gdr_unpin_buffer(g_, handle_), 0, "gdr_unpin_buffer");
}

void expect_both_ways(const GdrBuffer& buffer, const EngineView& view, std::size_t offset_in_memory, std::size_t bytes) {
  static std::uint64_t seed = 1;
  std::vector<std::byte> data(bytes);
  const Pattern to_device(seed++);
  to_device.fill(data);
  buffer.write(0, data);
  to_device.poison(data);
  view.read(offset_in_memory, data);
  if (const auto wrong = to_device.compare(data))
    fail("the GPU holds other data than was written through the mapping: " + wrong->to_string());
  const Pattern from_device(seed++);
  from_device.fill(data);
  view.write(offset_in_memory, data);
  from_device.poison(data);
  buffer.read(0, data);
  if (const auto wrong = from_device.compare(data)) fail("the mapping shows other data than the GPU holds: " + wrong->to_string());
}

namespace {
sigjmp_buf fault_return;
void leave_by_jump(int) { siglongjmp(fault_return, 1); }
}  // namespace

bool load_faults(const std::byte* address) {
  struct sigaction jump = {};
  struct sigaction old_segv = {};
  struct sigaction old_bus = {};
  jump.sa_handler = leave_by_jump;
  sigaction(SIGSEGV, &jump, &old_segv);
  sigaction(SIGBUS, &jump, &old_bus);
  volatile bool has_faulted = true;
  if (sigsetjmp(fault_return, 1) == 0) {
    static_cast<void>(*reinterpret_cast<const volatile std::byte*>(address));
    has_faulted = false;
  }
  sigaction(SIGSEGV, &old_segv, nullptr);
  sigaction(SIGBUS, &old_bus, nullptr);
  return has_faulted;
}

void expect_fault(const ChildEnd& end, const std::string& what) {
  if (!end.is_fault()) fail(fmt::format("{}: expected SIGSEGV or SIGBUS, but the child ended with {}", what, end.to_string()));
}

void expect_refusals(const ChildEnd& end, const std::string& what) {
  if (!end.is_exit(0)) fail(fmt::format("{}; the child ended with {}", what, end.to_string()));
}

}  // namespace gigabar::tool
