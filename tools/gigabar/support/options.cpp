// SPDX-License-Identifier: Apache-2.0
#include "support/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>

#include "base/counted.hpp"
#include "base/options.hpp"
#include "memory/runtime.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool {

Value byte_count(std::uint64_t least, std::uint64_t most) {
  const Check check = [=](std::string& text) -> std::string {
    const auto bytes = parse_size(text);
    if (!bytes) return fmt::format("'{}' is not a size; write bytes, or a number with K, M or G (powers of 1024)", text);
    if (*bytes < least || *bytes > most) return fmt::format("{} is outside {}..{}", counted(*bytes, "byte"), least, most);
    text = std::to_string(*bytes);
    return {};
  };
  return {"BYTES", check, true};
}

Value whole_number(std::uint64_t least, std::uint64_t most, const char* name) {
  const Check check = [=](std::string& text) -> std::string {
    const auto number = parse_number(text, 0, ~std::uint64_t{0});
    if (!number) return fmt::format("'{}' is not a whole number; write digits only", text);
    if (*number < least || *number > most) return fmt::format("{} is outside {}..{}", *number, least, most);
    return {};
  };
  return {name, check};
}

Value real_number(double least, double most, const char* name) {
  const Check check = [=](std::string& text) -> std::string {
    const auto value = read_number(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("'{}' is not a number from {} to {}", text, least, most);
  };
  return {name, check};
}

Value number_above_0(double most, const char* name, const char* what) {
  const Check check = [=](std::string& text) -> std::string {
    const auto value = read_number(text);
    if (value && *value > 0 && *value <= most) return {};
    return fmt::format("'{}' is not {} above 0 and up to {}", text, what, most);
  };
  return {name, check};
}

Value seconds(double most) { return number_above_0(most, "SECONDS", "a time; write seconds"); }

Check file_name() {
  return [](std::string& text) { return text.empty() || text == "-" ? "'" + text + "' is not a file's name" : std::string(); };
}

std::optional<double> read_number(std::string_view text) {
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && at == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
  return parse_bytes(text, 0, std::numeric_limits<std::uint64_t>::max());
}

std::optional<SizeRange> parse_size_range(const std::string& text, const SizeRange& otherwise) {
  const std::size_t colon = text.find(':');
  const std::string least = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string most = colon == std::string::npos ? text : text.substr(colon + 1);
  if (least.empty() && most.empty()) return {};
  const auto first = least.empty() ? std::optional(otherwise.least_bytes) : parse_size(least);
  const auto last = most.empty() ? std::optional(otherwise.most_bytes) : parse_size(most);
  if (!first || !last || *first > *last || *last > kMaxBytes) return {};
  return SizeRange{*first, *last};
}

std::vector<std::uint64_t> sizes_of(const SizeRange& range) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = range.least_bytes; bytes <= range.most_bytes; bytes = std::max<std::uint64_t>(1, bytes * 2)) {
    sizes.push_back(bytes);
  }
  return sizes;
}

Option add_range_option(const Command& command, const std::string& names, std::string& target, const std::string& help,
                        const std::string& usual) {
  return command.add_option(names, target, help)->type_name("[MIN:]MAX")->default_str(usual);
}

SizeRange settle_range(const std::string& option, const std::string& typed, const RangeRule& rule) {
  const auto range = typed.empty() ? std::optional(rule.usual) : parse_size_range(typed, rule.usual);
  const std::uint64_t unit = std::max<std::uint64_t>(rule.unit, 1);
  const bool is_good = range && range->most_bytes <= rule.most && range->least_bytes % unit == 0;
  if (is_good && (range->least_bytes > 0 || rule.unit == 0)) return *range;
  const std::string multiple =
      rule.unit == 0 ? "" : " from 1 on" + (unit == 1 ? "" : fmt::format(", a multiple of {},", unit)) + " and";
  refuse_usage(fmt::format("{} {}: this is no range of sizes; write MAX or MIN:MAX, MIN{} not above MAX, at most {}, as in {}:{}",
                           option, typed, multiple, rule.most, format_bytes(rule.usual.least_bytes),
                           format_bytes(rule.usual.most_bytes)));
}

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
  const Check check = [](std::string& text) { return text.empty() ? "the path is empty" : std::string(); };
  return command.add_option(
      "--sysroot", path, {"PATH", check},
      "Another machine: a file that 'gigabar topology --capture' wrote, or a folder with its sys/, proc/, dev/, etc/, boot/");
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
  if (!machine.is_live()) {
    report.print("captured machine, read from {}: nothing below is about this one\n", origin);
    if (!remark.empty()) report.print("remark: {}\n", remark);
    report.print("\n");
  } else if (const int count = take(forced_stand_in_count()); count > 0) {
    // What is in the machine is told all the same: stand-ins are no part of it.
    report.note(fmt::format(
        "stand-in: GIGABAR_STAND_IN={} has the other commands use {}, host memory that plays GPUs; what is told here is "
        "of the machine itself",
        count, counted(static_cast<std::uint64_t>(count), "stand-in device")));
  }
}

}  // namespace gigabar::tool
