# How does a job script keep its state when it is told to leave?      . fed-checkpoint.sh
#
#   save() { ./solver --dump "$FED_CHECKPOINT_DIR/state" && fed_saved && exit 85; }
#   fed_on_preempt save
#   fed_run ./solver --resume "$FED_CHECKPOINT_DIR/state"
#
# For sh (dash) and bash. A shell runs traps only between commands, so a long command belongs
# behind fed_run. Outside the federation nothing is told and answers go nowhere. Under set -e:
#
#   status=0; fed_run ./solver || status=$?; fed_exit "$status"
# shellcheck shell=bash

# fed_on_preempt CMD [ARG...]: run CMD, once, when the job is told to leave (USR1, USR2 or TERM).
# CMD says itself when the state is saved (fed_saved); ":" does nothing, for programs that look
# at the deadline file themselves.
fed_on_preempt() {
    _fed_command=
    for _fed_word in "$@"; do
        _fed_command="$_fed_command '$(printf '%s' "$_fed_word" | sed "s/'/'\\\\''/g")'"
    done
    _fed_listen
}

# fed_run CMD [ARG...]: run CMD so that traps run at once; the status is CMD's. Without a
# fed_on_preempt before, CMD gets the signals that the script gets. CMD has the script's input. The
# command of fed_on_preempt may use fed_run, too.
fed_run() {
    # A trap that comes in between may call this again: each call has its own.
    # shellcheck disable=SC3043 # dash and bash have it
    local _fed_child= _fed_status= _fed_now= _fed_there= _fed_fd=3
    _fed_listen
    # A shell gives what it starts with & an empty input, unless that is redirected from elsewhere.
    while [ "$_fed_fd" -lt 9 ] && _fed_is_open "$_fed_fd"; do _fed_fd=$((_fed_fd + 1)); done
    _fed_starting=1 # a trap that started something of its own would change $!
    if _fed_is_open 0; then
        eval "{ \"\$@\" <&$_fed_fd $_fed_fd<&- & } $_fed_fd<&0"
    else
        "$@" &
    fi
    _fed_child=$! _fed_starting=
    _fed_now=$_fed_deferred _fed_deferred=
    for _fed_word in $_fed_now; do _fed_trap "$_fed_word"; done
    # A signal ends a wait with its own number, before or after its trap has run; so a number above
    # 128 is CMD's only if it stays the same and CMD is gone. Of a CMD that ends in the very moment
    # of a signal bash 5.2 forgets the status, and says 255; fed_exit goes by what was saved.
    while :; do
        kill -0 "$_fed_child" 2>/dev/null && _fed_there=1 || _fed_there=
        wait "$_fed_child" 2>/dev/null && _fed_now=0 || _fed_now=$?
        # The interrupted wait before had got CMD's status already, and this one found nothing.
        if [ "$_fed_now" -eq 127 ] && [ -z "$_fed_there" ] && [ -n "$_fed_status" ]; then break; fi
        if [ "$_fed_now" -le 128 ]; then _fed_status=$_fed_now; break; fi
        if [ "$_fed_now" = "$_fed_status" ] && [ -z "$_fed_there" ]; then break; fi
        _fed_status=$_fed_now
    done
    return "$_fed_status"
}

# fed_saved: my state is saved, end me now. Status 1, and a message, if that cannot be written.
fed_saved() { _fed_answer "saved.${FED_ATTEMPT:-1}"; }

# fed_checkpointed: a checkpoint is complete as of now; only work done later can be lost. Its
# status is that of fed_saved.
fed_checkpointed() { _fed_answer checkpointed; }

# fed_told_to_leave: status 0 once the job was told to leave.
fed_told_to_leave() {
    [ -n "${_fed_told:-}" ] || { [ -n "${FED_PREEMPT_DEADLINE:-}" ] && [ -e "$FED_PREEMPT_DEADLINE" ]; }
}

# fed_deadline: print the Unix time at which the job is killed; status 1 if it was not told.
fed_deadline() {
    [ -n "${FED_PREEMPT_DEADLINE:-}" ] && cat "$FED_PREEMPT_DEADLINE" 2>/dev/null
}

# fed_exit STATUS: end the script; with 85 if the state was saved, whatever a launcher like
# torchrun makes of its ranks' 85.
fed_exit() {
    if [ -n "${FED_CHECKPOINT_DIR:-}" ] && [ -e "$FED_CHECKPOINT_DIR/.fed/saved.${FED_ATTEMPT:-1}" ]; then
        exit 85
    fi
    exit "$1"
}

# fed_submitit: for submitit, in its slurm_setup. The submitter names a job by the federation's id,
# submitit in the job by its Slurm id, and each attempt has another of those; sites may give the
# same id to two jobs. So what runs gets a folder of its own in submitit's, FOLDER/ID_federated,
# and the two meet in links: from the submitted, or the last saved, pickle to the name looked for
# there, and from the names that the submitter knows to this attempt's result and output.
fed_submitit() {
    [ -z "${FED_JOB_ID:-}" ] || srun() { _fed_srun "$@"; }
}

_fed_told= _fed_child= _fed_starting= _fed_deferred=

_fed_is_open() { true 9<&"$1"; } 2>/dev/null # 9 itself is never asked for

_fed_listen() {
    _fed_starting= # of the shell that began this one
    for _fed_signal in USR1 USR2 TERM; do
        # shellcheck disable=SC2064 # the signal's name is meant to be fixed now
        trap "_fed_trap $_fed_signal" "$_fed_signal"
    done
}

_fed_trap() {
    if [ -n "$_fed_starting" ]; then
        _fed_deferred="$_fed_deferred $1"
        return 0
    fi
    if [ -n "${_fed_command:-}" ]; then
        [ -z "$_fed_told" ] || return 0
        _fed_told=1
        eval "$_fed_command" || echo "fed-checkpoint: saving ended with status $?" >&2
    else
        _fed_told=1
        [ -z "$_fed_child" ] || kill -s "$1" "$_fed_child" 2>/dev/null || :
    fi
}

# Slurm has started the same attempt again: what its earlier run was told, and answered, is over.
# A note is of that run if it is older than this one (Slurm may say when that began) or, of the
# deadline, if it has passed; an answer also if there is no deadline that it could be the answer to.
_fed_forget() {
    [ -n "${FED_CHECKPOINT_DIR:-}" ] && [ "${SLURM_PROCID:-0}" = 0 ] || return 0
    _fed_is_number "${SLURM_RESTART_COUNT:-}" && [ "$SLURM_RESTART_COUNT" -gt 0 ] || return 0
    _fed_note=${FED_PREEMPT_DEADLINE:-}
    if [ -f "$_fed_note" ]; then
        read -r _fed_word <"$_fed_note" || :
        _fed_word=${_fed_word%%.*}
        if _fed_is_older "$_fed_note" ||
            { _fed_is_number "$_fed_word" && [ "$_fed_word" -lt "$(date +%s)" ]; }; then
            rm -f -- "$_fed_note"
        fi
    fi
    _fed_word="$FED_CHECKPOINT_DIR/.fed/saved.${FED_ATTEMPT:-1}"
    if _fed_is_number "${SLURM_JOB_START_TIME:-}"; then
        ! _fed_is_older "$_fed_word" || rm -f -- "$_fed_word"
    elif [ ! -e "$_fed_note" ]; then
        rm -f -- "$_fed_word"
    fi
}

_fed_is_older() {
    _fed_is_number "${SLURM_JOB_START_TIME:-}" && [ -f "$1" ] &&
        [ "$(stat -L -c %Y -- "$1")" -lt "$SLURM_JOB_START_TIME" ]
}

_fed_is_number() { case $1 in '' | *[!0-9]*) return 1 ;; esac }

_fed_forget || :

_fed_answer() {
    [ -n "${FED_CHECKPOINT_DIR:-}" ] || return 0
    # In a subshell, as a shell may end when a redirection or an expansion fails.
    _fed_why=$(_fed_put "$FED_CHECKPOINT_DIR/.fed" "$1" 2>&1) || {
        echo "fed-checkpoint: $1 cannot be written: $_fed_why" >&2
        return 1
    }
}

# Renamed into place: the file of another site's attempt may belong to another UID. Others may write
# here, and may have put a link or a folder in the way. (In a trap, bash's bare return gives the
# status of before the trap.)
_fed_put() {
    if [ ! -d "$1" ]; then mkdir "$1" && chmod --reference="$FED_CHECKPOINT_DIR" "$1" || return 1; fi
    _fed_new=$(mktemp "$1/.$2.XXXXXXXXXX") || return 1
    chmod --reference="$1" "$_fed_new" && chmod a-xst "$_fed_new" && mv -fT "$_fed_new" "$1/$2" && return 0
    rm -f "$_fed_new"
    return 1
}

# srun, with submitit's folder and output moved to the attempt's own; other calls are as they are.
_fed_srun() {
    _fed_home= _fed_last=
    for _fed_word in "$@"; do
        [ "$_fed_last" != submitit.core._submit ] || _fed_home=$_fed_word
        _fed_last=$_fed_word
    done
    [ -n "$_fed_home" ] || { command srun "$@"; return; }
    _fed_id=$FED_JOB_ID _fed_slurm_id=$SLURM_JOB_ID
    if [ -n "${FED_ARRAY_JOB_ID:-}" ]; then # its submitter's id is what its process sees, too
        _fed_id=${FED_ARRAY_JOB_ID}_$FED_ARRAY_TASK_ID _fed_slurm_id=$_fed_id
    fi
    _fed_own=${_fed_id}_federated
    (_fed_link_submitit) || { echo "fed-checkpoint: cannot write to $_fed_home" >&2; return 1; }
    _fed_last=
    for _fed_word in "$@"; do
        shift
        case "$_fed_last $_fed_word" in
        "submitit.core._submit "*) set -- "$@" "$_fed_home/$_fed_own" ;;
        *" $_fed_home/"*_%t_log.out) set -- "$@" "$_fed_home/$_fed_own/${FED_ATTEMPT}_%t_log.out" ;;
        *" $_fed_home/"*_%t_log.err) set -- "$@" "$_fed_home/$_fed_own/${FED_ATTEMPT}_%t_log.err" ;;
        *) set -- "$@" "$_fed_word" ;;
        esac
        _fed_last=$_fed_word
    done
    command srun "$@"
}

# In a subshell: make the attempt's folder and its links.
_fed_link_submitit() {
    if [ ! -d "$_fed_home/$_fed_own" ]; then
        mkdir "$_fed_home/$_fed_own" && chmod --reference="$_fed_home" "$_fed_home/$_fed_own" || return
    fi
    cd "$_fed_home/$_fed_own" || return
    for _fed_word in *_submitted.pkl; do # what an attempt was given is a link; what it saved is a file
        if [ -f "$_fed_word" ] && [ ! -L "$_fed_word" ]; then mv -f "$_fed_word" saved.pkl || return; fi
    done
    rm -f -- *_submitted.pkl *_result.pkl *.save_tmp || return
    [ -e saved.pkl ] && _fed_word=saved.pkl || _fed_word=../${_fed_id}_submitted.pkl
    ln -s "$_fed_word" "${_fed_slurm_id}_submitted.pkl" && cd .. || return
    _fed_task=${SLURM_NTASKS:-$((${SLURM_JOB_NUM_NODES:-1} * ${SLURM_NTASKS_PER_NODE:-1}))}
    while [ "$_fed_task" -gt 0 ]; do
        _fed_task=$((_fed_task - 1))
        ln -sfn "$_fed_own/${_fed_slurm_id}_${_fed_task}_result.pkl" "${_fed_id}_${_fed_task}_result.pkl" || return
        for _fed_word in out err; do # what this script itself writes to is a file, and goes on to be
            _fed_log=${_fed_id}_${_fed_task}_log.$_fed_word _fed_log_own=$_fed_own/${FED_ATTEMPT}_${_fed_task}_log.$_fed_word
            if [ -f "$_fed_log" ] && [ ! -L "$_fed_log" ]; then mv -f "$_fed_log" "$_fed_log_own" || return; fi
            ln -sfn "$_fed_log_own" "$_fed_log" || return
        done
    done
}
