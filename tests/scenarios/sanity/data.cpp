// SPDX-License-Identifier: Apache-2.0
// What arrives is what was sent: every small size and alignment, guard bytes on both sides, and never a stale line.
#include <fmt/format.h>

#include "base/counted.hpp"
#include "scenarios/sanity/scenario.hpp"
#include "support/failure.hpp"
#include "support/pattern.hpp"

namespace gigabar::tool {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::size_t kLargeBytes = 327680;

// A place for data with guards around it.
struct Frame {
  explicit Frame(std::size_t most_bytes) : bytes(most_bytes + 2 * kGuard + 64) {}
  std::vector<std::byte> bytes;
};

struct Shape {
  std::size_t device_offset;
  std::size_t host_offset;
  std::size_t bytes;

  std::string to_string() const {
    return fmt::format("{}, device offset {}, host offset {}", counted(bytes, "byte"), device_offset, host_offset);
  }
};

// Poisons the device around the place, copies through the mapping, and looks with the copy engine.
void expect_to_device(const GdrBuffer& buffer, const EngineView& view, const Shape& shape, Frame& host, Frame& found,
                      std::uint64_t seed) {
  const Pattern pattern(seed);
  const Pattern guard(~seed);
  const std::size_t around = shape.bytes + 2 * kGuard;
  const std::span<std::byte> seen(found.bytes.data(), around);
  guard.poison(seen);
  pattern.poison(seen.subspan(kGuard, shape.bytes));
  view.write(shape.device_offset, seen);
  const std::span<std::byte> source(host.bytes.data() + shape.host_offset, shape.bytes);
  pattern.fill(source);
  buffer.write(shape.device_offset + kGuard, source);
  view.read(shape.device_offset, seen);
  if (const auto wrong = pattern.compare(seen.subspan(kGuard, shape.bytes)))
    fail(fmt::format("to the device, {}: {}", shape.to_string(), wrong->to_string()));
  if (guard.compare_poison(seen.first(kGuard)))
    fail(fmt::format("to the device, {}: bytes before the destination changed", shape.to_string()));
  if (guard.compare_poison(seen.last(kGuard), kGuard + shape.bytes))
    fail(fmt::format("to the device, {}: bytes behind the destination changed", shape.to_string()));
}

// The copy engine has put data there; it is read through the mapping into poisoned host memory.
void expect_from_device(const GdrBuffer& buffer, const EngineView& view, const Shape& shape, Frame& host, Frame& source,
                        std::uint64_t seed) {
  const Pattern pattern(seed);
  const Pattern guard(~seed);
  const std::span<std::byte> given(source.bytes.data(), shape.bytes);
  pattern.fill(given);
  view.write(shape.device_offset + kGuard, given);
  const std::span<std::byte> around(host.bytes.data() + shape.host_offset, shape.bytes + 2 * kGuard);
  guard.poison(around);
  const std::span<std::byte> destination = around.subspan(kGuard, shape.bytes);
  pattern.poison(destination);
  buffer.read(shape.device_offset + kGuard, destination);
  if (const auto wrong = pattern.compare(destination))
    fail(fmt::format("from the device, {}: {}", shape.to_string(), wrong->to_string()));
  if (guard.compare_poison(around.first(kGuard)))
    fail(fmt::format("from the device, {}: bytes before the destination changed", shape.to_string()));
  if (guard.compare_poison(around.last(kGuard), kGuard + shape.bytes))
    fail(fmt::format("from the device, {}: bytes behind the destination changed", shape.to_string()));
}

void expect_shapes(const GdrBuffer& buffer, const EngineView& view, std::span<const Shape> shapes, std::size_t most_bytes) {
  Frame host(most_bytes);
  Frame other(most_bytes);
  std::uint64_t seed = 1000;
  for (const Shape& shape : shapes) {
    expect_to_device(buffer, view, shape, host, other, seed++);
    expect_from_device(buffer, view, shape, host, other, seed++);
  }
}

std::vector<Shape> large_shapes() {
  std::vector<Shape> shapes;
  for (const std::size_t unit : {std::size_t{1}, std::size_t{4}}) {
    for (const std::size_t count : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 11U, 129U, 1023U}) {
      const std::size_t offset = unit * count;
      const std::size_t bytes = kLargeBytes - offset;
      shapes.push_back({offset, 0, bytes});
      shapes.push_back({0, offset % 64, bytes});
      shapes.push_back({offset, offset % 64, bytes});
    }
  }
  return shapes;
}

void expect_large(const Context& context, std::uint32_t pin_flags) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kLargeBytes + 2 * kGuard);
  const EngineView view(memory);
  const GdrBuffer buffer(session->get(), memory.address(), memory.bytes(), pin_flags);
  expect_shapes(buffer, view, large_shapes(), kLargeBytes);
}

void data_small(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, 4096);
  const EngineView view(memory);
  const GdrBuffer buffer(session->get(), memory.address(), memory.bytes());
  constexpr std::size_t kMost = 130;  // over two lines, with both ends anywhere in them
  std::vector<Shape> shapes;
  for (std::size_t bytes = 0; bytes <= kMost; ++bytes) {
    for (std::size_t device_offset = 0; device_offset < 64; ++device_offset) {
      shapes.push_back({device_offset, device_offset, bytes});
      shapes.push_back({device_offset, (device_offset * 7 + bytes * 13 + 1) % 64, bytes});
    }
  }
  expect_shapes(buffer, view, shapes, kMost);
}

void data_large(const Context& context) { expect_large(context, GDR_PIN_FLAG_DEFAULT); }

void data_v2(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kLargeBytes);
  const EngineView view(memory);
  int type = 0;
  {
    const GdrBuffer plain(session->get(), memory.address(), kLargeBytes);
    type = static_cast<int>(plain.info().mapping_type);
  }
  const GdrBuffer required(session->get(), memory.address(), kLargeBytes, GDR_PIN_FLAG_DEFAULT, type);
  expect_both_ways(required, view, 0, kLargeBytes);
}

void data_force_pcie(const Context& context) {
  const auto session = open_session();
  int is_supported = 0;
  expect_code(gdr_get_attribute(session->get(), GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &is_supported), 0, "gdr_get_attribute");
  if (is_supported == 0) waive("the device is reached by cached accesses, not over PCIe");
  expect_large(context, GDR_PIN_FLAG_FORCE_PCIE);
}

void mixed_mappings(const Context& context) {
  constexpr std::size_t kBytes = 65536;
  const DeviceMemory memory = allocate(context, kBytes);
  const EngineView view(memory);
  auto host = HostMemory::allocate(kBytes);
  if (!host) waive("no pinned host memory: " + host.error().message());
  const Mapping device_mapping = take(map(memory.address(), kBytes));
  const Mapping host_mapping = take(map(host->address(), kBytes));
  const Pattern pattern(31);
  std::vector<std::byte> data(kBytes);
  pattern.fill(data);
  for (std::size_t offset = 0; offset < kBytes; offset += 1024) {  // in turns, a piece through each
    require(copy_to(device_mapping, offset, data.data() + offset, 1024));
    require(copy_to(host_mapping, offset, data.data() + offset, 1024));
  }
  if (const auto wrong = pattern.compare({static_cast<const std::byte*>(host->address()), kBytes}))
    fail("host memory: " + wrong->to_string());
  pattern.poison(data);
  view.read(0, data);
  if (const auto wrong = pattern.compare(data)) fail("device memory: " + wrong->to_string());
  if (device_mapping.type() == host_mapping.type())
    waive("the data is right, but both mappings are cached here, so no two types were mixed");
}

void no_stale_reads(const Context& context) {
  constexpr std::size_t kMost = 65536;
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kMost);
  const EngineView view(memory);
  const GdrBuffer buffer(session->get(), memory.address(), kMost);
  std::vector<std::byte> data(kMost);
  std::uint64_t seed = 0;
  for (std::size_t bytes = 1; bytes <= kMost; bytes *= 2) {
    for (std::size_t pass = 0; pass < (bytes <= 4096 ? 200 : 20); ++pass) {
      const std::span<std::byte> part(data.data(), bytes);
      const Pattern pattern(seed++);
      pattern.fill(part);
      view.write(0, part);  // the GPU's side changes between two reads of the same lines
      pattern.poison(part);
      buffer.read(0, part);
      if (const auto wrong = pattern.compare(part))
        fail(fmt::format("a read of {} returned old data in pass {}: {}", counted(bytes, "byte"), pass, wrong->to_string()));
    }
  }
}

void publish_data_then_flag(const Context& context) {
  constexpr std::size_t kData = 4096;
  const DeviceMemory memory = allocate(context, 2 * kData);
  const EngineView view(memory);
  const Mapping mapping = take(map(memory.address(), memory.bytes()));
  std::vector<std::byte> data(2 * kData);
  view.write(0, data);
  const Pattern pattern(5);
  pattern.fill(std::span(data).first(kData));
  require(publish(mapping, 0, data.data(), kData, kData, std::uint32_t{17}));
  view.read(0, data);
  if (const auto wrong = pattern.compare(std::span(data).first(kData))) fail("published data: " + wrong->to_string());
  expect(data[kData] == std::byte{17}, "the flag was not published");
  expect(publish(mapping, 0, data.data(), kData, kData + 2, std::uint32_t{1}).status() == Status::invalid_argument,
         "a flag that is not aligned must be refused");
  expect(publish(mapping, 0, data.data(), kData, 2 * kData, std::uint32_t{1}).status() == Status::out_of_range,
         "a flag behind the mapping must be refused");
  Batch batch(mapping);
  require(batch.copy_to(1, data.data(), 100));
  expect(!batch.copy_to(2 * kData - 1, data.data(), 2).is_ok(), "a batch must refuse what leaves the mapping");
  batch.commit();
}

}  // namespace

void add_data(Table& table) {
  table.add("data_small", "every size to 130 bytes at every alignment, guard bytes on both sides", data_small,
            "data_validation_cumemalloc", "data_validation_vmmalloc");
  table.add("data_large", "327680 bytes at odd offsets of both sides", data_large, "data_validation_cumemalloc",
            "data_validation_vmmalloc");
  table.add("data_v2", "data through a mapping of a required type", data_v2, "data_validation_v2_cumemalloc");
  table.add("data_force_pcie", "data through a FORCE_PCIE pin", data_force_pcie, "data_validation_v2_forcepci_cumemalloc");
  table.add("mixed_mappings", "mappings of two types used in turns", mixed_mappings, "data_validation_mix_mappings_cumemalloc");
  table.add("no_stale_reads", "a read returns what the GPU holds now, also right after an earlier read of the same lines",
            no_stale_reads);
  table.add("publish_data_then_flag", "publish and batch store what they say, and nothing when they refuse",
            publish_data_then_flag);
}

}  // namespace gigabar::tool
