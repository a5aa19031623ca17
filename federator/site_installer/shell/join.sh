#!/bin/sh
# Set this machine up for the federation: accounts, files, folders; or show what that would take.
# It may be run again at any time: after an upgrade, or when something was changed by mistake.
set -eu
cd "$(dirname "$0")"

usage() {
    cat <<'TXT'
usage: join.sh --role login|controller|compute|all [options]

  --role ROLE         what this machine is; repeatable. all: the site is this machine. login: where the agent runs and researchers
                      submit; controller: slurmctld's host; compute: a node
  --without PART,...  leave out: lua (admission), spank (options for sbatch), gate, epilog, watch
  --hooks-on-all-nodes  controller: have Slurm run prolog.d and epilog.d. Every host of the site with
                      a slurmd, lent or not, must have run --role compute first (and the image that
                      nodes are installed from): one without these folders is drained at its next job
  --apply-includes    also edit sshd_config, slurm.conf, job_submit.lua, in lines that are marked
  --slurm-etc DIR     where slurm.conf is (default /etc/slurm, or what was given before)
  --python PATH       Python 3.11 or later for the agent (default python3)
  --dry-run           print what would be done, and do nothing

Ends with 0: done; 64: wrong usage; 69: something is missing; 73: a file is there that is not ours;
77: not root. leave.sh takes back all of it.
TXT
}

# shellcheck source=kit.sh
. ./kit.sh
# SITE, FEDERATION, VERSION, ACCOUNT, GROUP, USERS, PARTITIONS, SPOOL_DIR, LUA_MODULE
# shellcheck disable=SC2153 source=/dev/null
. ./settings.sh

roles=
without=
work=$scratch
python=python3
all_nodes=no
while [ $# -gt 0 ]; do
    case $1 in
        --role)
            case ${2-} in
                all) roles="login controller compute" all_nodes=yes ;;
                login | controller | compute) roles="$roles $2" ;;
                *) usage >&2; exit 64 ;;
            esac
            shift
            ;;
        --without) without="$without,${2-}"; shift ;;
        --hooks-on-all-nodes) all_nodes=yes ;;
        --apply-includes) edit=yes ;;
        --slurm-etc) slurm_etc=${2-}; shift ;;
        --python) python=${2-}; shift ;;
        --dry-run) dry=yes ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 64 ;;
    esac
    [ $# -gt 0 ] || { usage >&2; exit 64; }
    shift
done
[ -n "$roles" ] || { usage >&2; exit 64; }
[ -n "$slurm_etc" ] || slurm_etc=$(noted etc)
slurm_etc=${slurm_etc:-/etc/slurm}
! recorded "hooks everywhere" || all_nodes=yes
edit_conf=$edit
case $slurm_etc in /*) ;; *) die 64 "--slurm-etc: give an absolute path" ;; esac
need_root

wanted() { case ",$without," in *",$1,"*) return 1 ;; esac; }
is() { case " $roles " in *" $1 "*) ;; *) return 1 ;; esac; }

# make_dir PATH MODE OWNER - with what is missing above it.
make_dir() {
    [ -d "$1" ] && return
    above=$(dirname "$1")
    [ -d "$above" ] || make_dir "$above" 0755 root
    run install -d -m "$2" -o "$3" -g "$3" "$1"
    record "dir $1"
}
own_tree() {
    [ -d "$1" ] && return
    make_dir "$(dirname "$1")" 0755 root
    run install -d -m "$2" -o "$3" -g "$3" "$1"
    record "tree $1"
}

# put_file SOURCE PATH MODE POLICY - "conf" is the admin's once it is there; "code" is replaced.
put_file() {
    if [ -e "$2" ] || [ -L "$2" ]; then
        noted=$(noted_sum "$2")
        if of_a_package "$2"; then
            cmp -s "$1" "$2" || say "= $2 is of a package"
            return
        fi
        if cmp -s "$1" "$2"; then
            # Noted on each machine that shares the folder, so that each can upgrade it.
            note_file "$2" "$(sum_of "$1")"
            return
        fi
        [ -n "$noted" ] || die 73 "$2 is there already and is not ours; move it away first"
        if [ "$4" = conf ] && [ "$(sum_of "$2")" != "$noted" ]; then
            say "= $2 was changed here; it stays (ours is $PWD/$1)"
            return
        fi
    fi
    make_dir "$(dirname "$2")" 0755 root
    note_file "$2" "$(sum_of "$1")" # first: a file that is there and not noted would stop us
    new_beside "$2"
    run install -m "$3" -o root -g root "$1" "$unfinished"
    run mv "$unfinished" "$2"
}
note_file() {
    recorded "file $1 $2" && return
    forget "file $1 "
    record "file $1 $2"
}
put_link() {
    [ "$(readlink "$2" || true)" = "$1" ] && return
    [ ! -e "$2" ] || { say "= $2 is there already"; return; }
    make_dir "$(dirname "$2")" 0755 root
    run ln -s "$1" "$2"
    record "link $2"
}

# The files of files.txt that this machine's roles and parts want.
put_files() {
    while read -r for_roles part policy mode path; do
        mine=no
        for role in $(printf '%s' "$for_roles" | tr , ' '); do is "$role" && mine=yes; done
        if [ "$mine" = no ] || ! wanted "$part"; then continue; fi
        case $path in
            /etc/systemd/system/*)
                ! [ -e "/usr/lib/systemd/system/${path##*/}" ] || continue # of federator-node
                target=$path
                ;;
            /usr/local/share/*)
                ! [ -e /usr/share/man/man1/fsqueue.1.gz ] || continue # of federator-common
                target=$path
                ;;
            /etc/slurm/prolog.d/*) target=$(hook_dir Prolog prolog.d)/${path##*/} ;;
            /etc/slurm/epilog.d/*) target=$(hook_dir Epilog epilog.d)/${path##*/} ;;
            /etc/slurm/*) target=$slurm_etc${path#/etc/slurm} ;;
            *) target=$path ;;
        esac
        put_file "files$path" "$target" "$mode" "$policy"
    done <files.txt
}

# byte_code DIR - so that no prolog, and no request of the agent, has to compile.
byte_code() {
    [ "$dry" = no ] && [ -d "$1" ] || return 0
    for source in "$1"/*.py; do
        ! of_a_package "$source" || return 0 # it has made its own when it was installed
    done
    # Byte code that is there already may be another Python's, of a host that shares the folder.
    record "tree $1/__pycache__"
    /usr/bin/python3 -m compileall -q "$1" >/dev/null 2>&1 || true
}

# ---- login ----

make_accounts() {
    getent group "$GROUP" >/dev/null || { run groupadd --system "$GROUP"; record "group $GROUP"; }
    if ! getent passwd "$ACCOUNT" >/dev/null; then
        # A password of "*" matches none; "!" would lock the account for sshd as well. Its home is
        # root's: nothing in it can loosen what the key may do.
        run useradd --system --user-group --shell /bin/sh --password '*' \
            --home-dir /etc/federator --no-create-home "$ACCOUNT"
        record "account $ACCOUNT"
    else
        check_account
    fi
    slurm_user=$(site_value SlurmUser)
    slurm_user=${slurm_user%%(*}
    slurm_user=${slurm_user:-slurm}
    least=$(awk '$1 == "UID_MIN" { print $2 }' /etc/login.defs 2>/dev/null || true)
    for user in $USERS; do
        uid=$(getent passwd "$user" | cut -d : -f 3)
        if [ -n "$uid" ] && { [ "$uid" -lt "${least:-1000}" ] || [ "$uid" = 65534 ] ||
            [ "$user" = "$slurm_user" ]; }; then
            leave_to_admin "user $user of the federation is an account of the system here (UID $uid):" \
                "it is not let in"
        elif [ -z "$uid" ]; then
            say "= no user $user here; when there is: usermod --append --groups $GROUP $user"
        elif ! id -nG "$user" | tr ' ' '\n' | grep -qxF "$GROUP"; then
            run usermod --append --groups "$GROUP" "$user"
            record "member $user $GROUP"
        fi
    done
}

# An account that was there already, of the daemon's package for one, may be locked for sshd.
check_account() {
    case $(getent passwd "$ACCOUNT" | cut -d : -f 7) in
        */nologin | */false)
            leave_to_admin "sshd does not let $ACCOUNT in: usermod --shell /bin/sh $ACCOUNT"
            ;;
    esac
    case $(getent shadow "$ACCOUNT" | cut -d : -f 2) in
        !*) leave_to_admin "sshd does not let $ACCOUNT in: usermod --password '*' $ACCOUNT" ;;
    esac
}

check_programs() {
    has=$(/opt/federator/bin/federator --version 2>/dev/null || true)
    [ "${has##* }" != "$VERSION" ] || return 0
    set -- wheels/federator-*.whl
    [ -e "$1" ] || die 69 "the programs are missing: install the package federator-site, or" \
        "put wheels into $PWD/wheels (README.txt says how)"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die 69 "$python: Python 3.11 or later is needed; name one with --python"
}

install_programs() {
    if [ "${has##* }" = "$VERSION" ]; then
        say "= the programs are there ($has)"
    else
        set -- wheels/pip-*.whl
        if [ -e "$1" ]; then
            run "$python" -m venv --without-pip /opt/federator
            pip=$1/pip
        else
            run "$python" -m venv /opt/federator
            pip="-m pip"
        fi
        # shellcheck disable=SC2086  # two words, or one without blanks
        run /opt/federator/bin/python $pip --disable-pip-version-check install --quiet --no-index \
            --find-links wheels --upgrade federator
    fi
    for name in federator fsbatch fsalloc fsrun fsqueue fscancel fscontrol fsinfo fsacct fseff fsprio fsshare; do
        put_link "/opt/federator/bin/$name" "/usr/local/bin/$name"
    done
}

make_folders() {
    own_tree /run/federator 0755 "$ACCOUNT"
    own_tree /var/lib/federator 0700 "$ACCOUNT"
    [ -n "$SPOOL_DIR" ] || return 0
    own_spool
    [ "$dry" = no ] || return 0
    own_tree "$SPOOL_DIR/tickets" 0711 "$ACCOUNT"
    own_tree "$SPOOL_DIR/leases" 1733 "$ACCOUNT"
    own_tree "$SPOOL_DIR/usage" 1733 "$ACCOUNT"
}
# A file system that is mounted there is root's at first, and the agent must write into it.
own_spool() {
    own_tree "$SPOOL_DIR" 0755 "$ACCOUNT"
    [ -d "$SPOOL_DIR" ] || return 0 # a dry run
    owner=$(stat -c %U "$SPOOL_DIR")
    [ "$owner" != "$ACCOUNT" ] || return 0
    if [ "$owner" = root ] && [ -z "$(find "$SPOOL_DIR" -mindepth 1 ! -name lost+found -print -quit)" ]; then
        run chown "$ACCOUNT:$ACCOUNT" "$SPOOL_DIR"
        record "spool $SPOOL_DIR"
    else
        leave_to_admin "$SPOOL_DIR is $owner's: the agent, as $ACCOUNT, must be able to write into it"
    fi
}

# The dialler has yet to be given a key, and the daemons' hosts: it is the admin's to enable.
tell_dialler() {
    [ -e files/etc/systemd/system/federator-dial.service ] || return 0
    if [ -d /run/systemd/system ]; then
        run systemctl daemon-reload
        record "timer federator-dial.service"
        run systemctl try-restart federator-dial.service
    fi
    leave_to_admin "this site dials the daemon, from one login node, or from several that share" \
        "state_dir: its key and the daemons' hosts in /etc/federator/agent.yaml, then there:" \
        "systemctl enable --now federator-dial"
}

check_sudo() {
    command -v visudo >/dev/null 2>&1 || die 69 "sudo is missing"
    visudo -cqf files/etc/sudoers.d/federator || die 70 "visudo does not like our rule"
}

tell_sshd() {
    config=/etc/ssh/sshd_config
    line='Include /etc/ssh/sshd_config.d/federator.conf'
    if ! [ -f "$config" ]; then
        leave_to_admin "$config is not there: have your sshd read sshd_config.d/federator.conf"
    elif grep -Eiq '^[[:space:]]*Include[[:space:]]+/etc/ssh/sshd_config\.d/(\*|federator)\.conf' \
        "$config"; then
        say "= sshd reads sshd_config.d"
    elif [ "$edit" = yes ]; then
        keep_backup "$config"
        say "+ first line of $config: $line"
        [ "$dry" = yes ] || { say "$line" && cat "$config"; } | replace "$config"
        record "line $config $line"
    else
        leave_to_admin "first line of $config: $line"
    fi
    [ "$dry" = yes ] && return
    sshd -t || die 70 "sshd does not like its configuration; nothing was reloaded"
    sshd -T -C "user=$ACCOUNT,host=localhost,addr=127.0.0.1" 2>/dev/null | lets_in ||
        leave_to_admin "sshd's AllowUsers, DenyUsers and the like must let $ACCOUNT in"
    reload_sshd
}
# sshd names one user or group on each line; the account has a group of its own name.
lets_in() {
    awk -v account="$ACCOUNT" '
        { key = tolower($1) }
        key ~ /^allow(users|groups)$/ { limited[key] = 1 }
        key ~ /^(allow|deny)(users|groups)$/ {
            for (i = 2; i <= NF; i++) if ($i == account || $i == "*") named[key] = 1
        }
        END {
            for (key in limited) if (!(key in named)) exit 1
            exit ("denyusers" in named) || ("denygroups" in named)
        }'
}
reload_sshd() {
    if [ -d /run/systemd/system ]; then
        run systemctl reload ssh.service || run systemctl reload sshd.service
    elif [ -f /run/sshd.pid ]; then
        run kill -HUP "$(cat /run/sshd.pid)"
    else
        leave_to_admin "have sshd read its configuration"
    fi
}

# ---- controller ----

generation() {
    slurm=$(sinfo --version 2>/dev/null | awk '{ print $2 }')
    [ -n "$slurm" ] || die 69 "Slurm's commands are not in $PATH"
    printf '%s\n' "$slurm" | awk -F. '{
        n = $1 * 100 + $2
        print (n >= 2605 ? "26.05" : n >= 2411 ? "24.11" : "22.05")
    }'
}

configure_slurm() {
    conf=$slurm_etc/slurm.conf
    [ -f "$conf" ] || die 69 "$conf is not there; see --slurm-etc"
    snippet=slurm/$(generation).conf
    [ -f "$snippet" ] || die 69 "$PWD/$snippet is missing: render the kit without --slurm"
    : >"$work/by_hand"
    sed "s#/etc/slurm/#$slurm_etc/#" "$snippet" >"$work/snippet"
    if ! wanted lua; then drop_setting JobSubmitPlugins; fi
    if ! wanted gate; then
        drop_setting Prolog
        drop_setting PrologFlags
    fi
    if ! wanted epilog; then drop_setting Epilog; fi
    if [ "$all_nodes" = no ]; then
        drop_setting Prolog
        drop_setting Epilog
    fi
    awk -v ours="$work/ours" -v theirs="$work/theirs" -v by_hand="$work/by_hand" \
        -f slurm-conf.awk "$work/snippet" "$conf"
    while read -r line; do leave_to_admin "$line"; done <"$work/by_hand"
    # What we cannot change is not to be set a second time: as without --apply-includes.
    [ ! -s "$work/by_hand" ] || edit_conf=no
    tell_of_hooks
    for partition in $PARTITIONS; do
        { cat "$work/ours"; conf_text "$conf" site; } | grep -Eiq "^[[:space:]]*PartitionName=$partition([[:space:]]|\$)" ||
            die 69 "no partition $partition: choose its nodes in $PWD/$snippet"
    done
    check_nodes
    record "merged $conf" # also if a person is to do it: leave.sh looks whether it was done
    if cmp -s "$work/theirs" "$conf" && cmp -s "$work/ours" "$slurm_etc/federator.conf"; then
        say "= slurm.conf is as it should be"
        return
    fi
    if [ "$edit_conf" = no ] && ! cmp -s "$work/theirs" "$conf"; then
        say "= $slurm_etc/federator.conf as it would be:"
        sed 's/^/    /' "$work/ours"
        leave_to_admin "slurm.conf: --apply-includes makes this change (then have all of Slurm's" \
            "hosts read it):"
        todo="$todo
$(diff "$conf" "$work/theirs" | grep '^[<>]' | sed 's/^/      /')"
    fi
    say "+ write $slurm_etc/federator.conf"
    note_file "$slurm_etc/federator.conf" "$(sum_of "$work/ours")"
    [ ! -f "$slurm_etc/federator.conf" ] || cp -p "$slurm_etc/federator.conf" "$work/ours.before"
    if [ "$dry" = no ]; then
        new_beside "$slurm_etc/federator.conf"
        install -m 0644 "$work/ours" "$unfinished"
        mv "$unfinished" "$slurm_etc/federator.conf"
    fi
    [ "$edit_conf" = yes ] || return 0
    keep_backup "$conf"
    say "+ slurm.conf: $(diff "$conf" "$work/theirs" | grep '^>' | tr '\n' ' ')"
    cp -p "$conf" "$work/theirs.before"
    [ "$dry" = yes ] || replace "$conf" <"$work/theirs"
    reconfigure || take_it_back
}
drop_setting() { sed -i "/^$1=/s/^/#/" "$work/snippet"; }
# slurmctld refused it, and would not start with it either.
take_it_back() {
    replace "$conf" <"$work/theirs.before"
    if [ -f "$work/ours.before" ]; then
        replace "$slurm_etc/federator.conf" <"$work/ours.before"
        note_file "$slurm_etc/federator.conf" "$(sum_of "$work/ours.before")"
    else
        rm -f "$slurm_etc/federator.conf"
        forget "file $slurm_etc/federator.conf "
    fi
    scontrol reconfigure || true
    die 70 "slurmctld did not take its configuration (see its log); slurm.conf is as it was"
}
# A folder that a slurmd does not find, or finds empty, drains its node at the next job.
tell_of_hooks() {
    if [ "$all_nodes" = yes ]; then
        record "hooks everywhere"
        return
    fi
    for key in Prolog Epilog; do
        case $key$(site_value "$key") in
            *\*) continue ;;
            Prolog*) wanted gate || continue ;;
            Epilog*) wanted epilog || continue ;;
        esac
        line=$(grep "^#$key=" "$work/ours") || continue
        leave_to_admin "Slurm does not run our ${line#\#} yet. When join.sh --role compute has run on" \
            "every host with a slurmd, lent or not, and on the image that nodes are installed from:" \
            "join.sh --role controller --hooks-on-all-nodes"
        return
    done
}
# Slurm refuses a configuration whose partition has a node that it does not know.
check_nodes() {
    slurmctld_answers || return 0
    nodes=$(awk '/^PartitionName=/ { for (i = 2; i <= NF; i++) if (sub(/^Nodes=/, "", $i)) print $i }' "$work/ours")
    for list in $nodes; do
        [ "$list" = ALL ] || timeout 10 scontrol show node "$list" >/dev/null 2>&1 ||
            die 69 "Slurm does not know all of the nodes $list: choose them in $PWD/$snippet"
    done
}

tell_lua() {
    script=$slurm_etc/job_submit.lua
    put_lua
    # slurmctld looks at this file alone; a new module is loaded when it changes.
    if [ -e "$script" ] && [ -n "$(find "$LUA_MODULE" -newer "$script" 2>/dev/null)" ]; then
        run touch "$script"
    fi
}
put_lua() {
    if ! [ -e "$script" ]; then
        put_file files/opt/federator/share/job_submit/job_submit.lua "$script" 0644 code
        return
    fi
    if [ -n "$(noted_sum "$script")" ]; then
        put_file files/opt/federator/share/job_submit/job_submit.lua "$script" 0644 code
    elif grep -q 'share/job_submit/federator.lua' "$script"; then
        say "= $script takes in our module"
        record "merged $script"
    elif [ "$edit" = no ]; then
        leave_to_admin "$script is yours; it takes in our module with these lines:"
        todo="$todo
$(sed 's/^/      /' job_submit-lines.lua)"
        record "merged $script" # leave.sh looks whether it was done
    elif ! lua_headers_are_plain "$script"; then
        leave_to_admin "$script: its functions begin in another way than" \
            "'function slurm_job_submit(a, b, c)' on a line alone; put in by hand:"
        todo="$todo
$(sed 's/^/      /' job_submit-lines.lua)"
        record "merged $script"
    else
        keep_backup "$script"
        say "+ three lines into $script, each marked '$LUA_MARK'"
        [ "$dry" = yes ] || awk -v mark="$LUA_MARK" -v module="$LUA_MODULE" -f job-submit.awk \
            "$script" >"$work/lua"
        [ "$dry" = yes ] || replace "$script" <"$work/lua"
        record "merged $script"
    fi
}
lua_headers_are_plain() {
    [ "$(grep -Ec '^function slurm_job_(submit|modify) *\([a-z_, ]+\) *$' "$1")" = 2 ]
}

# ---- wherever jobs are submitted or run ----

tell_spank() {
    stack=$slurm_etc/plugstack.conf
    built=files/opt/federator/lib/slurm/spank_federator.so
    plugin=/opt/federator/lib/slurm/spank_federator.so
    if [ -e "$built" ]; then put_file "$built" "$plugin" 0644 code; fi
    if ! [ -e "$plugin" ]; then
        say "= no $plugin: sbatch gets no --fed options (README.txt says how to build it)"
    fi
    if grep -Eq '^[[:space:]]*include[[:space:]].*plugstack\.conf\.d/\*' "$stack" 2>/dev/null; then
        put_file files/etc/slurm/plugstack.conf.d/federator.conf \
            "$slurm_etc/plugstack.conf.d/federator.conf" 0644 code
    elif ! [ -e "$stack" ]; then
        put_file files/etc/slurm/plugstack.conf.d/federator.conf "$stack" 0644 code
    elif grep -qF "$plugin" "$stack"; then
        say "= plugstack.conf names our plugin"
    elif [ "$edit" = yes ]; then
        keep_backup "$stack"
        line=$(cat files/etc/slurm/plugstack.conf.d/federator.conf)
        say "+ last line of $stack: $line"
        [ "$dry" = yes ] || { cat "$stack" && say "$line"; } | replace "$stack"
        record "line $stack $line"
    else
        leave_to_admin "last line of $stack: $(cat files/etc/slurm/plugstack.conf.d/federator.conf)"
    fi
}

# ---- compute ----

# site_value KEY - what the site itself has set: in slurm.conf, or told by a configless slurmctld.
site_value() {
    if [ -f "$slurm_etc/slurm.conf" ]; then
        conf_text "$slurm_etc/slurm.conf" site >"$scratch/view"
        value_in "$scratch/view" "$1"
    else
        slurm_setting "$1"
    fi
}
# hook_dir KEY DEFAULT - the folder whose programs Slurm runs.
hook_dir() {
    case $(site_value "$1") in
        */\*) found=$(site_value "$1") && printf '%s\n' "${found%/\*}" ;;
        *) printf '%s\n' "$slurm_etc/$2" ;;
    esac
}

# A site with one program has it moved beside ours, by a link.
link_own_hook() {
    old=$(site_value "$1")
    case $old in
        '' | '(null)' | */\* | "$slurm_etc/$2/"*) return 0 ;;
        *[*?[]*) leave_to_admin "$1=$old in slurm.conf: link each of these programs into $slurm_etc/$2" ;;
        /*) put_link "$old" "$slurm_etc/$2/50-site" ;;
        *) leave_to_admin "$1=$old in slurm.conf: link it into $slurm_etc/$2" ;;
    esac
}

# A file that is not to be run fails every prolog, once Slurm runs all that is in its folder.
check_hooks() {
    folder=$(hook_dir "$1" "$2")
    for hook in "$folder"/*; do
        [ ! -e "$hook" ] || [ -x "$hook" ] ||
            leave_to_admin "$hook is not executable: Slurm would drain this node for it; take it away"
    done
    case $(slurm_setting "$1") in
        "$folder"/\*) [ "$dry" = yes ] || [ -n "$(ls "$folder" 2>/dev/null)" ] ||
            die 69 "Slurm runs $folder/*, which would be empty here: leave out the same parts everywhere" ;;
    esac
}

start_watch() {
    wanted watch || return 0
    if [ -d /run/systemd/system ]; then
        run systemctl daemon-reload
        run systemctl enable --now fed-watch.timer
        record "timer fed-watch.timer"
    else
        say "= no systemd here: run /opt/federator/libexec/fed-watch every minute by other means"
    fi
}

say "$SITE joins $FEDERATION:$roles on $(uname -n)"
if ! [ -e "$RECORD" ]; then
    # First of all, so that whatever happens then leave.sh knows of it.
    own_federator=no
    [ -d /etc/federator ] || own_federator=yes
    run install -d -m 0755 /etc/federator
    [ "$own_federator" = no ] || record "dir /etc/federator"
fi
for role in $roles; do record "role $role"; done
forget "etc "
record "etc $slurm_etc"
if is login; then
    check_sudo
    check_programs
fi
own_tree /opt/federator 0755 root
put_files
byte_code /opt/federator/libexec/fednode
byte_code /opt/federator/libexec/fedsite
if is compute; then
    ! wanted gate || link_own_hook Prolog prolog.d
    ! wanted epilog || link_own_hook Epilog epilog.d
    check_hooks Prolog prolog.d
    check_hooks Epilog epilog.d
    own_tree /var/lib/federator-node 0755 root
    start_watch
fi
if is login; then
    make_accounts
    install_programs
    make_folders
    tell_sshd
    tell_dialler
fi
if is login || is compute; then ! wanted spank || tell_spank; fi
if is controller; then
    ! wanted lua || tell_lua
    configure_slurm
fi
say "$SITE: done on $(uname -n)"
show_todo
