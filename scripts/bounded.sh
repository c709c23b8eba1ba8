#!/usr/bin/env bash
# Runs a command with an upper bound on the processes below it, so that a runaway test cannot take the machine down.
#   bounded.sh [-p MAX] COMMAND [ARGUMENT ...]      MAX: 3000 unless given; threads count
# Past the bound, fork fails for what is below the command and for nothing else: by a pids control group where one can be
# made (cgroup v1 or v2), else by `ulimit -u`, MAX above what the user has now. When the command ends, or this script is
# killed, everything that is left below it is killed. Inside another bounded.sh it only runs the command.
set -euo pipefail
max=3000
[ "${1:-}" = -p ] && { max=$2; shift 2; }
[ $# -gt 0 ] || { sed -n 2,6p "$0"; exit 2; }
[ -z "${HERMES_BOUNDED:-}" ] || exec "$@"
# In the environment of the command and all below it, not of what this script itself starts.
mark="HERMES_BOUNDED=$$-$RANDOM$RANDOM"

# Prints the folders below which a group may be made: that of this process, and the one above, which cgroup v2 demands.
list_places() {
    local own
    if [ -d /sys/fs/cgroup/pids ]; then
        own=$(sed -n 's/^[0-9]*:pids://p' /proc/self/cgroup)
        printf '%s\n' "/sys/fs/cgroup/pids$own" /sys/fs/cgroup/pids
    else
        own=$(sed -n 's/^0:://p' /proc/self/cgroup)
        printf '%s\n' "/sys/fs/cgroup${own%/*}" "/sys/fs/cgroup$own"
    fi
}

# Tries the group with room for one process: where that one can fork, the files are there and bound nothing.
group_holds() {
    local code=0
    { echo 1 >"$group/pids.max"; } 2>/dev/null || return 1
    timeout 2 sh -c 'echo $$ >"$1/cgroup.procs" || exit 3; (exit 0); exit 4' sh "$group" 2>/dev/null || code=$?
    [ "$code" != 3 ] && [ "$code" != 4 ] && echo "$max" >"$group/pids.max"
}

group=
# Leaves the group's folder in `group`, or nothing where none holds.
make_group() {
    local place
    for place in $(list_places); do
        group="$place/bounded-$$"
        mkdir "$group" 2>/dev/null || continue
        group_holds && return
        rmdir "$group"
    done
    group=
    return 1
}

# Prints what is left: the group with all below it, else whatever has the mark of this run in its environment.
list_left() {
    if [ -n "$group" ]; then
        find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null
    else
        grep -lzs "^$mark\$" /proc/[0-9]*/environ | grep -o '[0-9]*'
    fi
}

end_all() {
    local pids
    [ -z "$group" ] || echo 0 >"$group/pids.max" || true
    for _ in {1..100}; do
        pids=$(list_left || true)
        [ -n "$pids" ] || break
        # shellcheck disable=SC2086 # one word a process
        kill -KILL $pids 2>/dev/null || true
        sleep 0.1
    done
    [ -z "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
}

limit=
if ! make_group; then
    now=$(find /proc/[0-9]*/task -mindepth 1 -maxdepth 1 -user "$(id -u)" 2>/dev/null | wc -l || true)
    limit=$((now + max))
    [ "$(id -u)" -ne 0 ] || echo "bounded.sh: no pids control group holds here and root has no other bound:" \
        "run this as another user, or where control groups can be written" >&2
fi

# It waits for the end of this script, whatever that is, and outlives it.
exec {alive}> >(trap '' HUP INT TERM; cat >/dev/null; end_all)
watcher=$!
finish() {
    exec {alive}>&-
    # After a signal bash no longer knows its child.
    wait "$watcher" 2>/dev/null || while kill -0 "$watcher" 2>/dev/null; do sleep 0.05; done
}
trap finish EXIT

# In the command's own process: the watcher has to fork when the bound is reached. A lower limit that was there stays.
enter() {
    exec {alive}>&-
    if [ -n "$group" ]; then
        echo "$BASHPID" >"$group/cgroup.procs"
    else
        ulimit -u "$limit" 2>/dev/null || true
    fi
}

code=0
(enter && exec env "$mark" "$@") || code=$?
exit "$code"
