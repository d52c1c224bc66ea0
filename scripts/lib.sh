# Functions for the other scripts: working directory, messages, packages, the creation of .venv, and what checks keep.
# shellcheck shell=bash

# Remove the caller's settings for Python: without cached bytecode, each of many short processes would compile tfctl
# again, and an unbuffered stdout would hide a missing flush in tfctl.
unset PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

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
    for name in $(printf '%s\n' "$@" | sort -u); do
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} = 0 ] && return 0
    command -v apt-get >/dev/null || die "These packages are missing, and apt-get is not available to install them: ${missing[*]}"
    note "apt-get install ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# programs PROGRAM=PACKAGES...: install the packages of missing programs, or name all that is missing and exit.
# A name with a slash is a file. The program "python" stands for a Python that can make the environment.
programs() {
    local each program absent='' wanted=''
    for each in "$@"; do
        program=${each%%=*}
        if [ "$program" = python ]; then
            find_python >/dev/null && continue
            program="Python 3.11 or newer with its venv module"
        fi
        case $program in
            */*) [ -e "$program" ] && continue ;;
            *) command -v "$program" >/dev/null && continue ;;
        esac
        absent+="${absent:+, }$program"
        wanted+=" ${each#*=}"
    done
    [ -n "$absent" ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        die "Missing: $absent. On Debian or Ubuntu, install them with: sudo apt-get install$wanted"
    fi
    # shellcheck disable=SC2086  # a list of names
    packages $wanted
    find_python >/dev/null || die "Python 3.11 or newer is missing, and this system's packages have none: install one."
}

# Install what the tests need beside the Python packages of requirements/dev.txt.
test_programs() {
    programs 'python=python3 python3-venv' 'cc=gcc libc6-dev' systemd-analyze=systemd apt-get=apt git=git make=make pgrep=procps \
        ssh=openssh-client ssh-agent=openssh-client ssh-keyscan=openssh-client \
        /usr/share/keyrings/debian-archive-bookworm-stable.gpg=debian-archive-keyring
}

# Install what the extended tests need as well: dnf, and what makes packages and repositories for it.
extended_programs() {
    programs dnf=dnf createrepo_c=createrepo-c modifyrepo_c=createrepo-c rpm=rpm rpmbuild=rpm
}

# Install what `tfctl lab` needs on this machine.
lab_packages() {
    if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
        die "A lab needs Linux and root: run this with sudo, on Linux."
    fi
    packages systemd-container mmdebstrap iptables iproute2 openssh-client ca-certificates
}

# Print the first Python that is 3.11 or newer and has the venv module.
find_python() {
    local candidate
    for candidate in python3 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do
        if "$candidate" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))'
            return 0
        fi
    done
    return 1
}

# Pass pip's index and certificates to uv, which does not read pip's configuration.
hand_pip_settings_to_uv() {
    local settings index extra cert
    # Do not use `pip config get`: pip 23.0 (Debian 12) does not find keys that only /etc/pip.conf sets.
    settings=$("$1" -m pip config list 2>/dev/null || true)
    index=${PIP_INDEX_URL:-$(pip_setting index-url)}
    extra=${PIP_EXTRA_INDEX_URL:-$(pip_setting extra-index-url)}
    cert=${PIP_CERT:-$(pip_setting cert)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    [ -z "$extra" ] || export UV_INDEX="${UV_INDEX:-$extra}"
    [ -z "$cert" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$cert}"
    # Like pip, take the best version from all indexes. The hashes protect against wrong files.
    export UV_INDEX_STRATEGY=unsafe-best-match
}

# pip_setting NAME: print a global setting from $settings, which `pip config list` prints as Python strings.
pip_setting() {
    sed -n "s/^global\.$1='\(.*\)'$/\1/p" <<<"$settings" | sed 's/\\n/ /g'
}

# environment run|dev: create .venv with tfctl as an editable install. Create it again if its inputs have changed.
environment() {
    local kind=$1 python digest stamp
    digest=$(cat pyproject.toml "requirements/uv.txt" "requirements/$kind.txt" | cksum | tr ' ' -)
    stamp=.venv/.tfctl-$kind-$digest
    [ -e "$stamp" ] && return 0
    # A .venv for development can also run tfctl.
    [ "$kind" = run ] && compgen -G '.venv/.tfctl-dev-*' >/dev/null && environment dev && return 0
    python=$(find_python) ||
        die "Python 3.11 or newer with its venv module is missing. On Debian 12: apt-get install python3 python3-venv"
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

# Have temporary files in memory, if there is room for them and programs there can be executed: tests create thousands of
# small files, which some file systems take long for. Sets $memory to the directory; the caller deletes it.
in_memory() {
    [ -z "${TMPDIR:-}" ] || return 0
    [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 2000000 ] || return 0
    memory=$(mktemp -d /dev/shm/tfctl.XXXX) || return 0
    chmod 755 "$memory"
    printf '#!/bin/sh\n' >"$memory/executable"
    chmod 755 "$memory/executable"
    ! "$memory/executable" 2>/dev/null || export TMPDIR=$memory
}

# Set $cache to the directory of what checks keep for later runs, of any checkout with the same Python and the same
# packages. Delete what has not been used for longest.
open_cache() {
    local base=${XDG_CACHE_HOME:-~/.cache}/tfctl-tests
    cache=$base/$({ .venv/bin/python -VV; cat requirements/dev.txt; } | sha256sum | head -c 16)
    mkdir -p "$cache/passed"
    touch "$cache"
    keep_newest 3 "$base"
    keep_newest 100 "$cache/passed"
}

# keep_newest COUNT DIRECTORY: delete all other entries of a directory.
keep_newest() {
    find "$2" -mindepth 1 -maxdepth 1 -printf '%T@ %p\0' | sort -zrn | tail -zn "+$(($1 + 1))" | cut -zd ' ' -f 2- |
        xargs -0r rm -rf
}

# once CHECK COMMAND...: run a command, unless it has passed when all that the check depends on was as it is now.
once() {
    local proof
    proof=$(proof_of "$@") || return 1
    is_proven "$1" "$proof" && return
    "${@:2}" || return 1
    prove "$proof" "$@"
}

# proof_of CHECK [WORD...]: print the path of the file that says that the check has passed with these words and with the
# contents that all files on which it depends have now.
proof_of() {
    local digest
    digest=$(.venv/bin/python -m scripts.affected digest "$@") || return 1
    printf '%s\n' "$cache/passed/$(basename "$1")-$digest"
}

# is_proven CHECK PROOF: whether the file exists; if so, say it.
is_proven() {
    [ -e "$2" ] || return 1
    touch "$2"
    note "$1: nothing that it depends on has changed since it passed"
}

# prove PROOF CHECK [WORD...]: create the file, unless what the check depends on has changed meanwhile.
prove() {
    [ "$(proof_of "${@:2}")" != "$1" ] || touch "$1"
}

# in_one_file PATH...: whether the tests with these paths are in a single file.
in_one_file() {
    local path
    for path; do
        [ "${path%%::*}" = "${1%%::*}" ] || return 1
    done
    [ -f "${1%%::*}" ]
}
