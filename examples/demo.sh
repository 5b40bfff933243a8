#!/bin/sh
# What `make demo` runs: two minutes of training in short jobs on this machine, then a curve and a film of it.
# The time is fixed, not the number of steps: a slow machine learns less in it, and is done as soon.
set -eu
cd "$(dirname "$0")/.."
run=runs/demo

orchestrator stop --now --config examples/demo.json >/dev/null 2>&1 || true
rm -rf "$run"
# What only the curve and the film need comes meanwhile.
[ -z "${VENV:-}" ] || sh requirements/install.sh "$VENV" show >"$VENV/show.log" 2>&1 &
orchestrator start --config examples/demo.json --for 0:02:00
! kill -0 $! 2>/dev/null || echo "Waiting for what draws the curve and films (${VENV:-}/show.log)."
wait

echo
if ! trainer plot "$run" --out "$run/curve.png"; then
    echo "If no step was made, jobs of 40 seconds are too short for this machine. Try:"
    echo "  . ${VENV:-.venv}/bin/activate"
    echo "  orchestrator start demo --set slurm.time_limit=0:06:00 --set lead_seconds=90"
    exit 1
fi
echo
echo "Filming the trained agent; without a GPU this takes some 10 to 40 seconds."
if trainer play "$run" --episodes 2 --out "$run/film.mp4"; then
    made="curve.png film.mp4"
else
    made="curve.png"
fi

echo
echo "See it as a page: . ${VENV:-.venv}/bin/activate; viewer demo"
if [ "$(uname)" = Darwin ]; then
    opener=open
elif [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ]; then
    opener=xdg-open
else
    echo "This machine has no screen. On one that has, type:"
    for file in $made; do echo "  scp $(id -un)@$(hostname):$PWD/$run/$file ."; done
    exit 0
fi
echo "Open them with:"
for file in $made; do echo "  $opener $PWD/$run/$file"; done
