"""A slurmctld's worth of Lua: the module in a real interpreter, with as much of Slurm as it sees.

Strings cross as Latin-1, one character a byte, so that any bytes can be tried. What a job has was
noted from slurmctld 22.05, 24.11 and 26.05: numbers that are not given are 2**32 - 2 or 2**16 - 2,
text is nil, srun and salloc send no environment, GPUs are "gres:gpu:..." in 22.05 and later
"gres/gpu:..." or "gres/gpu=...". A field that is not on the module's list raises an error here; one
of them ends a real slurmctld 24.11.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federator.testbed.layout import REPOSITORY

SOURCES: Final = REPOSITORY / "job_submit"
VERSIONS: Final = ("lua51", "lua52", "lua53", "lua54")
SUCCESS, ERROR = 0, -1
ACCESS_DENIED, INVALID_ACCOUNT, POLICY = 2002, 2045, 2050
NO_VAL, NO_VAL16 = 4294967294, 65534
NOW_S = 1_795_213_807
USER = "vision1"
USER_UID = os.geteuid() + 1  # neither root nor, as this process goes, the user of slurmctld
TOKEN = "0123456789abcdef0123456789abcdef"

# What a job of sbatch without options has; and all that the module may read.
PLAIN: Final[dict[str, object]] = {
    "account": None,
    "array_inx": None,
    "comment": None,
    "default_account": None,
    "environment": {"PATH": "/usr/bin:/bin"},
    "features": None,
    "het_job_offset": NO_VAL,
    "min_nodes": NO_VAL,
    "ntasks_per_node": NO_VAL16,
    "num_tasks": NO_VAL,
    "partition": None,
    "reservation": None,
    "spank_job_env": None,
    "tres_per_job": None,
    "tres_per_node": None,
    "tres_per_socket": None,
    "tres_per_task": None,
    "user_name": USER,
    "wckey": None,
}

_STUB: Final = """
return function(plain, now)
    local said, logged = {}, {}
    slurm = {
        SUCCESS = 0, ERROR = -1, FAILURE = -1, ESLURM_ACCESS_DENIED = 2002,
        ESLURM_INVALID_ACCOUNT = 2045, ESLURM_ACCOUNTING_POLICY = 2050, reservations = {},
        log_user = function(...) said[#said + 1] = string.format(...) end,
        log_error = function(...) logged[#logged + 1] = string.format(...) end,
        log_info = function(...) logged[#logged + 1] = string.format(...) end,
    }
    os.time = now
    local function record(fields)
        return setmetatable({}, {
            __index = function(_, name)
                if not plain[name] then error("slurmctld died of reading " .. tostring(name)) end
                return fields[name]
            end,
            __newindex = function(_, name, value)
                if value == nil then error("nil cannot be assigned") end
                fields[name] = value
            end,
        })
    end
    return said, logged, record
end
"""


@dataclass(kw_only=True)
class Answer:
    """What became of one call: the code, the user's lines, the log's lines, the job's fields."""

    code: int
    said: list[str]
    logged: list[str]
    job: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return " ".join(self.said)


class Site:
    """One cluster's admission: its files in a folder, its interpreter, its clock."""

    def __init__(self, folder: Path, version: str) -> None:
        runtime = importlib.import_module(f"lupa.{version}").LuaRuntime
        self.lua = runtime(encoding="latin-1", unpack_returned_tuples=True)
        self.folder = folder
        self.spool = folder / "spool"
        self.config_file = folder / "admission.lua"
        self.now_s = NOW_S
        names = self.lua.table_from(dict.fromkeys(PLAIN, True))
        stub = self.lua.execute(_STUB)
        self._said, self._logged, self._record = stub(names, lambda: self.now_s)
        self.before = self._globals()
        self._load()
        self.parts: dict[str, dict[str, object]] = {
            "local": {"name": "local", "flag_default": 1, "state_up": 3},
            "fed": {"name": "fed", "flag_default": 0, "state_up": 3},
        }

    def _globals(self) -> set[str]:
        return {str(name) for name in self.lua.globals()}

    def new_globals(self) -> set[str]:
        return self._globals() - self.before

    def _load(self) -> None:
        self.module = self.lua.execute((SOURCES / "federator.lua").read_text("latin-1"))
        self.module["config_file"] = str(self.config_file)

    def restart(self) -> None:
        """slurmctld loads the module anew; nothing is remembered."""
        self._load()

    def be_user(self) -> None:
        """Load the module in a process of an ordinary user, as their own command does."""
        status = self.folder / "status"
        status.write_text("Name:\tsbatch\nUid:\t2001\t2001\t2001\t2001\n")
        self.lua.globals().status = str(status)
        self.lua.execute(
            "local open = io.open io.open = function(path, ...)"
            " return open(path == '/proc/self/status' and status or path, ...) end"
        )
        self._load()

    # ---- files ----

    def configure(self, text: str) -> None:
        """Write admission.lua; ``SPOOL`` in it is the spool folder. The clock goes on."""
        self.config_file.write_text(text.replace("SPOOL", f'"{self.spool}"'), "latin-1")
        self.now_s += 1

    def admit(self, *lines: str, written_at_s: int | None = None) -> None:
        """Write admission.tsv as the agent does."""
        self.spool.mkdir(exist_ok=True)
        header = f"federator-admission\t1\t{self.now_s if written_at_s is None else written_at_s}"
        text = "".join(line + "\n" for line in (header, *lines))
        new = self.spool / "admission.tsv.new"
        new.write_text(text, "latin-1")
        os.replace(new, self.spool / "admission.tsv")
        self.now_s += 1

    def ticket(
        self, attempt: str = "fed:7:1", user: str = USER, lasts_s: int = 60, token: str = TOKEN
    ) -> None:
        tickets = self.spool / "tickets"
        tickets.mkdir(parents=True, exist_ok=True)
        (tickets / token).write_text(f"{attempt} {user} {self.now_s + lasts_s}\n")

    # ---- calls ----

    def _table(self, value: object) -> object:
        if isinstance(value, dict):
            return self.lua.table_from({k: self._table(v) for k, v in value.items()})
        return self.lua.table_from(value) if isinstance(value, list) else value

    def _parts(self) -> object:
        return self._table(self.parts)

    def _answered(self, code: object, fields: object = None) -> Answer:
        assert isinstance(code, int | float)
        said = [line for text in self._said.values() for line in text.split("\n")]
        logged = list(self._logged.values())
        for record in (self._said, self._logged):
            for index in range(len(record), 0, -1):
                record[index] = None
        job = dict(fields.items()) if fields is not None else {}  # type: ignore[attr-defined]
        return Answer(code=int(code), said=said, logged=logged, job=job)

    def submit(self, **fields: object) -> Answer:
        """sbatch with these fields of a job, by the user or by ``uid``."""
        uid = fields.pop("uid", USER_UID)
        merged = self._table({**PLAIN, **fields})
        job = self._record(merged)
        return self._answered(self.module.job_submit(job, self._parts(), uid), merged)

    def modify(self, record: Mapping[str, object], **changes: object) -> Answer:
        """scontrol update of a job with these fields, by the user or by ``uid``."""
        uid = changes.pop("uid", USER_UID)
        job = self._record(self._table(changes))
        was = self._record(self._table(dict(record)))
        return self._answered(self.module.job_modify(job, was, self._parts(), uid))

    def command(self, **options: object) -> tuple[Answer, dict[str, Any]]:
        """A user's command with these options, before slurmctld is asked; and the options then."""
        given = self._table(options)
        code = self.module.cli_pre_submit(given)
        return self._answered(code), dict(given.items())  # type: ignore[attr-defined]
