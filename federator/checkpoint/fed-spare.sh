# How does a gang go on when one of its nodes dies?      . fed-spare.sh
#
#   #SBATCH --nodes=2 --ntasks-per-node=1 --fed-spare=1
#   fed_gang sh -c 'exec torchrun --nnodes="$FED_NNODES" --rdzv_endpoint="${FED_NODES%%,*}:29500" …'
#
# For sh (dash) and bash, after fed-checkpoint.sh, if that is used. In the program's environment:
# FED_NNODES nodes, whose names are FED_NODES, with commas between; FED_LAUNCH is 1, then 2, ….
# The batch script runs on the first node: if that one dies, the job ends and starts again elsewhere.
# shellcheck shell=bash

FED_NNODES=$((${SLURM_JOB_NUM_NODES:-1} - ${FED_SPARE:-0}))
export FED_NNODES

# fed_gang CMD [ARG...]: run CMD with srun, on FED_NNODES nodes, until it ends; the status is srun's.
# If it fails and one of its nodes is gone, it is started again on those that are left, without that
# one. A node is gone if Slurm has taken it from the job, or if FED_SPARE_CHECK (true) fails there, or
# is not done after FED_SPARE_CHECK_S seconds (10), though it succeeds on another. Once the nodes are
# too few, the job is requeued.
fed_gang() {
    # shellcheck disable=SC3043 # dash and bash have it
    local _fed_gang_status= _fed_gang_lost= _fed_gang_now= _fed_gang_run= _fed_gang_left= IFS=' 	
'
    command -v fed_run >/dev/null && _fed_gang_run=fed_run
    FED_LAUNCH=0
    _fed_gang_left=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
    while :; do
        FED_NODES=$(_fed_gang_nodes "$_fed_gang_lost") || { _fed_gang_requeue; return "${_fed_gang_status:-1}"; }
        FED_LAUNCH=$((FED_LAUNCH + 1))
        export FED_NODES FED_LAUNCH
        _fed_gang_status=0
        $_fed_gang_run srun --nodes="$FED_NNODES" --ntasks="$((FED_NNODES * ${SLURM_NTASKS_PER_NODE:-1}))" \
            --nodelist="$FED_NODES" --no-kill=off --kill-on-bad-exit=1 "$@" || _fed_gang_status=$?
        [ "$_fed_gang_status" -ne 0 ] || return 0
        _fed_gang_may_go_on || return "$_fed_gang_status"
        _fed_gang_left=$(_fed_gang_ask_slurm) || return "$_fed_gang_status" # nobody can tell
        _fed_gang_now=$(_fed_gang_gone)
        _fed_gang_may_go_on || return "$_fed_gang_status" # meanwhile
        [ -n "$_fed_gang_now" ] || return "$_fed_gang_status" # the nodes are well: it is CMD's own failure
        _fed_gang_lost="$_fed_gang_lost $_fed_gang_now"
        # shellcheck disable=SC2086 # without the blanks between
        echo "fed-spare:" $_fed_gang_now "gone" >&2
    done
}

# Fails once the job was told to leave: its program is not started again.
_fed_gang_may_go_on() { [ ! -e "${FED_PREEMPT_DEADLINE:-}" ]; }

# The job's nodes, as slurmctld has them now; it may be restarting, and has five minutes for that.
_fed_gang_ask_slurm() {
    _fed_gang_tries=60
    until _fed_gang_list=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%N) && [ -n "$_fed_gang_list" ]; do
        _fed_gang_tries=$((_fed_gang_tries - 1))
        [ "$_fed_gang_tries" -gt 0 ] || return 1
        sleep 5
    done
    scontrol show hostnames "$_fed_gang_list"
}

# FED_NNODES of the job's nodes, less those that are lost.
_fed_gang_nodes() {
    _fed_gang_found= _fed_gang_number=0
    for _fed_gang_node in $_fed_gang_left; do
        case " $1 " in *" $_fed_gang_node "*) continue ;; esac
        [ "$_fed_gang_number" -lt "$FED_NNODES" ] || break
        _fed_gang_found=$_fed_gang_found${_fed_gang_found:+,}$_fed_gang_node
        _fed_gang_number=$((_fed_gang_number + 1))
    done
    [ "$_fed_gang_number" -eq "$FED_NNODES" ] && echo "$_fed_gang_found"
}

# Those of FED_NODES that are gone, 32 asked at a time. If none of them passes the check, nothing is
# known of them: the check may be wrong, or Slurm start no step.
_fed_gang_gone() {
    _fed_gang_there=$(echo "$_fed_gang_left" | tr '\n' ' ') _fed_gang_taken= _fed_gang_number=0
    _fed_gang_asked=
    for _fed_gang_node in $(echo "$FED_NODES" | tr , '\n'); do
        case " $_fed_gang_there " in
        *" $_fed_gang_node "*) _fed_gang_asked="$_fed_gang_asked $_fed_gang_node" ;;
        *) _fed_gang_taken="$_fed_gang_taken $_fed_gang_node" ;;
        esac
    done
    _fed_gang_well=$(for _fed_gang_node in $_fed_gang_asked; do
        _fed_gang_ask "$_fed_gang_node" &
        _fed_gang_number=$((_fed_gang_number + 1))
        [ $((_fed_gang_number % 32)) -ne 0 ] || wait
    done; wait)
    [ -n "$_fed_gang_well" ] || _fed_gang_asked=
    _fed_gang_well=$(echo "$_fed_gang_well" | tr '\n' ' ')
    for _fed_gang_node in $_fed_gang_asked; do
        case " $_fed_gang_well " in *" $_fed_gang_node "*) ;; *) _fed_gang_taken="$_fed_gang_taken $_fed_gang_node" ;; esac
    done
    echo "${_fed_gang_taken# }"
}

# Say a node's name if it answers, and passes the check.
_fed_gang_ask() {
    # shellcheck disable=SC2086 # the check may have words
    ! timeout --kill-after=1 "${FED_SPARE_CHECK_S:-10}" srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" \
        ${FED_SPARE_CHECK:-true} </dev/null >/dev/null 2>&1 || echo "$1"
}

_fed_gang_requeue() {
    echo "fed-spare: fewer than $FED_NNODES nodes are left; the job starts again elsewhere" >&2
    scontrol requeue "$SLURM_JOB_ID" || true
}
