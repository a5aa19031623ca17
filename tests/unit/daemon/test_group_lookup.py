"""Users' groups are looked up beside the event loop, and a directory that hangs is given up."""

from __future__ import annotations

import asyncio
import threading

from federator.daemon.group_lookup import AT_ONCE, GroupLookup

OPS = frozenset({"ops"})


async def asked(lookup: GroupLookup, groups_of: object, user: str = "ada") -> frozenset[str] | None:
    future: asyncio.Future[frozenset[str] | None] = asyncio.get_running_loop().create_future()
    lookup(groups_of, user, future.set_result)  # type: ignore[arg-type]
    return await future


def test_the_loop_goes_on_while_a_directory_thinks() -> None:
    thinking = threading.Event()

    def groups_of(_user: str) -> frozenset[str]:
        assert thinking.wait(10)
        return OPS

    async def main() -> None:
        answer = asyncio.create_task(asked(GroupLookup(), groups_of))
        await asyncio.sleep(0)  # the loop is not held up, or it would never get here
        assert not answer.done()
        thinking.set()
        assert await answer == OPS

    asyncio.run(main())


def test_a_directory_that_hangs_is_given_up_and_holds_up_no_more_than_its_places() -> None:
    hangs = threading.Event()

    def groups_of(user: str) -> frozenset[str]:
        if user == "hangs":
            hangs.wait(10)
        return OPS

    async def main() -> None:
        lookup = GroupLookup(patience_s=0.05)
        assert await asked(lookup, groups_of, "hangs") is None
        assert await asked(lookup, groups_of) == OPS
        many = [asked(lookup, groups_of, "hangs") for _ in range(AT_ONCE)]
        assert await asyncio.gather(*many) == [None] * AT_ONCE
        assert await asked(lookup, groups_of) is None  # no place is left
        hangs.set()
        while await asked(lookup, groups_of) is None:  # until the threads are done
            continue
        assert await asked(lookup, groups_of) == OPS

    asyncio.run(main())


def test_an_error_of_the_directory_s_library_is_no_answer() -> None:
    def groups_of(_user: str) -> frozenset[str]:
        raise OSError("no route to host")

    assert asyncio.run(asked(GroupLookup(), groups_of)) is None
