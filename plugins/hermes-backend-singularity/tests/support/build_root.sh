#!/bin/bash
# Unpacks a small Debian with bash, coreutils and Python into a folder, from the packages of this machine's own Debian.
# usage: build_root.sh DIR     takes a few seconds and needs apt-get, dpkg-deb and tar
set -euo pipefail
root=${1:?usage: build_root.sh DIR}
debs=$(mktemp -d)
trap 'rm -rf "$debs"' EXIT
mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done

apt-cache show bash >/dev/null 2>&1 || apt-get update -qq
wanted=(bash coreutils findutils grep gzip procps python3 sed tar util-linux)
# What they need, and no more: the closure of their dependencies, without what only maintains a system.
needed=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
    "${wanted[@]}" | grep -E '^[a-z0-9]' | sort -u | grep -vE '^(debconf|dpkg|perl.*|passwd|login|media-types|tzdata|libpam.*|debianutils|base-files)(:|$)')
# apt-get would fail on a virtual package, of which the real one is listed as well.
real=$(apt-cache show --no-all-versions $needed 2>/dev/null | sed -n 's/^Package: //p' | sort -u)
(cd "$debs" && apt-get -qq -o APT::Sandbox::User=root download $real)
for package in "$debs"/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -C "$root" -x --keep-directory-symlink \
        --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*'
done

cd "$root"
mkdir -p dev etc home/agent proc root run sys tmp var/tmp workspace
chmod 1777 tmp var/tmp
printf '%s\n' root:x:0:0:root:/root:/bin/bash agent:x:1000:1000::/home/agent:/bin/bash \
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin >etc/passwd
printf '%s\n' root:x:0: agent:x:1000: nogroup:x:65534: >etc/group
ln -sf bash usr/bin/sh
[ -e usr/bin/python3 ] || ln -s "$(basename "$(ls usr/bin/python3.* | head -n 1)")" usr/bin/python3
