// SPDX-License-Identifier: Apache-2.0
// Which symbols leave libgigabar.so: everything is hidden unless it is marked here.
#pragma once

#define GIGABAR_API __attribute__((visibility("default")))
