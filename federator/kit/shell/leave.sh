#!/bin/sh
# Take this machine out of the federation: all that join.sh did here, and nothing else.
set -eu
cd "$(dirname "$0")"

usage() {
    cat <<'TXT'
usage: leave.sh [options]

  --apply-includes   also take our marked lines out of sshd_config, slurm.conf, job_submit.lua
  --cancel-jobs      end jobs that still run in the federation's partitions
  --wait SECONDS     wait that long for them to end by themselves (default 0)
  --keep-config      leave /etc/federator as it is
  --slurm-etc DIR    where slurm.conf is (default /etc/slurm)
  --dry-run          print what would be done, and do nothing

Where a site has several machines: first the controller, then login nodes, then compute nodes.
Ends with 0: done; 64: wrong usage; 75: something must be done first, the message says what;
77: not root. Local users' jobs run on.
TXT
}

# shellcheck source=kit.sh
. ./kit.sh
# SITE, FEDERATION, ACCOUNT, PARTITIONS
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
    shift
done
case $wait_s in '' | *[!0-9]*) usage >&2; exit 64 ;; esac
need_root
[ -f "$RECORD" ] || { say "$SITE: nothing of join.sh's is here ($RECORD is not there)"; exit 0; }
is() { recorded "role $1"; }

jobs_there() { squeue --noheader --format=%A --partition="$(list "$PARTITIONS")" 2>/dev/null; }
list() { printf '%s' "$*" | tr ' ' ','; }

# 1. No more work: launches are refused from now on, what runs runs on.
stop_work() {
    if ! timeout 10 scontrol ping >/dev/null 2>&1; then
        say "= slurmctld does not answer; its jobs are not looked at"
        return
    fi
    for partition in $PARTITIONS; do
        run scontrol update "PartitionName=$partition" State=DRAIN || true
    done
    [ "$dry" = no ] || return 0
    if [ "$cancel" = yes ]; then
        run scancel --partition="$(list "$PARTITIONS")"
        [ "$wait_s" -gt 60 ] || wait_s=60
    fi
    while [ -n "$(jobs_there)" ] && [ "$wait_s" -gt 0 ]; do
        sleep 1
        wait_s=$((wait_s - 1))
    done
    [ -z "$(jobs_there)" ] ||
        die 75 "jobs in partition $PARTITIONS: $(jobs_there | tr '\n' ' '); wait for them (--wait)" \
            "or end them (--cancel-jobs). No new ones start."
}

# 2. The line is cut: the key opens nothing any more, and the agent that is connected ends.
cut_line() {
    run rm -f /etc/federator/authorized_keys /etc/sudoers.d/federator
    agent=$(cat /var/lib/federator/lock 2>/dev/null || true)
    case $agent in
        '' | *[!0-9]*) ;;
        *) if [ "$(stat -c %U "/proc/$agent" 2>/dev/null)" = "$ACCOUNT" ]; then
            run kill "$agent" || true
        fi ;;
    esac
}

# 3. Files that others own, with lines of ours.
restore() {
    case $1 in
        */slurm.conf) sed -e '/^Include federator\.conf$/d' -e "s/^$MARK//" "$1" ;;
        *) sed "/$LUA_MARK\$/d" "$1" ;;
    esac
}
give_back() {
    what=$1
    [ -f "$what" ] || return 0
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
        tree) [ ! -d "$what" ] || run rm -rf "$what" ;;
        dir) [ ! -d "$what" ] || run rmdir --ignore-fail-on-non-empty "$what" ;;
        member) drop_member "${what% *}" "${what#* }" ;;
        account) remove_account "$what" ;;
        group) ! getent group "$what" >/dev/null || run groupdel "$what" ;;
        timer) [ ! -d /run/systemd/system ] || run systemctl disable --now "$what" || true ;;
    esac
}
drop_member() {
    id -nG "$1" 2>/dev/null | tr ' ' '\n' | grep -qxF "$2" || return 0
    run gpasswd --delete "$1" "$2"
}
remove_account() {
    getent passwd "$1" >/dev/null || return 0
    tries=10
    while [ "$dry" = no ] && pkill -KILL -u "$1" && [ "$tries" -gt 0 ]; do
        sleep 0.2 # userdel refuses while one is left
        tries=$((tries - 1))
    done
    run userdel "$1"
    ! getent group "$1" >/dev/null || run groupdel "$1"
}

# A node whose Slurm still looks for our folders would find none, and fail jobs.
check_unused() {
    is compute || return 0
    is controller && return
    for key in Prolog Epilog; do
        lower=$(printf '%s' "$key" | tr '[:upper:]' '[:lower:]')
        slurm_setting "$key" | grep -qF "$slurm_etc/$lower.d/" || continue
        recorded "dir $slurm_etc/$lower.d" || continue
        die 75 "Slurm still has $key=$slurm_etc/$lower.d/*: leave on the controller first"
    done
}

in_record() { awk -v kind="$1" '$1 == kind { sub(/^[^ ]* /, ""); print }' "$RECORD"; }

say "$SITE leaves $FEDERATION on $(uname -n)"
check_unused
is controller && stop_work
is login && cut_line
changed_slurm=no
for file in $(in_record merged); do give_back "$file"; done
lines=$(in_record line)
while IFS= read -r line; do [ -z "$line" ] || give_back_line "$line"; done <<TXT
$lines
TXT
[ "$changed_slurm" = no ] || reconfigure
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
case $steps in *"dir /etc/federator"*) ours=yes ;; *) ours=no ;; esac
run rm -rf "$RECORD" "$BACKUPS"
[ "$ours" = no ] || [ "$keep" = yes ] || run rm -rf /etc/federator
if command -v dpkg-query >/dev/null 2>&1; then
    packages=$(dpkg-query -W -f '${Package} ' 'federator-*' 2>/dev/null || true)
    [ -z "$packages" ] || leave_to_admin "packages are still installed: apt-get purge $packages"
fi
say "$SITE: left on $(uname -n)"
show_todo
