-- SPDX-License-Identifier: BSD-3-Clause
--
-- /etc/slurm/job_submit.lua for a site that has none of its own: the federation's rules and no
-- others. A site that has one adds the lines between "begin" and "end" to it instead. Should the
-- module be missing or broken, jobs go on as if it did not exist.

-- begin: at the top of the file
local _, federator = pcall(dofile, "/opt/federator/share/job_submit/federator.lua")
local ok = type(federator) == "table"
if not ok then slurm.log_error("%s", "federator: no rules: " .. tostring(federator)) end
-- end

function slurm_job_submit(job_desc, part_list, submit_uid)
    -- begin: first in slurm_job_submit
    local verdict = ok and federator.job_submit(job_desc, part_list, submit_uid) or slurm.SUCCESS
    if verdict ~= slurm.SUCCESS then return verdict end
    -- end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    -- begin: first in slurm_job_modify
    local verdict = ok and federator.job_modify(job_desc, job_rec, part_list, modify_uid)
        or slurm.SUCCESS
    if verdict ~= slurm.SUCCESS then return verdict end
    -- end
    return slurm.SUCCESS
end

return slurm.SUCCESS
