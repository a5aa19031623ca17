"""Every mistake in federation.yaml is named by file, line and key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from math import inf
from pathlib import Path

import pytest
import yaml

from federator.config import FederationConfig, load_config
from federator.config_policy import CreditConfig
from federator.config_tenants import mode_of
from federator.errors import ConfigError
from federator.model.quota_loan import UnusedQuotaRules
from federator.model.site_mode import SiteMode
from federator.model.site_reader import SiteReader
from federator.model.tenant import UNLIMITED, Allowance
from federator.model.workload import SiteName, TenantName
from federator.policies.fifo import Fifo
from federator.policies.mast import Mast
from federator.sched.state.credit import CreditWeights

COUNT = "expected a whole number from 0 to 9007199254740992"
GOOD = """\
federation: demo
store: sqlite:///var/lib/federator/queue.db
policy:
  name: global-fifo
  launch_lease_s: 30
regions:
  west: {shared: /shared/west}
gpus:
  a100: {mem_gib: 80, nvlink: true}
sites:
  alpine:
    region: west
    partitions: [gpu, cpu]
    ssh: {host: alpine, key: keys/alpine, known_hosts: keys/known_hosts}
  baker:
    region: west
    partitions: [gpu]
    command: [federator, agent]
tenants:
  vision: {priority: 2, users: [ada, bob]}
  nlp: {users: [ada]}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "federation.yaml"
    path.write_text(text)
    return path


def load(folder: Path, old: str = "", new: str = "") -> FederationConfig:
    assert old in GOOD
    return load_config(write(folder, GOOD.replace(old, new, 1) if old else GOOD))


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert list(config.sites) == ["alpine", "baker"]
    assert config.policy.launch_lease_s == 30.0
    assert config.tenants[TenantName("nlp")].priority == 7


def test_key_files_are_taken_from_the_files_folder(tmp_path: Path) -> None:
    ssh = load(tmp_path).sites[SiteName("alpine")].ssh
    assert ssh is not None
    assert (ssh.key, ssh.known_hosts) == (tmp_path / "keys/alpine", tmp_path / "keys/known_hosts")


def test_a_site_that_dials_is_reached_by_nothing(tmp_path: Path) -> None:
    config = load(tmp_path, "    command: [federator, agent]\n", "    connect: outbound\n")
    assert [site.dials for site in config.sites.values()] == [False, True]


def test_a_site_is_read_by_commands_unless_it_says_otherwise(tmp_path: Path) -> None:
    command = "    command: [federator, agent]\n"
    config = load(tmp_path, command, f"{command}    reader: auto\n")
    readers = [site.reader for site in config.sites.values()]
    assert readers == [SiteReader.CLI, SiteReader.AUTO]


def test_a_users_first_tenant_is_the_default(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert config.tenants_of("ada") == ["vision", "nlp"]
    assert config.tenants_of("bob") == ["vision"]
    assert config.tenants_of("eve") == []


@pytest.mark.parametrize(
    ("written", "lending"),
    [("off", "off"), ("on", "on"), ("advisory", "advisory"), ("'on'", "on"), ("false", "off")],
)
def test_lending_is_read_with_quotes_or_without(tmp_path: Path, written: str, lending: str) -> None:
    config = load(tmp_path, "  name: global-fifo", f"  lending: {written}")
    assert config.policy.lending.value == lending


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "words"),
    [
        ("federation: demo", "federation: my demo", 1, "federation", "one word of A-Z a-z"),
        ("federation: demo\n", "", 1, "federation", "this key is missing; expected text"),
        ("store: sqlite:///var/lib/federator/queue.db", "store: mysql://db", 2, "store", "mysql"),
        ("  name: global-fifo", "  name: lifo", 4, "policy.name", "lifo"),
        ("policy:", "history: {url: mysql://db}\npolicy:", 3, "history.url", "expected sqlite:///"),
        (
            "policy:",
            "history: {url: 'postgresql://ada:hunter2@db/h'}\npolicy:",
            3,
            "history.url",
            "holds a password: put that in a file, and name it with ?passfile=PATH",
        ),
        ("policy:", "history: {keep_days: 0}\npolicy:", 3, "history.keep_days", "from 1 to 36500"),
        ("name: global-fifo", "lending: yess", 4, "policy.lending", "off, advisory or on"),
        (
            "    partitions: [gpu, cpu]\n",
            "    partitions: [gpu, cpu]\n    names: {accounts: {vison: vis-grp}}\n",
            14,
            "sites.alpine.names.accounts.vison",
            "unknown tenant 'vison'; did you mean vision?",
        ),
        (
            "    partitions: [gpu, cpu]\n",
            "    partitions: [gpu, cpu]\n    names: {partitions: {cpus: a}}\n",
            14,
            "sites.alpine.names.partitions.cpus",
            "unknown partition 'cpus'; did you mean cpu?",
        ),
        (
            "    partitions: [gpu, cpu]\n",
            "    partitions: [gpu, cpu]\n    names: {qos: {low: a, high: a}}\n",
            14,
            "sites.alpine.names.qos.high",
            "low is called 'a', too",
        ),
        (
            "    partitions: [gpu, cpu]\n",
            "    partitions: [gpu, cpu]\n    names: {partitions: {gpu: cpu}}\n",
            14,
            "sites.alpine.names.partitions.gpu",
            "cpu is called 'cpu', too",
        ),
        (
            "    partitions: [gpu, cpu]\n",
            "    partitions: [gpu, cpu]\n    names: {gpu_types: {a100: 'a b'}}\n",
            14,
            "sites.alpine.names.gpu_types.a100",
            "expected a name of Slurm's",
        ),
        (
            "    partitions: [gpu, cpu]\n",
            "    partitions: [gpu, cpu]\n    names: {users: {adda: a.one}}\n",
            14,
            "sites.alpine.names.users.adda",
            "unknown user of a tenant 'adda'; did you mean ada?",
        ),
        (
            "    partitions: [gpu, cpu]\n",
            "    partitions: [gpu, cpu]\n    names: {users: {ada: root}}\n",
            14,
            "sites.alpine.names.users.ada",
            "expected the name of an account, and not root",
        ),
        (
            "    partitions: [gpu, cpu]\n",
            "    partitions: [gpu, cpu]\n    names: {users: {ada: bob}}\n",
            14,
            "sites.alpine.names.users.ada",
            "bob is called 'bob', too",
        ),
        ("launch_lease_s: 30", "launch_lease_s: soon", 5, "policy.launch_lease_s", "soon"),
        (
            "launch_lease_s: 30",
            "launch_lease_s: 0",
            5,
            "policy.launch_lease_s",
            "expected a number above 0 and at most 2592000 (found 0)",
        ),
        (
            "launch_lease_s: 30",
            "lunch_lease_s: 30",
            5,
            "policy.lunch_lease_s",
            "unknown key; did you mean launch_lease_s?",
        ),
        ("shared: /shared/west", "shared: 7", 7, "regions.west.shared", "path"),
        (
            "mem_gib: 80",
            "mem_gib: big",
            9,
            "gpus.a100.mem_gib",
            "expected a whole number above 0 (found 'big')",
        ),
        (
            "    region: west",
            "    region: north",
            12,
            "sites.alpine.region",
            "unknown region 'north'; one of west",
        ),
        ("    region: west\n", "", 11, "sites.alpine.region", "this key is missing; expected text"),
        (
            "partitions: [gpu, cpu]",
            "partitions: []",
            13,
            "sites.alpine.partitions",
            "expected a list of at least one, such as [a, b] (found [])",
        ),
        (
            "partitions: [gpu, cpu]",
            "partitions: gpu",
            13,
            "sites.alpine.partitions",
            "expected a list of at least one, such as [a, b] (found 'gpu')",
        ),
        ("[gpu, cpu]", "[gpu, 7]", 13, "sites.alpine.partitions.1", "7"),
        (
            "ssh: {host: alpine,",
            "ssh: {host: alpine, port: 99999,",
            14,
            "sites.alpine.ssh.port",
            "65536",
        ),
        ("    command: [federator, agent]\n", "", 15, "sites.baker", "exactly one of"),
        ("[gpu]\n", "[gpu]\n    connect: outbound\n", 15, "sites.baker", "neither 'ssh' nor"),
        ("[gpu]\n", "[gpu]\n    reader: rest\n", 18, "sites.baker.reader", "auto, cli or pyslurm"),
        (
            "[gpu]\n",
            "[gpu]\n    connect: out\n",
            18,
            "sites.baker.connect",
            "expected inbound or outbound",
        ),
        ("priority: 2", "priority: 8", 20, "tenants.vision.priority", "7"),
        (
            "users: [ada, bob]",
            "users: {ada: 1}",
            20,
            "tenants.vision.users",
            "expected a list, such as [a, b] (found {'ada': 1})",
        ),
        ("users: [ada, bob]", "users: [root]", 20, "tenants.vision.users", "root"),
        ("tenants:", "tenant:", 19, "tenant", "unknown key; did you mean tenants?"),
        ("policy:", "polciy:", 3, "polciy", "unknown key; did you mean policy?"),
        (
            "federation: demo",
            "federation: demo\ngrace_s: 5",
            2,
            "grace_s",
            "unknown key here; it belongs under policy.preemption",
        ),
        (
            "  launch_lease_s: 30",
            "  quota: {}",
            5,
            "policy.quota",
            "unknown key here; it belongs under tenants.NAME",
        ),
        (
            "policy:",
            "turbo: true\npolicy:",
            3,
            "turbo",
            "unknown key; one of federation, store, socket, log, history, metrics, traces, ",
        ),
        (
            "  name: global-fifo",
            "  name: global-fifi",
            4,
            "policy.name",
            "unknown policy; did you mean global-fifo?",
        ),
        ("  name: global-fifo", "  name: 4", 4, "policy.name", "expected text (found 4)"),
        (
            "policy:\n  name: global-fifo\n  launch_lease_s: 30",
            "policy: fifo",
            3,
            "policy",
            "expected keys below it, of name, credit, preemption, defragment",
        ),
        (
            "nvlink: true",
            "nvlink: maybe",
            9,
            "gpus.a100.nvlink",
            "expected true or false (found 'maybe')",
        ),
        (
            "{mem_gib: 80, nvlink: true}",
            "",
            9,
            "gpus.a100",
            "expected keys below it, of mem_gib, nvlink, weight (found nothing)",
        ),
        (
            "mem_gib: 80",
            "mem_gib: 80.5",
            9,
            "gpus.a100.mem_gib",
            "expected a whole number above 0 (found 80.5)",
        ),
        ("  alpine:", "  ce dar:", 11, "sites.ce dar", "expected a name of 1 to 64 of"),
        (
            "gpus:\n",
            "licenses: {a: 1, 'matlab:2': 4}\ngpus:\n",
            8,
            "licenses.matlab:2",
            "expected a name as --licenses takes it",
        ),
        (
            "gpus:\n",
            "data: {stage: 'on'}\ngpus:\n",
            8,
            "data.stage",
            "expected off or auto (found 'on')",
        ),
        (
            "gpus:\n",
            "data: {planning: perhaps}\ngpus:\n",
            8,
            "data.planning",
            "expected off, advisory or automatic (found 'perhaps')",
        ),
        (
            "gpus:\n",
            "licenses: {a: -1}\ngpus:\n",
            8,
            "licenses.a",
            "expected a whole number from 0 to 1000000000",
        ),
        ("  west:", "  wild west:", 7, "regions.wild west", "expected a name of 1 to 64 of"),
        ("[ada, bob]", "[ada, 7]", 20, "tenants.vision.users.1", "expected text (found 7)"),
        ("nlp:", "8:", 21, "tenants.8", "expected a name; put it in quotes (found 8)"),
        ("host: alpine, ", "", 14, "sites.alpine.ssh.host", "this key is missing; expected text"),
        ("key: keys/alpine", "key: [a]", 14, "sites.alpine.ssh.key", "expected a path (found"),
        (
            "regions:\n  west: {shared: /shared/west}",
            "regions: [west]",
            6,
            "regions",
            "expected a mapping of names (found ['west'])",
        ),
    ],
)
def test_a_mistake_is_named_by_file_line_and_key(
    tmp_path: Path, old: str, new: str, line: int, key: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, old, new)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"{tmp_path / 'federation.yaml'}:{line}: {key}: "), first
    assert words in first


def _places(value: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield above
    items = value.items() if isinstance(value, dict) else ()
    for key, below in enumerate(value) if isinstance(value, list) else items:
        yield from _places(below, (*above, key))


ODD: tuple[object, ...] = (None, True, -1, 1.5, 10**30, "x", [{}], {"x": 1}, date(2026, 1, 1))


@pytest.mark.slow
def test_whatever_stands_in_its_place_no_message_is_in_the_words_of_a_library(
    tmp_path: Path,
) -> None:
    refused = 0
    for place in [place for place in _places(yaml.safe_load(GOOD)) if place]:
        for odd in ODD:
            changed = at = yaml.safe_load(GOOD)
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = odd
            try:
                load_config(write(tmp_path, yaml.safe_dump(changed)))
            except ConfigError as error:
                refused += 1
                for line in str(error).splitlines():
                    assert re.match(r".*federation\.yaml:\d+: \S+: ", line), line
                    assert not re.search(r"[Ii]nput|valid|[Ee]xtra|[Ff]ield|pydantic|dict", line), (
                        line
                    )
    assert refused > 200


def test_a_required_key_that_is_misspelt_is_one_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "sites:", "sties:")
    assert str(caught.value) == (
        f"{tmp_path / 'federation.yaml'}:10: sties: unknown key; did you mean sites?"
    )


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(
            write(
                tmp_path, GOOD.replace("name: global-fifo", "nome: global-fifo").replace("80", "-1")
            )
        )
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("sites", ["sites: {}", "sites: []", "sites:", ""])
def test_a_federation_without_sites_is_refused(tmp_path: Path, sites: str) -> None:
    with pytest.raises(ConfigError, match=r"federation\.yaml:\d+: sites: "):
        load_config(write(tmp_path, f"federation: demo\nstore: 'memory:'\n{sites}\n"))


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"federation\.yaml:1: .*mapping"):
        load_config(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("federation: demo\nsites: [unclosed\n", 3),
        ("federation: demo\nstore: {a: b\n", 3),
        ("federation: demo\n\tstore: x\n", 2),
        ("federation: demo\nstore: !!python/object:os.system x\n", 2),
        ("federation: demo\nstore: 2024-13-45\n", 2),
        ("federation: demo\nsites: &a [*a]\nstore: *b\n", 3),
    ],
)
def test_what_is_not_yaml_is_named_by_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=rf"federation\.yaml:{line}: "):
        load_config(write(tmp_path, text))


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"federation\.yaml:15: .*alpine"):
        load(tmp_path, "  baker:", "  alpine:")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_config(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"federation\.yaml: cannot be read"):
        load_config(path)


# ---- numbers ----


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ("lease_s: 30", "lease_s: NUMBER", 5, "policy.launch_lease_s"),
        ("launch_lease_s: 30", "credit: {fair_share: NUMBER}", 5, "policy.credit.fair_share"),
        (
            "launch_lease_s: 30",
            "credit: {usage_half_life_h: NUMBER}",
            5,
            "policy.credit.usage_half_life_h",
        ),
        (
            "launch_lease_s: 30",
            "preemption: {budget_frac: NUMBER}",
            5,
            "policy.preemption.budget_frac",
        ),
        ("mem_gib: 80", "mem_gib: NUMBER", 9, "gpus.a100.mem_gib"),
        ("nvlink: true", "weight: NUMBER", 9, "gpus.a100.weight"),
        (
            "    region: west",
            "    region: west\n    poll_interval_s: NUMBER",
            13,
            "sites.alpine.poll_interval_s",
        ),
        ("priority: 2", "priority: NUMBER", 20, "tenants.vision.priority"),
        ("priority: 2", "quota: {gpus: NUMBER}", 20, "tenants.vision.quota.gpus"),
        (
            "priority: 2",
            "limit: {gpu_types: {a100: NUMBER}}",
            20,
            "tenants.vision.limit.gpu_types.a100",
        ),
    ],
)
def test_what_is_no_finite_number_is_refused(
    tmp_path: Path, number: str, old: str, new: str, line: int, key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, old, new.replace("NUMBER", number))
    (message,) = str(caught.value).splitlines()
    assert message.startswith(f"{tmp_path / 'federation.yaml'}:{line}: {key}: "), message


@pytest.mark.parametrize(
    ("credit", "key", "words"),
    [
        ("per_hour_waited: -1", ".per_hour_waited", "from 0 to 1000000000 (found -1)"),
        ("fair_share: -0.5", ".fair_share", "from 0 to 1000000000"),
        ("fair_share: 1.0e+300", ".fair_share", "from 0 to 1000000000"),
        ("per_nice: -0.01", ".per_nice", "from 0 to 1000000000"),
        ("age_cap_h: 0", ".age_cap_h", "above 0"),
        ("usage_window_h: 0", ".usage_window_h", "above 0"),
        ("usage_half_life_h: 0", ".usage_half_life_h", "above 0"),
        ("usage_half_life_h: 1.0e+9", ".usage_half_life_h", "at most 876000"),
        ("usage_half_life_d: 7", ".usage_half_life_d", "did you mean usage_half_life_h?"),
        ("per_nice: " + "9" * 4000, ".per_nice", "1000000000 (found 9999"),
        ("per_nice: 0x" + "f" * 5000, ".per_nice", "(found too large a number)"),
    ],
    ids=lambda text: text[:24],
)
def test_credit_settings_out_of_range_are_refused(
    tmp_path: Path, credit: str, key: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "launch_lease_s: 30", f"credit: {{{credit}}}")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'federation.yaml'}:5: policy.credit{key}: "), message
    assert words in message
    assert len(message) < len(str(tmp_path)) + 300


def test_usage_is_averaged_or_decays_but_not_both(tmp_path: Path) -> None:
    both = "credit:\n    usage_window_h: 168\n    usage_half_life_h: 24"
    with pytest.raises(
        ConfigError, match=r":7: policy\.credit\.usage_half_life_h: .*'usage_window_h', not both"
    ):
        load(tmp_path, "launch_lease_s: 30", both)
    credit = load(tmp_path, "launch_lease_s: 30", "credit: {usage_half_life_h: 24}").policy.credit
    assert credit.usage_half_life_h == 24.0


def test_the_policy_gets_the_weights_of_the_credit(tmp_path: Path) -> None:
    credit = "  credit: {per_hour_waited: 2, per_nice: 0, non_preemptible: 5}"
    config = load(tmp_path, "  name: global-fifo", credit)
    assert config.policy.name == "mast"
    weights = CreditWeights(
        per_hour_waited=2.0, age_cap_h=168.0, fair_share=24.0, per_nice=0.0, non_preemptible=5.0
    )
    assert config.policy.order == Mast(weights)
    assert load(tmp_path).policy.order == Fifo()


def test_the_defaults_of_the_file_are_those_of_the_credit() -> None:
    assert CreditConfig().weights == CreditWeights()


# ---- tenants ----


def with_tenants(folder: Path, tenants: str, *, policy: str = "{name: mast}") -> FederationConfig:
    """``tenants`` begins on line 4, below the key of that name."""
    head = f"federation: demo\npolicy: {policy}\ntenants:\n"
    tail = (
        "store: 'memory:'\nregions: {west: {shared: /shared}}\n"
        "gpus: {a100: {mem_gib: 80}, h100: {mem_gib: 80, weight: 2}}\n"
        "sites: {alpine: {region: west, partitions: [gpu], command: [agent]}}\n"
    )
    lines = "".join(f"  {line}\n" for line in tenants.splitlines())
    return load_config(write(folder, head + lines + tail))


def mistakes(folder: Path, tenants: str) -> list[str]:
    """What is wrong, without the file's name."""
    with pytest.raises(ConfigError) as caught:
        with_tenants(folder, tenants)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{folder / 'federation.yaml'}:") for line in lines), lines
    return [line.removeprefix(f"{folder / 'federation.yaml'}:") for line in lines]


def quota_and_limit(config: FederationConfig, name: str) -> tuple[Allowance | None, Allowance]:
    tenancy = config.tenancy()
    tenant = tenancy.tenants[tenancy.row(TenantName(name))]
    return tenant.quota, tenant.limit


def test_a_tenant_without_a_quota_is_guaranteed_nothing_and_has_no_limit(tmp_path: Path) -> None:
    for tenant in ("a: {}", "a: {quota: }"):
        assert quota_and_limit(with_tenants(tmp_path, tenant), "a") == (None, UNLIMITED)


@pytest.mark.parametrize("name", ["a100+", "-a", "a b", "é", "a" * 65])
def test_a_gpu_type_has_a_name_that_can_be_asked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="expected a name of 1 to 64"):
        load(tmp_path, "gpus:\n", f"gpus:\n  '{name}': {{mem_gib: 80}}\n")


def test_a_quota_in_gpus_does_not_count_cpus(tmp_path: Path) -> None:
    quota, _ = quota_and_limit(with_tenants(tmp_path, "a: {quota: {gpus: 64}}"), "a")
    assert quota == Allowance(gpus=64, cpus=inf)


def test_a_quota_in_cpus_guarantees_no_gpu(tmp_path: Path) -> None:
    quota, _ = quota_and_limit(with_tenants(tmp_path, "a: {quota: {cpus: 1024}}"), "a")
    assert quota == Allowance(gpus=0, cpus=1024)


def test_a_limit_leaves_open_what_it_does_not_name(tmp_path: Path) -> None:
    _, limit = quota_and_limit(with_tenants(tmp_path, "a: {limit: {gpu_types: {h100: 8}}}"), "a")
    assert limit == Allowance(gpus=inf, cpus=inf, gpu_types={"h100": 8})


def test_the_lowest_mode_of_a_tenant_and_those_above_it_holds(tmp_path: Path) -> None:
    tenants = (
        "{lab: {mode: opt-in}, bio: {parent: lab, mode: enforced}, nlp: {mode: shadow}, x: {}}"
    )
    config = with_tenants(tmp_path, tenants)
    modes = {name: mode_of(name, config.tenants).value for name in config.tenants}
    assert modes == {"lab": "opt-in", "bio": "opt-in", "nlp": "shadow", "x": "enforced"}
    tenancy = config.tenancy()
    assert {t.name: tenancy.mode(tenancy.row(t.name)).value for t in tenancy.tenants} == modes
    assert tenancy.mode(tenancy.row(TenantName("met in the log"))) is SiteMode.ENFORCED
    assert all(config.watches(site) for site in config.sites)  # for the sake of nlp
    assert not any(map(with_tenants(tmp_path, "{x: {}}").watches, config.sites))
    said = mistakes(tmp_path, "{nlp: {mode: optin}}")
    assert "tenants.nlp.mode" in said[0]
    assert "expected shadow, advisory, opt-in or enforced" in said[0]


def test_a_limit_of_zero_is_a_limit(tmp_path: Path) -> None:
    _, limit = quota_and_limit(with_tenants(tmp_path, "a: {limit: {gpus: 0}}"), "a")
    assert limit == Allowance(gpus=0)


def test_the_tenancy_has_parents_priorities_and_the_weights_of_gpus(tmp_path: Path) -> None:
    tenancy = with_tenants(tmp_path, "b: {parent: a, priority: 3}\na: {quota: {gpus: 1}}").tenancy()
    assert [(t.name, t.parent, t.priority) for t in tenancy.tenants] == [
        ("b", "a", 3),
        ("a", None, 7),
    ]
    assert tenancy.chain(0) == (0, 1)
    assert tenancy.resources.gpu_weights == {"a100": 1.0, "h100": 2.0}
    assert tenancy.resources.weighted_gpus(0, {}, 64, 1 << 20) == 0.0


def test_cpus_and_memory_have_weights_in_usage_if_the_file_says_so(tmp_path: Path) -> None:
    credit = "  launch_lease_s: 30\n  credit: {cpu_weight: 0.0625, mem_gib_weight: 0.25}"
    resources = load(tmp_path, "  launch_lease_s: 30", credit).tenancy().resources
    assert resources.weighted_gpus(0, {}, 64, 0) == 4.0
    assert resources.weighted_gpus(0, {}, 64, 32 * 1024) == 8.0


@pytest.mark.parametrize(
    ("tenants", "expected"),
    [
        ("a: {quota: {gpus: -1}}", f"4: tenants.a.quota.gpus: {COUNT} (found -1)"),
        ("a: {quota: {gpus: 1.5}}", f"4: tenants.a.quota.gpus: {COUNT} (found 1.5)"),
        ("a: {quota: {gpus: yes}}", f"4: tenants.a.quota.gpus: {COUNT} (found true)"),
        ("a: {quota: {gpus: '64'}}", f"4: tenants.a.quota.gpus: {COUNT} (found '64')"),
        (
            f"a: {{quota: {{cpus: {2**53 + 1}}}}}",
            f"4: tenants.a.quota.cpus: {COUNT} (found 9007199254740993)",
        ),
        ("a:\n  quota: {}", "5: tenants.a.quota: give 'gpus' or 'cpus'"),
        ("a:\n  limit:", "5: tenants.a.limit: expected keys below it, of gpus, cpus, gpu_types"),
        ("a: {quota: 64}", "4: tenants.a.quota: expected keys below it, of gpus, cpus, gpu"),
        ("a: {quota: {gpu: 64}}", "4: tenants.a.quota.gpu: unknown key; did you mean gpus?"),
        (
            "a:\n  limit:\n    gpu_types: {b200: 8}",
            "6: tenants.a.limit.gpu_types.b200: unknown GPU type; one of a100, h100",
        ),
        (
            "a:\n  quota:\n    gpus: 8\n    gpu_types:\n      h100: 16",
            "8: tenants.a.quota.gpu_types.h100: 16 of this type, of gpus 8 in all",
        ),
        (
            "a: {quota: {gpu_types: {h100: 16}}}",
            "4: tenants.a.quota.gpu_types.h100: 16 of this type, of gpus 0 in all (not given",
        ),
        ("a: {limit: {gpus: 8, gpu_types: {h100: 9}}}", "4: tenants.a.limit.gpu_types.h100: 9 of"),
        ("a: {}\nb: {parent: c}", "5: tenants.b.parent: unknown tenant 'c'; one of a, b"),
        ("a: {home: [cedar]}", "4: tenants.a.home.0: unknown site 'cedar'; one of"),
        ("a: {parent: a}", "4: tenants.a.parent: a tenant cannot be its own parent"),
        (
            "z: {parent: a}\na: {parent: b}\nb:\n  parent: c\nc: {parent: a}",
            "5: tenants.a.parent: parents form a circle: a, b, c, a",
        ),
        (
            "a:\n  quota: {gpus: 64}\n  limit:\n    gpus: 32",
            "7: tenants.a.limit.gpus: limit.gpus 32 is below quota.gpus 64",
        ),
        (
            "a: {quota: {gpus: 9, gpu_types: {h100: 4}}, limit: {gpu_types: {h100: 2}}}",
            "4: tenants.a.limit.gpu_types.h100: limit.gpu_types.h100 2 is below quota.gpu_types.h",
        ),
        ("'': {}", "4: tenants.: expected a name of 1 to 64 of"),
        ("'a b': {}", "4: tenants.a b: expected a name of 1 to 64 of"),
        ("-a: {}", "4: tenants.-a: expected a name of 1 to 64 of"),
        ("année: {}", "4: tenants.année: expected a name of 1 to 64 of"),
        ("'a\\n': {}", "4: tenants.a\\n: expected a name of 1 to 64 of"),
        ('"a\\n": {}', "4: tenants.a\\n: expected a name of 1 to 64 of"),
        ("2024: {}", "4: tenants.2024: expected a name; put it in quotes (found 2024)"),
        (f"{'a' * 65}: {{}}", f"4: tenants.{'a' * 65}: expected a name of 1 to 64 of"),
        ("a: {parent: b c}", "4: tenants.a.parent: expected a name of 1 to 64 of"),
    ],
)
def test_a_mistake_of_a_tenant_is_named_by_line_and_key(
    tmp_path: Path, tenants: str, expected: str
) -> None:
    (line,) = mistakes(tmp_path, tenants)
    assert line.startswith(expected), line


def test_all_mistakes_between_tenants_are_told_at_once(tmp_path: Path) -> None:
    tenants = "a: {parent: x}\nb: {quota: {gpus: 2}, limit: {gpus: 1}}\nc: {parent: c}"
    assert [line[:2] for line in mistakes(tmp_path, tenants)] == ["4:", "6:", "5:"]


def test_a_limit_in_cpus_may_stand_beside_a_quota_in_gpus(tmp_path: Path) -> None:
    config = with_tenants(tmp_path, "a: {quota: {gpus: 64}, limit: {gpus: 128, cpus: 2048}}")
    assert quota_and_limit(config, "a")[1] == Allowance(gpus=128, cpus=2048)


@pytest.mark.parametrize(
    "tenants",
    [
        "? " + "a" * 10**6 + "\n: {}",
        "a" * 10**5 + ": {}",
        "a: {parent: " + "b" * 10**6 + "}",
        "a: {users: {" + "'u': 1, " * 10**4 + "}}",
        "a: {quota: {gpu_types: {? " + "x" * 10**5 + " : 1}}}",
        "a: {quota: " + "x" * 10**5 + "}",
        "a: !!binary " + "QUFB" * 10**4,
        "a: !" + "x" * 10**5 + " {}",
        "? " + "x" * 10**4 + "\n: {}\n? " + "x" * 10**4 + "\n: {}",
    ],
    ids=lambda tenants: tenants[:20],
)
def test_names_and_values_without_end_give_short_messages(tmp_path: Path, tenants: str) -> None:
    for line in mistakes(tmp_path, tenants):
        assert len(line) < 450, line


def test_only_the_first_few_of_many_tenants_are_listed(tmp_path: Path) -> None:
    many = "".join(f"t{number}: {{}}\n" for number in range(1000))
    (line,) = mistakes(tmp_path, many + "x: {parent: y}")
    assert "one of t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, … (1001 in all)" in line


# ---- what is allowed, and probably not meant ----


def warnings_of(folder: Path, tenants: Mapping[str, object], policy: str = "{name: mast}") -> str:
    text = yaml.safe_dump(dict(tenants), default_flow_style=None)
    return "\n".join(with_tenants(folder, text, policy=policy).warnings)


def test_a_sound_file_warns_of_nothing(tmp_path: Path) -> None:
    assert load(tmp_path).warnings == ()
    none = load(tmp_path, GOOD[GOOD.index("tenants:") :], "")
    assert none.warnings == ("no tenants: nobody can submit",)
    quotas = {
        "all": {"quota": {"gpus": 64}, "limit": {"gpus": 99}},
        "vision": {"parent": "all", "quota": {"gpus": 40, "cpus": 99}},
        "nlp": {"parent": "all", "quota": {"gpus": 24, "gpu_types": {"h100": 24}}},
        "interns": {"parent": "vision"},
    }
    assert warnings_of(tmp_path, quotas) == ""


def test_quotas_beyond_their_parents_quota_are_warned_of(tmp_path: Path) -> None:
    quotas = {
        "all": {"quota": {"gpus": 64, "cpus": 100, "gpu_types": {"h100": 8}}},
        "vision": {"parent": "all", "quota": {"gpus": 40, "cpus": 50}},
        "nlp": {"parent": "all", "quota": {"gpus": 32, "cpus": 50, "gpu_types": {"h100": 9}}},
    }
    assert warnings_of(tmp_path, quotas).splitlines() == [
        "tenant all: quotas below it sum to gpus 72, more than its own 64",
        "tenant all: quotas below it sum to gpu_types.h100 9, more than its own 8",
    ]


def test_start_objectives_that_nothing_can_be_done_for_are_warned_of(tmp_path: Path) -> None:
    vision = {"quota": {"gpus": 8}, "start_within_s": 600}
    assert warnings_of(tmp_path, {"vision": vision}) == ""
    never = "{name: mast, preemption: {budget_frac: 0}}"
    assert warnings_of(tmp_path, {"vision": vision}, never) == (
        "tenant vision: start_within_s has no effect: nobody is evicted"
    )
    assert warnings_of(tmp_path, {"vision": {**vision, "start_within_s": 60}}) == (
        "tenant vision: start_within_s 60 is below the grace of 120 s that guests have to leave"
    )


def test_an_unused_quota_is_lent_as_its_tenant_or_the_nearest_above_says(tmp_path: Path) -> None:
    tenants = {
        "all": {"quota": {"gpus": 8}, "unused_quota": True},
        "low": {"parent": "all"},
        "own": {"parent": "low", "unused_quota": "advisory"},
        "other": {"quota": {"gpus": 8}},
    }
    text = yaml.safe_dump(tenants, default_flow_style=None)
    policy = "{name: mast, lending: on, unused_quota: {days: 2, notice_h: 1}}"
    loaded = with_tenants(tmp_path, text, policy=policy)
    found = {tenant.name: tenant.unused_quota.value for tenant in loaded.tenancy().tenants}
    assert found == {"all": "on", "low": "on", "own": "advisory", "other": "off"}
    assert loaded.rules.unused == UnusedQuotaRules(below_frac=0.2, days=2, notice_s=3600.0)
    assert loaded.warnings == ()
    assert warnings_of(tmp_path, tenants) == (
        "unused_quota: on has no effect while policy.lending is not on"
    )


def test_a_tenant_without_a_quota_passes_on_what_its_parent_has(tmp_path: Path) -> None:
    quotas = {
        "all": {"quota": {"gpus": 8}},
        "middle": {"parent": "all"},
        "low": {"parent": "middle", "quota": {"gpus": 9}},
        "lower": {"parent": "low", "quota": {"gpus": 9}},
    }
    assert warnings_of(tmp_path, quotas) == (
        "tenant all: quotas below it sum to gpus 9, more than its own 8"
    )


def test_a_quota_above_an_ancestors_limit_is_warned_of(tmp_path: Path) -> None:
    quotas = {
        "all": {"limit": {"gpus": 8}},
        "middle": {"parent": "all"},
        "low": {"parent": "middle", "quota": {"gpus": 9}},
    }
    assert "tenant low: quota.gpus 9 is above limit.gpus 8 of its ancestor all" in warnings_of(
        tmp_path, quotas
    )


def test_a_tenant_without_any_quota_is_warned_of_under_mast(tmp_path: Path) -> None:
    tenants = {"a": {}, "b": {"quota": {"gpus": 0}}, "c": {"parent": "b"}}
    assert warnings_of(tmp_path, tenants) == (
        "tenant a has no quota, nor has an ancestor: all its work is over quota"
    )
    assert warnings_of(tmp_path, tenants, "{name: global-fifo}") == ""


def test_the_rules_of_the_core_are_those_of_the_file(tmp_path: Path) -> None:
    policy = "{preemption: {grace_s: 60, budget_frac: 0.5, min_run_s: 30}, launch_lease_s: 7}"
    rules = with_tenants(tmp_path, "{}", policy=policy).rules
    assert (rules.grace_s, rules.preempt_frac, rules.min_run_s) == (60.0, 0.5, 30.0)
    assert (rules.launch_lease_s, rules.preempt_gpus) == (7.0, 0.0)
    assert rules.regions == dict.fromkeys(rules.regions, "west")


@pytest.mark.parametrize("value", ["!!bool x", "!!timestamp x", "2001-99-99", "[" * 5_000])
def test_a_value_that_yaml_itself_cannot_make_is_named_like_any_mistake(
    tmp_path: Path, value: str
) -> None:
    with pytest.raises(ConfigError, match=r"federation\.yaml:\d+: "):
        load(tmp_path, "policy:", f"store: {value}\npolicy:")


@pytest.mark.parametrize(
    ("standbys", "expected"),
    [
        ("[b]", [("alpine", 22), ("b", 22)]),
        (
            "[b, 'c:2222', '[::1]:23', '[::1]']",
            [("alpine", 22), ("b", 22), ("c", 2222), ("::1", 23), ("::1", 22)],
        ),
        ("[]", [("alpine", 22)]),
    ],
)
def test_a_site_s_login_nodes_are_its_host_and_the_standbys_in_order(
    tmp_path: Path, standbys: str, expected: list[tuple[str, int]]
) -> None:
    config = load(tmp_path, "host: alpine, ", f"host: alpine, standbys: {standbys}, ")
    site = config.sites[SiteName("alpine")]
    assert site.ssh is not None
    assert site.ssh.login_nodes == expected
    assert site.has_standby() is (len(expected) > 1)


@pytest.mark.parametrize(
    "standbys", ["[alpine]", "['alpine:22']", "[b, b]", "['']", "['u@b']", "['-x']"]
)
def test_a_standby_is_another_host_and_named_once(tmp_path: Path, standbys: str) -> None:
    with pytest.raises(ConfigError, match="standbys"):
        load(tmp_path, "host: alpine, ", f"host: alpine, standbys: {standbys}, ")
