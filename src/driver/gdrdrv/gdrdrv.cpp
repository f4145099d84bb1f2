// SPDX-License-Identifier: Apache-2.0
#include "driver/gdrdrv/gdrdrv.hpp"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check_ids.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "base/undo.hpp"
#include "driver/system_calls.hpp"

namespace gigabar::gdrdrv {
namespace {

constexpr std::uint32_t version_number(std::uint32_t major, std::uint32_t minor) { return major << 16 | minor; }
constexpr std::uint32_t kApiVersion = version_number(2, 6);

struct Pin {
  std::uint64_t address, bytes;
  std::uint32_t flags, padding;
  std::uint64_t handle;
};
struct Info {
  std::uint64_t handle, address, mapped_bytes;
  std::uint32_t page_bytes, tsc_khz;
  std::uint64_t tm_cycles;
  std::uint32_t mapping_type, padding;
};
struct Attribute {
  std::uint32_t attribute, value;
};
struct Version {
  std::uint32_t module, oldest_api;
};
static_assert(sizeof(Pin) == 32 && sizeof(Info) == 48);

// The module's header declares most requests with a pointer type, so that their size field is 8 whatever they point to.
constexpr unsigned long request(unsigned number, std::size_t bytes = sizeof(void*)) {
  return _IOC(_IOC_READ | _IOC_WRITE, 0xDA, number, bytes);
}
constexpr unsigned long kUnpin = request(2);
constexpr unsigned long kInfo = request(5);
constexpr unsigned long kAttribute = request(6);
constexpr unsigned long kPin = request(7, sizeof(Pin));
constexpr unsigned long kVersion = request(255);
constexpr std::uint32_t kAttributePersistent = 1;

std::string version_text(std::uint32_t version) { return text(version >> 16, ".", version & 0xffff); }

}  // namespace

Result<std::unique_ptr<Module>> Module::open(const std::string& device_folder) {
  const std::string path = device_folder + "/gdrdrv";
  const auto descriptor = open_device_file(
      "open gdrdrv", path, "load GDRCopy's kernel module, or use the rm backend, which needs none", check_id::kGdrdrv);
  if (!descriptor) return descriptor.error();
  Version version{};
  Undo close([&] { system_calls().close(*descriptor); });
  std::unique_ptr<Module> module(new Module(*descriptor));
  close.call_off();
  if (Result<void> asked = module->call("ask gdrdrv for its version", kVersion, &version); !asked) return std::move(asked).error();
  if (version.module < version_number(2, 0) || version.oldest_api > kApiVersion) {
    return make_error(
        Status::unavailable, "open gdrdrv", path,
        text("version ", version_text(version.module), " asks for an API of at least ", version_text(version.oldest_api)),
        "install GDRCopy's kernel module 2.5 or newer");
  }
  module->version_ = version.module;
  if (version.module >= version_number(2, 5)) {
    Attribute attribute{kAttributePersistent, 0};
    if (Result<void> asked = module->call("ask gdrdrv for persistence", kAttribute, &attribute); !asked)
      return std::move(asked).error();
    module->is_persistent_ = attribute.value != 0;
  }
  return module;
}

Module::~Module() { system_calls().close(descriptor_); }

std::string Module::version() const { return version_text(version_); }

// Without persistence an access after the memory was freed is a SIGBUS, which no mapping of ours may be.
Availability Module::availability() const {
  if (is_persistent_) return {AvailabilityCode::ok, text("version ", version(), ", persistent"), {}};
  return {AvailabilityCode::not_supported, text("version ", version(), " does not keep freed memory valid"),
          "load gdrdrv 2.5 or newer with use_persistent_mapping=1"};
}

Result<void> Module::call(const char* operation, unsigned long number, void* argument) {
  if (call_device(descriptor_, number, argument) == 0) return {};
  const int code = errno;
  return make_errno_error(code, operation, "gdrdrv");
}

Result<std::uint64_t> Module::pin(std::uint64_t device_address, std::size_t bytes) {
  Pin argument{device_address, bytes, 0, 0, 0};
  Result<void> pinned = call("pin", kPin, &argument);
  if (pinned) return argument.handle;
  Error error = std::move(pinned).error();
  if (error.record().native.code == EINVAL) {
    edit(error).status = Status::not_supported;
    edit(error).cause =
        text("the module cannot pin ", range_text(device_address, bytes), ": not device memory, or memory it does not take");
  }
  return error;
}

void Module::unpin(std::uint64_t handle) noexcept {
  quietly([&] {
    if (Result<void> done = call("unpin", kUnpin, &handle); !done) log(LogLevel::warning, done.message());
  });
}

CacheType Module::type_of(std::uint64_t handle) {
  Info info{};
  info.handle = handle;
  return call("inspect mapping", kInfo, &info) ? static_cast<CacheType>(info.mapping_type) : CacheType::none;
}

Result<PinnedMapping> Module::map(std::uint64_t device_address, std::size_t bytes) {
  if (const Availability usable = availability(); !usable.is_ok())
    return make_error(Status::not_supported, "map", "gdrdrv", usable.reason, usable.remedy);
  auto handle = pin(device_address, bytes);
  if (!handle) return std::move(handle).error();
  const auto page_shift = std::countr_zero(static_cast<unsigned long>(::sysconf(_SC_PAGESIZE)));
  void* address = system_calls().mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_,
                                      static_cast<off_t>(*handle << page_shift));
  if (address == MAP_FAILED) {
    const int code = errno;
    unpin(*handle);
    return make_error(code == EAGAIN ? Status::out_of_bar1 : status_of_errno(code), "map", "gdrdrv",
                      text("mmap: ", std::strerror(code)), {}, errno_code(code));
  }
  const PinnedMapping mapping{*handle, address, bytes, type_of(*handle)};
  if (mapping.type == CacheType::none) {
    unmap(mapping);
    return make_error(Status::device_error, "map", "gdrdrv", "the module does not say how the mapping is cached");
  }
  return mapping;
}

void Module::unmap(const PinnedMapping& mapping) noexcept {
  if (system_calls().munmap(mapping.address, mapping.bytes) != 0)
    quietly([] { log(LogLevel::error, text("unmap gdrdrv mapping: ", std::strerror(errno))); });
  unpin(mapping.handle);
}

}  // namespace gigabar::gdrdrv
