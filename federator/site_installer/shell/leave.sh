#!/bin/sh
# Take this machine out of the federation: all that join.sh did here, and nothing else.
set -eu
cd "$(dirname "$0")"

usage() {
    cat <<'TXT'
usage: leave.sh [options]

  --apply-includes   also take our marked lines out of sshd_config, slurm.conf, job_submit.lua
  --cancel-jobs      end the federation's jobs that still run, and no others
  --wait SECONDS     wait that long for them to end by themselves (default 0)
  --keep-config      leave /etc/federator as it is
  --slurm-etc DIR    where slurm.conf is (default: what join.sh was told)
  --dry-run          print what would be done, and do nothing

Where a site has several machines: first the controller, then login nodes, then compute nodes.
Ends with 0: done; 64: wrong usage; 75: something must be done first, the message says what;
77: not root. Local users' jobs run on.
TXT
}

# shellcheck source=kit.sh
. ./kit.sh
# SITE, FEDERATION, ACCOUNT, PARTITIONS, LUA_MODULE
# shellcheck disable=SC2153 source=/dev/null
. ./settings.sh

cancel=no
wait_s=0
keep=no
while [ $# -gt 0 ]; do
    case $1 in
        --apply-includes) edit=yes ;;
        --cancel-jobs) cancel=yes ;;
        --wait) wait_s=${2-}; shift ;;
        --keep-config) keep=yes ;;
        --slurm-etc) slurm_etc=${2-}; shift ;;
        --dry-run) dry=yes ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 64 ;;
    esac
    [ $# -gt 0 ] || { usage >&2; exit 64; }
    shift
done
case $wait_s in '' | *[!0-9]*) usage >&2; exit 64 ;; esac
need_root
[ -n "$slurm_etc" ] || slurm_etc=$(noted etc)
slurm_etc=${slurm_etc:-/etc/slurm}
[ -f "$RECORD" ] || { say "$SITE: nothing of join.sh's is here ($RECORD is not there)"; exit 0; }
is() { recorded "role $1"; }

# The federation's jobs, by their comment. It is a user's text, which may have lines of its own, as
# if of other jobs; but not with our word in them.
jobs_there() {
    word=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
    squeue --noheader --format="%A $word %k" 2>/dev/null | awk -v word="$word" '
        $1 ~ /^[0-9]+$/ && $2 == word && $3 ~ /^fed:[0-9]+:[0-9]+$/ { print $1 }' | sort -un
}

# 1. No more work: launches are refused from now on, what runs runs on.
stop_work() {
    if ! slurmctld_answers; then
        say "= slurmctld does not answer; its jobs are not looked at"
        return
    fi
    for partition in $PARTITIONS; do
        keep_state "$partition"
        run scontrol update "PartitionName=$partition" State=DRAIN || true
    done
    [ "$dry" = no ] || return 0
    if [ "$cancel" = yes ]; then
        jobs_there | xargs -r scancel || true
        [ "$wait_s" -gt 60 ] || wait_s=60
    fi
    while jobs=$(jobs_there) && [ -n "$jobs" ] && [ "$wait_s" -gt 0 ]; do
        sleep 1
        wait_s=$((wait_s - 1))
    done
    [ -z "$jobs" ] ||
        die 75 "jobs of the federation: $(printf '%s' "$jobs" | tr '\n' ' '); wait for them (--wait)" \
            "or end them (--cancel-jobs). No new ones start."
}
# keep_state PARTITION - one that the site had before us is to be as it was.
keep_state() {
    if grep -Eiq "^PartitionName=$1([[:space:]]|\$)" "$slurm_etc/federator.conf" 2>/dev/null; then
        return
    fi
    if noted partition | grep -q "^$1 "; then return; fi
    state=$(scontrol show partition "$1" 2>/dev/null | tr ' ' '\n' | sed -n 's/^State=//p')
    case $state in
        UP | DOWN | DRAIN | INACTIVE) record "partition $1 $state" ;;
    esac
}

# 2. The line is cut: the key opens nothing any more, and the agent that is connected ends. A daemon
# on this host may have the same account.
cut_line() {
    run rm -f /etc/federator/authorized_keys /etc/sudoers.d/federator
    if recorded "timer federator-dial.service"; then # or it would dial again
        run systemctl stop federator-dial.service || true
    fi
    if daemon_here; then
        run pkill -KILL -u "$ACCOUNT" -f '/federator agent( |$)' || true
    else
        run pkill -KILL -u "$ACCOUNT" || true
    fi
}
daemon_here() { [ -e /etc/federator/federation.yaml ] || [ -e /var/lib/federator/daemon ]; }

# 3. Files that others own, with lines of ours.
restore() {
    case $1 in
        */slurm.conf)
            awk -v mark="$MARK" '
                tolower($0) ~ /^[ \t]*include[ \t]+([^ \t]*\/)?federator\.conf[ \t]*$/ { next }
                index($0, mark) == 1 { $0 = substr($0, length(mark) + 1) }
                { print }' "$1"
            ;;
        *) sed "/$LUA_MARK\$/d" "$1" ;;
    esac
}
give_back() {
    what=$1
    [ -f "$what" ] || return 0
    case $what in
        *.lua) ! restore "$what" | grep -qF "$LUA_MODULE" ||
            die 75 "$what: take our lines out, which begin with the one that names $LUA_MODULE" ;;
    esac
    restore "$what" | cmp -s - "$what" && return
    if [ "$edit" = no ]; then
        say "$what still has lines of ours:"
        restore "$what" | diff "$what" - | sed 's/^/    /' || true
        die 75 "take them out, or have it done with --apply-includes; then run leave.sh again"
    fi
    say "+ take our lines out of $what"
    [ "$dry" = yes ] && return
    copy=$(backup_of "$what")
    # A last line without its end would have one now; else the copy is what it was.
    if [ -f "$copy" ] && [ "$(restore "$what")" = "$(cat "$copy")" ]; then
        replace "$what" <"$copy"
    else
        restore "$what" | replace "$what"
    fi
    changed_slurm=yes
}
give_back_line() {
    file=${1%% *}
    line=${1#* }
    [ -f "$file" ] && grep -qxF -e "$line" "$file" || return 0
    [ "$edit" = yes ] || die 75 "$file still has the line '$line'; take it out, or have it done" \
        "with --apply-includes; then run leave.sh again"
    say "+ take out of $file: $line"
    [ "$dry" = yes ] && return
    awk -v line="$line" '$0 != line' "$file" | replace "$file"
}

# 4. Everything else, last made first.
take_back() {
    kind=${1%% *}
    what=${1#* }
    case $kind in
        file)
            path=${what% *}
            [ -e "$path" ] || return 0
            [ "$(sum_of "$path")" = "${what##* }" ] || say "= $path was changed here"
            run rm -f "$path"
            ;;
        link) [ ! -L "$what" ] || run rm -f "$what" ;;
        tree) remove_tree "$what" ;;
        dir) [ ! -d "$what" ] || run rmdir --ignore-fail-on-non-empty "$what" ;;
        spool) give_back_spool "$what" ;;
        partition) run scontrol update "PartitionName=${what% *}" "State=${what#* }" || true ;;
        member) drop_member "${what% *}" "${what#* }" ;;
        account) remove_account "$what" ;;
        group) ! getent group "$what" >/dev/null || run groupdel "$what" ;;
        timer) [ ! -d /run/systemd/system ] || run systemctl disable --now "$what" || true ;;
    esac
}
# remove_tree DIR - but for what packages own, and for a daemon's state.
remove_tree() {
    [ -d "$1" ] || return 0
    owned=$(files_of_packages)
    if [ "$1" = /opt/federator ] && [ -z "$owned" ] && daemon_here; then
        leave_to_admin "$1 stays: the daemon on this host may run from it"
    elif [ "$1" = /var/lib/federator ] && [ -e "$1/daemon" ]; then
        run find "$1" -mindepth 1 -maxdepth 1 ! -name daemon -exec rm -rf {} +
    elif printf '%s\n' "$owned" | grep -q "^$1/"; then
        say "+ rm $1/*, but for what packages own"
        [ "$dry" = no ] || return 0
        printf '%s\n' "$owned" >"$scratch/owned"
        find "$1" ! -type d | grep -vxF -f "$scratch/owned" >"$scratch/theirs" || true
        xargs -r -d '\n' rm -f <"$scratch/theirs"
        find "$1" -depth -type d -empty -exec rmdir {} +
    else
        run rm -rf "$1"
    fi
}
files_of_packages() {
    [ -z "$packages" ] || dpkg-query -L $packages 2>/dev/null || rpm -ql $packages 2>/dev/null
}
give_back_spool() {
    [ -d "$1" ] || return 0
    run rm -f "$1/admission.tsv"
    run chown root:root "$1"
}
drop_member() {
    id -nG "$1" 2>/dev/null | tr ' ' '\n' | grep -qxF "$2" || return 0
    run gpasswd --delete "$1" "$2"
}
remove_account() {
    getent passwd "$1" >/dev/null || return 0
    if daemon_here; then
        say "= account $1 stays: the daemon on this host has it"
        return
    fi
    tries=10
    while [ "$dry" = no ] && pkill -KILL -u "$1" && [ "$tries" -gt 0 ]; do
        sleep 0.2 # userdel refuses while one is left
        tries=$((tries - 1))
    done
    run userdel "$1"
    ! getent group "$1" >/dev/null || run groupdel "$1"
}

# A node whose Slurm still looks for programs in a folder that is empty is drained at its next job.
check_unused() {
    for key in Prolog Epilog; do
        case $key in
            Prolog) ours=90-federator-gate ;;
            *) ours=10-federator-release ;;
        esac
        for hook in $(noted file | awk -v name="/$ours" 'index($1, name) { print $1 }'); do
            folder=${hook%/*}
            would_be_empty "$folder" || continue
            now=$(slurm_setting "$key")
            file=$(conf_text "$slurm_etc/slurm.conf" >"$scratch/view" && value_in "$scratch/view" "$key")
            case $now in "$folder"/*) die 75 "slurmctld still has $key=$now: leave on the" \
                "controller first; scontrol reconfigure, if slurm.conf says so no more" ;; esac
            case $file in
                "$folder"/*) [ "$dry" = yes ] || die 75 "$slurm_etc/slurm.conf here still has $key=$file:" \
                    "leave on the controller first, and have every host read the slurm.conf of now" ;;
            esac
            [ -f "$slurm_etc/slurm.conf" ] || slurmctld_answers ||
                die 75 "slurmctld does not answer, and no slurm.conf is here: whether this node's Slurm" \
                    "still runs $folder/* cannot be told"
        done
    done
}
would_be_empty() {
    for entry in "$1"/*; do
        [ -e "$entry" ] || [ -L "$entry" ] || continue
        if [ -n "$(noted_sum "$entry")" ] || recorded "link $entry"; then continue; fi
        return 1
    done
}

say "$SITE leaves $FEDERATION on $(uname -n)"
packages=$({
    dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 'federator-*' ||
        rpm -qa --qf 'ii %{NAME}\n' 'federator-*'
} 2>/dev/null | awk '$1 == "ii" { print $2 }' | tr '\n' ' ' || true)
# A node alone: before anything is changed. Where the controller is, too: when slurm.conf is as before.
is controller || check_unused
is controller && stop_work
is login && cut_line
changed_slurm=no
for file in $(noted merged); do give_back "$file"; done
lines=$(noted line)
while IFS= read -r line; do [ -z "$line" ] || give_back_line "$line"; done <<TXT
$lines
TXT
if [ "$changed_slurm" = yes ] || is controller; then
    reconfigure || die 75 "slurmctld did not take its configuration (see its log); nothing else was" \
        "removed. Run leave.sh again when it has"
fi
! is controller || [ "$dry" = yes ] || check_unused
# Last made first.
steps=$(awk '{ line[NR] = $0 } END { for (i = NR; i > 0; i--) print line[i] }' "$RECORD")
while IFS= read -r step; do
    case "$keep $step" in
        "yes file /etc/federator/"* | "yes dir /etc/federator") continue ;;
    esac
    case $step in "dir /etc/federator") ;; *) take_back "$step" ;; esac
done <<TXT
$steps
TXT
if is login && [ "$dry" = no ]; then
    if [ -d /run/systemd/system ]; then
        systemctl reload ssh.service || systemctl reload sshd.service
    elif [ -f /run/sshd.pid ]; then
        kill -HUP "$(cat /run/sshd.pid)"
    fi
fi
[ ! -d /run/systemd/system ] || run systemctl daemon-reload
ours=no
! recorded "dir /etc/federator" || ours=yes
run rm -rf "$RECORD" "$BACKUPS"
if [ "$ours" = yes ] && [ "$keep" = no ] && [ "$dry" = no ] && [ -d /etc/federator ]; then
    run rmdir --ignore-fail-on-non-empty /etc/federator
    [ ! -d /etc/federator ] || say "= /etc/federator stays: not all that is in it is join.sh's"
fi
# The daemon's packages are no part of what a site joined with.
case " $packages" in
    *" federator-server "*) packages=$(printf '%s' " $packages" | sed 's/ federator-\(server\|common\)\b//g') ;;
esac
dpkg-query -W 'federator-*' >/dev/null 2>&1 && purge='apt-get purge' || purge='dnf remove'
[ -z "${packages## }" ] || leave_to_admin "packages are still installed: $purge $packages"
say "$SITE: left on $(uname -n)"
show_todo
