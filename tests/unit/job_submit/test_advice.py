"""A user who asks for a GPU by its name is advised, and the job goes on."""

from __future__ import annotations

import pytest

from tests.unit.job_submit.site import SUCCESS, TOKEN, Site

GPUS = """gpus = {
    a100 = { mem_gib = 80, nvlink = true }, h100 = { mem_gib = 80, nvlink = true },
    l40s = { mem_gib = 48 }, t4 = { mem_gib = 16 },
}"""
ADVICE = f'return {{ advice = {{ partitions = "*", {GPUS} }} }}'
REWRITE = f"""return {{
    advice = {{ partitions = {{ "local" }}, {GPUS} }},
    rewrite = {{ partitions = {{ "local" }}, nvlink = "nvlink", mem_gib = {{ [80] = "gpu80g" }} }},
}}"""


def test_a_model_that_others_could_stand_in_for_is_commented_on(site: Site) -> None:
    site.configure(ADVICE)
    answer = site.submit(tres_per_node="gres:gpu:a100:2")
    assert answer.code == SUCCESS
    assert answer.said == [
        "note: gpu:a100 names one model, and the job waits for that one alone. If 80 GiB with "
        "NVLink are what it needs, h100 would do, too: fsbatch --fed-gpu-mem=80G --fed-nvlink, "
        "with gpu:2 in place of gpu:a100:2. If it must be a100, add --constraint=a100 and this "
        "note is not shown."
    ]


def test_only_what_has_as_much_of_everything_would_do(site: Site) -> None:
    site.configure(ADVICE)
    assert "a100 or h100 or l40s would do" in site.submit(tres_per_job="gres/gpu:t4:1").text
    assert "a100 or h100 would do" in site.submit(tres_per_task="gres/gpu:l40s=1").text
    assert "--fed-nvlink" not in site.submit(tres_per_node="gres/gpu:l40s").text


@pytest.mark.parametrize(
    "job",
    [
        {"tres_per_node": "gres/gpu:2"},
        {"tres_per_node": "gres/gpu"},
        {"tres_per_node": "gres/tmp:a100:2"},
        {"tres_per_node": "gres/gpu:unknown:2"},
        {"tres_per_node": "gres/gpu:a100:2", "features": "a100"},
        {"tres_per_node": "gres/gpu:a100:2", "features": "rack1&a100"},
        {},
    ],
)
def test_who_names_no_model_or_means_it_is_left_alone(site: Site, job: dict[str, object]) -> None:
    site.configure(ADVICE)
    assert site.submit(**job).said == []


def test_the_models_are_the_federations_unless_the_site_lists_its_own(site: Site) -> None:
    site.configure('return { spool_dir = SPOOL, advice = { partitions = "*" } }')
    site.admit("gpu\ta100\t80\t1", "gpu\tb200\t179.5\t1", "future\tline")
    assert (
        "80 GiB with NVLink are what it needs, b200"
        in site.submit(tres_per_node="gres/gpu:a100:1").text
    )
    assert site.submit(tres_per_node="gres/gpu:b200:1").said == []


def test_what_the_users_command_cannot_know_slurmctld_says(site: Site) -> None:
    """It advises, but does not know which partition a job goes to that names none."""
    asked = {"tres_per_node": "gres/gpu:a100:2"}
    site.configure(ADVICE.replace('"*"', '{ "local" }, by = "client"'))
    assert "h100 would do" in site.submit(**asked).text
    assert site.submit(partition="local", **asked).said == []
    site.configure(ADVICE.replace('"*"', '"*", by = "client"'))
    assert site.submit(**asked).said == []


def test_advice_that_cannot_be_had_refuses_nobody(site: Site) -> None:
    site.configure('return { spool_dir = SPOOL, advice = { partitions = "*" }, fail_open = false }')
    answer = site.submit(tres_per_node="gres/gpu:a100:1")
    assert (answer.code, answer.said) == (SUCCESS, [])
    assert len(answer.logged) == 1


def test_jobs_of_the_federation_are_not_advised(site: Site) -> None:
    """Their user is not there to read it, and the plan names the nodes."""
    site.configure(f"""return {{ spool_dir = SPOOL, closed = {{ "fed" }},
        advice = {{ partitions = "*", {GPUS} }} }}""")
    site.ticket()
    answer = site.submit(
        partition="fed",
        comment="fed:7:1",
        environment={"FED_TICKET": TOKEN},
        tres_per_node="gres/gpu:a100:8",
    )
    assert (answer.code, answer.said) == (SUCCESS, [])


# ---- in the user's own command ----

CLIENT = f"""return {{ spool_dir = SPOOL, closed = {{ "fed" }}, project_as_wckey = true,
    advice = {{ partitions = {{ "local" }}, by = "client", {GPUS} }} }}"""


@pytest.fixture
def client(site: Site) -> Site:
    """A user's command: its process is not root's."""
    site.be_user()
    site.configure(CLIENT)
    return site


def test_the_client_hints_at_fsbatch_and_lets_the_server_decide(client: Site) -> None:
    answer, _ = client.command(type="sbatch", partition="fed")
    assert answer.code == SUCCESS
    assert answer.logged == [
        "partition fed takes jobs of the federation only: type fsbatch for sbatch, with the same "
        "options and no --partition"
    ]
    answer, _ = client.command(type="salloc", partition="local,fed")
    assert "put the command into a script for fsbatch" in answer.logged[0]


def test_the_client_gives_the_advice_where_so_chosen(client: Site) -> None:
    for options in ({"gres": "gres:gpu:a100:2"}, {"gpus": "a100:2"}, {"gpus-per-node": "a100:2"}):
        answer, _ = client.command(type="sbatch", partition="local", **options)
        assert "h100 would do, too" in answer.logged[0]
    assert client.submit(partition="local", tres_per_node="gres/gpu:a100:2").said == []


def test_steps_inside_a_job_are_left_alone(client: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    answer, _ = client.command(type="srun", partition="fed")
    assert answer.logged == []


def test_a_project_goes_with_srun_as_its_wckey_where_so_chosen(
    client: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FED_PROJECT", "llm")
    assert client.command(type="srun", partition="local")[1]["wckey"] == "llm"
    assert client.command(type="srun", partition="local", wckey="own")[1]["wckey"] == "own"
    client.configure("return {}")
    assert "wckey" not in client.command(type="srun", partition="local")[1]


def test_a_broken_configuration_is_not_the_users_concern(client: Site) -> None:
    client.configure("return 7")
    answer, _ = client.command(type="sbatch", partition="fed")
    assert (answer.code, answer.said) == (SUCCESS, [])
    assert all("admission.lua" not in line for line in answer.logged)


# ---- rewriting, in the user's own command ----


@pytest.fixture
def rewriting(client: Site) -> Site:
    client.configure(REWRITE)
    return client


def test_a_rewrite_asks_for_capabilities_instead(rewriting: Site) -> None:
    answer, options = rewriting.command(
        type="sbatch", partition="local", gres="gres:gpu:a100:2,gres:tmp:5"
    )
    assert options["gres"] == "gres:gpu:2,gres:tmp:5"
    assert options["constraint"] == "nvlink&gpu80g"
    assert answer.logged == [
        "note: gpu:a100:2 was changed to gpu:2 with --constraint='nvlink&gpu80g', so that h100 "
        "will do, too. If it must be a100, add --constraint=a100 and nothing is changed."
    ]


@pytest.mark.parametrize(
    ("asked", "then"),
    [("a100:4", "4"), ("a100", "1"), ("a100:2,a100:3", "2,3")],
)
@pytest.mark.parametrize("option", ["gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"])
def test_every_option_for_gpus_is_rewritten(
    rewriting: Site, option: str, asked: str, then: str
) -> None:
    _, options = rewriting.command(**{"type": "srun", "partition": "local", option: asked})
    assert options[option] == then


def test_a_rewrite_keeps_what_was_asked_beside_it(rewriting: Site) -> None:
    _, options = rewriting.command(
        type="srun", partition="local", gpus="a100:1", constraint="rack1"
    )
    assert options["constraint"] == "rack1&nvlink&gpu80g"


@pytest.mark.parametrize(
    "asked",
    [
        {"constraint": "[rack1|rack2]"},  # cannot be joined with another
        {"constraint": "rack1|rack2"},
        {"constraint": "a100"},  # it is meant
        {"gres": "gres:gpu:a100:1,gres:gpu:h100:1"},  # several models, on purpose
        {"gpus": "h100:2"},
        {"gres": "gres:gpu:l40s:1"},  # no feature for 48 GiB
        {"partition": "local,other"},
        {"partition": "other"},
        {"partition": None},  # it is not known here which is the default one
    ],
)
def test_what_cannot_be_said_with_features_is_not_rewritten(
    rewriting: Site, asked: dict[str, object]
) -> None:
    given = {"type": "sbatch", "partition": "local", "gres": "gres:gpu:a100:2", **asked}
    _, options = rewriting.command(**given)
    assert options == {key: value for key, value in given.items() if value is not None}


def test_slurmctld_changes_no_job(rewriting: Site) -> None:
    """Steps ask for what their sbatch or srun were given, and would find no such GPU."""
    answer = rewriting.submit(partition="local", tres_per_node="gres:gpu:a100:2")
    assert answer.job["tres_per_node"] == "gres:gpu:a100:2"
    assert "features" not in answer.job
    assert "h100 would do, too" in answer.text


def test_rewriting_is_off_unless_asked_for(client: Site) -> None:
    _, options = client.command(type="sbatch", partition="local", gres="gres:gpu:a100:2")
    assert options == {"type": "sbatch", "partition": "local", "gres": "gres:gpu:a100:2"}
