// SPDX-License-Identifier: Apache-2.0
// What --help prints, of the program and of every subcommand: one form, in place of CLI11's own.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): its name
class App;
}  // namespace CLI

namespace gigabar::tool {

// Of `program` and of the subcommands that are added to it from now on. A row is
//   -d,--device N               What it does (required; not with --other; default: 0)
// "[FILE]" means that the value may be left out. The first short and the first long name are shown: further ones are old names of
// the option, which still work.
void set_help_form(CLI::App& program);

}  // namespace gigabar::tool
