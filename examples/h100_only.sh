#!/bin/bash
#SBATCH --job-name=h100-only
#SBATCH --gres=gpu:h100:4
#SBATCH --time=5
# Only one site of the testbed has this type.
echo "on $SLURMD_NODENAME at $FED_SITE"
sleep 8
