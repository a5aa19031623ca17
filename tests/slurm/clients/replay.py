"""Programs that call Slurm, by their command lines and by how they read the answers.

Run where Slurm's names are on PATH, as ``replay.py PROGRAM``: a small pipeline is submitted, asked
about and cancelled as that program does it, and what the program makes of it is printed as JSON.
Only what the standard library of any Python has is needed. Each row of ``PROGRAMS`` is one program;
lines and expressions are its own, paths and names are ours.
"""

import csv
import getpass
import json
import re
import subprocess
import sys
import time
from pathlib import Path

USER = getpass.getuser()
SCRIPTS = {
    "good": "echo well",
    "bad": "sleep 1; exit 3",
    "stopped": "sleep 600",
    "array": "echo part $SLURM_ARRAY_TASK_ID",
    "after": "echo after",
}
PATIENCE_S = 400
US = "\x1f"
OOD_FIELDS = (
    "Account JobID BatchHost MinCpus NumCPUs MinTmpDisk NumNodes EndTime Dependency Feature "
    "ArrayJobID GroupName GroupID OverSubscribe Sockets JobArrayID Cores Name Threads Comment "
    "ArrayTaskID TimeLimit TimeLeft MinMemory TimeUsed ReqNodes NodeList Command Contiguous QOS "
    "Partition PriorityLong Reason StartTime StateCompact State UserName UserID Reservation "
    "SubmitTime WCKey Licenses ExcNodes CoreSpec Nice SchedNodes SCT WorkDir tres-alloc "
    "tres-per-node"
)
TORCHX_STATES = (
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING PREEMPTED "
    "RUNNING REQUEUED RESIZING REVOKED SUSPENDED TIMEOUT"
)


def call(argv, stdin="", status=0):
    """What a command prints; it must end with this status, None: with any."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    if status is not None and done.returncode != status:
        raise SystemExit(f"{argv}: {done.returncode}\n{done.stderr}")
    return done.stdout


class Program:
    """One program; ``ends``: its words for the ends of good, bad and stopped."""

    options = ()  # of sbatch
    header = ()  # lines of the script
    on_stdin = False
    ends = ("COMPLETED", "FAILED", "CANCELLED")
    array_option = "--array=0-2"
    dependency_option = ""  # with {}, where the program has one

    def submit(self, name, *more):
        """The id of a new job."""
        lines = ["#!/bin/bash", *self.header, SCRIPTS[name], ""]
        argv = ["sbatch", *self.options, *more]
        if self.on_stdin:
            return self.read_id(call(argv, "\n".join(lines)))
        path = Path.cwd() / f"{type(self).__name__}-{name}.sh"
        path.write_text("\n".join(lines))
        return self.read_id(call([*argv, str(path)]))

    def read_id(self, text):
        return re.search(r"Submitted batch job (\d+)", text).group(1)

    def state(self, id_):
        raise NotImplementedError

    def cancel(self, id_):
        call(["scancel", id_])

    def look(self):
        """What else it asks; answers are checked here."""


class Nextflow(Program):
    """Header lines; all jobs of the user in one look, two words a line."""

    header = (
        *("#SBATCH -J nf-job", "#SBATCH -o .command.log", "#SBATCH --no-requeue"),
        *("#SBATCH --signal B:USR2@30", "#SBATCH -c 1", "#SBATCH -t 00:10:00"),
        *("#SBATCH --mem 100M", "#SBATCH -p fed"),
    )
    ends = ("CD", "F", "CA")

    def state(self, id_):
        seen = {}
        text = call(["squeue", "--noheader", "-o", "%i %t", "-t", "all", "-p", "fed", "-u", USER])
        for line in text.splitlines():
            words = line.split()
            assert len(words) == 2, line
            seen[words[0]] = words[1]
        return seen[id_]

    def look(self):
        for line in call(["squeue", "--only-job-state", "--noheader", "-o", "%i %t"]).splitlines():
            assert len(line.split()) == 2, line


class Batchspawner(Program):
    """The script comes on standard input; the state and the host to reach stand in one line."""

    on_stdin = True
    options = ("--parsable",)
    header = (
        *("#SBATCH --output=spawner.log", "#SBATCH --job-name=spawner-jupyterhub"),
        *(f"#SBATCH --chdir={Path.cwd()}", "#SBATCH --export=PATH,LANG"),
        *("#SBATCH --get-user-env=L", "#SBATCH --partition=fed", "#SBATCH --time=10", "#SBATCH "),
    )
    ends = ("gone", "gone", "gone")

    def read_id(self, text):
        return str(int(text.splitlines()[-1].split(";")[0]))

    def state(self, id_):
        text = call(["squeue", "-h", "-j", id_, "-o", "%T %B"])
        if re.search(r"^(?:RUNNING|COMPLETING)", text):
            assert re.search(r"\W([\w_-]+(?:\.[\w_-]+)*)\s*$", text), text
            return "running"
        return "pending" if re.search(r"^(?:PENDING|CONFIGURING)", text) else "gone"


class OpenOnDemand(Program):
    """Fifty fields with a separator that no text has; names the cluster on each line."""

    on_stdin = True
    options = (
        *("-D", str(Path.cwd()), "-J", "ood", "-o", "ood.out", "-t", "00:10:00", "-p", "fed"),
        *("--export", "NONE", "--parsable", "-M", "testbed"),
    )
    ends = ("CD", "F", "CA")
    dependency_option = "-d afterok:{}"
    array_option = "-a 0-2"
    fields = tuple(OOD_FIELDS.split())

    def read_id(self, text):
        return text.strip().split(";")[0]

    def state(self, id_):
        wanted = "".join(f"{name}:{US}," for name in self.fields)
        argv = ["squeue", "--all", "--states=all", "--noconvert", "-O", wanted, "-j", id_]
        text = call([*argv, "-M", "testbed"])
        rows = text[text.index(US + "\n") + 2 :].split(US + "\n")
        row = dict(zip(self.fields, rows[0].split(US), strict=False))
        assert row["JobArrayID"].strip() == id_, row
        return row["StateCompact"].strip()

    def cancel(self, id_):
        call(["scontrol", "hold", id_], status=None)
        call(["scontrol", "release", id_], status=None)
        call(["scancel", id_, "-M", "testbed"])

    def look(self):
        assert re.fullmatch(r"(\d+/){3}\d+/(\d+/){3}\d+\n", call(["sinfo", "-aho", "%F/%C"]))
        nodes = call(["sinfo", "-ahNO", "nodehost:100,gres:512,gresused:512,statelong"])
        assert all(len(line.split()) == 4 for line in nodes.splitlines()), nodes
        for line in call(["scontrol", "show", "part", "-o"]).splitlines():
            assert re.match(r"PartitionName=(\S+)", line), line
        features = call(["sinfo", "-ho", "\x1e%c\x1f%n\x1f%f"])
        assert all(len(row.split(US)) == 3 for row in features.split("\x1e")[1:])


class Cromwell(Program):
    """A job is alive while squeue knows it: the exit status alone counts."""

    options = (
        *("-J", "cromwell", "-D", str(Path.cwd()), "-o", "out", "-e", "err", "-t", "10"),
        *("-p", "fed", "-c", "1", "--mem-per-cpu", "100"),
    )
    ends = ("alive", "alive", "alive")  # its own file of the exit status says the rest

    def submit(self, name, *more):
        path = Path.cwd() / f"cromwell-{name}.sh"
        path.write_text(SCRIPTS[name] + "\n")
        wrap = f"--wrap=/bin/bash {path}"
        return self.read_id(call(["sbatch", *self.options, *more, wrap]))

    def read_id(self, text):
        return re.match(r"Submitted batch job (\d+).*", text).group(1)

    def state(self, id_):
        done = subprocess.run(["squeue", "-j", id_], capture_output=True, check=False)
        return "dead" if done.returncode else "alive"

    def look(self):
        assert self.state("12345") == "dead"


class Toil(Program):
    """Many jobs in one question to sacct; then to scontrol, in records of NAME=VALUE."""

    options = (
        *("-J", "toil_job_1_x", "--signal=B:INT@30", "--export=ALL", "--mem=100"),
        *("--cpus-per-task=1", "--time=0:600", "-o", "toil.out", "-e", "toil.err"),
        *("--partition=fed",),
    )

    def submit(self, name, *more):
        command = f"--wrap=exec sh -c '{SCRIPTS[name]}'"
        return self.read_id(call(["sbatch", *self.options, *more, command]))

    def read_id(self, text):
        return str(int(text.strip().split()[-1]))

    def state(self, id_):
        argv = ["sacct", "-n", "-j", f"{id_},{id_}", "--format", "JobIDRaw,State,ExitCode"]
        rows = [line.split("|") for line in call([*argv, "-P", "-S", "1970-01-01"]).splitlines()]
        (row,) = [row for row in rows if row[0] == id_]
        record = self.by_scontrol(id_)
        assert record["JobId"] == id_
        if row[1] == "FAILED":  # then the later answer says so, too
            assert row[2] == record["ExitCode"] == "3:0", (row, record)
        return row[1].split(" ")[0]

    def by_scontrol(self, id_):
        record = {}
        for line in call(["scontrol", "show", "job", id_]).splitlines():
            for item in line.split(" "):
                name, equals, value = item.partition("=")
                if equals:
                    record[name] = value
        return record

    def look(self):
        for line in call(["squeue", "-h", "--format", "%i %t %M"]).splitlines():
            assert len(line.split()) == 3, line
        for line in call(["sinfo", "-a", "-o", "%P %G %l %p %c %m"]).splitlines():
            assert len(line.split()) == 6, line


class Torchx(Program):
    """Het groups; sacct's default columns; every state must be one of its table."""

    options = ("--parsable",)
    header = (
        *("#SBATCH --job-name=trainer-0 --nodes=1 --ntasks-per-node=1 --mem=100",),
        *("#SBATCH --partition=fed --time=10",),
    )
    states = tuple(TORCHX_STATES.split())

    def read_id(self, text):
        return text.strip()

    def state(self, id_):
        text = call(["sacct", "--parsable2", "-j", id_])
        states = []
        for row in csv.DictReader(text.splitlines(), delimiter="|"):
            job_id, *parts = row["JobID"].split("+")
            if job_id != id_ or (parts and "." in parts[0]):
                continue
            state = row["State"].split(" ")[0]
            assert state in self.states, row
            assert row["JobName"], row
            states.append(state)
        return states[-1]

    def look(self):
        jobs = json.loads(call(["sacct", "--json", "-S1970-01-01-00:00:01"]))["jobs"]
        assert all(job["job_id"] and job["state"]["current"] for job in jobs)


class Prefect(Program):
    """Options alone; signals after the id."""

    on_stdin = True
    options = (
        *("--parsable", "--nodes=1", "--ntasks=1", "--time=00:10:00", "--mem=100M"),
        *("--partition=fed", "--output=prefect.out", "--error=prefect.err"),
    )

    def read_id(self, text):
        return str(int(text.strip()))

    def state(self, id_):
        argv = ["squeue", f"--job={id_}", "--noheader", "--state=all"]
        state, code = call([*argv, "--Format=State,exit_code"]).split()
        assert re.fullmatch(r"\d+:\d+", code), code
        return state

    def cancel(self, id_):
        call(["scancel", id_, "--signal=SIGKILL"])


class Flytekit(Program):
    """Options with their values as words of their own; JSON of scontrol."""

    options = ("--partition", "fed", "--time", "10", "--output", "flyte.out", "--mem", "100")

    def read_id(self, text):
        return text.split()[-1]

    def state(self, id_):
        (job,) = json.loads(call(["scontrol", "--json", "show", "job", id_]))["jobs"]
        assert job["standard_output"].endswith("flyte.out"), job["standard_output"]
        return job["job_state"][0]


class Mlflow(Program):
    """Reads the second line of what squeue prints."""

    options = ("--partition=fed", "--time=10", "--output=mlflow-%j.out")
    ends = ("CD", "F", "CA")
    dependency_option = "--dependency=afterok:{}"

    def state(self, id_):
        text = call(["squeue", "--state=all", f"--job={id_}", "-o%A,%t"])
        found, state = text.splitlines()[1].split(",")
        assert found == id_
        return state


class Covalent(Program):
    """Metaflow's, too: a word out of scontrol's record."""

    options = ("--partition=fed", "--time=10")

    def read_id(self, text):
        return re.findall(r"\d+", text)[0]

    def state(self, id_):
        return re.search(r"JobState=(\w+)", call(["scontrol", "show", "job", id_])).group(1)


class Dagster(Program):
    """squeue while it lives, sacct afterwards."""

    options = ("--partition=fed", "--time=10", "--parsable")

    def read_id(self, text):
        return text.strip()

    def state(self, id_):
        alive = call(["squeue", "-h", "-j", id_, "-o", "%T"]).strip()
        if alive:
            return alive
        text = call(["sacct", "-j", id_, "-o", "JobID,State,ExitCode", "-P"])
        return text.splitlines()[1].split("|")[1].split(" ")[0]


PROGRAMS = {
    program.__name__.lower(): program
    for program in (
        *(Nextflow, Batchspawner, OpenOnDemand, Cromwell, Toil, Torchx, Prefect, Flytekit),
        *(Mlflow, Covalent, Dagster),
    )
}
LIVES = frozenset(
    ("PD", "R", "CG", "CF", "pending", "running", "PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
)


def main():
    """Run the pipeline of one program, and print the states that it has seen at the end."""
    program = PROGRAMS[sys.argv[1]]()
    ids = {name: program.submit(name) for name in ("good", "bad", "stopped")}
    first = program.submit("array", *program.array_option.split())
    if program.dependency_option:
        option = program.dependency_option.format(ids["good"])
        ids["after"] = program.submit("after", *option.split())
    seen = {name: program.state(id_) for name, id_ in ids.items()}  # at once, as some ask
    program.look()
    program.cancel(ids["stopped"])
    deadline = time.monotonic() + PATIENCE_S
    waits = dict(ids)
    while waits and time.monotonic() < deadline:
        for name, id_ in list(waits.items()):
            seen[name] = program.state(id_)
            if seen[name] not in LIVES and not (seen[name] == "alive" and live(id_)):
                del waits[name]
        time.sleep(0.5)
    while live(first) and time.monotonic() < deadline:
        time.sleep(0.5)
    states = call(["squeue", "-h", "-r", "-t", "all", "-j", first, "-o", "%i %T"]).split("\n")
    seen["array"] = sorted(line.replace(first, "ID") for line in states if line)
    print(json.dumps({"states": seen, "waits": waits}))


def live(id_):
    """Whether a job, or a task of its array, has not ended; asked in one way for all programs."""
    return bool(call(["squeue", "-h", "-j", id_, "-o", "%i"]).strip())


if __name__ == "__main__":
    main()
