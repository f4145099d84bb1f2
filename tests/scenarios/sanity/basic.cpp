// SPDX-License-Identifier: Apache-2.0
// Pinning, mapping and what is refused.
#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/counted.hpp"
#include "scenarios/sanity/scenario.hpp"
#include "support/failure.hpp"
#include "support/pattern.hpp"

namespace gigabar::tool {
namespace {

constexpr std::size_t kBytes = 256 << 10;

unsigned long number_of(const void* address) { return reinterpret_cast<unsigned long>(address); }

void attributes(const Context&) {
  const auto session = open_session();
  for (const gdr_attr_t attribute :
       {GDR_ATTR_USE_PERSISTENT_MAPPING, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, GDR_ATTR_USING_DMA_BUF_MMAP}) {
    int value = -1;
    expect_code(gdr_get_attribute(session->get(), attribute, &value), 0,
                fmt::format("gdr_get_attribute {}", static_cast<int>(attribute)));
    expect(value == 0 || value == 1, fmt::format("attribute {} is {}, neither 0 nor 1", static_cast<int>(attribute), value));
    expect(attribute != GDR_ATTR_USE_PERSISTENT_MAPPING || value == 1, "mappings are persistent, but the attribute says 0");
  }
  int value = -1;
  expect_code(gdr_get_attribute(session->get(), GDR_ATTR_MAX, &value), EINVAL, "gdr_get_attribute of an unknown attribute");
  int major = 0;
  int minor = 0;
  gdr_runtime_get_version(&major, &minor);
  expect(major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION,
         fmt::format("the library calls itself {}.{}", major, minor));
  expect_code(gdr_driver_get_version(session->get(), &major, &minor), 0, "gdr_driver_get_version");
  expect((major << 16 | minor) >= MINIMUM_GDRDRV_VERSION, fmt::format("driver version {}.{} is below the least", major, minor));
  const char* name = nullptr;
  expect_code(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_WC, &name), 0, "gdr_get_mapping_type_string");
  expect(name != nullptr && std::string_view(name) == "Write Combining", "the name of the WC mapping type is wrong");
}

void pin_map_unmap(const Context& context) {
  const auto session = open_session();
  gdr_t g = session->get();
  const DeviceMemory memory = allocate(context, kBytes);
  const EngineView view(memory);
  gdr_mh_t handle{};
  void* mapped = nullptr;
  expect_code(gdr_pin_buffer(g, number_of(memory.address()), kBytes, 0, 0, &handle), 0, "gdr_pin_buffer");
  gdr_info_t info{};
  expect_code(gdr_get_info(g, handle, &info), 0, "gdr_get_info");
  expect(info.mapped == 0 && info.mapping_type == GDR_MAPPING_TYPE_NONE, "a pinned buffer calls itself mapped before gdr_map");
  expect(info.va == (number_of(memory.address()) & GPU_PAGE_MASK) && info.mapped_size >= kBytes,
         "gdr_get_info tells another range than was pinned");
  expect_code(gdr_map(g, handle, &mapped, kBytes), 0, "gdr_map");
  expect_code(gdr_get_info(g, handle, &info), 0, "gdr_get_info");
  expect(info.mapped == 1 && info.mapping_type != GDR_MAPPING_TYPE_NONE, "a mapped buffer calls itself not mapped");
  int flag = -1;
  expect_code(gdr_get_callback_flag(g, handle, &flag), 0, "gdr_get_callback_flag");
  expect(flag == 0, "the callback flag is set although the memory was not taken back");
  expect_code(gdr_unmap(g, handle, mapped, kBytes), 0, "gdr_unmap");
  expect_code(gdr_unpin_buffer(g, handle), 0, "gdr_unpin_buffer");
  const GdrBuffer again(g, memory.address(), kBytes);  // everything was given back, so it can be done again
  expect_both_ways(again, view, 0, kBytes);
}

void pin_map_v2(const Context& context) {
  const auto session = open_session();
  gdr_t g = session->get();
  const DeviceMemory memory = allocate(context, kBytes);
  const EngineView view(memory);
  int given = 0;
  {
    const GdrBuffer buffer(g, memory.address(), kBytes);
    given = static_cast<int>(buffer.info().mapping_type);
    expect_both_ways(buffer, view, 0, kBytes);
  }
  // The flags have the values of the types: what the platform gives can be required, anything else is refused.
  for (const int required : {GDR_MAP_FLAG_REQ_WC_MAPPING, GDR_MAP_FLAG_REQ_CACHE_MAPPING, GDR_MAP_FLAG_REQ_DEVICE_MAPPING}) {
    gdr_mh_t handle{};
    void* mapped = nullptr;
    expect_code(gdr_pin_buffer_v2(g, number_of(memory.address()), kBytes, GDR_PIN_FLAG_DEFAULT, &handle), 0, "gdr_pin_buffer_v2");
    expect_code(gdr_map_v2(g, handle, &mapped, kBytes, required), required == given ? 0 : EOPNOTSUPP,
                fmt::format("gdr_map_v2 with flags {}", required));
    expect_code(gdr_unpin_buffer(g, handle), 0, "gdr_unpin_buffer");
  }
}

void force_pcie(const Context& context) {
  const auto session = open_session();
  int is_supported = -1;
  expect_code(gdr_get_attribute(session->get(), GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &is_supported), 0, "gdr_get_attribute");
  const DeviceMemory memory = allocate(context, kBytes);
  if (is_supported == 0) {
    gdr_mh_t handle{};
    const int code = gdr_pin_buffer_v2(session->get(), number_of(memory.address()), kBytes, GDR_PIN_FLAG_FORCE_PCIE, &handle);
    expect_code(code, EINVAL, "gdr_pin_buffer_v2 with FORCE_PCIE where the attribute says that it is not supported");
    waive("the device is reached by cached accesses, not over PCIe; the flag was refused as it must be");
  }
  const EngineView view(memory);
  const GdrBuffer buffer(session->get(), memory.address(), kBytes, GDR_PIN_FLAG_FORCE_PCIE);
  expect_both_ways(buffer, view, 0, kBytes);
}

void tokens_refused(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kBytes);
  gdr_mh_t handle{};
  const unsigned long address = number_of(memory.address());
  expect_code(gdr_pin_buffer(session->get(), address, kBytes, 1, 0, &handle), EINVAL, "gdr_pin_buffer with a token");
  expect_code(gdr_pin_buffer(session->get(), address, kBytes, 0, 1, &handle), EINVAL, "gdr_pin_buffer with a va_space");
  const GdrBuffer buffer(session->get(), memory.address(), kBytes);
}

void unaligned_addresses(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kBytes);
  const EngineView view(memory);
  for (const std::size_t offset : {std::size_t{1}, std::size_t{3}, std::size_t{8}, std::size_t{4095}, std::size_t{4096},
                                   GPU_PAGE_SIZE - 1, GPU_PAGE_SIZE + 5}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{5000}, std::size_t{2 * GPU_PAGE_SIZE}}) {
      const GdrBuffer buffer(session->get(), static_cast<std::byte*>(memory.address()) + offset, bytes);
      expect_both_ways(buffer, view, offset, bytes);
    }
  }
}

void small_buffers_in_one_page(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, GPU_PAGE_SIZE);
  const EngineView view(memory);
  auto* const base = static_cast<std::byte*>(memory.address());
  // Three buffers of 100 bytes next to each other in one GPU page, all mapped at once.
  constexpr std::size_t kSmall = 100;
  GdrBuffer first(session->get(), base, kSmall);
  const GdrBuffer second(session->get(), base + kSmall, kSmall);
  const GdrBuffer third(session->get(), base + 2 * kSmall, kSmall);
  const Pattern pattern(77);
  std::vector<std::byte> data(3 * kSmall);
  pattern.fill(data);
  const std::span<const std::byte> whole(data);
  third.write(0, whole.subspan(2 * kSmall, kSmall));
  first.write(0, whole.first(kSmall));
  second.write(0, whole.subspan(kSmall, kSmall));
  pattern.poison(data);
  view.read(0, data);
  if (const auto wrong = pattern.compare(data)) fail("neighbours in one GPU page disturb each other: " + wrong->to_string());
  first.unpin();
  pattern.poison(data);
  second.read(0, std::span(data).subspan(kSmall, kSmall));
  if (const auto wrong = pattern.compare(whole.subspan(kSmall, kSmall), kSmall))
    fail("the end of one buffer took the page of its neighbour: " + wrong->to_string());
}

void thread_pins(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kBytes);
  std::string problem;
  std::unique_ptr<GdrBuffer> buffer;
  std::thread child([&] {
    try {
      buffer = std::make_unique<GdrBuffer>(session->get(), memory.address(), kBytes);
    } catch (const CommandFailure& failure) {
      problem = failure.what();
    }
  });
  child.join();
  expect(problem.empty(), "in a child thread: " + problem);
  expect_both_ways(*buffer, EngineView(memory), 0, kBytes);  // used here, made there
}

void many_threads(const Context& context) {
  const auto session = open_session();
  constexpr std::size_t kThreads = 8;
  constexpr std::size_t kPart = 5000;  // parts share GPU pages
  const DeviceMemory memory = allocate(context, kThreads * kPart);
  std::vector<std::string> problems(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      try {
        const Pattern pattern(i);
        std::vector<std::byte> data(kPart);
        for (int pass = 0; pass < 50; ++pass) {
          GdrBuffer buffer(session->get(), static_cast<std::byte*>(memory.address()) + i * kPart, kPart);
          pattern.fill(data);
          buffer.write(0, data);
          pattern.poison(data);
          buffer.read(0, data);
          buffer.unmap();
          buffer.unpin();
          if (const auto wrong = pattern.compare(data)) fail("wrong data: " + wrong->to_string());
        }
      } catch (const std::exception& problem) {
        problems[i] = problem.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kThreads; ++i) expect(problems[i].empty(), fmt::format("thread {}: {}", i, problems[i]));
}

void wrong_calls_refused(const Context& context) {
  const auto session = open_session();
  gdr_t g = session->get();
  const DeviceMemory memory = allocate(context, kBytes);
  const unsigned long address = number_of(memory.address());
  gdr_mh_t handle{};
  void* mapped = nullptr;
  std::byte word[8] = {};
  expect_code(gdr_pin_buffer(nullptr, address, kBytes, 0, 0, &handle), EINVAL, "gdr_pin_buffer without a session");
  expect_code(gdr_pin_buffer(g, 0, kBytes, 0, 0, &handle), EINVAL, "gdr_pin_buffer of address 0");
  expect_code(gdr_pin_buffer(g, address, 0, 0, 0, &handle), EINVAL, "gdr_pin_buffer of 0 bytes");
  expect_code(gdr_pin_buffer(g, address, ~std::size_t{0}, 0, 0, &handle), EINVAL, "gdr_pin_buffer of a range that overflows");
  expect_code(gdr_pin_buffer(g, address, kBytes, 0, 0, nullptr), EINVAL, "gdr_pin_buffer without an output");
  expect_code(gdr_map(g, gdr_mh_t{}, &mapped, kBytes), EINVAL, "gdr_map of a null handle");
  expect_code(gdr_pin_buffer(g, address, kBytes, 0, 0, &handle), 0, "gdr_pin_buffer");
  expect_code(gdr_copy_to_mapping(handle, memory.address(), word, sizeof word), EINVAL, "gdr_copy_to_mapping before gdr_map");
  expect_code(gdr_map(g, handle, &mapped, 0), EINVAL, "gdr_map of 0 bytes");
  expect_code(gdr_map(g, handle, &mapped, kBytes + (64 << 20)), EINVAL, "gdr_map of more than was pinned");
  expect_code(gdr_map_v2(g, handle, &mapped, kBytes, 9), EINVAL, "gdr_map_v2 with unknown flags");
  expect_code(gdr_map(g, handle, &mapped, kBytes), 0, "gdr_map");
  void* second = nullptr;
  expect_code(gdr_map(g, handle, &second, kBytes), EAGAIN, "gdr_map of a mapped handle");
  // The mapping may be used up to the end of the host page that holds the buffer's last byte.
  gdr_info_t info{};
  expect_code(gdr_get_info(g, handle, &info), 0, "gdr_get_info");
  constexpr std::size_t kHostPage = 4096;
  const std::size_t reach = (address - info.va + kBytes + kHostPage - 1) / kHostPage * kHostPage;
  auto* const end = static_cast<std::byte*>(mapped) + reach;
  expect_code(gdr_copy_to_mapping(handle, end - 4, word, sizeof word), EINVAL, "gdr_copy_to_mapping over the end");
  expect_code(gdr_copy_from_mapping(handle, word, static_cast<std::byte*>(mapped) - 1, 1), EINVAL,
              "gdr_copy_from_mapping before the start");
  expect_code(gdr_unmap(g, handle, static_cast<std::byte*>(mapped) + 4096, kBytes), EINVAL, "gdr_unmap of another address");
  expect_code(gdr_unmap(g, handle, mapped, kBytes), 0, "gdr_unmap");
  expect_code(gdr_unmap(g, handle, mapped, kBytes), EINVAL, "gdr_unmap of what is not mapped");
  expect_code(gdr_unpin_buffer(g, handle), 0, "gdr_unpin_buffer");
  expect_code(gdr_unpin_buffer(g, handle), EINVAL, "gdr_unpin_buffer of a handle that was unpinned");
  expect_code(gdr_map(g, handle, &mapped, kBytes), EINVAL, "gdr_map of a handle that was unpinned");
}

void wrong_memory_refused(const Context& context) {
  const auto session = open_session();
  gdr_mh_t handle{};
  std::vector<std::byte> pageable(kBytes);
  expect_code(gdr_pin_buffer(session->get(), number_of(pageable.data()), kBytes, 0, 0, &handle), EINVAL,
              "gdr_pin_buffer of host memory");
  unsigned long freed = 0;
  {
    const DeviceMemory memory = allocate(context, kBytes);
    freed = number_of(memory.address());
  }
  expect_code(gdr_pin_buffer(session->get(), freed, kBytes, 0, 0, &handle), EINVAL, "gdr_pin_buffer of freed memory");
  const auto host = map(pageable.data(), kBytes);
  expect(!host && !host.error().record().cause.empty(), "gigabar::map of pageable host memory must be refused, with a cause");
  const DeviceMemory memory = allocate(context, kBytes);
  const auto beyond = map(memory.address(), std::size_t{1} << 40);
  expect(!beyond && beyond.status() == Status::out_of_range, "gigabar::map beyond the allocation must be out_of_range");
}

void more_than_4_gib(const Context& context) {
  constexpr std::size_t kLarge = (std::size_t{4} << 30) + 3 * GPU_PAGE_SIZE;
  auto memory = DeviceMemory::allocate(context.device.index, kLarge, context.allocator);
  if (!memory && memory.status() == Status::out_of_memory) waive("no memory for 4 GiB: " + memory.error().message());
  const DeviceMemory block = take(std::move(memory));
  const auto session = open_session();
  const EngineView view(block);
  const GdrBuffer buffer(session->get(), block.address(), kLarge);
  std::vector<std::byte> data(4096);
  for (const std::size_t offset : {std::size_t{0}, (std::size_t{2} << 30) - 2048, (std::size_t{4} << 30) - 2048, kLarge - 4096}) {
    const Pattern pattern(offset);
    pattern.fill(data);
    buffer.write(offset, data);
    pattern.poison(data);
    view.read(offset, data);
    if (const auto wrong = pattern.compare(data))
      fail(fmt::format("wrong data {} into the block: {}", counted(offset, "byte"), wrong->to_string()));
  }
  constexpr std::size_t kTail = 12345;  // and a piece that begins beyond 32 bits
  const GdrBuffer tail(session->get(), static_cast<std::byte*>(block.address()) + kLarge - kTail, kTail);
  expect_both_ways(tail, view, kLarge - kTail, kTail);
}

void two_devices(const Context& context) {
  if (context.device_count < 2) waive("this machine has one device");
  const int other_index = context.device.index == 0 ? 1 : 0;
  const auto session = open_session();
  const DeviceMemory mine = allocate(context, kBytes);
  const DeviceMemory theirs = take(DeviceMemory::allocate(other_index, kBytes, context.allocator));
  const GdrBuffer to_mine(session->get(), mine.address(), kBytes);
  const GdrBuffer to_theirs(session->get(), theirs.address(), kBytes);
  const EngineView my_view(mine);
  const EngineView their_view(theirs);
  expect_both_ways(to_mine, my_view, 0, kBytes);
  expect_both_ways(to_theirs, their_view, 0, kBytes);
  // Both at once: neither shows up in the other.
  std::vector<std::byte> data(kBytes);
  const Pattern my_pattern(501);
  const Pattern their_pattern(502);
  my_pattern.fill(data);
  to_mine.write(0, data);
  their_pattern.fill(data);
  to_theirs.write(0, data);
  my_view.read(0, data);
  if (const auto wrong = my_pattern.compare(data)) fail("a write to the other device reached this one: " + wrong->to_string());
  expect_code(gdr_copy_to_mapping(to_mine.handle(), to_theirs.address(), data.data(), 1), EINVAL,
              "gdr_copy_to_mapping to the mapping of another handle");
  const int shown = take(map(theirs.address(), kBytes)).device();
  expect(shown == other_index, fmt::format("a mapping of device {} is said to be of {}", other_index, shown));
}

}  // namespace

void add_basic(Table& table) {
  table.add("attributes", "attributes, versions and names are told, unknown ones refused", attributes, "attributes_sanity");
  table.add("pin_map_unmap", "pin, map, info, unmap, unpin, and all of it again", pin_map_unmap, "basic_cumemalloc",
            "basic_vmmalloc");
  table.add("pin_map_v2", "the second versions work; a mapping type that is not there is refused", pin_map_v2,
            "basic_v2_cumemalloc", "basic_v2_vmmalloc");
  table.add("force_pcie", "FORCE_PCIE works where the attribute says so and is refused elsewhere", force_pcie,
            "basic_v2_forcepci_cumemalloc", "basic_v2_forcepci_vmmalloc");
  table.add("tokens_refused", "a token is refused, since mappings are persistent", tokens_refused, "basic_with_tokens");
  table.add("unaligned_addresses", "any address and length can be pinned and mapped", unaligned_addresses,
            "basic_unaligned_mapping");
  table.add("small_buffers_in_one_page", "buffers that share a GPU page do not disturb each other", small_buffers_in_one_page,
            "basic_small_buffers_mapping");
  table.add("thread_pins", "a buffer pinned by a child thread works in its parent", thread_pins,
            "basic_child_thread_pins_buffer_cumemalloc", "basic_child_thread_pins_buffer_vmmalloc");
  table.add("many_threads", "eight threads pin, map, copy and unmap in one session", many_threads);
  table.add("wrong_calls_refused", "null, zero, overflow, out of range, twice, too late: each its documented error",
            wrong_calls_refused);
  table.add("wrong_memory_refused", "host memory, freed memory and ranges beyond the allocation are refused", wrong_memory_refused);
  table.add("more_than_4_gib", "a block of more than 4 GiB is mapped in one piece", more_than_4_gib);
  table.add("two_devices", "each device's mapping shows its own memory, never the other's", two_devices);
}

}  // namespace gigabar::tool
