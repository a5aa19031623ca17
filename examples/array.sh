#!/bin/bash
#SBATCH --job-name=array
#SBATCH --array=0-7
#SBATCH --gres=gpu:2
#SBATCH --time=5
echo "task $SLURM_ARRAY_TASK_ID on $SLURMD_NODENAME"
sleep 6
