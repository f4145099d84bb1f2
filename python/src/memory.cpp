// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>

#include "arguments.hpp"
#include "errors.hpp"
#include "gigabar/device.hpp"

namespace gigabar::python {

void* Memory::address() const noexcept {
  return std::visit([](const auto& memory) { return memory.address(); }, memory_);
}
std::size_t Memory::bytes() const noexcept {
  return std::visit([](const auto& memory) { return memory.bytes(); }, memory_);
}
int Memory::device() const noexcept {
  const auto* const memory = std::get_if<DeviceMemory>(&memory_);
  return memory == nullptr ? -1 : memory->device();
}
bool Memory::is_stand_in() const noexcept {
  const auto* const memory = std::get_if<DeviceMemory>(&memory_);
  return memory != nullptr && memory->is_stand_in();
}

namespace {

// The buffer protocol: views hold a reference, so the memory outlives them.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Memory* const memory = nb::inst_ptr<Memory>(nb::handle(self));
  if (memory->is_of_gpu()) {
    PyErr_SetString(PyExc_BufferError, "memory of a GPU has no buffer: use DLPack or gigabar.map");
    return -1;
  }
  return PyBuffer_FillInfo(view, self, memory->address(), static_cast<Py_ssize_t>(memory->bytes()), 0, flags);
}

std::array<PyType_Slot, 2> kBufferSlots{{{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}}};

nb::object to_dlpack(nb::handle_t<Memory> self, const nb::kwargs& options) {
  const Memory& memory = nb::cast<const Memory&>(self);
  const std::size_t shape = memory.bytes();
  const int device = memory.is_of_gpu() ? nb::device::cuda::value : nb::device::cpu::value;
  const nb::ndarray<nb::array_api, std::uint8_t> array(memory.address(), 1, &shape, self, nullptr, nb::dtype<std::uint8_t>(),
                                                       device, memory.is_of_gpu() ? memory.device() : 0);
  return nb::cast(array).attr("__dlpack__")(**options);
}

nb::object cuda_interface(const Memory& memory) {
  if (!memory.is_of_gpu()) throw nb::attribute_error("__cuda_array_interface__: it is no memory of a GPU");
  nb::dict interface;
  interface["shape"] = nb::make_tuple(memory.bytes());
  interface["typestr"] = "|u1";
  interface["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(memory.address()), false);
  interface["strides"] = nb::none();
  interface["version"] = 3;
  return interface;
}

Memory allocate(nb::handle bytes, nb::handle device, bool is_exportable) {
  const auto count = count_of(bytes, {"allocate", "nbytes"}, PTRDIFF_MAX);
  const auto index = static_cast<int>(count_of(device, {"allocate", "device"}, 65535));
  return Memory(take(DeviceMemory::allocate(index, count, is_exportable ? DeviceAllocator::vmm : DeviceAllocator::cuda_malloc)));
}

Memory allocate_host(nb::handle bytes, nb::handle node, const std::string& pages, bool is_shared) {
  HostMemoryOptions options;
  const auto count = count_of(bytes, {"allocate_host", "nbytes"}, PTRDIFF_MAX);
  if (!node.is_none()) options.numa_node = static_cast<int>(count_of(node, {"allocate_host", "numa_node"}, 65535));
  options.is_shared = is_shared;
  bool is_known = false;
  for (const HostPages one : {HostPages::pinned, HostPages::pageable, HostPages::write_combined, HostPages::huge}) {
    if (name_of(one) != pages) continue;
    options.pages = one;
    is_known = true;
  }
  if (!is_known) refuse({"allocate_host", "pages", "it is '" + pages + "'", "pass pinned, pageable, wc or huge"});
  return Memory(take(HostMemory::allocate(count, options)));
}

nb::list list_devices() {
  const nb::object type = nb::module_::import_("gigabar._types").attr("Device");
  nb::list all;
  for (const DeviceInfo& one : take(devices())) {
    nb::object pci = nb::none();
    if (one.pci) pci = nb::cast(one.pci->to_string());
    nb::object node = nb::none();
    if (one.numa_node >= 0) node = nb::int_(one.numa_node);
    all.append(type(one.index, one.name, one.is_stand_in, one.uuid, pci, node, one.memory_bytes));
  }
  return all;
}

}  // namespace

void add_memory(nb::module_& module) {
  nb::class_<Memory>(
      module, "Memory", nb::type_slots(kBufferSlots.data()),
      "Memory that the library allocated: of a device, or of the host. It is freed with the last reference, also of a view.\n\n"
      "A stand-in's and the host's offer the buffer protocol and DLPack (numpy.asarray(memory)), a GPU's DLPack and\n"
      "__cuda_array_interface__ (torch.from_dlpack(memory)).")
      .def_prop_ro(
          "address", [](const Memory& memory) { return reinterpret_cast<std::uintptr_t>(memory.address()); },
          nb::sig("def address(self) -> int"), "The address of the first byte, of the device's or the host's memory.")
      .def_prop_ro("nbytes", &Memory::bytes, nb::sig("def nbytes(self) -> int"), "The size in bytes.")
      .def_prop_ro("device", &Memory::device, nb::sig("def device(self) -> int"), "The device's index; -1: memory of the host.")
      .def_prop_ro("is_stand_in", &Memory::is_stand_in, nb::sig("def is_stand_in(self) -> bool"),
                   "Whether host memory plays a GPU's.")
      .def("__len__", &Memory::bytes, nb::sig("def __len__(self) -> int"))
      .def("__dlpack__", &to_dlpack, nb::sig("def __dlpack__(self, **kwargs: object) -> object"))
      .def(
          "__dlpack_device__",
          [](const Memory& memory) {
            const int kind = memory.is_of_gpu() ? nb::device::cuda::value : nb::device::cpu::value;
            return nb::make_tuple(kind, memory.is_of_gpu() ? memory.device() : 0);
          },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def_prop_ro("__cuda_array_interface__", &cuda_interface, nb::sig("def __cuda_array_interface__(self) -> dict[str, object]"));
  module.def("allocate", &allocate, nb::arg("nbytes"), nb::kw_only(), nb::arg("device") = 0, nb::arg("exportable") = false,
             nb::sig("def allocate(nbytes: int, *, device: int = 0, exportable: bool = False) -> Memory"),
             "Allocate nbytes (at least 1) on a device. The content is undefined.\n\n"
             "exportable: as CUDA's virtual memory, in multiples of 2 MiB, which other processes can open.\n"
             "Errors: invalid_argument (no such device, zero bytes), out_of_memory, device_error.");
  module.def(
      "allocate_host", &allocate_host, nb::arg("nbytes"), nb::kw_only(), nb::arg("numa_node") = nb::none(),
      nb::arg("pages") = "pinned", nb::arg("shared") = false,
      nb::sig(
          "def allocate_host(nbytes: int, *, numa_node: int | None = None, pages: str = 'pinned', shared: bool = False) -> Memory"),
      "Allocate nbytes (at least 1) of host memory, zeroed, with all pages present.\n\n"
      "numa_node: the node that the pages are bound to; None: the system's choice.\n"
      "pages: pinned, pageable, wc (write-combined) or huge.\n"
      "shared: ranks of this host that a Fabric connects access a segment of it directly; pinned or pageable only.\n"
      "Errors: invalid_argument, out_of_memory, out_of_descriptors, no_permission, device_error.");
  module.def(
      "devices", &list_devices, nb::sig("def devices() -> list[Device]"),
      "The devices of this process, in CUDA's order; stand-ins where there is no GPU, or where GIGABAR_STAND_IN asks for them.\n\n"
      "Errors: device_error, invalid_argument (GIGABAR_STAND_IN).");
}

}  // namespace gigabar::python
