"""Any change of an audit is found, at its first line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.audit.chain import AuditAct, AuditEnd, opened, sealed, verified
from federator.errors import DamagedAudit

_ACTS = st.lists(
    st.builds(
        AuditAct,
        at_s=st.floats(0, 2e9),
        act=st.sampled_from(["award", "drain", "reload"]),
        by=st.text(max_size=10),
        why=st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=2),
    ),
    min_size=2,
    max_size=8,
)


def chained(acts: list[AuditAct]) -> tuple[list[bytes], AuditEnd]:
    end, lines = AuditEnd(), []
    for act in acts:
        line, end = sealed(act, end)
        lines.append(line)
    return lines, end


def first_broken(lines: list[bytes], end: AuditEnd) -> int | None:
    """The number of the first line that is not as it was; None: all are, and as many."""
    try:
        found = [end for _, end in verified(lines, AuditEnd())][-1]
    except DamagedAudit as error:
        words = str(error).split()
        assert words[0] == "line"
        return int(words[1])
    return None if found == end else found.n + 1


@given(_ACTS)
def test_what_was_written_is_read_again(acts: list[AuditAct]) -> None:
    lines, end = chained(acts)
    assert [line.done for line, _ in verified(lines, AuditEnd())] == acts
    assert first_broken(lines, end) is None


@given(_ACTS, st.data())
def test_any_changed_byte_is_found_at_its_line(acts: list[AuditAct], data: st.DataObject) -> None:
    lines, end = chained(acts)
    k = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(lines[k]) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != lines[k][at]))
    lines[k] = lines[k][:at] + bytes([byte]) + lines[k][at + 1 :]
    assert first_broken(lines, end) == k + 1


@given(_ACTS, st.data())
def test_any_line_that_is_removed_moved_or_written_anew_is_found(
    acts: list[AuditAct], data: st.DataObject
) -> None:
    lines, end = chained(acts)
    k = data.draw(st.integers(0, len(lines) - 1))
    match data.draw(st.sampled_from(["remove", "swap", "double", "anew"])):
        case "remove":
            del lines[k]
        case "swap":
            other = data.draw(st.integers(0, len(lines) - 1).filter(lambda n: n != k))
            lines[k], lines[other] = lines[other], lines[k]
            k = min(k, other)
        case "double":
            lines.insert(k, lines[k])
            k += 1
        case "anew":  # with a hash of its own, as a forger would
            line, _ = opened(lines[k])
            before = AuditEnd(line.n - 1, line.before)
            lines[k] = sealed(AuditAct(at_s=1.0, act="forged"), before)[0]
            k += 1
    assert first_broken(lines, end) == k + 1


def test_what_is_no_line_is_said_so() -> None:
    with pytest.raises(DamagedAudit, match="no whole line"):
        opened(b"hello\n")
