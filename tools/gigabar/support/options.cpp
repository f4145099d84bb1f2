// SPDX-License-Identifier: Apache-2.0
#include "support/options.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "base/counted.hpp"
#include "memory/runtime.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/option_checks.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool {
namespace {

// What is in the machine is told all the same: stand-ins are no part of it.
void tell_stand_ins(Report& report) {
  const int count = take(forced_stand_in_count());
  if (count == 0) return;
  report.note(
      fmt::format("stand-in: GIGABAR_STAND_IN={} has the other commands use {}, host memory that plays GPUs; what is told here is "
                  "of the machine itself",
                  count, counted(static_cast<std::uint64_t>(count), "stand-in device")));
}

}  // namespace

Option add_json_option(const Command& command, std::string& path) {
  return command.add_option("--json", path, Value{"FILE"},
                            "Also write everything as JSON to this file; '-': to standard output, and the text to standard error");
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
  command.add_flag_that_clears("--no-store,--dry-run", options.is_wanted, "Measure and print, but store nothing")->excludes(store);
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

Option add_sysroot_option(const Command& command, std::string& path) {
  return command
      .add_option(
          "--sysroot", path,
          "Another machine: a file that 'gigabar topology --capture' wrote, or a folder with its sys/, proc/, dev/, etc/, boot/")
      ->type_name("PATH")
      ->check([](std::string& text) { return text.empty() ? "the path is empty" : std::string(); });
}

Machine open_machine(const std::string& path) {
  if (path.empty()) return Machine::here();
  add_named_file("--sysroot", path, FileUse::read);
  Result<Machine> machine = Machine::open(path);
  if (!machine) refuse_usage("--sysroot: " + plain(machine.error().message()));
  return std::move(machine).value();
}

void tell_origin(Report& report, const Machine& machine) {
  const std::string remark = plain(machine.remark());
  const std::string origin = plain(machine.origin());
  report.document()["origin"] = {{"is_live", machine.is_live()}, {"path", origin}, {"remark", remark}};
  if (machine.is_live()) return tell_stand_ins(report);
  report.print("captured machine, read from {}: nothing below is about this one\n", origin);
  if (!remark.empty()) report.print("remark: {}\n", remark);
  report.print("\n");
}

}  // namespace gigabar::tool
