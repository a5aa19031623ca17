"""The kinds of fault, by what they strike.

Each is injected by a module of its family in ``federator.faults.inject``; CONTRIBUTING.md says how
one is added.
"""

from __future__ import annotations

from enum import Enum


class FaultKind(Enum):
    """One kind of fault; the value says what happens, in words for people."""

    # The daemon dies.
    DAEMON_KILLED = "the daemon is killed at any instant"
    DAEMON_STARTING = "the daemon dies before it has read its log"
    DAEMON_BEFORE_APPEND = "the daemon dies before it writes to the log"
    DAEMON_AFTER_APPEND = "the daemon dies when its records are durable, before any effect"
    DAEMON_BEFORE_SEND = "the daemon dies before it sends an order"
    DAEMON_AFTER_SEND = "the daemon dies between two effects of one turn"
    DAEMON_BEFORE_ANSWER = "the daemon dies before it answers a client"
    DAEMON_CONNECTING = "the daemon dies as it connects to a site"
    DAEMON_HOST_LOST = "the daemon's host vanishes: channels stay open, and silent"
    DAEMON_CRASH_LOOP = "the daemon dies again and again"
    # The daemon stands still, or loses its log.
    DAEMON_PAUSED = "the daemon stands still for longer than sites and agents are patient"
    STANDBY_TAKES_OVER = "a standby takes over"
    TWO_LEADERS = "a leader that stood still wakes up when another one leads"
    LEASE_SILENT = "renewals of the leader's lease are not answered for a while"
    DAEMON_BEFORE_LEAD = "a daemon dies before it asks for the lead"
    DAEMON_BEFORE_RENEW = "the leader dies before it renews its lease"
    DAEMON_AFTER_RENEW = "the leader dies when it has renewed its lease"
    DAEMON_BEFORE_COMPACT = "the daemon dies before a snapshot takes the place of its log"
    DAEMON_AFTER_COMPACT = "the daemon dies as soon as a snapshot has taken that place"
    STORE_ERROR_NOTHING = "the log fails, and nothing was added"
    STORE_ERROR_ADDED = "the log fails, and all was added: the outcome is unknown"
    STORE_FULL = "the log takes nothing for a while"
    STORE_SLOW = "the log takes seconds for each record"
    # The planner.
    PLANNER_KILLED = "the planner is killed"
    PLANNER_STANDS_STILL = "the planner stands still, and its plan expires"
    PLAN_STALE = "a plan of before comes again"
    PLAN_NONSENSE = "a plan comes that makes no sense"
    # An agent dies.
    AGENT_KILLED = "an agent is killed at any instant"
    AGENT_BEFORE_INTENT = "an agent dies before it notes that it will submit"
    AGENT_AFTER_INTENT = "an agent dies when that is noted, before sbatch"
    AGENT_BEFORE_SBATCH = "an agent dies as it calls sbatch, which goes on"
    AGENT_AFTER_SBATCH = "an agent dies when sbatch has answered, before it notes the job"
    AGENT_AFTER_JOB = "an agent dies when the job is noted, before it says so"
    AGENT_BEFORE_VOID = "an agent dies before it notes that an attempt is given up"
    AGENT_AFTER_VOID = "an agent dies when that is noted, before it says so"
    AGENT_BEFORE_LEAVE = "an agent dies before it notes a deadline"
    AGENT_AFTER_LEAVE = "an agent dies when a deadline is noted, before anybody is told"
    AGENT_BEFORE_SPOOL = "an agent dies before it changes its spool"
    AGENT_AFTER_SPOOL = "an agent dies when it has changed its spool"
    AGENT_BEFORE_CANCEL = "an agent dies before it calls scancel"
    AGENT_AFTER_CANCEL = "an agent dies when scancel has answered"
    AGENT_BEFORE_TELL = "an agent dies before it tells a job to leave"
    AGENT_AFTER_TELL = "an agent dies when it has told a job to leave"
    AGENT_BEFORE_SWEEP = "an agent dies before it looks at Slurm"
    AGENT_AFTER_SWEEP = "an agent dies when it has looked, before it reports"
    AGENT_BEFORE_SAY = "an agent dies before it tells the daemon something"
    AGENT_AFTER_SAY = "an agent dies when it has told the daemon something"
    AGENT_BEFORE_OUTPUT = "an agent dies before it has an output sealed or removed"
    AGENT_AFTER_OUTPUT = "an agent dies when an output is sealed or removed, before it says so"
    AGENT_PAUSED = "an agent stands still for longer than the daemon is patient"
    LOGIN_NODE_STOPS = "a login node stands still in the middle of a launch, and another takes over"
    FORMER_AGENT_WAKES = "the agent of a login node that stood still wakes up when another one acts"
    JOURNAL_TORN = "an agent dies in the middle of a line of its journal"
    JOURNAL_FULL = "the disk of an agent's journal is full"
    TWO_AGENTS = "a new agent begins while the old one still works"
    # The network.
    CHANNEL_CUT = "a channel breaks, with all that is on its way"
    OUTBOUND_LINK_LOST = "a site that dials the daemon loses its channel, and dials again"
    HALF_OPEN_DOWN = "what goes to a site is held back, what comes from it is not"
    HALF_OPEN_UP = "what comes from a site is held back, what goes to it is not"
    PARTITION = "a site is cut off for a while; bytes held back come late"
    PARTITION_LOST = "a site is cut off for a while; bytes held back are lost"
    PARTITION_ALL = "all sites are cut off for a while"
    SITE_AWAY = "a site is cut off for minutes"
    NETWORK_SLOW = "messages take longer than the daemon is patient"
    LATE_FRAME = "an old channel's message arrives after the daemon has given the channel up"
    ORDER_TWICE = "a message to a site comes twice"
    NEWS_TWICE = "a message of a site comes twice"
    # Slurm.
    SLURMCTLD_DOWN = "slurmctld does not answer for a while"
    SLURMCTLD_LOST_STATE = "slurmctld starts again without its last jobs; their ids come again"
    RECORDS_FORGOTTEN = "slurmctld forgets jobs that have ended"
    SBATCH_REPLY_LOST = "sbatch has submitted, its answer is lost"
    SBATCH_NEVER_REACHED = "sbatch does not reach slurmctld, and nobody knows"
    SBATCH_REFUSED = "sbatch is refused"
    SBATCH_REFUSED_LATE = "sbatch is refused after half a minute"
    SBATCH_REFUSES_USERS = "sbatch refuses users' submissions for good, until that is mended"
    SBATCH_SLOW = "sbatch submits as late as the helper lets it"
    SBATCH_TOO_LATE = "the helper comes too late to call sbatch"
    SBATCH_BEYOND = "an sbatch that was given up submits all the same, beyond every limit"
    SCANCEL_FAILS = "scancel is refused for a while"
    SWEEP_SLOW = "squeue was answered long before sinfo"
    SWEEP_INCOMPLETE = "nodes are missing in what sinfo says"
    SWEEP_UNREADABLE = "what squeue says cannot be read"
    COPY_KILLED = "the worker that copies a checkpoint to another region is killed"
    # Nodes.
    NODE_FAILS = "a node fails under a job"
    HET_NODE_FAILS = "a node fails under a component of a het job that has no batch script"
    NODE_DRAINED = "a node is drained"
    PROLOG_FAILS = "a prolog fails, and drains its node"
    GANG_NODE_FAILS = "a node on which a gang trains fails; the gang goes on with its spare"
    SPARE_FAILS = "the spare of a gang fails, and the gang notices nothing"
    SPARES_SPENT = "a gang loses more nodes than it has spares, and starts again"
    SPARE_DAEMON_DIES = "the daemon dies as a gang goes on with its spare"
    SPARE_AGENT_DIES = "an agent dies as a gang goes on with its spare"
    LOCAL_JOB = "local jobs take nodes"
    SITE_PREEMPTS = "a site preempts a job and puts it back"
    # A resize of an elastic job.
    RESIZE_DAEMON_DIES = "the daemon dies in the middle of a resize"
    RESIZE_AGENT_DIES = "an agent dies in the middle of a resize"
    RESIZE_SBATCH_FAILS = "the sbatch of a resize is refused, or its answer is lost"
    # Clocks.
    DAEMON_CLOCK_FORWARD = "the daemon's clock jumps ten minutes ahead"
    DAEMON_CLOCK_BACK = "the daemon's clock jumps ten minutes back"
    SITE_CLOCK_FORWARD = "a site's clock jumps ten minutes ahead"
    SITE_CLOCK_BACK = "a site's clock jumps ten minutes back"
    # The spool.
    SPOOL_HANGS = "a site's spool hangs"
    SPOOL_WIPED = "a site's spool is wiped"
    # People.
    USER_SCANCEL = "a user cancels a job directly in Slurm"
    COMPONENT_CANCELLED = "an admin cancels one component of a het job that runs"
    USER_REQUEUE = "a user requeues a job directly in Slurm"
    USER_HOLD = "a user holds a job directly in Slurm"
    USER_COMMENT = "a user rewrites the comment of a job"
    FORGED_COMMENT = "another user's job pretends to be an attempt"
    FORGED_CALL = "a site's root submits and cancels as users whom the site may not speak for"
    SITE_CORDONED = "an operator cordons a site, and resumes it later"
    SITE_DRAINED = "an operator drains a site, whose workloads move, and resumes it later"
    SITE_DRAINED_BY = "an operator drains a site by a deadline, and resumes it later"
    NODES_DRAINED = "an operator drains a node in the federation, and resumes it later"
    SITE_RESUMED = "an operator resumes a site or a node"
    SITE_WRITTEN_OFF = "an operator writes off a site that is cut off, and runs on"
    SITE_RETURNED = "a site that was written off is back, and has ended what it had"
    RELOADED = "an operator changes quotas, rules and a site's channel, and reloads"
    RELOAD_REFUSED = "an operator reloads a configuration that is wrong"
    CLIENT_RETRY = "a client submits again with the same key"
    CLIENT_ANSWER_LOST = "a client's answer is lost"
    CLIENT_CANCELS_TWICE = "a client cancels twice"
    CLIENT_REUSES_KEY = "a client submits something else with a key that was used"
    CLIENT_CANCELS_TASK = "a client cancels one task of an array"
    CLIENT_NAMES_NODE = "a client asks for a node of one site"
    CLIENT_EXCLUDES_NODE = "a client will not have a node"
    CLIENT_SETS_DEADLINE = "a client sets a deadline"
    CLIENT_CHAINS = "a client has a job wait for another"
    CLIENT_DIES = "the command of an interactive job dies"
    CLIENT_RELEASES = "a client submits on hold, and releases it later"


AT_POINT: dict[FaultKind, tuple[str, str]] = {
    FaultKind.DAEMON_STARTING: ("daemon", "start"),
    FaultKind.DAEMON_BEFORE_LEAD: ("daemon", "lead before"),
    FaultKind.DAEMON_BEFORE_RENEW: ("daemon", "renew before"),
    FaultKind.DAEMON_AFTER_RENEW: ("daemon", "renew after"),
    FaultKind.DAEMON_BEFORE_COMPACT: ("daemon", "compact before"),
    FaultKind.DAEMON_AFTER_COMPACT: ("daemon", "compact after"),
    FaultKind.DAEMON_BEFORE_APPEND: ("daemon", "append before"),
    FaultKind.DAEMON_AFTER_APPEND: ("daemon", "append after"),
    FaultKind.DAEMON_BEFORE_SEND: ("daemon", "send before"),
    FaultKind.DAEMON_AFTER_SEND: ("daemon", "send after"),
    FaultKind.DAEMON_BEFORE_ANSWER: ("daemon", "answer"),
    FaultKind.DAEMON_CONNECTING: ("daemon", "connect"),
    FaultKind.AGENT_BEFORE_INTENT: ("agent", "intent before"),
    FaultKind.AGENT_AFTER_INTENT: ("agent", "intent after"),
    FaultKind.AGENT_BEFORE_SBATCH: ("agent", "sbatch before"),
    FaultKind.AGENT_AFTER_SBATCH: ("agent", "sbatch after"),
    FaultKind.AGENT_AFTER_JOB: ("agent", "job after"),
    FaultKind.AGENT_BEFORE_VOID: ("agent", "void before"),
    FaultKind.AGENT_AFTER_VOID: ("agent", "void after"),
    FaultKind.AGENT_BEFORE_LEAVE: ("agent", "leave before"),
    FaultKind.AGENT_AFTER_LEAVE: ("agent", "leave after"),
    FaultKind.AGENT_BEFORE_SPOOL: ("agent", "spool before"),
    FaultKind.AGENT_AFTER_SPOOL: ("agent", "spool after"),
    FaultKind.AGENT_BEFORE_CANCEL: ("agent", "scancel before"),
    FaultKind.AGENT_AFTER_CANCEL: ("agent", "scancel after"),
    FaultKind.AGENT_BEFORE_TELL: ("agent", "tell before"),
    FaultKind.AGENT_AFTER_TELL: ("agent", "tell after"),
    FaultKind.AGENT_BEFORE_SWEEP: ("agent", "sweep before"),
    FaultKind.AGENT_AFTER_SWEEP: ("agent", "sweep after"),
    FaultKind.AGENT_BEFORE_OUTPUT: ("agent", "output before"),
    FaultKind.AGENT_AFTER_OUTPUT: ("agent", "output after"),
    FaultKind.AGENT_BEFORE_SAY: ("agent", "say before"),
    FaultKind.AGENT_AFTER_SAY: ("agent", "say after"),
    FaultKind.JOURNAL_TORN: ("agent", "journal torn"),
}
"""The kinds that are the death of a process at a named point of its."""
