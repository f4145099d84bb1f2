// SPDX-License-Identifier: Apache-2.0
#include "mapped_segment.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"

namespace gigabar::python {

namespace {

// Holds the fabric, without which the address is not valid.
struct Region {
  Region(std::shared_ptr<Joined> from, Rank of, SegmentId id, MappedFor user) noexcept
      : joined(std::move(from)), rank(of), segment(id), who(user) {}
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    // A forked child has no part in it, and nothing to unmap.
    if (address != nullptr) (void)joined->fabric.unmap_segment(rank, segment, who);
  }

  std::shared_ptr<Joined> joined;
  Rank rank;
  SegmentId segment;
  MappedFor who;
  void* address = nullptr;
  std::size_t bytes = 0;
  int device = -1;  // of a GPU, whose kernels alone access it
};

class MappedSegment {
 public:
  explicit MappedSegment(std::shared_ptr<Region> region) noexcept : region_(std::move(region)) {}

  // Views of the memory hold it too.
  const std::shared_ptr<Region>& open(const char* operation) const {
    if (region_ == nullptr) refuse({operation, "self", "the segment is unmapped", "map it again"}, Status::unavailable);
    return region_;
  }
  void close() noexcept { region_.reset(); }
  bool is_closed() const noexcept { return region_ == nullptr; }

 private:
  std::shared_ptr<Region> region_;
};

using View = std::shared_ptr<Region>;

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  const auto* const self = nb::inst_ptr<MappedSegment>(nb::handle(object));
  if (self->is_closed()) {
    PyErr_SetString(PyExc_BufferError, "the segment is unmapped");
    return -1;
  }
  const View& region = self->open("MappedSegment");
  if (region->device >= 0) {
    PyErr_SetString(PyExc_BufferError, "memory that is mapped for a GPU's kernels has no buffer: use DLPack");
    return -1;
  }
  if (PyBuffer_FillInfo(view, object, region->address, static_cast<Py_ssize_t>(region->bytes), 0, flags) != 0) return -1;
  view->internal = new View(region);
  return 0;
}

void release_buffer(PyObject* /*object*/, Py_buffer* view) { delete static_cast<View*>(view->internal); }

std::array<PyType_Slot, 3> kBufferSlots{{{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                                         {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer)},
                                         {0, nullptr}}};

nb::object to_dlpack(nb::handle_t<MappedSegment> self, const nb::kwargs& options) {
  const View& region = nb::inst_ptr<MappedSegment>(self)->open("MappedSegment.__dlpack__");
  const int kind = region->device >= 0 ? nb::device::cuda::value : nb::device::cpu::value;
  const nb::capsule owner(new View(region), [](void* view) noexcept { delete static_cast<View*>(view); });
  const nb::ndarray<nb::array_api, std::uint8_t> array(region->address, 1, &region->bytes, owner, nullptr,
                                                       nb::dtype<std::uint8_t>(), kind, std::max(region->device, 0));
  return nb::cast(array).attr("__dlpack__")(**options);
}

nb::tuple dlpack_device(const MappedSegment& self) {
  const int device = self.open("MappedSegment.__dlpack_device__")->device;
  return nb::make_tuple(device >= 0 ? nb::device::cuda::value : nb::device::cpu::value, std::max(device, 0));
}

std::string why_no_atomics(const MappedSegment& self) {
  const View& region = self.open("MappedSegment.why_no_atomics");
  if (region->who == MappedFor::cpu) return {};
  return take(region->joined->fabric.why_no_atomics(region->rank, region->segment));
}

MappedSegment map_segment(const FabricObject& self, nb::handle rank, nb::handle segment, nb::handle timeout, bool is_for_kernels) {
  constexpr const char* kOperation = "Fabric.map_segment";
  const Rank owner = rank_of(rank, kOperation);
  const SegmentId id = segment_of(segment, kOperation);
  const Timeout whole = timeout_of(timeout, kOperation);
  const auto region =
      std::make_shared<Region>(self.joined(kOperation), owner, id, is_for_kernels ? MappedFor::kernels : MappedFor::cpu);
  Fabric& fabric = region->joined->fabric;
  region->bytes = take(wait_in_slices(whole, [&](Timeout slice) { return fabric.remote_segment(owner, id, slice); })).bytes;
  if (is_for_kernels) {
    for (const DeviceInfo& one : take(devices())) {
      if (one.index == fabric.device() && !one.is_stand_in) region->device = one.index;
    }
  }
  region->address = take(wait_in_slices(whole, [&](Timeout slice) { return fabric.map_segment(owner, id, slice, region->who); }));
  return MappedSegment(region);
}

void add_type(nb::module_& module) {
  nb::class_<MappedSegment>(
      module, "MappedSegment", nb::type_slots(kBufferSlots.data()),
      "A segment that loads and stores access, made by Fabric.map_segment. A context manager that unmaps it.\n\n"
      "Mapped for the CPU it offers the buffer protocol and DLPack (numpy.asarray(mapped)), for kernels of a GPU DLPack\n"
      "(torch.from_dlpack(mapped)). Until it is unmapped, its owner's quiesce and deregister wait, and Fabric.close is busy.\n"
      "Nothing is ordered but by the caller's own fences. Each load from GPU memory by the CPU is a round trip over PCIe.\n"
      "Errors of every call: unavailable (closed).")
      .def(
          "fence",
          [](const MappedSegment& self) {
            self.open("MappedSegment.fence");
            detail::fence_stores();
          },
          nb::sig("def fence(self) -> None"),
          "Order the stores of this thread: a reader that sees one behind the fence also sees those before it, which have left the "
          "CPU.")
      .def("close", &MappedSegment::close, nb::sig("def close(self) -> None"),
           "Unmap: at once, or with the last array or other view of it. Closing again does nothing.")
      .def_prop_ro("closed", &MappedSegment::is_closed, nb::sig("def closed(self) -> bool"), "Whether close() was called.")
      .def_prop_ro(
          "address",
          [](const MappedSegment& self) { return reinterpret_cast<std::uintptr_t>(self.open("MappedSegment.address")->address); },
          nb::sig("def address(self) -> int"), "The address of the first byte: for the CPU, or for kernels.")
      .def_prop_ro(
          "nbytes", [](const MappedSegment& self) { return self.open("MappedSegment.nbytes")->bytes; },
          nb::sig("def nbytes(self) -> int"), "The size in bytes.")
      .def_prop_ro(
          "device", [](const MappedSegment& self) { return self.open("MappedSegment.device")->device; },
          nb::sig("def device(self) -> int"), "The GPU whose kernels access it; -1: the CPU accesses it.")
      .def_prop_ro("why_no_atomics", &why_no_atomics, nb::sig("def why_no_atomics(self) -> str"),
                   "Why system-scope atomics of this rank's kernels are not atomic with those of the owner's; empty: they are.")
      .def(
          "__len__", [](const MappedSegment& self) { return self.open("MappedSegment.__len__")->bytes; },
          nb::sig("def __len__(self) -> int"))
      .def("__dlpack__", &to_dlpack, nb::sig("def __dlpack__(self, **kwargs: object) -> object"))
      .def("__dlpack_device__", &dlpack_device, nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def(
          "__enter__", [](nb::handle_t<MappedSegment> self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> MappedSegment"))
      .def(
          "__exit__", [](MappedSegment& self, const nb::args&) { self.close(); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
}

}  // namespace

void add_mapped_segments(nb::module_& module, nb::class_<FabricObject>& fabric) {
  add_type(module);
  fabric.def("map_segment", &map_segment, nb::arg("rank"), nb::arg("segment"), nb::arg("timeout").none() = 30.0, nb::kw_only(),
             nb::arg("kernels") = false,
             nb::sig("def map_segment(self, rank: int, segment: int, timeout: float | None = 30.0, *, kernels: bool = False) -> "
                     "MappedSegment"),
             "Make a segment of this rank, or of a peer of this host, accessible for loads and stores: without a call for each.\n\n"
             "kernels: for those of this rank's GPU, over NVLink or PCIe; else for threads of this process, also to GPU memory. "
             "Without a\n"
             "GPU both are the CPU.\n"
             "Errors: out_of_range (no such segment), not_supported (another host, no peer access, memory that cannot be shared:\n"
             "allocate_host(shared=True) can), device_error.");
}

}  // namespace gigabar::python
