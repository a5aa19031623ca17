# Shell functions that ./quickstart and ./test share: what a fresh Debian or Ubuntu machine needs.
# Source it from the repository's root.

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

say() { printf '[%4d s] %s\n' "$SECONDS" "$*" >&2; }

# need_packages PROGRAM:PACKAGE… — installs the packages whose program is missing.
need_packages() {
  local missing=() pair
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair##*:}")
  done
  [ "${#missing[@]}" = 0 ] && return 0
  say "installing ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >&2
}

# make_venv EXTRAS — the project and its libraries in .venv, at the versions of requirements.lock.
make_venv() {
  local stamp
  stamp=$(cat pyproject.toml requirements.lock | sha256sum)
  # What ./test installed (dev) holds all that ./quickstart needs.
  if [ -x .venv/bin/python ]; then
    case "$(cat .venv/stamp 2>/dev/null)" in "$1 $stamp" | "dev $stamp") return 0 ;; esac
  fi
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or later is needed, this is $(python3 --version)" >&2
    return 1
  }
  python3 -c 'import ensurepip' 2>/dev/null || {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >&2
  }
  say "installing the project into .venv"
  python3 -m venv .venv
  .venv/bin/pip install -q --disable-pip-version-check -c requirements.lock -e ".[$1]" 2>&1 |
    grep -v '^WARNING' >&2 || true
  .venv/bin/python -c 'import federator.config, docker' || return 1
  echo "$1 $stamp" >.venv/stamp
}

# start_dockerd — a Docker engine, if none answers.
start_dockerd() {
  need_packages dockerd:docker.io debootstrap:debootstrap iptables:iptables
  docker info >/dev/null 2>&1 && return 0
  say "starting dockerd"
  as_root setsid sh -c 'exec dockerd >/var/log/dockerd-federator.log 2>&1 </dev/null' &
  for _ in $(seq 60); do
    docker info >/dev/null 2>&1 && return 0
    sleep 0.5
  done
  echo "dockerd did not start; see /var/log/dockerd-federator.log" >&2
  return 1
}
