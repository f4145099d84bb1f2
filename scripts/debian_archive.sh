# SPDX-License-Identifier: Apache-2.0
# Sourced by what makes trees of Debian packages. Sets archive, the address of the Debian archive that this machine takes its own packages
# from (empty where it takes none from Debian), and archive_options, with which mmdebstrap reads from it.
# shellcheck shell=bash disable=SC2034  # both are for those who source this
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 2>/dev/null | sed -n '1s|/*$||p') || archive=''
eval "$(apt-config shell archive_proxy Acquire::http::Proxy)"
archive_options=(--aptopt='Acquire::Retries "2"')
[ -z "${archive_proxy:-}" ] || archive_options+=(--aptopt="Acquire::http::Proxy \"$archive_proxy\"")
