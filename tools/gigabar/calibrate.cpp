// SPDX-License-Identifier: Apache-2.0
// gigabar calibrate: measures which method and which kernel is fastest on this machine at each size, prints it, and stores it where
// copy() looks for it.
#include "commands.hpp"
#include "gigabar/copy.hpp"
#include "support/failure.hpp"
#include "support/report.hpp"
#include "support/workbench.hpp"

namespace gigabar::tool {
namespace {

struct Options : DeviceOptions {
  double budget_seconds = 5;
  StoreOptions stored;
};

void run_calibrate(const Options& options, const Invocation& invocation) {
  bind_processor(options);
  Report report("calibrate", invocation, options.json_path);
  report.set_device(select_device(options));
  const bool is_stored = options.stored.is_wanted;
  const std::string path = options.stored.path.empty() ? Calibration::default_path(options.device) : options.stored.path;
  if (is_stored && path.empty()) fail("--store: there is no home and no cache folder to store in; give a file, as in --store=FILE");
  if (is_stored) require_storable("--store", path);  // before it is measured
  report.show_progress("measuring, about {:g} s (--budget)", options.budget_seconds);
  const Calibration calibration = take(Calibration::measure(options.device, options.budget_seconds));
  require(use_calibration(options.device, calibration));  // a result that cannot be used is not printed as one
  report.heading("calibration");
  report.print("{}\n", calibration.to_text());
  Json result = {{"measure", "calibration"}, {"calibration", Json::parse(calibration.to_json())}, {"stored", Json()}};
  if (is_stored) {
    if (const Result<void> saved = calibration.save(path); !saved) fail("--store: " + saved.message());
    result["stored"] = path;
    report.print("stored in {}{}\n", path, stand_in_label(report.is_stand_in()));
  } else {
    report.print("not stored: --no-store\n");
  }
  report.add_result(std::move(result));
  report.write();
}

}  // namespace

void add_calibrate(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "calibrate", "Measure which method copy() should choose at each size, and store it", run_calibrate);
  add_device_option(command, options);
  add_budget_option(command, options.budget_seconds);
  add_cpu_option(command, options);
  add_store_options(command, options.stored);
  add_json_option(command, options.json_path);
}

}  // namespace gigabar::tool
