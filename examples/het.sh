#!/bin/bash
#SBATCH --job-name=het
#SBATCH --nodes=1 --ntasks=1 --gres=gpu:4 --time=5
#SBATCH hetjob
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=16 --time=5
# A trainer on GPUs and a data loader on CPUs, placed and started as one.
srun --het-group=0,1 bash -c 'echo "component rank $SLURM_PROCID on $SLURMD_NODENAME"; sleep 8'
