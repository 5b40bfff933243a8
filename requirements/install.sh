#!/bin/sh
# install.sh VENV LOCK...: makes VENV with $PYTHON where it has no pip, installs requirements/LOCK.lock for each LOCK into
# it, then this checkout, and prints a line with the time of each; a terminal sees it count. Only wheels whose sums are in
# the lock are taken: no setup.py runs. uv does it where it is found or can be had, else pip; uv is told of the indexes
# that pip's configuration names.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1/bin/python

ticker=
trap '[ -z "$ticker" ] || kill "$ticker"' EXIT
trap 'exit 130' INT TERM
count() {
    [ ! -t 1 ] || printf '\r%-42s' "$stage"
    printf '%s s' "$(($(date +%s) - started))"
}
begin() {
    stage=$1 started=$(date +%s)
    printf '%-42s' "$stage"
    [ ! -t 1 ] || { while sleep 1; do count; done & ticker=$!; }
}
done_() {
    [ -z "$ticker" ] || { kill "$ticker"; wait "$ticker" || ticker=; } 2>/dev/null
    count
    echo
}

if [ ! -x "$1/bin/pip" ]; then
    begin "$1"
    "${PYTHON:-python3}" -m venv "$1"
    done_
fi
shift

pip() { "$python" -m pip --disable-pip-version-check "$@"; }
config=$(pip config list)
told() { printf '%s\n' "$config" | sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | tail -n 1; }

uv=$(command -v uv || echo "${python%/*}/uv")
if [ ! -x "$uv" ]; then
    begin "uv, which installs the rest"
    pip install -qq --no-compile --require-hashes --only-binary :all: --no-deps -r "$here/uv.lock" || uv=
    done_
fi
install() { # install ARGUMENTS: by uv, else by pip
    if [ -n "$uv" ] && "$uv" pip install --quiet --python "$python" "$@"; then return; fi
    pip install -qq --no-compile "$@"
}
export UV_INDEX_STRATEGY=unsafe-best-match # the sums decide, not the index's place in the list
for pair in index-url:UV_DEFAULT_INDEX extra-index-url:UV_INDEX find-links:UV_FIND_LINKS cert:SSL_CERT_FILE; do
    value=$(told "${pair%:*}")
    [ -z "$value" ] || export "${pair#*:}=$value"
done
UV_FIND_LINKS=$(printf %s "${UV_FIND_LINKS:-}" | tr ' ' ,)
export UV_FIND_LINKS

for lock in "$@"; do
    begin "$lock, $(grep -c == "$here/$lock.lock") packages"
    # torch is the one package that people take from elsewhere too (a build for CPUs, a cluster's own wheels), with sums
    # that nobody here knows: where pip is told of other places, it is taken by its version. TORCH=checked insists.
    if [ "$lock" = torch ] && [ "${TORCH:-auto}" != checked ] && [ -n "$(told find-links)$(told extra-index-url)" ]; then
        install -c "$here/../constraints.txt" torch
    else
        install --require-hashes --only-binary :all: --no-deps -r "$here/$lock.lock"
    fi
    done_
done
[ "$*" != show ] || exit 0 # it comes while `make demo` trains, and a job may just be importing
begin anchorleg
install --no-deps --no-build-isolation -e "$here/.."
done_
