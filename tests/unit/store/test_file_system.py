"""A log's folder on a file system that cannot keep it is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.store.file_system import doubts_about

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /run rw,nosuid - tmpfs tmpfs rw
40 22 0:40 / /home rw - nfs4 server:/home rw,vers=4.2
41 40 254:1 / /home/local\\040disk rw - xfs /dev/vdb rw
42 22 0:42 / /srv rw - ext4 /dev/vdc rw
43 22 0:43 / /srv rw - lustre mgs:/work rw
"""


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("/var/lib/federator", None),
        ("/home/fed", "is on nfs4: over a network"),
        ("/home/local disk/queue", None),
        ("/srv/queue", "is on lustre"),  # mounted over the other
        ("/run/federator", "tmpfs, which the next boot clears"),
    ],
)
def test_the_innermost_file_system_counts(tmp_path: Path, folder: str, words: str | None) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    found = doubts_about(Path(folder), mounts)
    assert (words is None and found is None) or (words is not None and words in str(found))


def test_where_nothing_is_known_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "odd").write_text("no mounts\n\n- \n")
    assert doubts_about(Path("/var"), tmp_path / "odd") is None
    assert doubts_about(Path("/var"), tmp_path / "absent") is None
