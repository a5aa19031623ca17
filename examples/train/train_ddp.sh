#!/bin/bash
#SBATCH --job-name=train-ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:8
#SBATCH --time=30
# The same as train.sh on two nodes, one rank on each (DDP over gloo). Whichever rank first knows
# that the job must leave, all save after the same step.
export PYTHONPATH=/opt/federator/user
export WORLD_SIZE=$SLURM_NTASKS MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
MASTER_ADDR=$(hostname)
export MASTER_ADDR
exec srun bash -c 'RANK=$SLURM_PROCID exec "$@"' - \
    /shared/west/software/pytorch/bin/python "/shared/west/$USER/train.py" "$@"
