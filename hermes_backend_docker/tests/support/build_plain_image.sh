#!/bin/bash
# Makes an image that has neither Python nor bash: Debian's busybox-static, and a link for each of its programs.
# usage: build_plain_image.sh NAME:TAG     takes less than a second and needs apt-get, dpkg-deb, tar and an engine
set -euo pipefail
name=${1:?usage: build_plain_image.sh NAME:TAG}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,dev,etc,proc,root,run,sys,tmp}
chmod 1777 "$root/tmp"

apt-cache show busybox-static >/dev/null 2>&1 || apt-get update -qq
(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download busybox-static)
dpkg-deb --fsys-tarfile "$work"/busybox-static_*.deb | tar -x -O ./bin/busybox >"$root/bin/busybox"
chmod 755 "$root/bin/busybox"
# Not onto itself: `busybox` is one of its programs as well.
for program in $("$root/bin/busybox" --list); do
    [ "$program" = busybox ] || ln -s busybox "$root/bin/$program"
done
printf '%s\n' root:x:0:0:root:/root:/bin/sh agent:x:1001:1001::/:/bin/sh >"$root/etc/passwd"
printf '%s\n' root:x:0: agent:x:1001: >"$root/etc/group"
# Never tagged "latest": engines ask a registry about those.
tar -C "$root" -c . | docker import -c 'ENV PATH=/bin FROM_IMAGE=yes' -c 'CMD ["sh"]' - "$name"
