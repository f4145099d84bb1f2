// SPDX-License-Identifier: Apache-2.0
#include "support/options.hpp"

#include <map>

#include "support/option_checks.hpp"

namespace gigabar::tool {

Option add_json_option(const Command& command, std::string& path) {
  return command
      .add_option("--json", path,
                  "Also write everything as JSON to this file; '-': to standard output, and the text to standard error")
      ->type_name("FILE");
}

void add_store_options(const Command& command, StoreOptions& options) {
  Option store = command.add_option("--store", options.path, "Store the result in FILE, not where the library looks for it")
                     ->expected(0, 1)
                     ->type_name("FILE");
  // Its second name is its old one.
  command.add_flag("!--no-store,!--dry-run", options.is_wanted, "Measure and print, but store nothing")->excludes(store);
}

void add_device_option(const Command& command, DeviceOptions& options) {
  command.add_option("-d,--device", options.device, "Device: CUDA's number, or a stand-in's where there is no GPU")
      ->check(whole_number(0, 1023))
      ->type_name("N")
      ->capture_default_str();
}

void add_device_options(const Command& command, DeviceOptions& options) {
  using AllocatorChoices = std::map<std::string, DeviceAllocator>;
  static const AllocatorChoices allocators = {{"cuMemAlloc", DeviceAllocator::cuda_malloc}, {"cuMemCreate", DeviceAllocator::vmm}};
  using TypeChoices = std::map<std::string, std::optional<MappingType>>;
  static const TypeChoices types = {{"default", std::nullopt},
                                    {"wc", MappingType::write_combined},
                                    {"cache", MappingType::cached},
                                    {"device", MappingType::uncached}};
  using BackendChoices = std::map<std::string, std::optional<MappingBackend>>;
  static const BackendChoices backends = {{"dmabuf", MappingBackend::dmabuf},
                                          {"gdrdrv", MappingBackend::gdrdrv},
                                          {"rm", MappingBackend::rm},
                                          {"host", MappingBackend::host}};
  add_device_option(command, options);
  const auto ignore = [](const std::string&) {};
  command.add_option_function("-a,--allocator", ignore, "How device memory is allocated: cuMemAlloc (default) or cuMemCreate")
      ->check(choice(allocators, options.allocator))
      ->type_name("NAME");
  command
      .add_option_function("-M,--mapping-type", ignore,
                           "Mapping type that is needed: default (any), wc, cache or device; another one ends the run")
      ->check(choice(types, options.type))
      ->type_name("TYPE");
  command
      .add_option_function("--backend", ignore,
                           "Mapping backend that must be used: dmabuf, gdrdrv, rm or host (default: the first that works)")
      ->check(choice(backends, options.backend))
      ->type_name("NAME");
  command.add_option("--cpu", options.processor, "Run on this CPU only (default: where the system puts it)")
      ->check(whole_number(0, 8191))
      ->type_name("N");
  add_json_option(command, options.json_path);
}

}  // namespace gigabar::tool
