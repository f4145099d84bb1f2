// SPDX-License-Identifier: Apache-2.0
// Allocates a staging buffer on the NUMA node of device 0, on huge pages where it can, and copies through it to the device and
// back. Without huge pages the buffer is pinned; where the limit of locked memory is too small it is pageable, which is slower.
#include <cstdio>
#include <cstring>
#include <gigabar/copy.hpp>
#include <gigabar/device.hpp>
#include <gigabar/memory.hpp>

template <class Failed>
int tell(const Failed& failed) {
  return std::puts(failed.message().c_str()), 1;
}

gigabar::Result<gigabar::HostMemory> allocate_near(const gigabar::DeviceInfo& device, std::size_t bytes) {
  gigabar::HostMemoryOptions options;
  options.numa_node = device.numa_node;  // -1: the machine does not say, and the system chooses
  for (const auto pages : {gigabar::HostPages::huge, gigabar::HostPages::pinned}) {
    options.pages = pages;
    auto memory = gigabar::HostMemory::allocate(bytes, options);
    if (memory) return memory;
    std::printf("not %s: %s\n", std::string(name_of(pages)).c_str(), memory.message().c_str());
  }
  options.pages = gigabar::HostPages::pageable;
  return gigabar::HostMemory::allocate(bytes, options);
}

int main() {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const auto devices = gigabar::devices();
  if (!devices) return tell(devices);
  const gigabar::DeviceInfo& device = devices->front();

  auto staging = allocate_near(device, 2 * kBytes);  // the first half is sent, the second is received into
  if (!staging) return tell(staging);
  std::printf("%s: staging buffer of %s pages on NUMA node %d\n", device.name.c_str(),
              std::string(name_of(staging->pages())).c_str(), staging->numa_node());

  auto memory = gigabar::DeviceMemory::allocate(device.index, kBytes);
  if (!memory) return tell(memory);
  auto mapping = gigabar::map(memory->address(), kBytes);
  if (!mapping) return tell(mapping);

  auto* const sent = static_cast<std::byte*>(staging->address());
  std::byte* const received = sent + kBytes;
  for (std::size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 256);
  const auto there = gigabar::copy(gigabar::MappedPlace{*mapping}, sent, kBytes);
  if (!there) return tell(there);
  const auto back = gigabar::copy(received, gigabar::MappedPlace{*mapping}, kBytes);
  if (!back) return tell(back);
  std::printf("copied to the device by %s, back by %s\n", std::string(name_of(*there)).c_str(),
              std::string(name_of(*back)).c_str());
  return std::memcmp(sent, received, kBytes) == 0 ? 0 : 1;
}
