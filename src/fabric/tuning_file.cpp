// SPDX-License-Identifier: Apache-2.0
// The file of tuned limits.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "fabric/tuning.hpp"
#include "platform/stored_json.hpp"

namespace gigabar::fabric {
namespace {

using stored::Json;

constexpr stored::Words kWords = {"load tuning", "delete the file and run 'gigabar tune' again, or set GIGABAR_TUNING=none",
                                  "save tuning"};
constexpr std::string_view kFormat = "gigabar tuning";
constexpr int kVersion = 1;
constexpr std::size_t kMaxPairs = 1024, kMaxRails = 8, kMaxNics = 64;
constexpr std::int64_t kLockNs = 5'000'000'000;

std::vector<std::string> read_texts(const Json& value, const std::string& place, std::size_t most) {
  if (!value.is_array() || value.size() > most) stored::refuse(place, text("is not an array of at most ", most, " texts"));
  std::vector<std::string> texts;
  for (const Json& item : value) texts.push_back(stored::read_text(item, text(place, "[", texts.size(), "]")));
  return texts;
}

std::optional<std::uint64_t> read_limit(const Json& value, const std::string& place, std::uint64_t least, std::uint64_t most) {
  if (value.is_null()) return {};
  if (value.is_string() && value == "unlimited" && most == kNoLimit) return kNoLimit;
  return stored::read_number(value, place, least, most);
}

Json limit_json(const std::optional<std::uint64_t>& limit) {
  if (!limit) return {};
  return *limit >= kNoLimit ? Json("unlimited") : Json(*limit);
}

void put_texts(Json& object, const char* name, const std::vector<std::string>& texts) {
  Json& list = object[name] = Json::array();
  for (const std::string& each : texts) list.push_back(each);
}

TransportKind read_transport(const Json& value, const std::string& place) {
  const std::string name = stored::read_text(value, place);
  for (std::size_t index = 0; index < kTransportKinds; ++index) {
    if (name_of(static_cast<TransportKind>(index)) == name) return static_cast<TransportKind>(index);
  }
  stored::refuse(place, "is neither \"local\" nor \"verbs\" nor \"ucx\"");
}

TunedPair read_pair(const Json& value, const std::string& place) {
  stored::expect_object(value, place,
                        {"device", "transport", "rails", "peer", "date", "gdr_limit", "gdr_read_limit", "chunk", "stripe"});
  TunedPair pair;
  pair.key.device = stored::read_text(value["device"], place + ".device");
  pair.key.transport = read_transport(value["transport"], place + ".transport");
  pair.key.rails = read_texts(value["rails"], place + ".rails", kMaxRails);
  const std::string peer = stored::read_text(value["peer"], place + ".peer");
  if (peer != "same host" && peer != "other hosts") stored::refuse(place + ".peer", "is neither \"same host\" nor \"other hosts\"");
  pair.key.is_same_host = peer == "same host";
  pair.date = stored::read_text(value["date"], place + ".date");
  pair.gdr_bytes = read_limit(value["gdr_limit"], place + ".gdr_limit", 0, kNoLimit);
  pair.gdr_read_bytes = read_limit(value["gdr_read_limit"], place + ".gdr_read_limit", 0, kNoLimit);
  pair.chunk_bytes = read_limit(value["chunk"], place + ".chunk", kMinChunkBytes, kMaxChunkBytes);
  pair.stripe_bytes = read_limit(value["stripe"], place + ".stripe", 0, kNoLimit);
  return pair;
}

Tuning read_tuning(const Json& root) {
  stored::expect_format(root, kFormat, kVersion);
  stored::expect_object(root, "", {"format", "version", "machine", "pairs"});
  const Json& machine = root["machine"];
  stored::expect_object(machine, "machine", {"processor", "driver_version", "nics"});
  Tuning tuning;
  tuning.machine.processor = stored::read_text(machine["processor"], "machine.processor");
  tuning.machine.driver_version = stored::read_text(machine["driver_version"], "machine.driver_version");
  tuning.machine.nics = read_texts(machine["nics"], "machine.nics", kMaxNics);
  const Json& pairs = root["pairs"];
  if (!pairs.is_array() || pairs.size() > kMaxPairs)
    stored::refuse("pairs", text("is not an array of at most ", kMaxPairs, " pairs"));
  for (const Json& item : pairs) {
    const std::string place = text("pairs[", tuning.pairs.size(), "]");
    TunedPair pair = read_pair(item, place);
    for (const TunedPair& other : tuning.pairs) {
      if (other.key == pair.key) stored::refuse(place, "is there twice: " + pair.key.to_text());
    }
    tuning.pairs.push_back(std::move(pair));
  }
  return tuning;
}

// Held while a file is read, changed and replaced. It stays in the folder: to remove it would let two in.
Result<Descriptor> lock_beside(const std::string& path) {
  const std::string name = path + ".lock";
  std::error_code folder_error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, folder_error);
  const auto refuse = [&](const char* cause, int code) {
    return make_error(Status::bad_file, kWords.save, name, cause, "name a place that can be written with GIGABAR_TUNING",
                      errno_code(code));
  };
  if (folder_error) return refuse("its folder cannot be made", folder_error.value());
  Descriptor file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644));
  if (!file.is_open()) return refuse("cannot be opened", errno);
  const Deadline deadline = Deadline::after_ns(kLockNs);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    if (code != EWOULDBLOCK && code != EINTR) return refuse("cannot be locked", code);
    if (deadline.has_passed()) {
      return make_error(Status::timed_out, kWords.save, name, "another process holds it", "try again when that one has ended");
    }
    ::usleep(5000);
  }
  return file;
}

}  // namespace

std::string TunedKey::to_text() const {
  std::string line = text(device, ", ", name_of(transport));
  for (const std::string& rail : rails) line += " " + rail;
  return line + (is_same_host ? ", same host" : ", other hosts");
}

std::string Tuning::to_json() const {
  stored::Document document;
  Json& root = document.root = stored::new_object();
  root["format"] = kFormat;
  root["version"] = kVersion;
  Json& about = root["machine"] = stored::new_object();
  about["processor"] = machine.processor;
  about["driver_version"] = machine.driver_version;
  put_texts(about, "nics", machine.nics);
  Json& list = root["pairs"] = Json::array();
  for (const TunedPair& pair : pairs) {
    list.push_back(stored::new_object());
    Json& item = list.back();
    item["device"] = pair.key.device;
    item["transport"] = name_of(pair.key.transport);
    put_texts(item, "rails", pair.key.rails);
    item["peer"] = pair.key.is_same_host ? "same host" : "other hosts";
    item["date"] = pair.date;
    item["gdr_limit"] = limit_json(pair.gdr_bytes);
    item["gdr_read_limit"] = limit_json(pair.gdr_read_bytes);
    item["chunk"] = limit_json(pair.chunk_bytes);
    item["stripe"] = limit_json(pair.stripe_bytes);
  }
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Tuning> Tuning::load(const std::string& path) {
  Tuning tuning;
  const auto read = [](const Json& root, void* result) { *static_cast<Tuning*>(result) = read_tuning(root); };
  if (Result<void> loaded = stored::load(kWords, path, read, &tuning); !loaded) return std::move(loaded).error();
  return tuning;
}

Result<void> store_tuned(const std::string& path, const MachineFingerprint& machine, const TunedPair& pair) {
  struct stat found{};
  const bool is_stream = ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
  if (is_stream)
    return stored::replace_file(kWords, path, Tuning{machine, {pair}}.to_json());  // a device or FIFO keeps nothing to add to
  auto lock = lock_beside(path);
  if (!lock) return std::move(lock).error();
  Tuning tuning{machine, {}};
  if (::access(path.c_str(), F_OK) == 0) {
    auto known = Tuning::load(path);
    if (!known) return std::move(known).error();
    if (const std::string differs = known->machine.difference(machine); !differs.empty()) {
      return make_error(Status::bad_file, kWords.save, path, "it is of another machine: " + differs,
                        "name another file with GIGABAR_TUNING");
    }
    tuning = std::move(*known);
  }
  std::erase_if(tuning.pairs, [&](const TunedPair& other) { return other.key == pair.key; });
  tuning.pairs.push_back(pair);
  if (tuning.pairs.size() > kMaxPairs) tuning.pairs.erase(tuning.pairs.begin());  // the oldest
  return stored::replace_file(kWords, path, tuning.to_json());
}

}  // namespace gigabar::fabric
