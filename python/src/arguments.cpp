// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"

#include <cstring>
#include <limits>
#include <string>

#include "gigabar/memory.hpp"

namespace gigabar::python {

namespace {

std::string type_of(nb::handle object) { return nb::type_name(object.type()).c_str(); }

// The text of the exception that is set, which is cleared.
std::string pending_text() {
  nb::python_error error;
  return error.what();
}

[[noreturn]] void refuse_elements(const Argument& argument) {
  refuse({argument.operation, argument.name, "its elements are not contiguous in memory", "pass a contiguous copy"});
}

bool is_of_gpu(const void* address) {
  if (address == nullptr) return false;
  const Result<PointerInfo> info = describe(address);
  if (!info) return true;
  const MemoryKind kind = info->kind;
  return kind == MemoryKind::device || kind == MemoryKind::device_vmm || kind == MemoryKind::device_pool;
}

}  // namespace

Bytes::Bytes(nb::handle object, Access access, const Argument& argument) {
  if (PyObject_CheckBuffer(object.ptr()) != 0 && take_buffer(object, access, argument)) return;
  const bool found =
      access == Access::read ? take_dlpack<nb::ndarray<nb::ro>>(object, argument) : take_dlpack<nb::ndarray<>>(object, argument);
  if (found || take_cuda_interface(object, access, argument)) return;
  const std::string what = std::string(argument.operation) + ": " + argument.name + ": '" + type_of(object) +
                           "' offers no buffer, DLPack or __cuda_array_interface__" +
                           (access == Access::write ? " that can be written" : "");
  throw nb::type_error(what.c_str());
}

Bytes::Bytes(Bytes&& other) noexcept
    : buffer_(other.buffer_),
      has_buffer_(std::exchange(other.has_buffer_, false)),
      owner_(std::move(other.owner_)),
      address_(other.address_),
      bytes_(other.bytes_),
      item_bytes_(other.item_bytes_),
      is_host_(other.is_host_),
      has_words_(other.has_words_) {}

Bytes::~Bytes() {
  if (has_buffer_) PyBuffer_Release(&buffer_);
}

bool Bytes::take_buffer(nb::handle object, Access access, const Argument& argument) {
  const int flags = PyBUF_ND | PyBUF_FORMAT | (access == Access::write ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) {
    nb::python_error refused;
    // GPU memory of cupy, and of this library, has the buffer protocol and refuses its use.
    const bool is_refused = refused.matches(PyExc_TypeError) || refused.matches(PyExc_BufferError);
    if (is_refused && nb::hasattr(object, "__cuda_array_interface__")) return false;
    if (!refused.matches(PyExc_BufferError) && !refused.matches(PyExc_ValueError)) throw refused;
    refused.restore();
    refuse({argument.operation, argument.name, "its buffer cannot be used: " + pending_text(),
            access == Access::write ? "pass contiguous memory that can be written" : "pass contiguous memory"});
  }
  has_buffer_ = true;
  const std::string_view format = buffer_.format == nullptr ? "B" : buffer_.format;
  if (format.find('O') != std::string_view::npos) {
    PyBuffer_Release(&buffer_);
    has_buffer_ = false;
    refuse({argument.operation, argument.name, "its elements are Python objects", "pass an array of numbers"});
  }
  address_ = buffer_.buf;
  bytes_ = static_cast<std::size_t>(buffer_.len);
  item_bytes_ = static_cast<std::size_t>(buffer_.itemsize);
  has_words_ = item_bytes_ == 8 && format.size() == 1 && std::string_view("lLqQnN").find(format[0]) != std::string_view::npos;
  return true;
}

template <class Array>
bool Bytes::take_dlpack(nb::handle object, const Argument& argument) {
  if (!nb::hasattr(object, "__dlpack__")) return false;
  Array array;
  if (!nb::try_cast<Array>(object, array)) return false;
  std::int64_t elements = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != elements && array.size() != 0) refuse_elements(argument);
    elements *= static_cast<std::int64_t>(array.shape(i));
  }
  address_ = const_cast<void*>(static_cast<const void*>(array.data()));
  bytes_ = array.nbytes();
  item_bytes_ = array.itemsize();
  const int device = array.device_type();
  if (device == nb::device::cuda::value) {
    is_host_ = !is_of_gpu(address_);
  } else if (device != nb::device::cpu::value && device != nb::device::cuda_host::value &&
             device != nb::device::cuda_managed::value) {
    refuse({argument.operation, argument.name, "DLPack says device type " + std::to_string(device),
            "pass memory of the CPU or of CUDA"},
           Status::not_supported);
  }
  owner_ = nb::cast(array);
  return true;
}

bool Bytes::take_cuda_interface(nb::handle object, Access access, const Argument& argument) {
  if (!nb::hasattr(object, "__cuda_array_interface__")) return false;
  const nb::object found = object.attr("__cuda_array_interface__");
  const auto malformed = [&](const char* what) {
    refuse({argument.operation, argument.name, std::string("__cuda_array_interface__: ") + what, "pass an array of CUDA memory"});
  };
  if (!nb::isinstance<nb::dict>(found)) malformed("it is no dict");
  const nb::dict interface = nb::cast<nb::dict>(found);
  if (!interface.contains("shape") || !interface.contains("typestr") || !interface.contains("data")) {
    malformed("'shape', 'typestr' or 'data' is missing");
  }
  const nb::object data = interface["data"];
  const nb::object shape = interface["shape"];
  const nb::object type = interface["typestr"];
  if (!nb::isinstance<nb::tuple>(data) || nb::len(data) != 2) malformed("'data' is no pair");
  if (!nb::isinstance<nb::tuple>(shape)) malformed("'shape' is no tuple");
  if (!nb::isinstance<nb::str>(type)) malformed("'typestr' is no text");
  const auto text = nb::cast<std::string>(type);
  if (text.size() < 3 || text.size() > 6 || text[1] == 'O' || text.find_first_not_of("0123456789", 2) != std::string::npos) {
    malformed("'typestr' names no numbers");
  }
  item_bytes_ = std::stoul(text.substr(2));
  std::vector<std::uint64_t> extents;
  bytes_ = item_bytes_;
  for (const nb::handle extent : nb::cast<nb::tuple>(shape)) {
    extents.push_back(count_of(extent, argument));
    if (__builtin_mul_overflow(bytes_, extents.back(), &bytes_)) malformed("'shape' is larger than memory can be");
  }
  if (interface.contains("strides") && !interface["strides"].is_none()) {
    const nb::object strides = interface["strides"];
    if (!nb::isinstance<nb::tuple>(strides) || nb::len(strides) != extents.size())
      malformed("'strides' has another length than 'shape'");
    std::uint64_t expected = item_bytes_;
    for (std::size_t i = extents.size(); i-- > 0;) {
      if (extents[i] != 1 && bytes_ != 0) {
        const nb::object stride = strides[i];
        const nb::object number = nb::steal(PyNumber_Index(stride.ptr()));
        if (!number.is_valid()) {
          PyErr_Clear();
          malformed("'strides' holds what is no whole number");
        }
        if (!number.equal(nb::int_(expected))) refuse_elements(argument);
      }
      expected *= extents[i];
    }
  }
  const nb::object is_read_only = data[1];
  if (access == Access::write && is_read_only.is(nb::bool_(true))) malformed("it is read-only");
  address_ = reinterpret_cast<void*>(count_of(data[0], argument));
  is_host_ = bytes_ == 0 || !is_of_gpu(address_);
  // A stand-in plays CUDA; any other address of the CPU is no memory that this interface may name.
  if (is_host_ && bytes_ != 0) {
    const Result<PointerInfo> info = describe(address_);
    if (!info || info->kind == MemoryKind::host_pageable) malformed("'data' is no address of CUDA");
    const std::size_t left = info->length_bytes - info->offset_bytes;
    if (info->length_bytes != 0 && bytes_ > left) malformed("'shape' leaves the allocation");
  }
  owner_ = nb::borrow(object);
  return true;
}

Bytes host_bytes(nb::handle object, Access access, const Argument& argument) {
  Bytes bytes(object, access, argument);
  if (!bytes.is_host()) {
    refuse({argument.operation, argument.name, "it is memory of a GPU",
            "pass memory of the CPU; gigabar.map makes a GPU's accessible"});
  }
  return bytes;
}

std::uint64_t count_of(nb::handle object, const Argument& argument, std::uint64_t maximum) {
  nb::object index;
  PyObject* number = object.ptr();
  if (PyLong_Check(number) == 0) {
    if (PyIndex_Check(number) == 0) {
      const std::string what =
          std::string(argument.operation) + ": " + argument.name + ": a whole number is expected, not '" + type_of(object) + "'";
      throw nb::type_error(what.c_str());
    }
    index = nb::steal(PyNumber_Index(number));
    if (!index.is_valid()) throw nb::python_error();
    number = index.ptr();
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(number);
  const bool is_wrong = value == std::numeric_limits<unsigned long long>::max() && PyErr_Occurred() != nullptr;
  if (is_wrong) PyErr_Clear();
  if (is_wrong || value > maximum) {
    refuse({argument.operation, argument.name, "it is " + nb::cast<std::string>(nb::str(nb::handle(number))),
            "pass a number from 0 to " + std::to_string(maximum)},
           Status::out_of_range);
  }
  return value;
}

Counts::Counts(nb::handle object, const Argument& argument) {
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    array_.emplace(object, Access::read, argument);
    if (!array_->has_words() || reinterpret_cast<std::uintptr_t>(array_->address()) % 8 != 0) {
      refuse({argument.operation, argument.name, "its elements are no integers of 8 bytes", "pass an array of int64 or uint64"});
    }
    values_ = {static_cast<const std::uint64_t*>(array_->address()), array_->bytes() / 8};
    return;
  }
  if (PySequence_Check(object.ptr()) == 0) {
    const std::string what = std::string(argument.operation) + ": " + argument.name +
                             ": a sequence of whole numbers is expected, not '" + type_of(object) + "'";
    throw nb::type_error(what.c_str());
  }
  const std::size_t count = nb::len(object);
  copied_.reserve(std::min<std::size_t>(count, 65536));
  for (const nb::handle one : nb::iter(object)) copied_.push_back(count_of(one, argument));
  values_ = copied_;
}

}  // namespace gigabar::python
