# Makes or restores a sandbox's directories; POSIX sh. Arguments: root, "new" or "again", user and group ("": the account's).
LC_ALL=C; export LC_ALL
root=$1 when=$2 uid=$3 gid=$4
umask 077
set -e
if [ "$when" = new ]; then mkdir "$root"; else chmod 700 "$root"; fi
for name in workspace home tmp; do
  # A command can have put something else in its place.
  if [ -L "$root/$name" ] || [ ! -d "$root/$name" ]; then rm -f "$root/$name"; mkdir "$root/$name"; fi
done
if [ -n "$uid" ]; then
  printf 'sandbox:x:%s:%s::/home/sandbox:/bin/bash\n' "$uid" "$gid" > "$root/passwd"
  [ "$uid" = 65534 ] || printf 'nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n' >> "$root/passwd"
  printf 'sandbox:x:%s:\n' "$gid" > "$root/group"
  if [ "$(id -u)" != "$uid" ]; then
    chown "$uid:$gid" "$root" "$root/workspace" "$root/home" "$root/tmp" "$root/passwd" "$root/group"
  fi
fi
