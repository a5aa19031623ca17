-- SPDX-License-Identifier: BSD-3-Clause
--
-- /etc/slurm/cli_filter.lua for a site that has none of its own (CliFilterPlugins=lua): in the
-- user's own sbatch, srun and salloc, the federation's advice comes before slurmctld is asked. A
-- site that has one adds the lines between "begin" and "end" to it instead.

-- begin: at the top of the file
local _, federator = pcall(dofile, "/opt/federator/share/job_submit/federator.lua")
local ok = type(federator) == "table"
-- end

function slurm_cli_setup_defaults(options, early_pass)
    return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
    -- begin: first in slurm_cli_pre_submit
    if ok then federator.cli_pre_submit(options) end
    -- end
    return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
    return slurm.SUCCESS
end

return slurm.SUCCESS
