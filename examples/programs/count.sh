#!/bin/bash
# Counts to a total over as many jobs as it takes: the whole job contract, in a shell.
total=$1 n=0
[ -z "$ANCHORLEG_PARENT" ] || n=$(<"$ANCHORLEG_PARENT/n")

while [ "$n" -lt "$total" ] && ! [ -e "$ANCHORLEG_HANDOVER_FILE" ]; do
    n=$((n + 1))
    sleep 0.05
done

cd "$ANCHORLEG_ATTEMPT_DIR" && mkdir -p checkpoints/unfinished || exit 1
echo "$n" >checkpoints/unfinished/n && sync checkpoints/unfinished/n || exit 1
mv checkpoints/unfinished "checkpoints/$n" || exit 1
[ "$n" -ge "$total" ] || exit 75
