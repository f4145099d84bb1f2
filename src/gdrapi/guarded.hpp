// SPDX-License-Identifier: Apache-2.0
// What every function of the C boundary runs its body in.
#pragma once

#include <cerrno>
#include <exception>
#include <new>

#include "base/uncancelled.hpp"
#include "gdrapi/log.hpp"

namespace gigabar::gdrapi {

// Runs the body of one function: nothing thrown leaves the library, a thread that is cancelled
// meanwhile ends behind it, and every failure is logged once, with its name.
template <class Body>
int guarded(const char* function, Body&& body) noexcept {
  const Uncancelled uncancelled;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM, function, "no memory for the library's records");
  } catch (const std::exception& error) {
    return refuse(EIO, function, error.what());
  }
}

}  // namespace gigabar::gdrapi
