# Put the three lines that take in our module into a site's job_submit.lua, each marked as ours.
# usage: awk -v mark="-- federator" -v module=PATH -f job-submit.awk job_submit.lua
NR == 1 { printf "local _, federator = pcall(dofile, \"%s\") %s\n", module, mark }
{ print }
/^function slurm_job_(submit|modify) *\([a-z_, ]+\) *$/ {
    name = $0; sub(/^function slurm_/, "", name); sub(/ *\(.*/, "", name)
    given = $0; sub(/^[^(]*\(/, "", given); sub(/\).*/, "", given)
    printf "if type(federator) == \"table\" then local v = federator.%s(%s) ", name, given
    printf "if v ~= slurm.SUCCESS then return v end end %s\n", mark
}
