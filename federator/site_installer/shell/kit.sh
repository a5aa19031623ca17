# shellcheck shell=sh disable=SC2034  # variables that the scripts use
# What join.sh and leave.sh share. Each act is printed, done unless it is a dry run, and noted in
# RECORD, so that leave.sh takes back what join.sh did on this machine and nothing else.
#
# A line of RECORD is a kind, a blank, and what it is of:
#   role R | tree DIR | dir DIR | file PATH SHA256 | link PATH | line FILE LINE | merged FILE
#   account NAME | group NAME | member USER GROUP | timer UNIT | etc DIR | hooks everywhere |
#   spool DIR | partition NAME STATE
# "timer" is any unit of systemd. "tree" was not there before; "merged" has lines that are marked as ours, or is to be given them by
# hand; "etc" is where slurm.conf is; "spool" was root's; "partition" is the site's own.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
LC_ALL=C
export LC_ALL
umask 022

RECORD=/etc/federator/joined
BACKUPS=/etc/federator/before
MARK='#federator# ' # before a line of slurm.conf that ours takes the place of
LUA_MARK='-- federator'

me=${0##*/}
dry=no
edit=no
slurm_etc=
todo=

say() { printf '%s\n' "$*"; }
die() {
    status=$1
    shift
    printf '%s: %s\n' "$me" "$*" >&2
    exit "$status"
}

# What only the admin can do; shown once more at the end.
leave_to_admin() {
    todo="$todo
  * $*"
}
show_todo() {
    [ -z "$todo" ] || say "
Left for you to do:$todo"
}

# run COMMAND… - prints it, and runs it unless this is a dry run.
run() {
    say "+ $*"
    [ "$dry" = yes ] || "$@"
}

# A temporary file beside FILE: its name begins with a dot, so that no folder whose programs Slurm
# runs (prolog.d/*) has one more of them, whatever happens.
unfinished=
new_beside() {
    unfinished=$(dirname "$1")/.${1##*/}.federator-new
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; [ -z "$unfinished" ] || rm -f "$unfinished"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

need_root() {
    [ "$(id -u)" = 0 ] || die 77 "run it as root: it makes accounts and files of root's"
}

sum_of() { sha256sum "$1" | cut -d ' ' -f 1; }

recorded() { [ -f "$RECORD" ] && grep -qxF -e "$*" "$RECORD"; }
record() {
    [ "$dry" = yes ] && return
    recorded "$*" || printf '%s\n' "$*" >>"$RECORD"
}
# forget PREFIX - removes the lines that begin with it.
forget() {
    [ "$dry" = yes ] && return
    [ -f "$RECORD" ] || return 0
    awk -v prefix="$*" 'index($0, prefix) != 1' "$RECORD" >"$RECORD.new"
    mv "$RECORD.new" "$RECORD"
}
# noted KIND - what the record has of a kind, a line each.
noted() {
    [ -f "$RECORD" ] || return 0
    awk -v kind="$1" '$1 == kind { sub(/^[^ ]* /, ""); print }' "$RECORD"
}
# noted_sum PATH - the digest a file of ours had when it was put in place; nothing if not ours.
noted_sum() {
    [ -f "$RECORD" ] || return 0
    awk -v path="$1" '$1 == "file" && $2 == path { print $3 }' "$RECORD"
}

of_a_package() { dpkg-query -S "$1" >/dev/null 2>&1 || rpm -qf "$1" >/dev/null 2>&1; }

# replace FILE - puts standard input in FILE's place in one step, with FILE's owner and mode.
replace() {
    target=$(readlink -f "$1")
    new_beside "$target"
    cp -p "$target" "$unfinished" || return
    cat >"$unfinished" && mv "$unfinished" "$target"
}

backup_of() { printf '%s/%s\n' "$BACKUPS" "$(printf '%s' "$1" | tr / _)"; }
# keep_backup FILE - a copy of what it was before our first edit, for the admin's peace of mind.
keep_backup() {
    copy=$(backup_of "$1")
    [ -e "$copy" ] && return
    run mkdir -p -m 0700 "$BACKUPS"
    run cp -p "$1" "$copy"
}

# value_in FILE KEY - what a key of slurm.conf is set to; nothing if it is not. Any case will do.
value_in() {
    awk -v key="$2" '
        /^[ \t]*[A-Za-z0-9_]+[ \t]*=/ {
            name = $0; sub(/[ \t]*=.*/, "", name); sub(/^[ \t]*/, "", name)
            if (tolower(name) != tolower(key)) next
            value = $0; sub(/^[^=]*=[ \t]*/, "", value); sub(/[ \t]*(#.*)?$/, "", value)
            found = value
        }
        END { print found }' "$1"
}

# conf_text FILE [site] - slurm.conf with what it includes, in Slurm's order; "site": as it was before
# us. Slurm looks for a file that is included without a whole path beside slurm.conf.
conf_text() {
    [ -f "$1" ] || return 0
    awk -v top="$1" -v mark="${2:+$MARK}" '
        function show(file, depth,    line, word) {
            while ((getline line <file) > 0) {
                split(line, word, /[ \t]+/)
                if (word[1] == "") { word[1] = word[2]; word[2] = word[3] }
                if (mark != "" && index(line, mark) == 1) line = substr(line, length(mark) + 1)
                if (tolower(word[1]) != "include") print line
                else if (mark != "" && word[2] ~ /(^|\/)federator\.conf$/) continue
                else if (depth < 8) show(word[2] ~ /^\// ? word[2] : folder word[2], depth + 1)
            }
            close(file)
        }
        BEGIN { folder = top; sub(/[^\/]*$/, "", folder); show(top, 0) }'
}

slurmctld_answers() { timeout 10 scontrol ping >/dev/null 2>&1; }

# slurm_setting KEY - what slurmctld says; nothing if it does not answer, or has no value.
slurm_setting() {
    command -v scontrol >/dev/null 2>&1 || return 0
    timeout 10 scontrol show config 2>/dev/null | awk -v key="$1" '
        { name = $1; sub(/\[[0-9]+\]$/, "", name) }
        name == key && $2 == "=" { sub(/^[^=]*= ?/, ""); if ($0 != "(null)") print }'
}

# Fails where slurmctld refuses its configuration.
reconfigure() {
    if slurmctld_answers; then
        run scontrol reconfigure
    else
        leave_to_admin "slurmctld does not answer here: have it, and every slurmd, read slurm.conf"
    fi
}
