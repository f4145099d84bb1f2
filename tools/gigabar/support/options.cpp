#include "support/options.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

namespace gigabar::tool {
namespace {

std::optional<std::uint64_t> parse_digits(const std::string& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stopped != end) return {};
  return number;
}

// A validator that hides its type name: the option's own help text says what it wants.
CLI::Validator validator(std::function<std::string(std::string&)> check) { return CLI::Validator(std::move(check), "", ""); }

}  // namespace

std::optional<std::uint64_t> parse_size(const std::string& text) {
  if (text.empty()) return {};
  std::string digits = text;
  unsigned shift = 0;
  switch (std::toupper(static_cast<unsigned char>(text.back()))) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    default: break;
  }
  if (shift != 0) digits.pop_back();
  const auto number = parse_digits(digits);
  if (!number || *number > (std::numeric_limits<std::uint64_t>::max() >> shift)) return {};
  return *number << shift;
}

CLI::Validator byte_count(std::uint64_t least, std::uint64_t most) {
  return validator([=](std::string& text) -> std::string {
    const auto bytes = parse_size(text);
    if (!bytes) return fmt::format("'{}' is not a size; write bytes, or a number with K, M or G (powers of 1024)", text);
    if (*bytes < least || *bytes > most) return fmt::format("{} bytes is outside {}..{}", *bytes, least, most);
    text = std::to_string(*bytes);
    return {};
  });
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return validator([=](std::string& text) -> std::string {
    const auto number = parse_digits(text);
    if (!number) return fmt::format("'{}' is not a whole number; write digits only", text);
    if (*number < least || *number > most) return fmt::format("{} is outside {}..{}", *number, least, most);
    return {};
  });
}

CLI::Validator seconds(double most) {
  return validator([=](std::string& text) -> std::string {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value) || !(value > 0) || value > most) {
      return fmt::format("'{}' is not a time; write seconds above 0 and up to {}", text, most);
    }
    return {};
  });
}

void add_json_option(CLI::App& command, DeviceOptions& options) {
  command
      .add_option("--json", options.json_path,
                  "Also write everything as JSON to this file; '-': to standard output, and the text to standard error")
      ->type_name("FILE");
}

void add_device_option(CLI::App& command, DeviceOptions& options) {
  command.add_option("-d,--device", options.device, "Device: CUDA's number, or a stand-in's where there is no GPU")
      ->check(whole_number(0, 1023))
      ->type_name("N")
      ->capture_default_str();
}

void add_device_options(CLI::App& command, DeviceOptions& options) {
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
  command
      .add_option_function<std::string>("-a,--allocator", ignore,
                                        "How device memory is allocated: cuMemAlloc (default) or cuMemCreate")
      ->check(choice(allocators, options.allocator))
      ->type_name("NAME");
  command
      .add_option_function<std::string>("-M,--mapping-type", ignore,
                                        "Mapping type that is needed: default (any), wc, cache or device; another one ends the run")
      ->check(choice(types, options.type))
      ->type_name("TYPE");
  command
      .add_option_function<std::string>(
          "--backend", ignore, "Mapping backend that must be used: dmabuf, gdrdrv, rm or host (default: the first that works)")
      ->check(choice(backends, options.backend))
      ->type_name("NAME");
  command.add_option("--cpu", options.processor, "Run on this CPU only (default: where the system puts it)")
      ->check(whole_number(0, 8191))
      ->type_name("N");
  add_json_option(command, options);
}

}  // namespace gigabar::tool
