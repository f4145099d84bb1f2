// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

namespace gigabar::python {

nb::str text_of(std::string_view text) {
  PyObject* const decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

void raise(const ErrorRecord& record) {
  const nb::module_ errors = nb::module_::import_("gigabar._errors");
  const nb::object type = errors.attr(record.status == Status::timed_out ? "TimedOut" : "Error");
  const nb::object error =
      type(text_of(name_of(record.status)), text_of(record.operation), text_of(record.object), text_of(record.cause),
           text_of(record.remedy), text_of(record.check), text_of(record.native.name), text_of(record.message()));
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

void refuse(const Refusal& refusal, Status status) {
  ErrorRecord record;
  record.status = status;
  record.operation = refusal.operation;
  record.object = refusal.argument;
  record.cause = refusal.cause;
  record.remedy = refusal.remedy;
  raise(record);
}

}  // namespace gigabar::python
