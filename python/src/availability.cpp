// SPDX-License-Identifier: Apache-2.0
#include "availability.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <string>
#include <vector>

#include "errors.hpp"
#include "gigabar/device.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/machine.hpp"

namespace gigabar::python {

namespace {

// The members of docs/schema/common.schema.json, availability_report.
nb::dict members_of(const Availability& availability) {
  nb::dict members;
  members["code"] = name_of(availability.code);
  members["reason"] = text_of(availability.reason);
  if (!availability.remedy.empty()) members["remedy"] = text_of(availability.remedy);
  if (!availability.check.empty()) members["check"] = text_of(availability.check);
  return members;
}

nb::dict availability_members(const std::optional<std::string>& machine) {
  std::vector<PathReport> paths;
  std::vector<DriverReport> libraries;
  take([&]() -> Result<void> {
    const nb::gil_scoped_release released;
    Result<Machine> opened = machine ? Machine::open(*machine) : Machine::here();
    if (!opened) return std::move(opened).error();
    paths = availability(*opened);
    if (opened->is_live()) libraries = drivers();
    return {};
  }());
  nb::list all_paths;
  for (const PathReport& one : paths) {
    nb::dict members = members_of(one.availability);
    members["path"] = one.path;
    members["description"] = one.description;
    all_paths.append(members);
  }
  nb::list all_drivers;
  for (const DriverReport& one : libraries) {
    nb::dict members = members_of(one.availability);
    members["name"] = one.name;
    all_drivers.append(members);
  }
  nb::dict found;
  found["paths"] = all_paths;
  found["drivers"] = all_drivers;
  return found;
}

}  // namespace

void add_availability(nb::module_& module) {
  module.def("availability_members", &availability_members, nb::arg("machine").none(),
             nb::sig("def availability_members(machine: str | None) -> dict[str, object]"),
             "What gigabar.availability returns, as JSON has it.");
}

}  // namespace gigabar::python
