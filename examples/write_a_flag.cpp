// SPDX-License-Identifier: Apache-2.0
// Writes a message and then a flag into GPU memory with CPU stores, and reads both back. On a machine without a GPU the device is a
// stand-in: host memory that plays one.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <gigabar/copy.hpp>

int main() {
  const char message[] = "hello, GPU";
  constexpr std::size_t kFlagOffsetBytes = 4096;

  auto memory = gigabar::DeviceMemory::allocate(0, 65536);  // any cudaMalloc pointer does as well
  if (!memory) return std::puts(memory.error().message().c_str()), 1;

  auto mapping = gigabar::map(memory->address(), memory->bytes());
  if (!mapping) return std::puts(mapping.error().message().c_str()), 1;

  // A reader that sees the flag, a running kernel or another thread, also sees the whole message.
  auto published = gigabar::publish(*mapping, 0, message, sizeof(message), kFlagOffsetBytes, std::uint64_t{1});
  if (!published) return std::puts(published.message().c_str()), 1;

  char seen[sizeof(message)] = {};
  std::uint64_t flag = 0;
  auto read = gigabar::copy_from(*mapping, kFlagOffsetBytes, &flag, sizeof(flag));
  if (read) read = gigabar::copy_from(*mapping, 0, seen, sizeof(seen));
  if (!read) return std::puts(read.message().c_str()), 1;

  std::printf("path %s%s: flag %llu, message \"%s\"\n", std::string(name_of(mapping->backend())).c_str(),
              mapping->is_stand_in() ? " (stand-in)" : "", static_cast<unsigned long long>(flag), seen);
  return flag == 1 && std::memcmp(seen, message, sizeof(message)) == 0 ? 0 : 1;
}
