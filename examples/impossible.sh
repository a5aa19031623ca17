#!/bin/bash
#SBATCH --job-name=impossible
#SBATCH --gres=gpu:a100:16
# No node has 16 GPUs: refused at once, with each site's reason.
true
