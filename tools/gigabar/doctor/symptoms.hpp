// --symptom: from a sentence, or from a list, to the checks that explain it.
#pragma once

#include "doctor/options.hpp"
#include "gigabar/doctor.hpp"
#include "support/report.hpp"

namespace gigabar::tool::doctor {

// The symptom that is meant: the one that fits the text; without text, the one that is chosen from the list on a terminal. Null: it
// was only asked for the list, which is printed. Ends the command as bad usage, with the list, when nothing fits.
const Symptom* choose_symptom(const Options& options, Report& report);

}  // namespace gigabar::tool::doctor
