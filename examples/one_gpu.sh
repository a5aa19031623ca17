#!/bin/bash
#SBATCH --job-name=one-gpu
#SBATCH --gres=gpu:1
#SBATCH --time=5
echo "job $SLURM_JOB_ID (federation: $FED_JOB_ID, attempt $FED_ATTEMPT) on $SLURMD_NODENAME"
echo "GPUs: $CUDA_VISIBLE_DEVICES"
sleep 8
