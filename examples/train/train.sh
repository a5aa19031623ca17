#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --gres=gpu:a100:8
#SBATCH --time=30
# A training that may be preempted at any time and goes on where it was, at whatever site of region
# west. On the testbed:
#
#     federator testbed software                                      once: PyTorch for all sites
#     cp examples/train/train.py .testbed/shared/west/vision1/
#     fsbatch --uid=vision1 examples/train/train.sh --steps 600 --step-s 0.1
#
# It runs as a step (srun): the step is told to leave, and this script ends with its exit status.
# PyTorch is of the region's shared software, federator.checkpoint of the site's own federator.
export PYTHONPATH=/opt/federator/user
exec srun /shared/west/software/pytorch/bin/python "/shared/west/$USER/train.py" "$@"
