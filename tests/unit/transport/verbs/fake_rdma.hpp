// SPDX-License-Identifier: Apache-2.0
// Verbs transports over the devices of tests/fakes/rdma.hpp, several in this process. For ISOLATED_TEST: the libraries are opened
// once per process.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "fakes/paths.hpp"
#include "support/scoped_environment.hpp"
#include "transport/verbs/open.hpp"

namespace gigabar::transport::test {

using gigabar::test::ScopedEnvironment;

// The libraries are the fake with these devices; their addresses are 10.9.0.1 and the following ones, which getifaddrs() tells in
// this program.
struct FakeMachine {
  explicit FakeMachine(const char* listed)
      : verbs("GIGABAR_VERBS_LIBRARY", gigabar::test::kFakeRdmaLibrary),
        rdmacm("GIGABAR_RDMACM_LIBRARY", gigabar::test::kFakeRdmaLibrary),
        devices("GIGABAR_FAKE_RDMA_DEVICES", listed) {}
  ScopedEnvironment verbs, rdmacm, devices;
};

template <class Function>
Function* fake(const char* name) {
  static void* const library = ::dlopen(gigabar::test::kFakeRdmaLibrary, RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? reinterpret_cast<Function*>(::dlsym(library, name)) : nullptr;
}
inline int alive() { return fake<int()>("gigabar_fake_rdma_alive")(); }
inline int send_calls() { return fake<int()>("gigabar_fake_rdma_send_calls")(); }
inline int writes() { return fake<int()>("gigabar_fake_rdma_writes")(); }
inline int messages() { return fake<int()>("gigabar_fake_rdma_messages")(); }
inline std::size_t registered() { return fake<std::size_t()>("gigabar_fake_rdma_registered")(); }
inline int overflows() { return fake<int()>("gigabar_fake_rdma_overflows")(); }
inline std::string told() { return fake<const char*()>("gigabar_fake_rdma_told")(); }
// `call` fails once with `error`, after `skip` that do not.
inline void fail(const char* call, int error, int skip = 0) {
  fake<void(const char*, int, int)>("gigabar_fake_rdma_fail")(call, error, skip);
}
// Nobody is told of a completion until they are no longer held.
inline void hold(bool is_held) { fake<void(bool)>("gigabar_fake_rdma_hold")(is_held); }
// The work request posted after `skip` others ends with this status.
inline void complete(int status, int skip = 0) { fake<void(int, int)>("gigabar_fake_rdma_complete")(status, skip); }
inline void raise(const char* device, int type) { fake<void(const char*, int)>("gigabar_fake_rdma_raise")(device, type); }
inline void remove(const char* device) { fake<void(const char*)>("gigabar_fake_rdma_remove")(device); }

// One link, and all that was told of it.
struct Told {
  std::unique_ptr<Link> link;
  int ready = 0, messages = 0, done = 0, done_wrong = 0, broken = 0;
  std::vector<Error> errors;    // of broken()
  std::vector<Error> failures;  // of done()
};

// Memory that a side registers; fails the test.
template <class T>
std::unique_ptr<T> taken(Result<std::unique_ptr<T>> result) {
  EXPECT_TRUE(result) << result.error().message();
  return result ? std::move(*result) : nullptr;
}

// A rank's side: a transport and its links.
class End : public Sink {
 public:
  // The error, or nothing.
  std::optional<Error> open(const std::string& rail, TransportOptions options = {}) {
    if (!rail.empty()) options.rails = {rail};
    options.connect_deadline_ns = 3'000'000'000;
    auto opened = open_verbs(options);
    if (!opened) return opened.error();
    transport = std::move(*opened);
    return {};
  }
  Told& add(std::unique_ptr<Link> link) {
    links.push_back(std::make_unique<Told>());
    links.back()->link = std::move(link);
    return *links.back();
  }
  std::unique_ptr<Region> register_host(void* address, std::size_t bytes) const {
    return taken(transport->register_memory({address, bytes, MemoryKind::host_pageable, -1, -1, 0}));
  }
  std::unique_ptr<RemoteRegion> open_region(const Region& region) const {
    return taken(transport->open_region({}, Parcel{region.key({})->bytes, {}}));
  }
  void poll() {
    for (int i = 0; i < 40; ++i) transport->poll(*this);
  }

  void ready(Link& link) override { ++of(link).ready; }
  void message(Link& link, const Header&, std::span<const std::byte>) override { ++of(link).messages; }
  void done(Link& link, std::uint64_t, const Result<void>& outcome) override {
    Told& one = of(link);
    EXPECT_EQ(one.broken, 0) << "done() after broken()";
    ++(outcome ? one.done : one.done_wrong);
    if (!outcome) one.failures.push_back(outcome.error());
  }
  void broken(Link& link, const Error& error) override {
    Told& one = of(link);
    ++one.broken;
    one.errors.push_back(error);
  }

  std::unique_ptr<Transport> transport;
  std::vector<std::unique_ptr<Told>> links;

 private:
  Told& of(Link& link) {
    for (const auto& one : links) {
      if (one->link.get() == &link) return *one;
    }
    ADD_FAILURE() << "a link that nobody knows";
    return *links.front();
  }
};

// Two ends on two devices.
struct Pair {
  // Links are destroyed before their transports.
  ~Pair() {
    for (End* const end : {&first, &second}) end->links.clear();
  }
  void open(const TransportOptions& options = {}, const std::string& one = "a0", const std::string& other = "a1") {
    const auto wrong = first.open(one, options);
    ASSERT_FALSE(wrong) << wrong->message();
    const auto wrong_too = second.open(other, options);
    ASSERT_FALSE(wrong_too) << wrong_too->message();
  }
  bool run_until(const std::function<bool()>& is_done) {
    const auto deadline = Deadline::after_ns(5'000'000'000);
    while (!is_done() && !deadline.has_passed()) {
      first.poll();
      second.poll();
    }
    return is_done();
  }
  // A new link on both, which may not come to stand; nothing: it was refused, with the error in `refused`.
  bool begin(std::size_t rail = 0) {
    Parcel offer, answer;
    auto offered = first.transport->offer({}, rail, offer);
    if (!offered) return refused = offered.error(), false;
    auto accepted = second.transport->accept({}, std::move(offer), answer);
    if (!accepted) return refused = accepted.error(), false;
    here = &first.add(std::move(*offered));
    there = &second.add(std::move(*accepted));
    if (Result<void> completed = here->link->complete(std::move(answer)); !completed) refused = std::move(completed).error();
    return true;
  }
  void connect() {
    ASSERT_TRUE(begin()) << refused->message();
    ASSERT_TRUE(run_until([&] { return here->ready + here->broken > 0 && there->ready + there->broken > 0; }));
    ASSERT_TRUE(here->ready == 1 && there->ready == 1)
        << (here->errors.empty() ? "" : here->errors[0].message()) << (there->errors.empty() ? "" : there->errors[0].message());
  }
  Posted send(Told& from) { return from.link->post_message({}, {}); }
  // Whether messages pass over the link in both directions.
  bool works(Told& one, Told& other) {
    const int before = one.messages, before_too = other.messages;
    if (send(one) != Posted::ok || send(other) != Posted::ok) return false;
    return run_until([&] { return one.messages == before + 1 && other.messages == before_too + 1; });
  }

  End first, second;
  Told* here = nullptr;
  Told* there = nullptr;
  std::optional<Error> refused;
};

}  // namespace gigabar::transport::test
