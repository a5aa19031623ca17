#!/bin/bash
#SBATCH --job-name=gang
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=1
#SBATCH --time=5
# Two whole nodes that start together, in one rack if there is one.
srun bash -c 'echo "rank $SLURM_PROCID on $SLURMD_NODENAME with GPUs $CUDA_VISIBLE_DEVICES"; sleep 8'
