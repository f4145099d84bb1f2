// SPDX-License-Identifier: Apache-2.0
// What `gigabar tune` has measured: limits per pair of GPU and NIC, kept in a file of the user's for this machine, and used by
// every fabric that is opened here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gigabar/fabric.hpp"
#include "platform/fingerprint.hpp"

namespace gigabar::fabric {

struct Settings;

// "Unlimited" in limits.
inline constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kMinChunkBytes = 4096, kMaxChunkBytes = std::uint64_t{64} << 20;

// Which measurements a connection can use.
struct TunedKey {
  std::string device;  // the GPU's UUID, "stand-in", or "none"
  TransportKind transport = TransportKind::local;
  std::vector<std::string> rails;  // of verbs: those in use. Others choose for each connection, or have nothing to choose
  bool is_same_host = false;       // the peer's
  bool operator==(const TunedKey&) const = default;
  std::string to_text() const;  // "GPU-0123.., verbs mlx5_0/1, other hosts"
};

// A limit that is not there was not measured.
struct TunedPair {
  TunedKey key;
  std::string date;  // ISO 8601, UTC
  std::optional<std::uint64_t> gdr_bytes, gdr_read_bytes, chunk_bytes, stripe_bytes;
};

struct Tuning {
  MachineFingerprint machine;
  std::vector<TunedPair> pairs;

  std::string to_json() const;
  // Errors: bad_file with place and cause. Nothing is taken from a file that is not wholly valid.
  static Result<Tuning> load(const std::string& path);
};

// $GIGABAR_TUNING ("none": nowhere), else <cache folder>/tuning-<digits of the fingerprint>.json. Empty when there is no such
// place.
std::string tuning_path(const MachineFingerprint& machine);

// Puts `pair` into the file, in the place of an older one with the same key. Two writers take turns. Errors: bad_file (unwritable;
// or what is there is malformed or of another machine, and stays), timed_out (another writer holds it for 5 s).
Result<void> store_tuned(const std::string& path, const MachineFingerprint& machine, const TunedPair& pair);

// The device's part of a key. `device`: -1: none.
std::string tuned_device_name(int device);

// What a fabric opens with: settings that nobody set become tuned ones where the file has a pair that fits. A file that cannot be
// used is warned of and changes nothing.
using RailsInUse = std::map<TransportKind, std::vector<std::string>>;  // of each transport that is open
void apply_tuning(Settings& settings, int device, const RailsInUse& rails);

}  // namespace gigabar::fabric
