// SPDX-License-Identifier: Apache-2.0
#include "support/machine_option.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "base/counted.hpp"
#include "memory/runtime.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/option_checks.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool {

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

namespace {

// What is in the machine is told all the same: stand-ins are no part of it.
void tell_stand_ins(Report& report) {
  const int count = take(forced_stand_in_count());
  if (count == 0) return;
  report.note(
      fmt::format("stand-in: GIGABAR_STAND_IN={} has the other commands use {}, host memory that plays GPUs; what is told here is "
                  "of the machine "
                  "itself",
                  count, counted(static_cast<std::uint64_t>(count), "stand-in device")));
}

}  // namespace

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
