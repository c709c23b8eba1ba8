#!/bin/sh
# Prints the first Python >= 3.11 on PATH; $PYTHON, when set, is the only candidate.
# Every candidate is started: a pyenv shim exists for versions that are not active and then fails.
set -eu

found=""
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
    version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        command -v "$candidate"
        exit 0
    fi
    found="$found $candidate=$version"
done

{
    echo "error: Python 3.11 or newer is needed; found:${found:- none} (looked for: ${PYTHON:-python3, python3.11 to python3.14})."
    echo "hint: on Debian or Ubuntu: apt-get install python3 python3-venv"
    echo "hint: or name one: make PYTHON=/path/to/python3.12 ..."
} >&2
exit 1
