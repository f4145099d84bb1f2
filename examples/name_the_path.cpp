// SPDX-License-Identifier: Apache-2.0
// Maps device memory and says by which backend, and why not by a better one. Then asks for a backend that may be absent, and shows
// what the error says.
#include <cstdio>
#include <gigabar/mapping.hpp>

int main() {
  auto memory = gigabar::DeviceMemory::allocate(0, 65536);
  if (!memory) return std::puts(memory.message().c_str()), 1;
  auto mapping = gigabar::map(memory->address(), memory->bytes());
  if (!mapping) return std::puts(mapping.message().c_str()), 1;

  const gigabar::MappingReport& report = mapping->report();
  std::printf("%s, %s\n", std::string(name_of(report.backend)).c_str(), std::string(name_of(mapping->type())).c_str());
  for (const gigabar::PassedOver& other : report.passed_over) {
    std::printf("  not %s: %s (%s)\n", std::string(name_of(other.backend)).c_str(), other.why.reason.c_str(),
                std::string(name_of(other.why.code)).c_str());
  }

  gigabar::MapOptions options;
  options.backend = gigabar::MappingBackend::gdrdrv;  // this one or none
  const auto required = gigabar::map(memory->address(), memory->bytes(), options);
  if (required) return 0;
  const gigabar::ErrorRecord& record = required.error().record();
  std::printf("gdrdrv: %s\n  cause: %s\n  remedy: %s\n", std::string(name_of(record.status)).c_str(), record.cause.c_str(),
              record.remedy.c_str());
  return required.status() == gigabar::Status::unavailable ? 0 : 1;
}
