#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lint_packages.sh PACKAGES: lintian finds no error in the packages of that folder. Exits with 77 where there is no lintian.
set -euo pipefail
if ! command -v lintian >/dev/null; then
  echo "there is no lintian (package lintian)"
  exit 77
fi
exec lintian --allow-root --fail-on error "$1"/*.deb
