// SPDX-License-Identifier: Apache-2.0
// The file of tuned limits, and how a fabric takes them over.
#include "fabric/tuning.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "fabric/settings.hpp"
#include "gigabar/device.hpp"
#include "platform/stored_json.hpp"

namespace gigabar::fabric {
namespace {

constexpr stored::Words kWords = {"load tuning", "delete the file and run 'gigabar tune' again, or set GIGABAR_TUNING=none",
                                  "save tuning"};
constexpr std::size_t kMaxPairs = 1024, kMaxRails = 8, kMaxNics = 64;
constexpr std::int64_t kLockNs = 5'000'000'000;

// A number of bytes, or "unlimited".
struct Limit {
  void read(const json::Value& from, std::uint64_t& bytes) const {
    const bool is_unlimited = from.is_text() && from.text() == "unlimited";
    bytes = is_unlimited ? kNoLimit : from.number(0, kNoLimit);
  }
  void write(json::Writer& to, std::uint64_t bytes) const {
    bytes >= kNoLimit ? to.value(std::string_view("unlimited")) : to.value(bytes);
  }
};

struct Peer {
  void read(const json::Value& from, bool& is_same_host) const {
    is_same_host = from.text() == "same host";
    if (!is_same_host && from.text() != "other hosts") from.refuse("is neither \"same host\" nor \"other hosts\"");
  }
  void write(json::Writer& to, bool is_same_host) const { to.value(std::string_view(is_same_host ? "same host" : "other hosts")); }
};

void check_pairs(const std::vector<TunedPair>& pairs) {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto is_same = [&](const TunedPair& other) { return other.key == pairs[i].key; };
    if (std::any_of(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(i), is_same))
      throw json::Problem{text("pairs[", i, "]"), "is there twice: " + pairs[i].key.to_text()};
  }
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
}  // namespace gigabar::fabric

namespace gigabar::inline v0 {

template <>
struct json::Fields<fabric::TunedPair> {
  static void each(auto& field, auto& pair) {
    using enum TransportKind;
    field("device", pair.key.device);
    field("transport", pair.key.transport, OneOf{std::array{local, verbs, ucx, tcp}});
    field("rails", pair.key.rails, AtMost{fabric::kMaxRails});
    field("peer", pair.key.is_same_host, fabric::Peer());
    field("date", pair.date);
    field("gdr_limit", pair.gdr_bytes, fabric::Limit());
    field("gdr_read_limit", pair.gdr_read_bytes, fabric::Limit());
    field("chunk", pair.chunk_bytes, Between{fabric::kMinChunkBytes, fabric::kMaxChunkBytes});
    field("stripe", pair.stripe_bytes, fabric::Limit());
  }
};

template <>
struct json::Fields<MachineFingerprint> {
  static void each(auto& field, auto& machine) {
    field("processor", machine.processor);
    field("driver_version", machine.driver_version);
    field("nics", machine.nics, AtMost{fabric::kMaxNics});
  }
};

template <>
struct json::Fields<fabric::Tuning> {
  static void each(auto& field, auto& tuning) {
    field.constant("format", std::string_view("gigabar tuning"));
    field.constant("version", std::uint64_t{1});
    field("machine", tuning.machine);
    field("pairs", tuning.pairs, AtMost{fabric::kMaxPairs});
  }
};

}  // namespace gigabar::inline v0

namespace gigabar::fabric {

std::string TunedKey::to_text() const {
  std::string line = text(device, ", ", name_of(transport));
  for (const std::string& rail : rails) line += " " + rail;
  return line + (is_same_host ? ", same host" : ", other hosts");
}

std::string Tuning::to_json() const { return json::to_text(*this, stored::kLimits); }

Result<Tuning> Tuning::load(const std::string& path) {
  Tuning tuning;
  const auto read = [&](const json::Value& root) {
    json::read(root, tuning);
    check_pairs(tuning.pairs);
  };
  if (Result<void> loaded = stored::load(kWords, path, read); !loaded) return std::move(loaded).error();
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

// --- What a fabric takes over ----------------------------------------------------------------------------------------------------
namespace {

struct TunedLimit {
  const char* setting;
  std::optional<std::uint64_t> TunedPair::* tuned;
  std::uint64_t Limits::* limit;
};
constexpr std::array<TunedLimit, 4> kTunedLimits = {{{"gdr_limit", &TunedPair::gdr_bytes, &Limits::gdr_bytes},
                                                     {"gdr_read_limit", &TunedPair::gdr_read_bytes, &Limits::gdr_read_bytes},
                                                     {"chunk", &TunedPair::chunk_bytes, &Limits::chunk_bytes},
                                                     {"stripe", &TunedPair::stripe_bytes, &Limits::stripe_bytes}}};

std::optional<Tuning> usable_tuning(std::string& path) {
  const MachineFingerprint machine = machine_fingerprint();
  path = tuning_path(machine);
  if (path.empty() || ::access(path.c_str(), F_OK) != 0) return {};
  auto loaded = Tuning::load(path);
  if (!loaded) {
    log(LogLevel::warning, text("tuned limits not used: ", loaded.error().message()));
    return {};
  }
  if (const std::string differs = loaded->machine.difference(machine); !differs.empty()) {
    log(LogLevel::warning, text("tuned limits not used: ", path, " is of another machine: ", differs,
                                "; run 'gigabar tune' here, or set GIGABAR_TUNING to this machine's file or to none"));
    return {};
  }
  return std::move(*loaded);
}

}  // namespace

std::string tuning_path(const MachineFingerprint& machine) {
  if (const auto path = environment("GIGABAR_TUNING"); path && !path->empty()) return *path == "none" ? std::string() : *path;
  const std::string folder = stored::cache_folder();
  return folder.empty() ? std::string() : text(folder, "/tuning-", machine.digits(), ".json");
}

std::string tuned_device_name(int device) {
  const auto known = devices();
  if (!known || device < 0) return "none";
  for (const DeviceInfo& info : known.value()) {
    if (info.index == device) return info.is_stand_in || info.uuid.empty() ? "stand-in" : info.uuid;
  }
  return "none";
}

void apply_tuning(Settings& settings, int device, const RailsInUse& rails) {
  std::string path;
  const auto tuning = usable_tuning(path);
  if (!tuning) return;
  const std::string device_name = tuned_device_name(device);
  for (const TunedPair& pair : tuning->pairs) {
    const auto used = rails.find(pair.key.transport);
    if (used == rails.end() || pair.key.rails != used->second || pair.key.device != device_name) continue;
    Limits& limits = settings.limits_by_peer[static_cast<std::size_t>(pair.key.transport)][pair.key.is_same_host ? 1 : 0];
    const std::string_view where = pair.key.is_same_host ? "same host" : "other hosts";
    for (const TunedLimit& each : kTunedLimits) {
      const auto& tuned = pair.*each.tuned;
      if (!tuned || !settings.is_default(each.setting)) continue;
      limits.*each.limit = *tuned;
      settings.table.push_back(
          {text(each.setting, " (", name_of(pair.key.transport), ", ", where, ")"), limit_text(*tuned), text("tuned, ", path)});
    }
  }
}

}  // namespace gigabar::fabric
