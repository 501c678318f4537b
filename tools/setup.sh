# Sourced by ./check and ./demo: installs the Debian packages that are missing, and nothing else.
# SKIP_SETUP=1 leaves the machine alone; what is missing then shows when it is used.

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

package_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

require_packages() { # PACKAGE...
  if [[ ${SKIP_SETUP-} == 1 ]]; then
    say "set-up skipped (SKIP_SETUP=1)"
    return
  fi
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    die "this system has no apt-get, so the set-up cannot install what is needed. Install the counterparts of these Debian" \
      "packages by hand, then run SKIP_SETUP=1 $0: $*"
  fi

  local package missing=() as_root=()
  for package in "$@"; do
    package_installed "$package" || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    say "set-up: all ${#} packages are there"
    return
  fi

  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "not root, and there is no sudo. As root, run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "set-up: installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300
    -o Dpkg::Use-Pty=0)
  "${apt[@]}" update || die "apt-get update failed (its message is above): is the network reachable?"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]} (its message is above)"
}
