# Shared by the other scripts: working directory, messages, packages and the making of .venv.
# shellcheck shell=bash

# Without cached bytecode, each of many short processes would compile tfctl again.
unset PYTHONDONTWRITEBYTECODE

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

bold='' plain=''
[ -t 1 ] && bold=$'\033[1m' plain=$'\033[0m'
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
note() { printf '   %s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# packages NAME...: install the missing ones with apt-get.
packages() {
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} = 0 ] && return 0
    command -v apt-get >/dev/null || die "Packages are missing, and there is no apt-get to install them: ${missing[*]}"
    note "apt-get install ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Install what `tfctl lab` needs on this machine.
lab_packages() {
    if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
        die "A lab needs Linux and root: run this with sudo, on Linux."
    fi
    packages systemd-container mmdebstrap iptables iproute2 openssh-client ca-certificates
}

# Print the first Python that is 3.11 or newer.
find_python() {
    local candidate
    for candidate in python3 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))'
            return 0
        fi
    done
    return 1
}

# Pass pip's index and certificates to uv, which does not read pip's configuration.
hand_pip_settings_to_uv() {
    local pip=("$1" -m pip config get) index extra cert
    index=$("${pip[@]}" global.index-url 2>/dev/null || true)
    index=${PIP_INDEX_URL:-$index}
    extra=$("${pip[@]}" global.extra-index-url 2>/dev/null || true)
    extra=${PIP_EXTRA_INDEX_URL:-$extra}
    cert=$("${pip[@]}" global.cert 2>/dev/null || true)
    cert=${PIP_CERT:-$cert}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    [ -z "$extra" ] || export UV_INDEX="${UV_INDEX:-$(tr '\n' ' ' <<<"$extra")}"
    [ -z "$cert" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$cert}"
    # As pip does: take the best version from all indexes. The hashes guard against wrong files.
    export UV_INDEX_STRATEGY=unsafe-best-match
}

# environment run|dev: make .venv with tfctl as an editable install; remake it if its inputs have changed.
environment() {
    local kind=$1 python digest stamp
    digest=$(cat pyproject.toml "requirements/uv.txt" "requirements/$kind.txt" | cksum | tr ' ' -)
    stamp=.venv/.tfctl-$kind-$digest
    [ -e "$stamp" ] && return 0
    # A .venv for development serves for running too.
    [ "$kind" = run ] && compgen -G '.venv/.tfctl-dev-*' >/dev/null && environment dev && return 0
    python=$(find_python) || die "Python 3.11 or newer is missing (on Debian 12: apt-get install python3 python3-venv)"
    "$python" -c 'import ensurepip' 2>/dev/null || die "Python's venv module is missing (on Debian: apt-get install python3-venv)"
    say "environment: .venv ($("$python" --version))"
    rm -rf .venv
    "$python" -m venv .venv
    hand_pip_settings_to_uv .venv/bin/python
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt \
        2> >(grep -v "^WARNING: Location 'file:" >&2)
    local install=(.venv/bin/uv pip install --quiet --python .venv/bin/python --compile-bytecode)
    "${install[@]}" --require-hashes -r "requirements/$kind.txt"
    "${install[@]}" --no-deps --no-build-isolation -e .
    touch "$stamp"
}
