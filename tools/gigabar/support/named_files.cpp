// SPDX-License-Identifier: Apache-2.0
#include "support/named_files.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/output_file.hpp"
#include "support/failure.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool {
namespace {

struct NamedFile {
  std::string name, identity;
  FileUse use;
};

}  // namespace

void add_named_file(std::string_view name, const std::string& path, FileUse use) {
  static auto* const files = new std::vector<NamedFile>();
  std::string identity = replaced_file(path);
  if (identity.empty()) return;
  for (const NamedFile& other : *files) {
    const bool is_written = use == FileUse::written || other.use == FileUse::written;
    if (is_written && other.identity == identity && other.name != name) {
      refuse_usage(fmt::format("{} and {} name the same file; name two", other.name, name));
    }
  }
  files->push_back({std::string(name), std::move(identity), use});
}

std::string file_text(std::string_view name, const std::string& path) {
  return name.starts_with('-') ? fmt::format("{} {}", name, plain(path)) : plain(path);
}

}  // namespace gigabar::tool
