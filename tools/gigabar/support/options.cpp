// SPDX-License-Identifier: Apache-2.0
#include "support/options.hpp"

#include <array>

#include "support/option_checks.hpp"

namespace gigabar::tool {

Option add_json_option(const Command& command, std::string& path) {
  return command
      .add_option("--json", path,
                  "Also write everything as JSON to this file; '-': to standard output, and the text to standard error")
      ->type_name("FILE");
}

void add_store_options(const Command& command, StoreOptions& options) {
  // What --store without a file stands for: an empty one is a variable of the caller's that was not set.
  constexpr const char* kUsualPlace = "where the library looks for it";
  const auto take_path = [&options](const std::string& text) { options.path = text == kUsualPlace ? std::string() : text; };
  Option store = command.add_option_function("--store", take_path, "Store the result in FILE, not where the library looks for it")
                     ->expected(0, 1)
                     ->default_str(kUsualPlace)
                     ->type_name("FILE");
  // Its second name is its old one.
  command.add_flag("!--no-store,!--dry-run", options.is_wanted, "Measure and print, but store nothing")->excludes(store);
}

void add_device_option(const Command& command, DeviceOptions& options) {
  command.add_option("-d,--device", options.device, whole_number(0, 1023),
                     "Device: CUDA's number, or a stand-in's where there is no GPU");
}

void add_cpu_option(const Command& command, DeviceOptions& options) {
  command.add_option("--cpu", options.processor, whole_number(0, 8191), "Run on this CPU only (default: where the system puts it)")
      ->default_str("");
}

Option add_budget_option(const Command& command, double& target, double most, const std::string& help) {
  return command.add_option("--budget", target, seconds(most), help);
}

void add_device_options(const Command& command, DeviceOptions& options) {
  constexpr std::array<Named<DeviceAllocator>, 2> kAllocators = {
      {{DeviceAllocator::cuda_malloc, "cuMemAlloc"}, {DeviceAllocator::vmm, "cuMemCreate"}}};
  constexpr std::array<Named<std::optional<MappingType>>, 4> kTypes = {{{std::nullopt, "default"},
                                                                        {MappingType::write_combined, "wc"},
                                                                        {MappingType::cached, "cache"},
                                                                        {MappingType::uncached, "device"}}};
  constexpr std::array kBackends = {MappingBackend::dmabuf, MappingBackend::gdrdrv, MappingBackend::rm, MappingBackend::host};
  std::vector<Named<MappingBackend>> backends;
  for (const MappingBackend backend : kBackends) backends.push_back({backend, name_of(backend)});
  add_device_option(command, options);
  command
      .add_choice("-a,--allocator", options.allocator, kAllocators,
                  "How device memory is allocated: cuMemAlloc (default) or cuMemCreate")
      ->type_name("NAME")
      ->default_str("");
  command
      .add_choice("-M,--mapping-type", options.type, kTypes,
                  "Mapping type that is needed: default (any), wc, cache or device; another one ends the run")
      ->type_name("TYPE")
      ->default_str("");
  command
      .add_choice("--backend", options.backend, backends,
                  "Mapping backend that must be used: dmabuf, gdrdrv, rm or host (default: the first that works)")
      ->type_name("NAME");
  add_cpu_option(command, options);
  add_json_option(command, options.json_path);
}

}  // namespace gigabar::tool
