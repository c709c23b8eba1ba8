# Runs once, in POSIX sh, because no other program is certain to exist. Arguments: root, bash, python ("": search).
# One "name=value" per line, after a line that no login script prints by accident.
LC_ALL=C; export LC_ALL
PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH"; export PATH
root=$1 bash=$2 python=$3
say() { printf '%s=%s\n' "$1" "$(printf '%s' "$2" | tr '\n' ' ')"; }
echo hermes-facts-begin
say uid "$(id -u)"
say gid "$(id -g)"
say system "$(uname -s)"
made=$root/hermes-sandbox-try-$$
if complaint=$( (umask 077 && mkdir "$made" && : > "$made/file" && rm -r "$made") 2>&1 ); then
  say root ok
else
  rm -rf "$made" 2>/dev/null
  say root "$complaint"
fi
say bash "$("$bash" -c 'echo "${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]}"' </dev/null 2>/dev/null)"
for candidate in ${python:+"$python"} ${python:-python3 /usr/bin/python3 /usr/local/bin/python3 python}; do
  found=$(command -v "$candidate" 2>/dev/null) || continue
  about=$("$found" -I -S -E -c 'import os,sys;print(*sys.version_info[:2]);print(os.path.realpath(sys.executable))' \
    </dev/null 2>/dev/null) || continue
  say python "$found"
  say python_version "$(echo "$about" | sed -n 1p)"
  say python_real "$(echo "$about" | sed -n 2p)"
  break
done
for tool in bwrap setpriv; do say "$tool" "$(command -v "$tool" 2>/dev/null)"; done
for name in bin sbin lib lib32 lib64 libx32; do
  if [ -L "/$name" ]; then say "/$name" "$(readlink "/$name")"; elif [ -d "/$name" ]; then say "/$name" directory; fi
done
