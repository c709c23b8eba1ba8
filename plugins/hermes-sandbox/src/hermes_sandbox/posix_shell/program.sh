# The shell that serves a sandbox without Python. It is trusted, and talks to the caller over its standard input and
# output. Commands get neither of them: the output of a command goes through separate pipes and is sent with its length.
# It uses only what each POSIX system has. It kills without a program, because in a fork bomb no process can be started.
#
# requests   hello NONCE NAME UID GID FOLDER BLOCKS PROCESSES | run NONCE ID TOKEN LIMIT SCRIPT INPUT, then that many
#            bytes of each | kill NONCE ID | restart NONCE
# answers    one line of 255 characters: NONCE KIND ..., for `done` the captured bytes after it
set -f
umask 077
IFS=' 
'
loader=$1
self=$$
runners=' '
served=

answer() { printf '%-255.255s\n' "$*"; }
# Only one process at a time writes to the caller: the one that has read the line from this pipe.
turn() { read -r _ <&5; }
pass() { echo >&5; }

leave() {
    forget
    [ "$self" = 1 ] || rm -rf "$d"
    exit 1
}

# Kill all remaining processes of all commands. PID 1 reaches all others with one call.
forget() {
    if [ "$self" = 1 ]; then
        kill -9 -1 2>/dev/null
    else
        set +f
        for round in 1 2 3 4 5; do
            prey=
            for file in $(grep -l -F "HERMES_SANDBOX=$name." /proc/[0-9]*/environ 2>/dev/null); do
                pid=${file#/proc/}
                prey="$prey ${pid%/environ}"
            done
            [ "$prey" ] || break
            kill -9 $prey 2>/dev/null
        done
        [ "$runners" = ' ' ] || kill -9 $runners 2>/dev/null
        set -f
    fi
}

# pull SIZE FILE HAVE: append the data of one read of the standard input to a file of HAVE bytes, and set `pulled` to
# their number. The number comes from the output of dd, which saves a process, unless this dd does not print it.
pull() {
    wrote=
    # If no process can be forked, a shell exits unless the failure is that of `command`; in that case nothing was read.
    # Each failed `$(...)` leaks its pipe, so dd writes to an existing pipe.
    while [ -z "$wrote" ]; do
        command eval '(exec dd bs="$1" count=1 2>&7 >>"$2"); wrote=$?'
    done
    echo >&7
    pulled=
    while read -r number unit rest <&7 && [ "$number" ]; do
        case $unit in byte | bytes) pulled=$number ;; esac
    done
    [ "$wrote" = 0 ] || return 1
    case $pulled in
    '' | *[!0-9]*)
        counted=
        while [ -z "$counted" ]; do
            command eval '(exec wc -c <"$2" >&7); counted=$?'
        done
        echo >&7
        read -r pulled <&7 && [ "$pulled" ] && read -r rest <&7
        pulled=$((${pulled:-0} - $3))
        ;;
    esac
}

# take COUNT FILE: read exactly that many bytes of the input. A read of a pipe can return fewer bytes than requested.
take() {
    got=0
    : >|"$2"
    while [ "$got" -lt "$1" ]; do
        want=$(($1 - got))
        [ "$want" -le 65536 ] || want=65536
        pull "$want" "$2" "$got" || leave
        [ "$pulled" -gt 0 ] || leave
        got=$((got + pulled))
    done
}

# Exit with 3 if the files contain the token that comes by the pipe, else with 0.
look='read -r token <&7; case $(cat "$@" 2>/dev/null) in *"$token"*) exit 3 ;; esac; exit 0'

# collect PREFIX LIMIT TOKEN: keep the first and the last bytes of the standard input, and count the others. It ends
# with the input, or at the token that is written to the pipe after the command, in case other processes keep the pipe
# open.
collect() {
    head=0 last=0 before=0 dropped=0 failed=0 new=a old=b
    : >|"$1.h"
    : >|"$1.a"
    : >|"$1.b"
    exec 7<>"$1.n"
    ring=$2
    [ "$ring" -ge 4096 ] || ring=4096
    while :; do
        size=65536 file=$new have=$last
        if [ "$head" -lt "$2" ]; then
            file=h have=$head size=$(($2 - head))
            [ "$size" -le 65536 ] || size=65536
        fi
        pull "$size" "$1.$file" "$have" || { failed=1; break; }
        [ "$pulled" -gt 0 ] || break
        if [ "$file" = h ]; then head=$((head + pulled)); else last=$((last + pulled)); fi
        if [ -e "$1.end" ]; then
            held=
            # A separate shell does this: if a subshell could not fork, it would continue here. It gets the token by a
            # pipe, because other processes can see an argument.
            until [ "$held" = 0 ] || [ "$held" = 3 ]; do
                command eval '(echo "$3" >&7; exec "$sh" -c "$look" sh "$1.h" "$1.$old" "$1.$new"); held=$?'
            done
            if [ "$held" = 3 ]; then
                # Processes that keep the pipe open can continue to write.
                exec 4<&0
                command eval 'cat <&4 >/dev/null 2>&1 &'
                break
            fi
        fi
        if [ "$last" -ge "$ring" ]; then
            dropped=$((dropped + before)) before=$last last=0
            file=$old old=$new new=$file
            : >|"$1.$new"
        fi
    done
    echo "$head $before $last $dropped $failed $old $new" >|"$1.s"
}

# launch SCRIPT: become the command. The process limit is set here, so that it does not apply to the serving shell.
launch() {
    HERMES_SANDBOX=$name.$id.
    export HERMES_SANDBOX
    [ "$most" = - ] || ulimit "$which" "$most"
    case $as in
    setpriv) exec $session setpriv --reuid="$uid" --regid="$gid" --clear-groups "$sh" "$1" ;;
    su) exec $session su -s "$sh" -c "exec $sh $1" "$user" ;;
    *) exec $session "$sh" "$1" ;;
    esac
}

# serve: run $id and send its output.
serve() {
    collect "$p.o" "$limit" "$token" <"$p.out" >/dev/null &
    first=$!
    collect "$p.e" "$limit" "$token" <"$p.err" >/dev/null &
    second=$!
    (launch "$p.run") <"$p.in" >"$p.out" 2>"$p.err" 5>&- 7>&- &
    leader=$!
    echo "$leader" >"$p.led"
    wait "$leader"
    code=$?
    : >|"$p.o.end"
    : >|"$p.e.end"
    # Opened for reading and writing, which does not block, even if the reader has ended.
    printf '\n%s\n' "$token" 1<>"$p.out"
    printf '\n%s\n' "$token" 1<>"$p.err"
    wait "$first"
    wait "$second"
    read -r h b l dropped failed old new <"$p.o.s"
    files="$p.o.h $p.o.$old $p.o.$new"
    sizes="$failed $h $b $l $dropped"
    read -r h b l dropped failed old new <"$p.e.s"
    files="$files $p.e.h $p.e.$old $p.e.$new"
    turn
    # One process sends the line and the bytes after it, so that neither is sent without the other.
    sent=2
    while [ "$sent" = 2 ]; do
        command eval '(answer "$nonce done $code $sizes $failed $h $b $l $dropped"; exec cat $files)'
        sent=$?
    done
    pass
    for part in run in out err led o.h o.a o.b o.n o.s o.end e.h e.a e.b e.n e.s e.end; do files="$files $p.$part"; done
    rm -f $files
}

# fields FILE: read a process's state, parent, group, session and start time. Its name can contain any characters.
fields() {
    line=
    while IFS= read -r piece; do line="$line $piece"; done 2>/dev/null <"$1"
    set -- ${line##*) }
    [ $# -ge 20 ] || return 0
    state=$1 parent=$2 group=$3 sid=$4
    shift 19
    start=$1
}

# hunt LEADER START: find the existing processes that a command has started. If this shell is PID 1, each process that
# has lost its parent since the start belongs to the command; elsewhere the marker in its environment decides. The first
# case forks no process, because the process limit can be reached.
hunt() {
    prey=
    kin=" $1 "
    set +f
    list=$(echo /proc/[0-9]*/stat)
    set -f
    marked=' '
    if [ "$self" != 1 ]; then
        set +f
        for file in $(grep -l -F "HERMES_SANDBOX=$name.$3." /proc/[0-9]*/environ 2>/dev/null); do
            pid=${file#/proc/}
            marked="$marked${pid%/environ} "
        done
        set -f
    fi
    grown=1
    while [ "$grown" ]; do
        grown=
        for file in $list; do
            pid=${file#/proc/}
            pid=${pid%/stat}
            case $kin in *" $pid "*) continue ;; esac
            case $runners in *" $pid "*) continue ;; esac
            [ "$pid" != "$self" ] || continue
            start=
            fields "$file"
            [ "$start" ] || continue
            found=
            case $kin in *" $parent "*) found=1 ;; esac
            case $marked in *" $pid "*) found=1 ;; esac
            if [ "$sid" = "$1" ] || [ "$group" = "$1" ]; then found=1; fi
            if [ "$self" = 1 ] && [ "$parent" -le 1 ]; then
                # Start times are coarse: within the same tick, the list of earlier processes decides.
                if [ "$start" -gt "$2" ]; then found=1; fi
                case $there in *" /proc/$pid "*) ;; *) [ "$start" -lt "$2" ] || found=1 ;; esac
            fi
            if [ "$found" ]; then
                kin="$kin$pid "
                grown=1
            fi
        done
    done
    for pid in $kin; do
        state=Z
        fields "/proc/$pid/stat"
        [ "$state" = Z ] || prey="$prey $pid"
    done
}

slay() {
    eval "leader=\${leader_$1-} began=\${began_$1-} there=\${there_$1-}"
    [ "$leader" ] || return
    round=0
    while [ "$round" -lt 200 ]; do
        hunt "$leader" "$began" "$1"
        [ "$prey" ] || return
        kill -9 $prey 2>/dev/null
        round=$((round + 1))
    done
}

# Forget the pids of processes that have ended, because other processes can get them.
prune() {
    runners=' ' kept=
    for pair in $served; do
        if [ -e "$d/${pair%:*}.led" ]; then
            kept="$kept $pair" runners="$runners${pair#*:} "
        else
            unset "leader_${pair%:*}" "began_${pair%:*}" "there_${pair%:*}"
        fi
    done
    served=$kept
}

# Find out how to become the commands' user.
become() {
    as=none
    [ "$uid" != - ] && [ "$uid" != "$(id -u)" ] || return 0
    if [ "$(setpriv --reuid="$uid" --regid="$gid" --clear-groups id -u 2>/dev/null)" = "$uid" ]; then
        as=setpriv
        return
    fi
    user=
    while IFS=: read -r one two three rest; do [ "$three" != "$uid" ] || user=$one; done 2>/dev/null </etc/passwd
    if ! [ "$user" ]; then
        user=hermes
        echo "$user:x:$uid:$gid::/:$sh" 2>/dev/null >>/etc/passwd
    fi
    [ "$(su -s "$sh" -c 'id -u' "$user" 2>/dev/null)" != "$uid" ] || { as=su; return; }
    return 1
}

# as_user TEXT: replace this shell by one of the commands' user that runs the text.
as_user() {
    if [ "$as" = su ]; then exec su -s "$sh" -c "$1" "$user"; fi
    exec setpriv --reuid="$uid" --regid="$gid" --clear-groups "$sh" -c "$1"
}

# fits COUNT: succeed if the commands' user can run a program with this process limit.
fits() { (ulimit "$which" "$1" && as_user :) 2>/dev/null; }

# ask: set `had` to the number of processes of the commands' user; fail if no limit applies to that user. Processes in
# other sandboxes are not visible here, so the kernel is asked: with one more process of that user running, this finds
# the lowest limit with which another one can run.
ask() {
    mkfifo "$d/in" "$d/up" || return 1
    (as_user 'echo; read _' 2>/dev/null) <"$d/in" >"$d/up" &
    exec 6>"$d/in"
    read -r _ <"$d/up"
    low=0 high=1
    until fits "$high" || [ "$high" -gt 4194304 ]; do low=$high high=$((high * 2)); done
    while [ $((high - low)) -gt 1 ]; do
        middle=$(((low + high) / 2))
        if fits "$middle"; then high=$middle; else low=$middle; fi
    done
    had=$low
    fits 0
    held=$?
    exec 6>&-
    wait "$!"
    rm -f "$d/in" "$d/up"
    [ "$held" != 0 ] && [ "$high" -le 4194304 ]
}

# look: set `had` to the number of processes of this shell's own user; fail if no limit applies to that user.
look() {
    me=$(id -u)
    had=0
    words=$IFS
    IFS=$IFS$(printf '\t')
    set +f
    set -- $(grep -h -e '^Uid:' -e '^Threads:' /proc/[0-9]*/status 2>/dev/null)
    set -f
    IFS=$words
    while [ $# -ge 7 ]; do
        [ "$2" != "$me" ] || had=$((had + $7))
        shift 7
    done
    [ "$me" != 0 ]
}

# Find the process limit: each command starts with the limit `most`, which counts all processes of its user. dash and
# some versions of busybox use another letter for it than all other shells.
settle() {
    bound=- which=-p
    [ "$most" != - ] || return 0
    ! (ulimit -u) >/dev/null 2>&1 || which=-u
    if [ "$as" = none ]; then look; else ask; fi
    held=$?
    case $most in
    +*) most=$((had + ${most#+})) bound=more ;;
    *) bound=own ;;
    esac
    [ "$held" = 0 ] && (ulimit "$which" "$most") 2>/dev/null || { most=- bound=none; }
}

prepare() {
    for base in "$folder" /run /tmp; do
        d=$base/.hermes-$name
        # The directory from before a restart can still exist, because it can belong to another user.
        while [ -e "$d" ]; do d=$d+; done
        [ -d "$base" ] && mkdir -m 711 "$d" 2>/dev/null && mkfifo "$d/turn" "$d/said" && break
        d=
    done
    [ "$d" ] && mkdir "$d/u" || return 1
    [ "$as" = none ] || chown "$uid:$gid" "$d/u"
}

read -r op nonce name uid gid folder blocks most || exit 1
[ "$op" = hello ] || exit 1
[ "$folder" != - ] || folder=
sh=$(command -v sh)
case $sh in
/*) ;;
*) for sh in /usr/bin/sh /bin/sh; do [ ! -x "$sh" ] || break; done ;; # busybox prints its own programs without a path
esac
session=$(command -v setsid)
ulimit -c 0 2>/dev/null
[ "$blocks" = - ] || ulimit -f "$blocks"
become || { answer "$nonce no-user"; exit 1; }
prepare || { answer "$nonce no-folder"; exit 1; }
exec 5<>"$d/turn" 7<>"$d/said"
pass
settle
answer "$nonce ready $self $as $d $bound"

while read -r op nonce id token limit script input; do
    case $op in
    run)
        prune
        p=$d/$id
        set +f
        set -- /proc/[0-9]*
        set -f
        there=" $* "
        take "$script" "$p.run"
        take "$input" "$p.in"
        chmod 644 "$p.run"
        mkfifo "$p.out" "$p.err" "$p.led" "$p.o.n" "$p.e.n" || leave
        serve 2>/dev/null </dev/null &
        runner=$!
        runners="$runners$runner " served="$served $id:$runner"
        read -r leader <"$p.led"
        start=0
        fields "/proc/$leader/stat"
        eval "leader_$id=$leader began_$id=$start there_$id=\$there"
        ;;
    kill)
        # No output is sent meanwhile: the process limit can prevent the process that sends it.
        turn
        slay "$id"
        answer "$nonce killed$prey"
        pass
        ;;
    restart)
        forget
        rm -rf "$d"
        exec env -i PATH="$PATH" LC_ALL=C "$sh" -c 'eval "$1"' hermes "$loader"
        ;;
    *) leave ;;
    esac
done
leave
