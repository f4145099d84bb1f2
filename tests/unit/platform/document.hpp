// SPDX-License-Identifier: Apache-2.0
// Captures and answers as documents of JSON, the form in which tests write machines by hand.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "driver/archive/archive.hpp"
#include "platform/driver_answers.hpp"

namespace gigabar::test {

inline nlohmann::json document_of(const DriverAnswers& answers) { return nlohmann::json::parse(to_json(answers)); }

inline Result<DriverAnswers> answers_of(const nlohmann::json& document) {
  return driver_answers_of(document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Of a tar file. The content of its files stays as it is, also where that is no text.
inline nlohmann::json document_of(const std::string& archive) {
  nlohmann::json files = nlohmann::json::object(), links = files, folders = nlohmann::json::array(), document;
  const auto read = tar::read(archive, [&](tar::Entry&& entry) {
    const std::string path = "/" + entry.path;
    if (path == "/gigabar-machine.json")
      document.update(nlohmann::json::parse(entry.text));
    else if (path == "/gigabar-answers.json")
      document["answers"] = nlohmann::json::parse(entry.text);
    else if (entry.kind == tar::Kind::file)
      files[path] = entry.text;
    else if (entry.kind == tar::Kind::link)
      links[path] = entry.text;
    else
      folders.push_back(path);
  });
  if (!read) throw std::runtime_error(read.message());
  document["files"] = files;
  document["links"] = links;
  document["folders"] = folders;
  return document;
}

}  // namespace gigabar::test
