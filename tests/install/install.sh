#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh BUILD PREFIX: installs the build into an empty prefix and moves it, so that a file that names its first place fails.
set -euo pipefail
rm -rf "$2" "$2.first"
cmake --install "$1" --prefix "$2.first"
mv "$2.first" "$2"
