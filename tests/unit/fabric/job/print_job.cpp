// SPDX-License-Identifier: Apache-2.0
// A rank for tests of launchers: says who it is, gives its address to all others and takes theirs. Never shows the key, only what
// every rank's must agree on.
#include <poll.h>
#include <sodium.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/clock.hpp"
#include "fabric/job/job.hpp"

namespace {

using gigabar::Rank;
using gigabar::fabric::Job;

int fail(const std::string& message) {
  std::fprintf(stderr, "print_job: %s\n", message.c_str());
  return 1;
}

std::string fingerprint(std::string_view secret) {
  std::array<unsigned char, 16> hash{};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), nullptr, 0);
  std::array<char, 2 * hash.size() + 1> digits{};
  return sodium_bin2hex(digits.data(), digits.size(), hash.data(), hash.size());
}

// A barrier made of addresses: rank 0 may only leave when nobody needs the directory any more.
int exchange(const Job& job, const std::string& word) {
  const std::int64_t deadline_ns = gigabar::now_ns() + 60'000'000'000;
  auto directory = gigabar::fabric::open_directory(job, deadline_ns);
  if (!directory) return fail(directory.error().message());
  if (const auto published = (*directory)->publish(word + std::to_string(job.rank)); !published) return fail(published.message());
  for (Rank rank = 0; rank < job.rank_count;) {
    const auto rank_address = (*directory)->rank_address(rank);
    if (!rank_address) return fail(rank_address.error().message());
    if (*rank_address && **rank_address != word + std::to_string(rank))
      return fail("the address of rank " + std::to_string(rank) + " is " + **rank_address);
    if (*rank_address) {
      ++rank;
      continue;
    }
    if (gigabar::now_ns() > deadline_ns) return fail("no address of rank " + std::to_string(rank));
    if (const auto polled = (*directory)->poll(); !polled) return fail(polled.message());
    pollfd entry{(*directory)->wake_descriptor(), POLLIN, 0};
    ::poll(&entry, entry.fd >= 0 ? 1 : 0, 5);
  }
  // Long enough for the others' last questions: this is a test, and a rank that is left out fails it.
  for (const std::int64_t end_ns = gigabar::now_ns() + 1'000'000'000; job.rank == 0 && gigabar::now_ns() < end_ns;) {
    if (const auto polled = (*directory)->poll(); !polled) return fail(polled.message());
    ::poll(nullptr, 0, 1);
  }
  return 0;
}

}  // namespace

int main() {
  const auto job = gigabar::fabric::find_job({});
  if (!job) return fail(job.error().message());
  if (const int status = exchange(*job, "first "); status != 0) return status;
  // Under PMIx every directory of a process has a name of its own.
  if (job->launcher == gigabar::fabric::Launcher::pmix) {
    if (const int status = exchange(*job, "second "); status != 0) return status;
  }
  const std::string launcher(gigabar::fabric::name_of(job->launcher));
  const std::string local_rank = job->local_rank ? std::to_string(*job->local_rank) : "unknown";
  const std::string key = job->key.is_set() ? fingerprint(job->key.bytes()) : "none";
  std::printf("launcher %s rank %u of %u local %s id %s key %s\n", launcher.c_str(), job->rank, job->rank_count, local_rank.c_str(),
              job->id.c_str(), key.c_str());
  return 0;
}
