#!/bin/bash
#SBATCH --job-name=fails
#SBATCH --gres=gpu:1
#SBATCH --time=5
sleep 3
exit 3
