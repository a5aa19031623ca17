#!/bin/bash
# Inside a throw-away container: one Slurm with slurmdbd, a morning of jobs, and what sacct says.
# $1: the name of the cluster. Dumps go to /dumps. About three minutes, most of them a time limit.
set -eu
cluster=$1
export TZ=UTC LANG=C.UTF-8

until_ok() { for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return 0; sleep 0.2; done; echo "never: $*" >&2; return 1; }
state() { squeue -h -j "$1" -t all -o %T 2>/dev/null | head -1; }
is() { [ "$(state "$1")" = "$2" ]; }

configure() {
    for user in ann bob cem dora; do useradd --create-home "$user"; done
    for k in 0 1 2 3; do mknod --mode 0666 "/dev/fakegpu$k" c 1 3; done
    install -d -o slurm -g slurm /run/slurmctld /var/lib/slurm/slurmctld /var/log/slurm /var/spool/slurm
    install -d -o munge -g munge /run/munge
    install -d -o munge -g munge -m 0700 /etc/munge /var/lib/munge /var/log/munge
    head -c 128 /dev/urandom > /etc/munge/munge.key
    chown munge:munge /etc/munge/munge.key && chmod 0400 /etc/munge/munge.key
    cat > /etc/slurm/slurmdbd.conf <<TXT
DbdHost=localhost
SlurmUser=slurm
AuthType=auth/munge
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
PidFile=/run/slurmctld/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
TXT
    chown slurm:slurm /etc/slurm/slurmdbd.conf && chmod 0600 /etc/slurm/slurmdbd.conf
    cat > /etc/slurm/slurm.conf <<TXT
ClusterName=$cluster
SlurmctldHost=$(hostname)
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=cred_expire=5
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MailProg=/bin/true
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=${CONSUMES:-CR_Core}
DefMemPerCPU=100
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageTRES=gres/gpu,gres/gpu:a100
JobAcctGatherType=jobacct_gather/${GATHER:-none}
JobAcctGatherFrequency=${GATHER_EVERY_S:-30}
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/spool/slurm/%n
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
NodeName=g[0-3] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[17000-17003] CPUs=32 RealMemory=64000 Gres=gpu:a100:4
NodeName=c0 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=17010 CPUs=32 RealMemory=64000
PartitionName=gpu Nodes=g[0-3] Default=YES PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
PartitionName=spot Nodes=g[0-3] PriorityTier=1 MaxTime=INFINITE
PartitionName=cpu Nodes=c0 PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
TXT
    printf 'AutoDetect=off\nNodeName=g[0-3] Name=gpu Type=a100 File=/dev/fakegpu[0-3]\n' \
        > /etc/slurm/gres.conf
}

start() {
    su -s /bin/sh munge -c 'exec munged --force'
    install -d -o mysql -g mysql /run/mysqld
    mariadbd --user=mysql --skip-networking >/var/log/mariadb.log 2>&1 &
    until_ok mariadb -e 'select 1'
    mariadb -e "create database slurm_acct; create user slurm@localhost identified by 'slurm';
        grant all on slurm_acct.* to slurm@localhost"
    slurmdbd
    until_ok sacctmgr -n show cluster
    sacctmgr -i -Q add cluster "$cluster" || true
    slurmctld
    until_ok sh -c 'scontrol ping | grep -q "is UP"'
    for account in vision speech robots; do sacctmgr -i -Q add account "$account"; done
    sacctmgr -i -Q add user ann,bob account=vision
    sacctmgr -i -Q add user cem account=speech
    sacctmgr -i -Q add user dora account=robots
    for node in g0 g1 g2 g3 c0; do mkdir -p "/var/spool/slurm/$node"; slurmd -N "$node"; done
    until_ok sh -c '[ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" = 5 ]'
}

# as USER OPTION… -- COMMAND: submits it, prints its id.
as() {
    local user=$1 options=(); shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    su -s /bin/bash "$user" -c 'cd; opts=(); while [ "$1" != -- ]; do opts+=("$1"); shift; done; shift
        sbatch --parsable -o /dev/null "${opts[@]}" --wrap "$*"' -- - "${options[@]}" -- "$@"
}

morning() {
    local id other late never two
    as ann -J plain --gres=gpu:2 -t 10 -- sleep 4
    as ann -J typed --gres=gpu:a100:3 -c 6 -t 10 -- sleep 3
    as ann -J steps --gres=gpu:1 -n 2 -t 10 -- 'srun sleep 2; srun -n 1 sleep 1'
    as bob -J array --array=0-3%2 --gres=gpu:1 -t 5 -- sleep 3
    as bob -J nodes -N 2 --gres=gpu:4 -t 1-00:00:00 -- sleep 3
    as cem -J six --gpus=6 -N 2 -t 30 -- sleep 3
    as cem -J pertask --gpus-per-task=1 -n 3 -t 30 -- sleep 2
    as cem -J unlimited --gres=gpu:1 -- sleep 2
    as dora -J fails --gres=gpu:1 -t 5 -- 'sleep 1; exit 3'
    as dora -J instant --gres=gpu:1 -t 5 -- true
    as dora -J killed --gres=gpu:1 -t 5 -- 'kill -9 $$'
    as dora -J nogpu -p cpu -c 4 -t 5 -- sleep 2
    as dora -J 'a|b "c",d' --gres=gpu:1 -t 5 -- sleep 1
    su dora -c 'cd; printf "%s\n" "#!/bin/sh" "#SBATCH -J het -t 5 -n 2 --gres=gpu:2" \
        "#SBATCH hetjob" "#SBATCH -p cpu -n 1 -c 2" "#SBATCH hetjob" "#SBATCH -n 1 --gres=gpu:1" \
        "srun --het-group=0,1,2 sleep 2" | sbatch --parsable -o /dev/null'
    late=$(as bob -J late --gres=gpu:1 -t 1 -- sleep 600)

    id=$(as ann -J stopped --gres=gpu:1 -t 5 -- sleep 600); until_ok is "$id" RUNNING; sleep 1; scancel "$id"
    id=$(as cem -J tasks -H --array=1-5 --gres=gpu:1 -t 5 -- sleep 1); scancel "${id}_[2-4]"; scontrol release "$id"
    sleep 12

    id=$(as cem -J again --gres=gpu:2 -t 5 -- sleep 8); until_ok is "$id" RUNNING; sleep 2; scontrol requeue "$id"
    id=$(as cem -J paused --gres=gpu:1 -t 5 -- sleep 6); until_ok is "$id" RUNNING; sleep 1
    scontrol suspend "$id"; sleep 4; scontrol resume "$id"
    id=$(as cem -J lost --no-requeue --gres=gpu:1 -w g3 -t 5 -- sleep 600); until_ok is "$id" RUNNING; sleep 1
    scontrol update nodename=g3 state=down reason=broken; sleep 2; scontrol update nodename=g3 state=resume || true
    until_ok sh -c '[ "$(sinfo -h -N -p gpu -t idle,mix,alloc -o %N | sort -u | wc -l)" = 4 ]'
    id=$(as bob -J shrinks -N 2 --gres=gpu:1 -t 5 -- sleep 600); until_ok is "$id" RUNNING; sleep 1
    scontrol update jobid="$id" numnodes=1; sleep 2; scancel "$id"
    sleep 10

    other=$(as ann -J victim -p spot --requeue -N 4 --gres=gpu:4 -t 5 -- sleep 12); until_ok is "$other" RUNNING
    id=$(as dora -J victor -N 3 --gres=gpu:4 -t 5 -- sleep 3); until_ok is "$id" RUNNING
    as bob -J waits -N 4 --gres=gpu:4 -t 5 -- sleep 2
    never=$(as ann -J never -N 4 --gres=gpu:4 -t 5 -- sleep 1)
    two=$(as ann -J two -p gpu,spot --gres=gpu:4 -N 4 -t 5 -- sleep 1)
    sleep 1; scancel "$never" "$two"
    until_ok is "$id" COMPLETED
    until_ok is "$other" COMPLETED
    until_ok is "$late" TIMEOUT
    until_ok sh -c '[ -z "$(squeue -h)" ]' || squeue
    as ann -J running --gres=gpu:4 -N 3 -t 5 -- sleep 600
    as ann -J pending --gres=gpu:4 -N 4 -t 5 -- sleep 600
    as bob -J queued --array=1-3 --gres=gpu:4 -N 4 -t 5 -- sleep 600
    sleep 4
}

FIELDS=JobIDRaw,JobID,Cluster,Account,User,Partition,State,Submit,Eligible,Start,End,ElapsedRaw,Suspended,TimelimitRaw,ReqTRES,AllocTRES,NNodes,NCPUS
dump() {
    mkdir -p /dumps
    cd /dumps
    local all=(-a -S 2020-01-01)
    sacct "${all[@]}" -X --parsable2 --noconvert -o "$FIELDS" > jobs.txt
    sacct "${all[@]}" -X --duplicates --parsable2 --noconvert -o "$FIELDS" > duplicates.txt
    sacct "${all[@]}" --parsable2 -o "$FIELDS" > steps.txt
    SLURM_TIME_FORMAT=%s sacct "${all[@]}" -X --parsable2 --noconvert -M all -o "$FIELDS" > epoch.txt
    sacct "${all[@]}" --duplicates --json | gzip -9n > jobs.json.gz
    sacct "${all[@]}" -X --parsable2 > default.txt
    sacct -V > version
}

# What jobs use, with PLAY=usage; GATHER says how it is measured.
USAGE_FIELDS=JobID,User,Start,NTasks,TotalCPU,UserCPU,SystemCPU,MaxRSS,AllocTRES,TRESUsageInTot,End
busy='i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; sleep 6'
large='x=$(head -c 60000000 /dev/zero | tr "\0" x); sleep 6'
afternoon() {
    local id
    as ann -J busy -c 2 --mem=300 -t 10 -- "$busy"
    as ann -J large --gres=gpu:2 --mem=300 -t 10 -- "$large"
    as bob -J steps -n 2 --mem=300 -t 10 -- "srun bash -c '$large'; srun -n 1 sleep 1"
    as cem -J nodes -N 2 --gres=gpu:4 -t 10 -- 'srun sleep 3'
    su dora -c 'cd; printf "%s\n" "#!/bin/sh" "#SBATCH -J het -t 5 -n 2 --gres=gpu:2" \
        "#SBATCH hetjob" "#SBATCH -p cpu -n 1 -c 2" "srun --het-group=0,1 sleep 3" \
        | sbatch --parsable -o /dev/null'
    as dora -J instant -t 5 -- true
    id=$(as cem -J again -t 5 -- 'sleep 6'); until_ok is "$id" RUNNING; sleep 2; scontrol requeue "$id"
    id=$(as bob -J never -H -t 5 -- sleep 1); scancel "$id"
    until_ok sh -c '[ -z "$(squeue -h)" ]' || squeue
    as ann -J running -t 5 -- sleep 600
    sleep 4
}
dump_usage() {
    mkdir -p /dumps
    SLURM_TIME_FORMAT=%s sacct -a -S 2020-01-01 -n -P -o "$USAGE_FIELDS" > /dumps/usage.txt
    sacct -V > /dumps/version
}

configure
start
case ${PLAY:-morning} in
    usage) afternoon; dump_usage ;;
    *) morning; dump ;;
esac
