#!/bin/bash
#SBATCH --job-name=train-elastic
#SBATCH --nodes=2
#SBATCH --fed-elastic=1-4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:8
#SBATCH --signal=B:USR1
#SBATCH --time=60
# torchrun on as many nodes as are free, one to four, at whatever site of region west. Each resize is
# another attempt; it goes on after the last step of the one before, with the same batches.
#
# The ranks look themselves whether they must leave, so this script does nothing then. A torchrun
# whose ranks have left says 1; fed_exit makes 85 of it if the state was saved. (--redirects, --tee:
# PyTorch 1.13 on Python 3.11 starts no rank without; others do.)
. /opt/federator/user/federator/checkpoint/fed-checkpoint.sh
export PYTHONPATH=/opt/federator/user
fed_on_preempt :
status=0
fed_run srun /shared/west/software/pytorch/bin/python -m torch.distributed.run \
    --nnodes="$SLURM_NNODES" --nproc_per_node=1 --redirects=1 --tee=1 \
    --rdzv_id="$SLURM_JOB_ID" --rdzv_backend=c10d \
    --rdzv_endpoint="$(hostname):$((20000 + SLURM_JOB_ID % 10000))" \
    "/shared/west/$USER/train_elastic.py" "$@" || status=$?
fed_exit $status
