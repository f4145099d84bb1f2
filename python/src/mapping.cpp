// SPDX-License-Identifier: Apache-2.0
#include "mapping.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <optional>
#include <string>

#include "arguments.hpp"
#include "errors.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/mapping.hpp"

namespace gigabar::python {

namespace {

// From these sizes on a copy lets other threads of Python run. Below, it is over before one could begin: stores take about 50 ns
// for each KiB, loads 1 us for 64 bytes.
constexpr std::size_t kReleaseStoreBytes = 65536;
constexpr std::size_t kReleaseLoadBytes = 1024;

template <class Call>
auto maybe_released(bool is_released, const Call& call) {
  if (!is_released) return call();
  const nb::gil_scoped_release released;
  return call();
}

// The mapping goes first, then the memory.
struct Mapped {
  Bytes memory;
  Mapping mapping;
};

class MappingObject {
 public:
  explicit MappingObject(std::shared_ptr<Mapped> mapped) noexcept : mapped_(std::move(mapped)) {}

  // A copy keeps it open for a call during which another thread may close it.
  std::shared_ptr<Mapped> open(const char* operation) const {
    if (mapped_ == nullptr) refuse({operation, "self", "the mapping is closed", "map the memory again"}, Status::unavailable);
    return mapped_;
  }
  void close() noexcept { mapped_.reset(); }
  bool is_closed() const noexcept { return mapped_ == nullptr; }

 private:
  std::shared_ptr<Mapped> mapped_;
};

MapOptions options_of(nb::handle backend, const std::string& verification, bool inherits) {
  MapOptions options;
  if (!backend.is_none()) {
    const auto name = nb::cast<std::string>(nb::str(backend));
    options.backend = mapping_backend_from_name(name);
    if (!options.backend) refuse({"map", "backend", "it is '" + name + "'", "pass dmabuf, gdrdrv, rm or host"});
  }
  if (verification == "nonce") {
    options.verification = Verification::nonce;
  } else if (verification != "compare") {
    refuse({"map", "verification", "it is '" + verification + "'", "pass compare or nonce"});
  }
  options.inherit_on_fork = inherits;
  return options;
}

std::shared_ptr<Mapped> map_object(nb::handle memory, const Argument& argument, const MapOptions& options) {
  // The data of a read-only array is never written by mapping it, but a mapping can be written.
  Bytes bytes(memory, Access::write, argument);
  auto mapping = maybe_released(true, [&] { return map(bytes.address(), bytes.bytes(), options); });
  return std::make_shared<Mapped>(std::move(bytes), take(std::move(mapping)));
}

MappingObject map_memory(nb::handle memory, nb::handle backend, const std::string& verification, bool inherits) {
  return MappingObject(map_object(memory, {"map", "memory"}, options_of(backend, verification, inherits)));
}

void write(const MappingObject& self, nb::handle source, nb::handle offset) {
  constexpr const char* kOperation = "Mapping.write";
  const Bytes from = host_bytes(source, Access::read, {kOperation, "source"});
  const auto at = count_of(offset, {kOperation, "offset"});
  const auto mapped = self.open(kOperation);
  take(maybe_released(from.bytes() >= kReleaseStoreBytes,
                      [&] { return copy_to(mapped->mapping, at, from.address(), from.bytes()); }));
}

void read(const MappingObject& self, nb::handle destination, nb::handle offset) {
  constexpr const char* kOperation = "Mapping.read";
  const Bytes to = host_bytes(destination, Access::write, {kOperation, "destination"});
  const auto at = count_of(offset, {kOperation, "offset"});
  const auto mapped = self.open(kOperation);
  take(maybe_released(to.bytes() >= kReleaseLoadBytes, [&] { return copy_from(mapped->mapping, at, to.address(), to.bytes()); }));
}

nb::bytes read_bytes(const MappingObject& self, nb::handle nbytes, nb::handle offset) {
  constexpr const char* kOperation = "Mapping.read_bytes";
  const auto count = count_of(nbytes, {kOperation, "nbytes"});
  const auto at = count_of(offset, {kOperation, "offset"});
  const auto mapped = self.open(kOperation);
  // Before as much is allocated.
  if (!mapped->mapping.covers(at, count)) take(detail::refuse_copy(kOperation, mapped->mapping, at, &at, count));
  nb::bytes result = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count)));
  if (!result.is_valid()) throw nb::python_error();
  void* const into = const_cast<char*>(result.c_str());
  take(maybe_released(count >= kReleaseLoadBytes, [&] { return copy_from(mapped->mapping, at, into, count); }));
  return result;
}

void write_many(const MappingObject& self, nb::handle source, nb::handle offsets) {
  constexpr const char* kOperation = "Mapping.write_many";
  const Bytes from = host_bytes(source, Access::read, {kOperation, "source"});
  const Counts places(offsets, {kOperation, "offsets"});
  const auto mapped = self.open(kOperation);
  const auto all = places.values();
  if (all.empty() ? from.bytes() != 0 : from.bytes() % all.size() != 0) {
    refuse({kOperation, "source",
            std::to_string(from.bytes()) + " bytes are not the same number for each of " + std::to_string(all.size()) + " offsets",
            "pass as many elements as offsets"});
  }
  if (all.empty()) return;
  const std::size_t piece = from.bytes() / all.size();
  // All or nothing.
  for (const std::uint64_t at : all) {
    if (!mapped->mapping.covers(at, piece)) [[unlikely]] {
      take(copy_to(mapped->mapping, at, from.address(), piece));
    }
  }
  take(maybe_released(from.bytes() >= kReleaseStoreBytes, [&]() -> Result<void> {
    Batch batch(mapped->mapping);
    const auto* next = static_cast<const std::byte*>(from.address());
    for (const std::uint64_t at : all) {
      if (Result<void> stored = batch.copy_to(at, next, piece); !stored) [[unlikely]] {
        return stored;
      }
      next += piece;
    }
    return {};
  }));
}

void publish_flag(const MappingObject& self, nb::handle data, nb::handle flag_offset, nb::handle value, nb::handle offset,
                  nb::handle flag_bytes) {
  constexpr const char* kOperation = "Mapping.publish";
  std::optional<Bytes> from;
  if (!data.is_none()) from.emplace(host_bytes(data, Access::read, {kOperation, "data"}));
  const auto flag_at = count_of(flag_offset, {kOperation, "flag_offset"});
  const auto at = count_of(offset, {kOperation, "offset"});
  const auto width = count_of(flag_bytes, {kOperation, "flag_bytes"});
  if (width != 4 && width != 8) refuse({kOperation, "flag_bytes", "it is " + std::to_string(width), "pass 4 or 8"});
  const auto word = count_of(value, {kOperation, "value"}, width == 4 ? UINT32_MAX : UINT64_MAX);
  const auto mapped = self.open(kOperation);
  const Mapping& mapping = mapped->mapping;
  const auto store = [&](auto flag) {
    if (!from) return publish(mapping, flag_at, flag);
    return publish(mapping, at, from->address(), from->bytes(), flag_at, flag);
  };
  take(maybe_released(from && from->bytes() >= kReleaseStoreBytes,
                      [&] { return width == 4 ? store(static_cast<std::uint32_t>(word)) : store(word); }));
}

void fill_bytes(const MappingObject& self, nb::handle value, nb::handle offset, nb::handle nbytes) {
  constexpr const char* kOperation = "Mapping.fill";
  const auto byte = count_of(value, {kOperation, "value"}, 255);
  const auto at = count_of(offset, {kOperation, "offset"});
  const auto mapped = self.open(kOperation);
  const std::size_t rest = mapped->mapping.bytes() - std::min<std::size_t>(at, mapped->mapping.bytes());
  const auto count = nbytes.is_none() ? rest : count_of(nbytes, {kOperation, "nbytes"});
  take(maybe_released(count >= kReleaseStoreBytes, [&] { return fill(mapped->mapping, at, static_cast<std::byte>(byte), count); }));
}

nb::list passed_over(const MappingObject& self) {
  nb::list all;
  const auto mapped = self.open("Mapping.passed_over");
  for (const PassedOver& one : mapped->mapping.report().passed_over)
    all.append(nb::make_tuple(name_of(one.backend), one.why.reason));
  return all;
}

// --- copy
// ---------------------------------------------------------------------------------------------------------------------------

// One end of copy(): a mapping, memory of a device, which is mapped for this copy, or memory of the host.
struct End {
  std::shared_ptr<Mapped> mapped;
  std::optional<Bytes> host;
};

bool is_of_device(const Bytes& bytes) {
  if (!bytes.is_host()) return true;
  if (bytes.bytes() == 0) return false;
  const Result<PointerInfo> info = describe(bytes.address());
  return info && info->device >= 0;
}

End end_of(nb::handle object, Access access, const Argument& argument) {
  if (nb::isinstance<MappingObject>(object)) return {nb::cast<const MappingObject&>(object).open(argument.operation), {}};
  Bytes bytes(object, access, argument);
  if (!is_of_device(bytes)) return {nullptr, std::move(bytes)};
  auto mapping = maybe_released(true, [&] { return map(bytes.address(), bytes.bytes()); });
  return {std::make_shared<Mapped>(std::move(bytes), take(std::move(mapping))), {}};
}

std::string copy_memory(nb::handle destination, nb::handle source, nb::handle offset, nb::handle method) {
  std::optional<CopyMethod> required;
  if (!method.is_none()) {
    const auto name = nb::cast<std::string>(nb::str(method));
    for (const CopyMethod one : {CopyMethod::cpu, CopyMethod::cpu_parallel, CopyMethod::copy_engine, CopyMethod::readback}) {
      if (name_of(one) == name) required = one;
    }
    if (!required) refuse({"copy", "method", "it is '" + name + "'", "pass cpu, cpu_parallel, copy_engine or readback"});
  }
  const auto at = count_of(offset, {"copy", "offset"});
  const End to = end_of(destination, Access::write, {"copy", "destination"});
  const End from = end_of(source, Access::read, {"copy", "source"});
  if ((to.mapped == nullptr) == (from.mapped == nullptr)) {
    refuse({"copy", "destination and source",
            to.mapped == nullptr ? "neither is memory of a device or a mapping" : "both are memory of a device or mappings",
            "pass one of the device and one of the host"},
           Status::not_supported);
  }
  const CopyMethod used = take(maybe_released(true, [&] {
    return to.mapped ? copy({to.mapped->mapping, at}, from.host->address(), from.host->bytes(), required)
                     : copy(to.host->address(), {from.mapped->mapping, at}, to.host->bytes(), required);
  }));
  return std::string(name_of(used));
}

}  // namespace

void add_mapping(nb::module_& module) {
  nb::class_<MappingObject>(
      module, "Mapping",
      "A view of GPU memory in this process's address space, made by gigabar.map. A context manager that closes it.\n\n"
      "Offsets and sizes are bytes. Errors of every call: out_of_range (the range leaves the mapping), invalid_argument\n"
      "(memory that is not contiguous, or on a GPU), unavailable (closed), foreign_process (a forked child).\n"
      "Threads: any number at once; ranges that are written at the same time must not overlap.")
      .def("write", &write, nb::arg("source"), nb::arg("offset") = 0,
           nb::sig("def write(self, source: HostMemory, offset: int = 0) -> None"),
           "Store all bytes of source at offset. They have left the CPU when it returns.")
      .def("read", &read, nb::arg("destination"), nb::arg("offset") = 0,
           nb::sig("def read(self, destination: HostMemory, offset: int = 0) -> None"),
           "Load as many bytes as destination has, from offset.")
      .def("read_bytes", &read_bytes, nb::arg("nbytes"), nb::arg("offset") = 0,
           nb::sig("def read_bytes(self, nbytes: int, offset: int = 0) -> bytes"), "Load nbytes from offset.")
      .def("write_many", &write_many, nb::arg("source"), nb::arg("offsets"),
           nb::sig("def write_many(self, source: HostMemory, offsets: Offsets) -> None"),
           "Store the i-th of len(offsets) equal parts of source at offsets[i], with one fence behind all of them.\n\n"
           "offsets: an array of int64 or uint64, or a sequence. Nothing is stored when one of the ranges leaves the mapping.")
      .def("publish", &publish_flag, nb::arg("data").none(), nb::arg("flag_offset"), nb::arg("value"), nb::arg("offset") = 0,
           nb::kw_only(), nb::arg("flag_bytes") = 4,
           nb::sig("def publish(self, data: HostMemory | None, flag_offset: int, value: int, offset: int = 0, *, flag_bytes: int = "
                   "4) -> None"),
           "Store data at offset, then value at flag_offset: a reader that sees the flag also sees the data.\n\n"
           "data: None stores the flag behind everything that this thread stored before. flag_bytes: 4 or 8; flag_offset is a "
           "multiple of it.\n"
           "Nothing is stored when a range leaves the mapping.")
      .def("fill", &fill_bytes, nb::arg("value"), nb::arg("offset") = 0, nb::arg("nbytes") = nb::none(),
           nb::sig("def fill(self, value: int, offset: int = 0, nbytes: int | None = None) -> None"),
           "Set nbytes from offset to value (0 to 255); None: up to the end.")
      .def("close", &MappingObject::close, nb::sig("def close(self) -> None"),
           "Unmap. Calls of other threads that are under way end first. Closing again does nothing.")
      .def_prop_ro("closed", &MappingObject::is_closed, nb::sig("def closed(self) -> bool"), "Whether close() was called.")
      .def_prop_ro(
          "nbytes", [](const MappingObject& self) { return self.open("Mapping.nbytes")->mapping.bytes(); },
          nb::sig("def nbytes(self) -> int"), "The size in bytes.")
      .def_prop_ro(
          "device", [](const MappingObject& self) { return self.open("Mapping.device")->mapping.device(); },
          nb::sig("def device(self) -> int"), "The index of the device whose memory this is.")
      .def_prop_ro(
          "is_stand_in", [](const MappingObject& self) { return self.open("Mapping.is_stand_in")->mapping.is_stand_in(); },
          nb::sig("def is_stand_in(self) -> bool"), "Whether host memory plays the GPU's.")
      .def_prop_ro(
          "backend", [](const MappingObject& self) { return name_of(self.open("Mapping.backend")->mapping.backend()); },
          nb::sig("def backend(self) -> str"), "What made the mapping: dmabuf, gdrdrv, rm or host.")
      .def_prop_ro(
          "type", [](const MappingObject& self) { return name_of(self.open("Mapping.type")->mapping.type()); },
          nb::sig("def type(self) -> str"), "write_combined, uncached or cached.")
      .def_prop_ro("passed_over", &passed_over, nb::sig("def passed_over(self) -> list[tuple[str, str]]"),
                   "The better backends that were not used, each with the reason.")
      .def(
          "__len__", [](const MappingObject& self) { return self.open("Mapping.__len__")->mapping.bytes(); },
          nb::sig("def __len__(self) -> int"))
      .def(
          "__enter__", [](nb::handle_t<MappingObject> self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Mapping"))
      .def(
          "__exit__", [](MappingObject& self, const nb::args&) { self.close(); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
  module.def(
      "map", &map_memory, nb::arg("memory"), nb::kw_only(), nb::arg("backend") = nb::none(), nb::arg("verification") = "compare",
      nb::arg("inherit_on_fork") = false,
      nb::sig("def map(memory: AnyMemory, *, backend: str | None = None, verification: str = 'compare', inherit_on_fork: bool = "
              "False) -> Mapping"),
      "Make GPU memory accessible for the CPU, and verify that the mapping shows it.\n\n"
      "memory: a tensor or array on a GPU (DLPack or __cuda_array_interface__), contiguous; a Memory; an array of a stand-in's "
      "memory.\n"
      "The mapping keeps it alive. backend: dmabuf, gdrdrv, rm or host; None: the best that works.\n"
      "verification: compare, or nonce, which writes 8 bytes and restores them.\n"
      "Errors: not_supported (memory that no backend can map), unavailable (no backend works here; the cause has each reason),\n"
      "out_of_bar1, out_of_descriptors, out_of_memory, no_permission, device_error, verification_failed, foreign_process.");
  module.def(
      "copy", &copy_memory, nb::arg("destination"), nb::arg("source"), nb::kw_only(), nb::arg("offset") = 0,
      nb::arg("method") = nb::none(),
      nb::sig("def copy(destination: AnyMemory | Mapping, source: AnyMemory | Mapping, *, offset: int = 0, method: str | None = "
              "None) -> str"),
      "Copy between host memory and a device's by the method that is fastest for the size, and return its name.\n\n"
      "One of both is memory of a device or a Mapping, where the copy begins at offset (bytes). It has the size of the other.\n"
      "method: cpu, cpu_parallel, copy_engine or readback; None: as the calibration of this machine says.\n"
      "Errors: out_of_range, not_supported (no device, or two), those of map, device_error.");
}

}  // namespace gigabar::python
