// SPDX-License-Identifier: Apache-2.0
// Copies 8 bytes and 16 MiB in both directions, and says who copied: the CPU, several CPU threads or the copy engine. Then many
// small stores with one fence behind them.
#include <cstdio>
#include <gigabar/copy.hpp>
#include <vector>

template <class Failed>
int tell(const Failed& failed) {
  return std::puts(failed.message().c_str()), 1;
}

int main() {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  auto memory = gigabar::DeviceMemory::allocate(0, kBytes);
  if (!memory) return tell(memory);
  auto mapping = gigabar::map(memory->address(), kBytes);
  if (!mapping) return tell(mapping);

  std::vector<unsigned char> sent(kBytes, 42), received(kBytes);
  for (const std::size_t bytes : {std::size_t{8}, kBytes}) {
    const auto there = gigabar::copy(gigabar::MappedPlace{*mapping}, sent.data(), bytes);
    if (!there) return tell(there);
    const auto back = gigabar::copy(received.data(), gigabar::MappedPlace{*mapping}, bytes);
    if (!back) return tell(back);
    std::printf("%zu bytes: to the device by %s, back by %s\n", bytes, std::string(name_of(*there)).c_str(),
                std::string(name_of(*back)).c_str());
  }

  {
    gigabar::Batch batch(*mapping);
    for (std::uint32_t i = 0; i < 16; ++i) {
      if (const auto stored = batch.copy_to(i * sizeof i, &i, sizeof i); !stored) return tell(stored);
    }
  }  // one fence: all of them have left the CPU
  std::uint32_t last = 0;
  if (const auto read = gigabar::copy_from(*mapping, 15 * sizeof last, &last, sizeof last); !read) return tell(read);
  return sent == received && last == 15 ? 0 : 1;
}
