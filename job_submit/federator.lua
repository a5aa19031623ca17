-- SPDX-License-Identifier: BSD-3-Clause
--
-- Admits, changes or refuses jobs, with advice to their owners. These are the federation's rules
-- for slurmctld's job_submit/lua plugin, as a module: it sets no globals, and without
-- /etc/federator/admission.lua it does nothing. Lua 5.1 to 5.4.
--
-- It runs inside slurmctld, under its locks. So it reads a fixed list of fields (in some releases
-- others end slurmctld), looks at files only for jobs that a rule concerns, never calls a program,
-- and treats job, spool and environment as untrusted. Everything is inside pcall; what an error of
-- its own means for a job is the site's choice (fail_open). Manual: docs/admission.md.

local M = { config_file = "/etc/federator/admission.lua" }

local MAX_CONFIG_BYTES = 64 * 1024
local MAX_ADMISSION_BYTES = 1024 * 1024
local MAX_ADMISSION_LINES = 10000
local MAX_TICKET_BYTES = 512
local MAX_SHOWN_BYTES = 60 -- of a user's word, in a message
local MAX_ADVISED_BYTES = 4096 -- of --gres and --constraint; whoever writes more needs no advice
local MAX_ALTERNATES = 8
local NO_COUNT = 0xfffffff0 -- Slurm's "not given" is 2^32 - 2; real counts are smaller
local NO_COUNT_16 = 0xfff0 -- and 2^16 - 2 where a count has 16 bits
local REPEAT_S = 3600 -- a trouble that lasts is logged again after so long
local GRES_FIELDS = { "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task" }
local KEPT_FIELDS = { "account", "partition", "wckey" } -- text that a change leaves or replaces
local GRES_OPTIONS = { "gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task" }

-- What is known of a file: its text or first line when it was last looked at, and what it said.
local config = { looked_at_s = nil, text = nil, rules = nil }
local spool = { looked_at_s = nil, path = nil, header = nil, content = nil, trouble = nil }
local reported = {} -- subject to what was logged of it last, and when
local quiet = false -- in a user's command, whose terminal is no log

---------------------------------------------------------------------------------- small things --

local function set_of(list)
    local set = {}
    for _, item in ipairs(list) do set[item] = true end
    return set
end

local function words_of(text)
    local words = {}
    for word in (text or ""):gmatch("[^,]+") do words[#words + 1] = word end
    return words
end

-- A user's word as it may stand in a message: printable, and not long.
local function shown(text)
    text = tostring(text):gsub("[^\32-\126]", "?")
    if #text > MAX_SHOWN_BYTES then text = text:sub(1, MAX_SHOWN_BYTES) .. "..." end
    return text
end

local function number_text(number)
    return (number % 1 == 0 and "%.0f" or "%.1f"):format(number)
end

-- Log a trouble once for each change of it, not for each job that meets it.
local function report(subject, message)
    if quiet then return end
    local last, now_s = reported[subject], os.time()
    if last then
        local age_s = now_s - last.at_s
        if age_s == 0 or (last.message == message and age_s < REPEAT_S) then return end
    end
    reported[subject] = { message = message, at_s = now_s }
    slurm.log_error("%s", "federator: " .. message)
end

local function report_well(subject)
    if not reported[subject] then return end
    reported[subject] = nil
    slurm.log_info("%s", "federator: " .. subject .. " is in order again")
end

-- The attempt that a comment's first word names, if it names one.
local function attempt_of(comment)
    local word = (comment or ""):match("^(%S+)")
    return word and #word <= 64 and word:match("^fed:%d+:%d+$") or nil
end

local function count_of(number, limit)
    if type(number) ~= "number" or number < 1 or number >= limit then return nil end
    return number
end

-- Whom slurmctld runs as; that user and root are never refused anything.
local function own_uid()
    local file = io.open("/proc/self/status", "r")
    if not file then return 0 end
    local text = file:read(4096) or ""
    file:close()
    return tonumber(text:match("\nUid:%s*%d+%s+(%d+)")) or 0
end

local OWN_UID = own_uid()

--------------------------------------------------------------------------------- configuration --

local function fault(where, wanted, value)
    error({ config = ("%s must be %s; it is %s"):format(where, wanted, shown(value)) }, 0)
end

local function check_keys(where, value, known)
    if type(value) ~= "table" then fault(where, "a table", value) end
    for key in pairs(value) do
        if not known[key] then
            local names = {}
            for name in pairs(known) do names[#names + 1] = name end
            table.sort(names)
            error({ config = ("%s has no key %s; its keys are %s"):format(
                where, shown(key), table.concat(names, ", ")) }, 0)
        end
    end
end

local function check_name(where, value)
    if type(value) ~= "string" or not value:match("^[%w_.%-]+$") then
        fault(where, "a name of letters, digits, '_', '.' and '-'", value)
    end
    return value
end

local function check_names(where, value)
    if type(value) ~= "table" then fault(where, "a list of names", value) end
    local count = 0
    for _ in pairs(value) do count = count + 1 end
    if count ~= #value then fault(where, "a list of names", "a table with keys") end
    for i, name in ipairs(value) do check_name(("%s[%d]"):format(where, i), name) end
    return value
end

-- "*" or a list of partitions, as a test of one partition.
local function check_partitions(where, value)
    if value == "*" then return function() return true end end
    if type(value) ~= "table" then fault(where, '"*" or a list of partitions', value) end
    local set = set_of(check_names(where, value))
    return function(partition) return set[partition] == true end
end

local function check_choice(where, value, default, ...)
    if value == nil then return default end
    for _, choice in ipairs({ ... }) do
        if value == choice then return value end
    end
    local names = {}
    for _, choice in ipairs({ ... }) do names[#names + 1] = tostring(choice) end
    return fault(where, "one of " .. table.concat(names, ", "), value)
end

local function check_amount(where, value, default)
    if value == nil then return default end
    if type(value) ~= "number" or not (value > 0 and value < 2 ^ 40) then
        fault(where, "a number above 0", value)
    end
    return value
end

local function check_tags(value)
    local require_of = {}
    if type(value) ~= "table" then fault("require", "a table", value) end
    for partition, tags in pairs(value) do
        if partition ~= "*" then check_name("a key of require", partition) end
        local where = ("require[%q]"):format(partition)
        for _, tag in ipairs(check_names(where, tags)) do
            check_choice("an item of " .. where, tag, nil, "account", "project")
        end
        require_of[partition] = set_of(tags)
    end
    return require_of
end

local function check_caps(value)
    check_keys("caps", value, set_of({ "partitions", "over_limit", "over_used", "max_age_s" }))
    return {
        covers = check_partitions("caps.partitions", value.partitions),
        over_limit = check_choice("caps.over_limit", value.over_limit, "refuse",
            "refuse", "warn", "off"),
        over_used = check_choice("caps.over_used", value.over_used, "warn",
            "refuse", "warn", "off"),
        max_age_s = check_amount("caps.max_age_s", value.max_age_s, 3600),
    }
end

local function check_advice(value)
    check_keys("advice", value, set_of({ "partitions", "by", "gpus" }))
    local gpus
    if value.gpus ~= nil then
        gpus = {}
        if type(value.gpus) ~= "table" then fault("advice.gpus", "a table", value.gpus) end
        for model, about in pairs(value.gpus) do
            local where = "advice.gpus." .. check_name("a key of advice.gpus", model)
            check_keys(where, about, set_of({ "mem_gib", "nvlink" }))
            if about.mem_gib == nil then fault(where .. ".mem_gib", "a number above 0", "nil") end
            gpus[model] = {
                mem_gib = check_amount(where .. ".mem_gib", about.mem_gib),
                nvlink = check_choice(where .. ".nvlink", about.nvlink, false, true, false),
            }
        end
    end
    return {
        covers = check_partitions("advice.partitions", value.partitions),
        by = check_choice("advice.by", value.by, "controller", "controller", "client"),
        gpus = gpus,
    }
end

local function check_rewrite(value)
    check_keys("rewrite", value, set_of({ "partitions", "nvlink", "mem_gib" }))
    local rewrite = {
        covers = check_partitions("rewrite.partitions", value.partitions),
        nvlink = value.nvlink and check_name("rewrite.nvlink", value.nvlink),
        mem_gib = {},
    }
    if type(value.mem_gib) ~= "table" then fault("rewrite.mem_gib", "a table", value.mem_gib) end
    for mem_gib, feature in pairs(value.mem_gib) do
        check_amount("a key of rewrite.mem_gib", mem_gib)
        rewrite.mem_gib[mem_gib] = check_name("rewrite.mem_gib", feature)
    end
    return rewrite
end

local function check_spool(value)
    if value == nil then return nil end
    if type(value) ~= "string" or not value:match("^/[^%z\n]*$") then
        fault("spool_dir", "an absolute path", value)
    end
    return value
end

-- The rules that a configuration's table states; raises what is wrong with it.
local function check_config(given)
    check_keys("the configuration", given, set_of({ "spool_dir", "closed", "require", "caps",
        "advice", "rewrite", "fail_open", "project_as_wckey" }))
    local rules = {
        spool_dir = check_spool(given.spool_dir),
        closed = set_of(check_names("closed", given.closed or {})),
        require = check_tags(given.require or {}),
        caps = given.caps ~= nil and check_caps(given.caps) or nil,
        advice = given.advice ~= nil and check_advice(given.advice) or nil,
        rewrite = given.rewrite ~= nil and check_rewrite(given.rewrite) or nil,
        fail_open = check_choice("fail_open", given.fail_open, true, true, false),
        project_as_wckey = check_choice("project_as_wckey", given.project_as_wckey, false,
            true, false),
    }
    rules.any_closed = next(rules.closed) ~= nil
    local reads_spool = rules.any_closed or rules.caps
        or ((rules.advice or rules.rewrite) and not (rules.advice and rules.advice.gpus))
    if reads_spool and not rules.spool_dir then
        error({ config = "spool_dir is missing; closed, caps and advice without gpus need it" }, 0)
    end
    return rules
end

-- Run the configuration's text with nothing in reach; the table that it returns.
local function evaluate(text, name)
    if text:sub(1, 1) == "\27" then error({ config = "it is compiled, and must be text" }, 0) end
    local chunk, why
    if setfenv then
        chunk, why = loadstring(text, "=" .. name)
        if chunk then setfenv(chunk, {}) end
    else
        chunk, why = load(text, "=" .. name, "t", {})
    end
    if not chunk then error({ config = tostring(why) }, 0) end
    local ok, given = pcall(chunk)
    if not ok then error({ config = tostring(given) }, 0) end
    if type(given) ~= "table" then error({ config = "it must return a table" }, 0) end
    return given
end

-- What stands in a file, up to so many bytes; nil if there is none, raises if it cannot be read.
local function text_of(path, max_bytes)
    local file, why, code = io.open(path, "rb")
    if not file then
        if code == 2 then return nil end
        error({ trouble = shown(why) }, 0)
    end
    local text, fault_of_reading = file:read(max_bytes + 1)
    file:close()
    if not text and fault_of_reading then error({ trouble = shown(fault_of_reading) }, 0) end
    text = text or ""
    if #text > max_bytes then
        error({ trouble = ("%s is longer than %d bytes"):format(path, max_bytes) }, 0)
    end
    return text
end

local function reason_of(failure)
    if type(failure) ~= "table" then return tostring(failure) end
    return failure.config or failure.trouble or "?"
end

-- The rules in force, or nil. The file is looked at once a second at most; one that is broken
-- leaves those in force that were, and one that is gone ends them.
local function rules_now(now_s)
    if config.looked_at_s == now_s then return config.rules end
    config.looked_at_s = now_s
    local ok, text = pcall(text_of, M.config_file, MAX_CONFIG_BYTES)
    if ok and text == config.text and not reported["admission.lua"] then return config.rules end
    local rules
    if ok and text then
        ok, rules = pcall(function() return check_config(evaluate(text, M.config_file)) end)
        text = ok and text or config.text
    elseif ok then
        rules = nil
    else
        rules = text
    end
    if ok then
        config.text, config.rules = text, rules
        spool.looked_at_s = nil -- it may be another folder now
        report_well("admission.lua")
    else
        report("admission.lua", ("%s: %s; %s"):format(M.config_file, reason_of(rules),
            config.rules and "the rules read before stay in force" or "no rule is in force"))
    end
    return config.rules
end

----------------------------------------------------------------------------------------- spool --

local function line_of_tenant(fields, content)
    local name, limit, used = fields:match("^([^\t]+)\t([^\t]+)\t(%d+%.?%d*)$")
    if not name then return false end
    if limit ~= "-" and not limit:match("^%d+%.?%d*$") then return false end
    content.tenants[name:lower()] = { limit = tonumber(limit) or nil, used = tonumber(used) }
    return true
end

local function line_of_gpu(fields, content)
    local model, mem_gib, nvlink = fields:match("^([%w_.%-]+)\t(%d+%.?%d*)\t([01])$")
    if not model then return false end
    content.gpus[model] = { mem_gib = tonumber(mem_gib), nvlink = nvlink == "1" }
    return true
end

local KINDS = { tenant = line_of_tenant, gpu = line_of_gpu }

-- admission.tsv's tenants and GPU models; raises {trouble=} for what is not of that format. A line
-- that says nothing takes no other one's meaning away; skipped tells of the first.
function M.parse_admission(text)
    local header, rest = text:match("^([^\n]*)\n(.*)$")
    local written_at_s = header and header:match("^federator%-admission\t1\t(%d+)$")
    if not written_at_s or #written_at_s > 15 then
        error({ trouble = "admission.tsv does not begin with a header of version 1" }, 0)
    end
    local content = { written_at_s = tonumber(written_at_s), tenants = {}, gpus = {} }
    if rest ~= "" and rest:sub(-1) ~= "\n" then
        error({ trouble = "admission.tsv ends in the middle of a line" }, 0)
    end
    local number = 1
    for line in rest:gmatch("([^\n]*)\n") do
        number = number + 1
        if number > MAX_ADMISSION_LINES then
            error({ trouble = "admission.tsv has too many lines" }, 0)
        end
        local kind, fields = line:match("^(%l+)\t(.*)$")
        if KINDS[kind] and not KINDS[kind](fields, content) and not content.skipped then
            content.skipped = ("admission.tsv, line %d is left out: %s"):format(number, shown(line))
        end
    end
    return content
end

-- Look at admission.tsv: its first line alone, unless that has changed.
local function look_at_admission(path, now_s)
    local file, why, code = io.open(path, "rb")
    if not file then
        error({ trouble = code == 2 and (path .. " is not there") or shown(why) }, 0)
    end
    local header = file:read(64) or ""
    file:close()
    header = header:match("^[^\n]*")
    if header == spool.header and path == spool.path then return end
    spool.content = M.parse_admission(text_of(path, MAX_ADMISSION_BYTES) or "")
    local skipped = spool.content.skipped
    if skipped then report("a line of admission.tsv", skipped) end
    if not skipped then report_well("a line of admission.tsv") end
    -- One that is written in the same second has the same first line.
    local age_s = now_s - spool.content.written_at_s
    spool.header = math.abs(age_s) > 1 and header or nil
    spool.path = path
end

-- What admission.tsv says; raises {trouble=} while it cannot be had.
local function admission(rules, now_s)
    if spool.looked_at_s ~= now_s then
        spool.looked_at_s = now_s
        local ok, failure = pcall(look_at_admission, rules.spool_dir .. "/admission.tsv", now_s)
        spool.trouble = nil
        if not ok then
            spool.trouble, spool.header = reason_of(failure), nil
        end
    end
    if spool.trouble then error({ trouble = spool.trouble, subject = "admission.tsv" }, 0) end
    return spool.content
end

-- Whether a ticket lets this attempt of this user in, and if not, why.
local function ticket_is_good(rules, token, attempt, user, now_s)
    if not token then return false, "it has no ticket" end
    if #token ~= 32 or not token:match("^%x+$") then return false, "its ticket is malformed" end
    local folder = rules.spool_dir .. "/tickets"
    local ok, text = pcall(text_of, folder .. "/" .. token, MAX_TICKET_BYTES)
    if not ok then -- the log is no place for a ticket's name
        local why = "tickets: " .. reason_of(text):gsub("%x+%x+", "..."):sub(-40)
        error({ trouble = why, subject = "tickets" }, 0)
    end
    if not text then
        local file, _, code = io.open(folder, "rb")
        if file then file:close() end
        if not file and code == 2 then
            error({ trouble = folder .. " is not there", subject = "tickets" }, 0)
        end
    end
    report_well("tickets")
    if not text then return false, "its ticket is not known (any more)" end
    local named, owner, expires_at_s = text:match("^(fed:%d+:%d+) (%S+) (%d+)\n$")
    if not named or #expires_at_s > 15 then return false, "its ticket is damaged" end
    if named ~= attempt then return false, "its ticket is for another attempt" end
    if owner ~= user then return false, "its ticket is for another user" end
    if now_s >= tonumber(expires_at_s) then return false, "its ticket has expired" end
    return true
end

--------------------------------------------------------------------------------- what is asked --

-- The partitions that a job may come to run in: those it names, else its reservation's, else the
-- default one; and for one that is drained, its alternate, to which Slurm sends it unasked.
local function partitions_of(job, parts)
    local names = words_of(job.partition)
    if #names == 0 then
        for _, reservation in ipairs(words_of(job.reservation)) do
            local known = slurm.reservations and slurm.reservations[reservation]
            if known and known.partition then names[#names + 1] = known.partition end
        end
    end
    if #names == 0 then
        for name, part in pairs(parts or {}) do
            if part.flag_default == 1 or part.flag_default == true then names[1] = name end
        end
    end
    for index = 1, #names do
        local name = names[index]
        for _ = 1, MAX_ALTERNATES do
            local part = parts and parts[name]
            local takes_jobs = not part or type(part.state_up) ~= "number"
                or part.state_up % 2 == 1
            if takes_jobs or not part.alternate then break end
            name = part.alternate
            names[#names + 1] = name
        end
    end
    return names
end

local function any_of(names, covers)
    for _, name in ipairs(names) do
        if covers(name) then return name end
    end
    return nil
end

-- The GPUs of a gres or TRES text: a list of {model= or nil, count=, item=, bare=}, where item is
-- what stands there and bare the same without a model. "gres:gpu:a100:2", "gres/gpu:a100=2", "gpu".
function M.gpus_in(text)
    local found = {}
    for item in (text or ""):gmatch("[^,]+") do
        local lead, rest = item:match("^(gres[:/]gpu)(.*)$")
        if not lead then lead, rest = item:match("^(gpu)(.*)$") end
        if lead and (rest == "" or rest:match("^[:=]")) then
            local pieces = {}
            for piece in rest:gmatch("[:=][^:=]*") do pieces[#pieces + 1] = piece end
            local amount = (pieces[#pieces] or ""):match("^[:=]%d+[kKmMgGtTpP]?$")
            local model = pieces[1] and pieces[1] ~= (#pieces == 1 and amount) and pieces[1]:sub(2)
            if #pieces <= 2 and (amount or #pieces < 2) and model ~= "" then
                local power = ({ k = 1, m = 2, g = 3, t = 4, p = 5 })[
                    (amount or ""):match("%a?$"):lower()]
                found[#found + 1] = {
                    model = model or nil,
                    count = (tonumber((amount or "1"):match("%d+")) or 1) * 1024 ^ (power or 0),
                    item = item,
                    bare = lead .. (amount or ""),
                }
            end
        end
    end
    return found
end

local function gpu_count(text)
    local count = 0
    for _, gpu in ipairs(M.gpus_in(text)) do count = count + gpu.count end
    return count
end

-- The fewest GPUs that a job can come to hold: a lower bound where it leaves things open.
local function gpus_asked(job)
    local nodes = count_of(job.min_nodes, NO_COUNT) or 1
    local per_node = count_of(job.ntasks_per_node, NO_COUNT_16)
    local tasks = count_of(job.num_tasks, NO_COUNT)
    if tasks and per_node then nodes = math.max(nodes, math.ceil(tasks / per_node)) end
    tasks = tasks or nodes * (per_node or 1)
    return math.max(
        gpu_count(job.tres_per_job),
        gpu_count(job.tres_per_node) * nodes,
        gpu_count(job.tres_per_socket) * nodes,
        gpu_count(job.tres_per_task) * tasks)
end

-- The name of a project as --fed-project takes it; nil for anything else.
local function as_project(text)
    return text and #text <= 64 and text:match("^%w[%w._-]*$") or nil
end

-- The project that a job is tagged with: FED_PROJECT of its environment, which only sbatch sends,
-- or of --fed-project as the SPANK plugin passes it on, or else the wckey.
local function project_of(job)
    local environment = job.environment
    local project = as_project(environment and environment.FED_PROJECT)
    if project then return project end
    local passed_on = job.spank_job_env
    if type(passed_on) == "table" then
        for _, entry in pairs(passed_on) do
            entry = tostring(entry)
            project = as_project(entry:match("^FED_PROJECT=(.+)$")
                or entry:match("^SPANK_FED_PROJECT=(.+)$"))
            if project then return project end
        end
    end
    local wckey = job.wckey
    return wckey and wckey:match("%w") and wckey or nil -- Slurm marks a default one with "*"
end

-- The account that a job is for, in small letters, as Slurm keeps it; the user's default one if it
-- names none.
local function account_of(job)
    local account = job.account
    if not account or account == "" then account = job.default_account end
    return account and account ~= "" and account:lower() or nil
end

----------------------------------------------------------------------------------------- rules --
-- Each rule returns nil, or the code that refuses the job; what it has to say goes to case:say().

local function refusal(case, code, message)
    case:say(message)
    return slurm[code] or slurm.ERROR
end

-- Where else a job may go at this site, as the end of a sentence.
local function open_partitions(case)
    local names = {}
    for name in pairs(case.parts or {}) do
        if not case.rules.closed[name] then names[#names + 1] = shown(name) end
    end
    if #names == 0 or #names > 5 then return "" end
    table.sort(names)
    return ", or at this site alone with --partition=" .. table.concat(names, " or ")
end

-- The ticket of a job with the federation's mark, and whether it came in the comment. There it
-- counts only if the environment has none: what else stands there is the user's, whatever it says.
-- In the comment the job's project follows, as such a job has no FED_PROJECT either.
local function ticket_of(job)
    local environment = job.environment
    local token = environment and environment.FED_TICKET
    if token then return token, false end
    local word = job.comment:match("^%S+%s+ticket=(%S+)")
    if not word then return nil, false end
    local named, project = word:match("^(%x+),project=(.*)$")
    return named or word, true, project
end

-- See whether a job with the federation's mark has a good ticket: case.ticketed; returns why not.
local function look_at_ticket(case, attempt)
    local job = case.job
    local token, in_comment, project = ticket_of(job)
    if not job.user_name then error({ trouble = "the submitting user's name is not known" }, 0) end
    local good, why = ticket_is_good(case.rules, token, attempt, job.user_name, case.now_s)
    case.ticketed = good
    if good and in_comment then -- others may see a job's comment
        job.comment = job.comment:gsub("^(%S+)%s+ticket=%S+", "%1")
        case.project = as_project(project)
    end
    return why
end

-- A federation partition takes only what the federation's agent brings, with a ticket. Where none
-- is closed, a good ticket still tells other rules whose the job is, and a bad one means nothing.
local function rule_closed(case)
    local rules = case.rules
    local attempt = attempt_of(case.job.comment)
    local why = "this is none of them"
    if attempt and rules.spool_dir then
        local ok, answer = pcall(look_at_ticket, case, attempt)
        if not ok and rules.any_closed then error(answer, 0) end
        if not ok then report("tickets", reason_of(answer)) end
        why = answer
    end
    local closed = any_of(case.partitions, function(name) return rules.closed[name] end)
    if case.ticketed or not rules.any_closed or not (closed or attempt) then return nil end
    if not closed then
        return refusal(case, "ESLURM_ACCESS_DENIED", ("refused: a comment that begins with %s "
            .. "marks the federation's own jobs, and %s. Choose another comment, or submit with "
            .. "fsbatch."):format(attempt, why))
    end
    return refusal(case, "ESLURM_ACCESS_DENIED", ("refused: partition %s%s takes jobs of the "
        .. "federation only, and %s. Submit with fsbatch (same options, no --partition)%s."):format(
        shown(closed), case.job.partition and "" or ", the default one,", why,
        open_partitions(case)))
end

-- No tag, no schedule. Of a change, only what it touches: concerns(partition, tag).
local function rule_tags(case, concerns)
    local rules = case.rules
    if not next(rules.require) then return nil end
    local account, project = account_of(case.job), case.project or project_of(case.job)
    local changed = concerns and "Add %s to the change." or nil
    for _, partition in ipairs(case.partitions) do
        local tags = rules.require[partition] or rules.require["*"] or {}
        if tags.account and not account and (not concerns or concerns(partition, "account")) then
            return refusal(case, "ESLURM_INVALID_ACCOUNT", ("refused: jobs in partition %s need an "
                .. "account, so that their use can be attributed. %s"):format(shown(partition),
                changed and changed:format("account=NAME") or "Add --account=NAME."))
        end
        if tags.project and not project and (not concerns or concerns(partition, "project")) then
            return refusal(case, "ERROR", ("refused: jobs in partition %s need a project, so that "
                .. "their use can be attributed. %s"):format(shown(partition),
                changed and changed:format("wckey=NAME") or "Add --fed-project=NAME or "
                .. "--wckey=NAME (in the environment: FED_PROJECT=NAME for sbatch, "
                .. "SBATCH_FED_PROJECT=NAME for fsbatch)."))
        end
    end
    return nil
end

-- What one of the choices refuse, warn, off makes of a finding.
local function as_chosen(case, choice, message)
    if choice == "refuse" then
        return refusal(case, "ESLURM_ACCOUNTING_POLICY", "refused: " .. message)
    end
    if choice == "warn" then case:say("note: " .. message) end
    return nil
end

-- The tenant's limit in the federation holds here, too.
local function rule_caps(case)
    local caps = case.rules.caps
    if not caps or case.ticketed or not any_of(case.partitions, caps.covers) then return nil end
    local asked = gpus_asked(case.job)
    if asked == 0 then return nil end
    local known = admission(case.rules, case.now_s)
    local age_s = case.now_s - known.written_at_s
    local fresh = age_s <= caps.max_age_s
    if fresh then
        report_well("admission.tsv")
    else
        report("admission.tsv", ("admission.tsv is of %s, more than %s s old; what "
            .. "tenants use is not counted until it is new"):format(
            number_text(known.written_at_s), number_text(caps.max_age_s)))
    end
    local account = account_of(case.job)
    local tenant = account and known.tenants[account]
    if not tenant or not tenant.limit then return nil end
    if asked > tenant.limit then
        return as_chosen(case, caps.over_limit, ("this job asks for %s GPUs, and account %s may "
            .. "use %s at once. Ask for fewer, or have the limit raised by the federation's "
            .. "admins."):format(number_text(asked), shown(account),
            number_text(tenant.limit)))
    end
    if fresh and tenant.used + asked > tenant.limit then
        return as_chosen(case, caps.over_used, ("account %s uses %s GPUs of the %s that it may at "
            .. "once; with the %s of this job it would be %s. Wait until some are free, or submit "
            .. "with fsbatch, which waits for you."):format(
            shown(account), number_text(tenant.used), number_text(tenant.limit),
            number_text(asked), number_text(tenant.used + asked)))
    end
    return nil
end

local function models_that_would_do(gpus, model)
    local needed, others = gpus[model], {}
    for name, about in pairs(gpus) do
        if name ~= model and about.mem_gib >= needed.mem_gib
            and (about.nvlink or not needed.nvlink) then
            others[#others + 1] = name
        end
    end
    table.sort(others)
    return others
end

-- The first GPU model that a job insists on by name though others would do; nil if none. Whoever
-- asks for the model by a feature, too, means it.
local function needless_model(texts, features, gpus)
    if #table.concat(texts) + #(features or "") > MAX_ADVISED_BYTES then return nil end
    local meant = set_of(words_of((features or ""):gsub("[^%w_.%-]", ",")))
    local seen = {}
    for _, text in ipairs(texts) do
        for _, gpu in ipairs(M.gpus_in(text)) do
            local model = gpu.model
            if model and gpus[model] and not meant[model] and not seen[model] then
                seen[model] = true
                local others = models_that_would_do(gpus, model)
                if #others > 0 then return gpu, gpus[model], others end
            end
        end
    end
    return nil
end

-- The text of the advice for a GPU that was asked for by its model's name.
local function advice_text(gpu, about, others)
    local model, gib = shown(gpu.model), number_text(about.mem_gib)
    local nvlink = about.nvlink
    return ("note: gpu:%s names one model, and the job waits for that one alone. If %s GiB%s are "
        .. "what it needs, %s would do, too: fsbatch --fed-gpu-mem=%sG%s, with %s in place of %s. "
        .. "If it must be %s, add --constraint=%s and this note is not shown."):format(
        model, gib, nvlink and " with NVLink" or "", table.concat(others, " or "),
        gib, nvlink and " --fed-nvlink" or "", shown(gpu.bare:gsub("^gres[:/]", "")),
        shown(gpu.item:gsub("^gres[:/]", "")), model, model)
end

local function gres_texts(job, fields)
    local texts = {}
    for _, field in ipairs(fields) do texts[#texts + 1] = job[field] end
    return texts
end

-- The feature that stands for what a model can do; nil if the site has not said one for all of it.
local function feature_for(rewrite, about)
    local memory = rewrite.mem_gib[about.mem_gib]
    if not memory or (about.nvlink and not rewrite.nvlink) then return nil end
    return about.nvlink and rewrite.nvlink .. "&" .. memory or memory
end

-- Ask for what the model can do, not for its name; tells whether the job was changed. Only in the
-- user's own command: steps ask for what sbatch or srun were given, so a change made by slurmctld
-- would leave them without GPUs.
local function rewritten(case, gpu, about, others)
    local rewrite, job = case.rules.rewrite, case.job
    for _, partition in ipairs(case.partitions) do
        if not rewrite.covers(partition) then return false end
    end
    local feature, features = feature_for(rewrite, about), job.features
    if features == "" then features = nil end
    if not feature or (features and not features:match("^[%w_.&%-]+$")) then return false end
    local changes = {}
    for _, field in ipairs(GRES_OPTIONS) do
        local items = words_of(job[field])
        for index, item in ipairs(items) do
            local one = M.gpus_in(item)[1]
            if one and one.model and one.model ~= gpu.model then return false end -- several models
            if one and one.model then items[index], changes[field] = one.bare, items end
        end
    end
    case.changes = {}
    for field, items in pairs(changes) do case.changes[field] = table.concat(items, ",") end
    local wanted = features and features .. "&" .. feature or feature
    case.changes.constraint = wanted
    case:say(("note: %s was changed to %s with --constraint='%s', so that %s will do, too. If it "
        .. "must be %s, add --constraint=%s and nothing is changed."):format(
        shown(gpu.item:gsub("^gres[:/]", "")), shown(gpu.bare:gsub("^gres[:/]", "")),
        shown(wanted), table.concat(others, " or "), shown(gpu.model), shown(gpu.model)))
    return true
end

-- Whoever asks for a model by name may wait for it in vain.
local function advise(case, by)
    local advice, rewrite = case.rules.advice, case.rules.rewrite
    -- A user's command does not know which partition is the default one.
    local speaks = advice and (advice.by == by
        or (by == "controller" and not case.job.partition and not advice.covers("*")))
    local advised = speaks and any_of(case.partitions, advice.covers)
    local changed = by == "client" and rewrite and any_of(case.partitions, rewrite.covers)
    if case.ticketed or not (advised or changed) then return end
    local texts = gres_texts(case.job, by == "client" and GRES_OPTIONS or GRES_FIELDS)
    if #texts == 0 then return end
    local gpus = advice and advice.gpus or admission(case.rules, case.now_s).gpus
    local gpu, about, others = needless_model(texts, case.job.features, gpus)
    report_well("advice")
    if not gpu then return end
    if changed and rewritten(case, gpu, about, others) then return end
    if advised then case:say(advice_text(gpu, about, others)) end
end

-- Advice that cannot be had refuses nobody, whatever fail_open says.
local function rule_advice(case)
    local ok, failure = pcall(advise, case, "controller")
    if not ok then report("advice", reason_of(failure)) end
    return nil
end

-- What a user may not change of a job in the queue, where the federation has jobs of its own.
local function rule_marked(case, record)
    local rules = case.rules
    if not rules.any_closed then return nil end
    local attempt, was = attempt_of(record.comment), set_of(words_of(record.partition))
    local wanted = case.job.partition and partitions_of(case.job, case.parts) or {}
    for _, name in ipairs(wanted) do
        if rules.closed[name] and not was[name] then
            return refusal(case, "ESLURM_ACCESS_DENIED", ("refused: partition %s takes jobs of the "
                .. "federation only, so no other job can be moved there. Submit with fsbatch "
                .. "instead."):format(shown(name)))
        end
        if attempt and not was[name] then
            return refusal(case, "ESLURM_ACCESS_DENIED", "refused: the federation chose the "
                .. "partition of its job. Cancel with fscancel, and submit with other options.")
        end
    end
    local comment = case.job.comment
    if comment and attempt_of(comment) ~= attempt then
        return refusal(case, "ESLURM_ACCESS_DENIED", attempt and ("refused: the comment of a job "
            .. "of the federation must go on beginning with %s."):format(attempt)
            or "refused: a comment that begins with fed: marks the federation's own jobs. Choose "
            .. "another comment.")
    end
    case.ticketed = attempt ~= nil -- none other has such a comment
    return nil
end

-- The job as a change would leave it, as far as Slurm says it: of tasks, and of the environment,
-- the record of a job has nothing.
local function changed_job(change, record)
    local job = {
        default_account = change.default_account,
        min_nodes = count_of(change.min_nodes, NO_COUNT) or record.min_nodes,
        num_tasks = change.num_tasks,
        ntasks_per_node = change.ntasks_per_node,
        spank_job_env = record.spank_job_env,
    }
    for _, field in ipairs(KEPT_FIELDS) do job[field] = change[field] or record[field] end
    for _, field in ipairs(GRES_FIELDS) do job[field] = change[field] or record[field] end
    return job
end

-- What holds for a submission holds for a change as well, of what it touches: a partition that the
-- job enters, a tag that it loses, GPUs that it asks for in addition.
local function rule_changed(case, record)
    local change, was = case.job, set_of(words_of(record.partition))
    local before_gpus = gpus_asked(changed_job({}, record))
    case.job = changed_job(change, record)
    case.partitions = partitions_of(case.job, case.parts)
    local given = { account = change.account, project = change.wckey }
    local verdict = rule_tags(case, function(partition, tag)
        return given[tag] ~= nil or (change.partition ~= nil and not was[partition])
    end)
    if verdict then return verdict end
    local grows = gpus_asked(case.job) > before_gpus
    if grows and case.ticketed then
        return refusal(case, "ESLURM_ACCESS_DENIED", "refused: the federation chose the size of "
            .. "its job. Cancel with fscancel, and submit with other options.")
    end
    if grows or change.partition or change.account then return rule_caps(case) end
    return nil
end

------------------------------------------------------------------------------------ the plugin --

-- A job under judgement, and what there is to say of it to its owner.
local function case_of(rules, job, parts, now_s)
    local case = { rules = rules, job = job, parts = parts, now_s = now_s, said = {} }
    function case:say(message) self.said[#self.said + 1] = message end
    return case
end

local function tell(case)
    if #case.said > 0 then slurm.log_user("%s", table.concat(case.said, "\n")) end
end

local function judge_submission(rules, now_s, job, parts)
    local case = case_of(rules, job, parts, now_s)
    case.partitions = partitions_of(job, parts)
    local verdict = rule_closed(case) or rule_tags(case) or rule_caps(case) or rule_advice(case)
    tell(case)
    return verdict or slurm.SUCCESS
end

local function judge_change(rules, now_s, job, parts, record)
    local case = case_of(rules, job, parts, now_s)
    local verdict = rule_marked(case, record) or rule_changed(case, record)
    tell(case)
    return verdict or slurm.SUCCESS
end

-- An error of our own: say so once, and do what the site has chosen.
local function failed(failure)
    report(type(failure) == "table" and failure.subject or "admission", reason_of(failure))
    if not config.rules or config.rules.fail_open then return slurm.SUCCESS end
    slurm.log_user("%s", "refused: the federation's admission rules could not be checked ("
        .. shown(reason_of(failure)) .. "). Tell the site's admins, and try again later.")
    return slurm.ERROR
end

local function guarded(judge, uid, ...)
    local ok, verdict = pcall(function(...)
        local now_s = os.time()
        local rules = rules_now(now_s)
        if not rules or uid == 0 or uid == OWN_UID then return slurm.SUCCESS end
        local found = judge(rules, now_s, ...)
        return found
    end, ...)
    if ok then return verdict end
    ok, verdict = pcall(failed, verdict)
    return ok and verdict or 0
end

-- The fields of a job that the rules read, from the options of a user's command. All options that
-- ask for GPUs are in the form of --gres.
local function job_of(options)
    local job = { comment = options.comment, features = options.constraint }
    for _, option in ipairs(GRES_OPTIONS) do
        local value = options[option]
        if value and option ~= "gres" then value = tostring(value):gsub("[^,]+", "gpu:%0") end
        job[option] = value
    end
    return job
end

-- Give a user's command the options that a rewrite has chosen.
local function carry_out(changes, options)
    for option, value in pairs(changes) do
        if option ~= "gres" and option ~= "constraint" then
            value = value:gsub("[^,]+", function(item)
                local rest = item:gsub("^gpu[:=]?", "")
                return rest ~= "" and rest or "1"
            end)
        end
        options[option] = value
    end
end

local function hint(options)
    local rules = rules_now(os.time())
    local is_step = options.type == "srun" and os.getenv("SLURM_JOB_ID")
    if not rules or is_step or OWN_UID == 0 then return end
    local job = job_of(options)
    local case = case_of(rules, job, nil, os.time())
    case.partitions = words_of(options.partition or "*") -- the default one's name is not known here
    local closed = any_of(case.partitions, function(name) return rules.closed[name] end)
    if closed and not attempt_of(job.comment) then
        local how = options.type == "sbatch" and "type fsbatch for sbatch, with the same options"
            or "put the command into a script for fsbatch, with the same options"
        case:say(("partition %s takes jobs of the federation only: %s and no --partition"):format(
            shown(closed), how))
    end
    if pcall(advise, case, "client") and case.changes then carry_out(case.changes, options) end
    local project = os.getenv("FED_PROJECT")
    if rules.project_as_wckey and project and project ~= "" and not options.wckey then
        options.wckey = project -- srun and salloc send no environment
    end
    for _, message in ipairs(case.said) do slurm.log_info("%s", message) end
end

-- For slurm_job_submit: slurm.SUCCESS, or the code to refuse the job with.
function M.job_submit(job, parts, submit_uid)
    return guarded(judge_submission, submit_uid, job, parts)
end

-- For slurm_job_modify: slurm.SUCCESS, or the code to refuse the change with.
function M.job_modify(job, record, parts, modify_uid)
    return guarded(judge_change, modify_uid, job, parts, record)
end

-- For slurm_cli_pre_submit, in a user's command: says early what slurmctld would say, in words that
-- fit the command. It refuses nothing: whoever wants to can go round it.
function M.cli_pre_submit(options)
    quiet = true
    pcall(hint, options)
    return slurm.SUCCESS
end

return M
