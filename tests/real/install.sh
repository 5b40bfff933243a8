#!/bin/sh
# Installs what the tests need (Debian, Ubuntu): Slurm with slurmdbd, munge, charliecloud, podman, mmdebstrap; sshd, rsync,
# plistutil, systemd-analyze; OSMesa to draw without a screen; Chromium; git, a C compiler. No daemon is started
# for good.
# Already there: nothing is done. Without root, apt or a package: says so and ends with 0, except where CI=true.
set -u

packages=''
need() { # need PACKAGE COMMAND
    command -v "$2" >/dev/null 2>&1 || [ -x "${SBIN:-/usr/sbin}/$2" ] || packages="$packages $1"
}
need slurmctld slurmctld
need slurmd slurmd
need slurm-client sbatch
need munge munged
need charliecloud ch-run
need podman podman
need runc runc
need mmdebstrap mmdebstrap
need slurmdbd slurmdbd
need mariadb-server mariadbd
need openssh-server sshd
need openssh-client ssh
need rsync rsync
need libplist-utils plistutil
need systemd systemd-analyze
need chromium chromium
need git git
need gcc cc
# What is compiled from source includes it.
echo '#include <stdlib.h>' | cc -E - >/dev/null 2>&1 || packages="$packages libc6-dev"
# MuJoCo draws through it where there is no GPU and no screen.
[ -n "$(find /usr/lib -name 'libOSMesa.so.8*' 2>/dev/null)" ] || packages="$packages libosmesa6"
# A newcomer's account on a cluster makes a virtual environment with the system's Python.
/usr/bin/python3 -c 'import ensurepip' >/dev/null 2>&1 || packages="$packages python3-venv"
# ch-image, which builds an image, is a program for Debian's own Python.
/usr/bin/python3 -c 'import lark, requests' 2>/dev/null || packages="$packages python3-lark python3-requests"
# slurmdbd's way to its database is a plugin without a command.
[ -n "$(find /usr/lib -name accounting_storage_mysql.so 2>/dev/null)" ] || packages="$packages slurm-wlm-mysql-plugin"

if [ -z "$packages" ]; then
    echo 'install: everything that the tests on real parts need is already here'
    exit 0
fi

give_up() {
    echo "install: $1; not installed:$packages. The tests that need these will be skipped." >&2
    [ "${CI:-}" = true ] && exit 1
    exit 0
}

command -v apt-get >/dev/null 2>&1 || give_up 'there is no apt-get here'
sudo=''
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true >/dev/null 2>&1 || give_up 'root is needed'
    sudo='sudo -n'
fi

# The packages' own services (another Slurm, another munge) are not wanted: the tests start theirs.
policy=/usr/sbin/policy-rc.d
mark='# of Anchorleg: tests/real/install.sh'
if [ ! -e "$policy" ] || grep -qxF "$mark" "$policy"; then
    # Also after Ctrl-C: with it left behind no package of this machine could start its service again.
    trap '$sudo rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\n%s\nexit 101\n' "$mark" | $sudo tee "$policy" >/dev/null && $sudo chmod 755 "$policy"
fi
install() { # what apt has; the rest is in $unknown: apt-get takes all or none, and Ubuntu's Chromium is a snap
    known='' unknown=''
    for package in $packages; do
        if [ -n "$(apt-cache show "$package" 2>/dev/null)" ]; then
            known="$known $package"
        else
            unknown="$unknown $package"
        fi
    done
    # shellcheck disable=SC2086 # a list of words
    [ -z "$known" ] || $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q \
        --no-install-recommends $known
}
install
result=$?
if [ "$result" -ne 0 ] || [ -n "$unknown" ]; then # its lists may be old, or not there yet
    $sudo apt-get -o DPkg::Lock::Timeout=300 update -q
    install
    result=$?
fi
[ "$result" -eq 0 ] || give_up 'apt-get failed'
packages=$unknown
[ -z "$packages" ] || give_up 'apt has no such package here'
echo "install: done:$known"
