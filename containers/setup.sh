# Shell functions that ./quickstart and ./test share: what a fresh Debian or Ubuntu machine needs.
# Source it from the repository's root.
# shellcheck shell=bash

# Where Debian keeps dockerd, iptables and debootstrap; a plain user's PATH lacks it.
export PATH=$PATH:/usr/sbin:/sbin

say() { printf '[%4d s] %s\n' "$SECONDS" "$*" >&2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; return; fi
  command -v sudo >/dev/null 2>&1 || {
    echo "this needs root: run it as root, or install sudo: $*" >&2
    return 1
  }
  sudo "$@"
}

# apt_install PACKAGE… — without a word of apt's, unless it fails.
apt_install() {
  local said
  say "installing $*"
  said=$({
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
  } 2>&1) && return 0
  printf '%s\n' "$said" >&2
  return 1
}

# need_packages PROGRAM:PACKAGE… — installs the packages whose program is missing.
need_packages() {
  local missing=() pair
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair##*:}")
  done
  [ "${#missing[@]}" = 0 ] || apt_install "${missing[@]}"
}

# need_c_tools — what the tests of slurm_plugins/ compile and check with.
need_c_tools() {
  echo 'int main(void) { return 0; }' | cc -fsanitize=address,undefined -x c -o /dev/null - \
    2>/dev/null || apt_install gcc libc6-dev || return
  need_packages valgrind:valgrind
}

# need_shells — what the tests of completion and man pages ask.
need_shells() {
  need_packages zsh:zsh fish:fish man:man-db mandoc:mandoc
}

# need_redis — redis-server, for tests that start and end their own. Debian starts a service of what
# it installs: that one is ended, and not begun at the next boot.
need_redis() {
  command -v redis-server >/dev/null 2>&1 && return 0
  apt_install redis-server || return
  if [ -d /run/systemd/system ]; then
    as_root systemctl disable --now redis-server >&2
  elif [ -x /etc/init.d/redis-server ]; then
    as_root /etc/init.d/redis-server stop >&2
  fi
}

# need_prometheus — Prometheus and its checker promtool, for tests that start and end their own. They
# are skipped where it cannot be installed. As above, what Debian starts of it is ended.
need_prometheus() {
  command -v promtool >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1 && return 0
  apt_install prometheus || {
    say "going on without Prometheus"
    return 0
  }
  # Some releases have the checker in a package of its own.
  command -v promtool >/dev/null 2>&1 || apt_install promtool || say "going on without promtool"
  if [ -d /run/systemd/system ]; then
    as_root systemctl disable --now prometheus >&2
  elif [ -x /etc/init.d/prometheus ]; then
    as_root /etc/init.d/prometheus stop >&2
  fi
}

# need_movers — rsync and rclone, which copy data sets in tests without containers. These are skipped
# where they cannot be installed.
need_movers() {
  local each
  for each in rsync rclone; do
    command -v "$each" >/dev/null 2>&1 || apt_install "$each" || say "going on without $each"
  done
}

# need_postgresql — PostgreSQL, for tests that start and end their own. They go without where it
# cannot be installed, and say so. As above, what Debian starts of it is ended.
need_postgresql() {
  compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null && return 0
  apt_install postgresql || {
    say "going on without PostgreSQL"
    return 0
  }
  if [ -d /run/systemd/system ]; then
    as_root systemctl disable --now postgresql >&2
  elif [ -x /etc/init.d/postgresql ]; then
    as_root /etc/init.d/postgresql stop >&2
  fi
}

# need_browser — Debian's chromium and what drives it, for the tests of the web page. They go without
# where it cannot be had, and say so.
need_browser() {
  command -v chromium >/dev/null 2>&1 || apt_install chromium || {
    say "going on without chromium: the page is not tried in a browser"
    return 0
  }
  .venv/bin/python -c 'import axe_playwright_python, playwright' 2>/dev/null && return 0
  say "installing what drives the browser"
  .venv/bin/pip install -q --disable-pip-version-check -c requirements.lock -e '.[browser]' >&2 ||
    say "going on without playwright: the page is not tried in a browser"
}

# make_venv EXTRAS — the project and its libraries in .venv, at the versions of requirements.lock.
make_venv() {
  local stamp said
  stamp=$(cat pyproject.toml requirements.lock | sha256sum)
  # What ./test installed (dev) holds all that ./quickstart needs.
  if [ -x .venv/bin/python ]; then
    case "$(cat .venv/stamp 2>/dev/null)" in "$1 $stamp" | "dev $stamp") return 0 ;; esac
  fi
  need_packages python3:python3 || return
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or later is needed, this is $(python3 --version)" >&2
    return 1
  }
  python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || return
  say "installing the project into .venv"
  rm -f .venv/stamp
  python3 -m venv .venv || return
  said=$(.venv/bin/pip install -q --disable-pip-version-check -c requirements.lock \
    -e ".[$1]" 2>&1) || {
    printf '%s\ninstalling into .venv failed\n' "$said" >&2
    return 1
  }
  .venv/bin/python -c 'import federator.config, docker' || return
  echo "$1 $stamp" >.venv/stamp
}

# start_dockerd — a Docker engine that answers this user.
start_dockerd() {
  # Only where no image registry answers is it needed.
  need_packages debootstrap:debootstrap || say "going on without debootstrap"
  docker info >/dev/null 2>&1 && return 0
  as_root true || return
  # The engine's package brings the command line in some releases, and not in others.
  need_packages dockerd:docker.io iptables:iptables || return
  need_packages docker:docker-cli || return
  as_root docker info >/dev/null 2>&1 || _launch_dockerd || return
  docker info >/dev/null 2>&1 && return 0
  cat >&2 <<TXT
The Docker engine runs, but does not answer to you, $(id -un). Join its group (whoever is in it can
become root), once:
  sudo usermod --append --groups docker $(id -un)
and log in again; or start here and now with
  sg docker -c $0
TXT
  return 1
}

_launch_dockerd() {
  say "starting the Docker engine"
  local log="journalctl --unit docker"
  if [ -d /run/systemd/system ] && systemctl cat docker.service >/dev/null 2>&1; then
    as_root systemctl start docker >&2 || return
  else
    log=/var/log/dockerd-federator.log
    as_root sh -c "setsid dockerd >$log 2>&1 </dev/null &"
  fi
  for _ in $(seq 60); do
    as_root docker info >/dev/null 2>&1 && return 0
    sleep 0.5
  done
  echo "the Docker engine did not start; see $log" >&2
  return 1
}

# daemon_pid STATE_DIR — prints the process id of the federation daemon left running there, if any.
daemon_pid() {
  local pid
  pid=$(cat "$1/daemon.pid" 2>/dev/null) || return 1
  case $pid in '' | *[!0-9]*) return 1 ;; esac
  cat "/proc/$pid/cmdline" 2>/dev/null | tr '\0' ' ' | grep -q 'federator daemon' || return 1
  echo "$pid"
}
