"""Nothing is lost and nothing runs twice, whatever breaks: the second half of the seeds.

See ``test_fault_histories.py``; a file of their own, so that two processes can share them.
"""

from __future__ import annotations

import pytest

from tests.fault_seeds import HistoryHalf, folder_of_run

_HALF = HistoryHalf(1)


@pytest.mark.parametrize("part", _HALF.parts)
def test_no_history_of_faults_breaks_a_promise(part: int) -> None:
    report = _HALF.play(part)
    assert not report.broken, "\n".join(report.lines())


def test_every_kind_of_fault_on_the_menu_strikes(tmp_path_factory: pytest.TempPathFactory) -> None:
    missing = _HALF.kinds_that_never_strike(folder_of_run(tmp_path_factory.getbasetemp()))
    if missing is None:
        pytest.skip("needs the histories of both halves")
    assert missing == []
