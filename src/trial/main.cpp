// SPDX-License-Identifier: Apache-2.0
// gigabar-trial: what libgigabar.so starts to open a library that may end the process (driver/trial.hpp).
#include <cstdio>

#include "transport/ucx/trial.hpp"

int main(int argument_count, char** arguments) {
  gigabar::transport::serve_ucx_trials(argument_count, arguments);
  std::fputs("gigabar-trial: started by Gigabar's library, which tries libraries in it; it has no other use\n", stderr);
  return 2;
}
