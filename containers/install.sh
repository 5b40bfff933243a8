#!/bin/sh
# What goes into the image. The Dockerfile and the Apptainer definition both call this, as root, in /opt/anchorleg:
#   install.sh system VARIANT          Debian's packages: OSMesa to draw without a screen, a C compiler for the stepper,
#                                      with VARIANT=cuda EGL too (the GPU's driver itself comes from the machine)
#   install.sh python VARIANT WHEELS   the locked versions (constraints.txt), in /opt/venv. WHEELS: a folder, or a page of
#                                      links, with wheels that PyPI does not have; "none" without
#   install.sh packages                our own packages
set -eu

variant=${2:-}
if [ "$1" != packages ] && [ "$variant" != cpu ] && [ "$variant" != cuda ]; then
    echo "install.sh: VARIANT is '$variant'; use cpu or cuda" >&2
    exit 2
fi

case $1 in
system)
    packages='gcc libc6-dev libosmesa6'
    [ "$variant" = cpu ] || packages="$packages libegl1 libgl1 libopengl0"
    apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages
    rm -rf /var/lib/apt/lists/*
    if [ "$variant" = cuda ]; then
        # The machine's driver brings libEGL_nvidia.so.0 with it, and not always this file, which says to use it.
        mkdir -p /usr/share/glvnd/egl_vendor.d
        printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}\n' \
            >/usr/share/glvnd/egl_vendor.d/10_nvidia.json
    fi
    ;;
python)
    python3 -m venv /opt/venv
    # Not in /tmp: Apptainer has the building machine's there, and others may build beside.
    /opt/venv/bin/python - >/opt/venv/requirements.txt <<'END'
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
print(*project["dependencies"], *project["optional-dependencies"]["trainer"], sep="\n")
END
    wheels=${3:-none}
    [ "$wheels" = none ] || export PIP_FIND_LINKS="$wheels"
    /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check -c constraints.txt \
        -r /opt/venv/requirements.txt
    rm /opt/venv/requirements.txt
    built=$(/opt/venv/bin/python -c 'import torch; print("cuda" if torch.version.cuda else "cpu")')
    if [ "$built" != "$variant" ]; then
        echo "install.sh: VARIANT is $variant, and pip found a torch for $built; name a folder or a page with the other" \
            "wheels as WHEELS" >&2
        exit 1
    fi
    ;;
packages)
    # The build's own needs (hatchling) are locked by the same file.
    PIP_CONSTRAINT=constraints.txt /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --no-deps .
    ;;
*)
    echo "install.sh: '$1' is none of system, python and packages" >&2
    exit 2
    ;;
esac
