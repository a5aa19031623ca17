"""Deals the files of a data set out to several rsyncs that run side by side; part of the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library only, Python 3.6 or later.

One rsync sends one file after the other through one connection, which small files leave idle and
one core of ssh bounds. The source is listed, and each file goes to the list with least to send.
What cannot be listed comes with the one rsync that follows (``site_fetch.fetch``).
"""

import contextlib
import re
from collections.abc import Iterable

MOST_STREAMS = 16
LISTS = tuple("list.%d" % number for number in range(MOST_STREAMS))  # noqa: UP031  # Python 3.6
FILE_COSTS_BYTES = 64 * 1024  # what else could be sent while one file is opened and closed
LISTED = re.compile(rb"-\S{9}\S* +([0-9,]+) +\S+ \S+ (.+)\n\Z", re.DOTALL)  # a regular file


def deal_out(listing: "Iterable[bytes]", streams: int) -> int:
    """Write which files each stream copies, from lines of ``rsync --list-only``; return how many.

    Names in which rsync has written a character in another way are left out.
    """
    files = 0
    load = [0] * streams
    with contextlib.ExitStack() as opened:
        lists = [opened.enter_context(open(LISTS[number], "wb")) for number in range(streams)]
        for line in listing:
            found = LISTED.match(line)
            if found is None or b"\\#" in found.group(2):
                continue
            files += 1
            number = load.index(min(load))
            load[number] += int(found.group(1).replace(b",", b"")) + FILE_COSTS_BYTES
            lists[number].write(found.group(2) + b"\0")
    return files
