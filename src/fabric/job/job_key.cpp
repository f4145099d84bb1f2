// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/job.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/undo.hpp"
#include "driver/pmix/pmix.hpp"

namespace gigabar::fabric {
namespace {

constexpr const char* kKeyVariable = "GIGABAR_JOB_KEY";
constexpr const char* kFileVariable = "GIGABAR_JOB_KEY_FILE";
constexpr const char* kPmixKey = "gigabar.key";
constexpr std::size_t kMaxKeyBytes = 1024;
constexpr std::size_t kMadeKeyBytes = 32;
constexpr const char* kRemedy = "make one with 'openssl rand -hex 32'";

// Text that held a secret.
void wipe(std::string& text) noexcept { sodium_memzero(text.data(), text.capacity()); }

Error refuse(const std::string& object, std::string cause) {
  return make_error(Status::invalid_argument, "read the job key", object, std::move(cause), kRemedy);
}

// The cause never shows any of the text.
Result<JobKey> from_hexadecimal(std::string_view text, const std::string& object) {
  if (text.size() % 2 != 0 || text.size() > 2 * kMaxKeyBytes)
    return refuse(object, gigabar::text("it has ", text.size(), " digits, and not an even number up to ", 2 * kMaxKeyBytes));
  JobKey key = JobKey::of_size(std::max(text.size() / 2, std::size_t{1}));  // never null; what has no byte is refused below
  std::size_t count = 0;
  const char* end = nullptr;
  sodium_hex2bin(key.data(), key.bytes().size(), text.data(), text.size(), nullptr, &count, &end);
  if (end != text.data() + text.size()) return refuse(object, "it is not hexadecimal");
  if (count < kMinKeyBytes)
    return refuse(object, gigabar::text("it has ", count, " bytes; the least is ", kMinKeyBytes, ", written as ", 2 * kMinKeyBytes,
                                        " hexadecimal digits"));
  return key;
}

Error unreadable(const std::string& path, int code) {
  return make_errno_error(code, "read the job key", text(kFileVariable, "=", path), "the file cannot be read", {},
                          Status::unavailable);
}

Result<void> check_file(int file, const std::string& path) {
  struct stat status{};
  if (::fstat(file, &status) != 0) return unreadable(path, errno);
  const std::string object = text(kFileVariable, "=", path);
  if (!S_ISREG(status.st_mode)) return refuse(object, "it is no regular file");
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return make_error(Status::no_permission, "read the job key", object, text("the file belongs to user ", status.st_uid),
                      "use a file of your own");
  if ((status.st_mode & 077) != 0)
    return make_error(Status::no_permission, "read the job key", object, "others than its owner can read or write the file",
                      "chmod 600 it, and make a new key: this one may be known");
  return {};
}

Result<JobKey> from_file(const std::string& path) {
  // Not to wait for the writer of a pipe.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return unreadable(path, errno);
  if (Result<void> checked = check_file(file.get(), path); !checked) return std::move(checked).error();
  secure::Secret content = secure::Secret::of_size(2 * kMaxKeyBytes + 64);
  std::size_t count = 0;
  while (count < content.bytes().size()) {
    const ssize_t bytes = ::read(file.get(), content.data() + count, content.bytes().size() - count);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return unreadable(path, errno);
    if (bytes == 0) break;
    count += static_cast<std::size_t>(bytes);
  }
  const std::string_view digits = content.bytes().substr(0, count);
  const std::size_t last = digits.find_last_not_of(" \t\r\n");
  return from_hexadecimal(digits.substr(0, last == std::string_view::npos ? 0 : last + 1), text(kFileVariable, "=", path));
}

Result<JobKey> fetch_key(std::int64_t deadline_ns) {
  while (now_ns() < deadline_ns) {
    const auto fetch = pmix::fetch(0, kPmixKey);
    if (!fetch) return fetch.error();
    if (!fetch->wait(deadline_ns)) break;
    auto bytes = fetch->answer();
    if (!bytes) return bytes.error();
    if (*bytes) {
      const Undo wiped([&] { wipe(**bytes); });
      JobKey key(**bytes);
      if (key.bytes().size() != kMadeKeyBytes)
        return make_error(Status::bad_file, "fetch the job key", "the PMIx store", "its size is not that of a key");
      return key;
    }
    ::poll(nullptr, 0, 10);  // rank 0 has not put it yet
  }
  return make_error(Status::timed_out, "fetch the job key", "the PMIx store", "rank 0 did not put it before the deadline",
                    "every process of the job has to open a fabric, or set GIGABAR_JOB_KEY");
}

}  // namespace

Result<void> start_sodium() {
  static const bool is_ready = sodium_init() >= 0;
  if (is_ready) return {};
  return make_error(Status::device_error, "start", "libsodium", "the system gives no random numbers", "make /dev/urandom readable");
}

secure::Identity identity_of(const Job& job, secure::Purpose purpose) {
  return make_identity(job.key, job.id, job.rank, job.rank_count, purpose);
}

Result<JobKey> find_key(const FabricOptions& options) {
  if (options.job_key) {
    if (options.job_key->size() < kMinKeyBytes || options.job_key->size() > kMaxKeyBytes)
      return refuse("job_key",
                    text("it has ", options.job_key->size(), " bytes; ", kMinKeyBytes, " to ", kMaxKeyBytes, " are possible"));
    return JobKey(*options.job_key);
  }
  if (auto digits = environment(kKeyVariable)) {
    const Undo wiped([&] { wipe(*digits); });
    return from_hexadecimal(*digits, kKeyVariable);
  }
  if (const auto path = environment(kFileVariable)) return from_file(*path);
  return JobKey();
}

Result<JobKey> pmix_key(Rank rank, std::int64_t deadline_ns) {
  static std::mutex mutex;
  static JobKey known;
  const std::lock_guard lock(mutex);
  if (known.is_set()) return known;
  if (rank != 0) {
    auto fetched = fetch_key(deadline_ns);
    if (fetched) known = *fetched;
    return fetched;
  }
  JobKey made = JobKey::of_size(kMadeKeyBytes);
  randombytes_buf(made.data(), kMadeKeyBytes);
  std::string copy(made.bytes());
  const Undo wiped([&] { wipe(copy); });
  if (Result<void> put = pmix::put(kPmixKey, copy); !put) return std::move(put).error();
  known = made;
  return made;
}

}  // namespace gigabar::fabric
