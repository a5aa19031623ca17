"""Reads ``--constraint``: the features that a job's nodes must have, with Slurm's operators.

``a&b`` and ``a|b`` (read from left to right, as Slurm does; parentheses group) hold on every node.
``[a|b]``: all nodes have the same one of these. ``a*2``, ``[a*2&b*1]``: so many of the nodes have
it, and each node counts once; the other nodes may be any.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from federator.errors import InvalidRequest

INVALID: Final = "Invalid feature specification"  # Slurm's words
MOST_BYTES: Final = 2_048  # of an expression
MOST_NESTED: Final = 16
MOST_COUNTED: Final = 64  # nodes that must each have something of their own
MOST_ALTERNATIVES: Final = 32
_TOKEN: Final = re.compile(r"\s*([A-Za-z0-9_.:=/-]+|[&,|()\[\]*])")
_NAME: Final = re.compile(r"[A-Za-z0-9_.:=/-]+", re.ASCII)


class Step(NamedTuple):
    """What is joined to all that stands before it: by | (``any_of``), or by &."""

    of: Expression
    any_of: bool = False


Expression = str | tuple[Step, ...]
"""A feature, or several expressions that are joined from left to right."""


class Counted(NamedTuple):
    """So many nodes for which an expression holds."""

    nodes: int
    of: Expression


class Way(NamedTuple):
    """One way to satisfy a constraint.

    ``every``: of each node; None: nothing. ``counted``: nodes of their own for each.
    """

    every: Expression | None = None
    counted: tuple[Counted, ...] = ()

    @property
    def counted_nodes(self) -> int:
        return sum(part.nodes for part in self.counted)


ANY: Final = (Way(),)
"""The ways of a job that constrains nothing."""


def holds(expression: Expression | None, features: Collection[str]) -> bool:
    """Tell whether a node with these features satisfies an expression."""
    if expression is None:
        return True
    if isinstance(expression, str):
        return expression in features
    found = True
    for of, any_of in expression:
        if found == any_of:  # true or anything, false and anything
            continue
        found = holds(of, features)
    return found


def names(expression: Expression | None) -> frozenset[str]:
    """The features that an expression names."""
    if expression is None:
        return frozenset()
    if isinstance(expression, str):
        return frozenset({expression})
    return frozenset().union(*(names(step.of) for step in expression))


@lru_cache(maxsize=4096)
def ways_of(text: str) -> tuple[Way, ...]:
    """Read a constraint; "" constrains nothing.

    Raises:
        InvalidRequest: in Slurm's words, or with what is not planned.
    """
    if not text:
        return ANY
    if len(text) > MOST_BYTES:
        raise InvalidRequest(f"--constraint is longer than {MOST_BYTES} bytes")
    return _Reader(text).ways()


def plain_names(text: str) -> tuple[str, ...] | None:
    """The features of ``a&b&c``, each once; None where there is more to it."""
    found = [name.strip() for name in text.replace(",", "&").split("&")]
    if all(_NAME.fullmatch(name) for name in found):
        return tuple(dict.fromkeys(found))
    return None


def _joined(left: Expression | None, right: Expression | None) -> Expression | None:
    if left is None or right is None:
        return right if left is None else left
    return (Step(left), Step(right))


class _Part(NamedTuple):
    """What stands between two operators of the outermost level, or of brackets."""

    of: Expression
    nodes: int = 0  # 0: every node


class _Reader:
    """Reads one text, from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def ways(self) -> tuple[Way, ...]:
        """The whole text: parts and brackets that are joined."""
        every: list[Step] = []
        counted: list[Counted] = []
        alternatives: tuple[Expression, ...] = ()
        operator = "&"
        while True:
            if self._peek() == "[":
                if alternatives or operator == "|":
                    raise _invalid()
                parts, alternatives = self._brackets()
                counted += parts
            else:
                part = self._part(0)
                if part.nodes and operator == "|":
                    raise _invalid()
                if part.nodes:
                    counted.append(Counted(part.nodes, part.of))
                else:
                    every.append(Step(part.of, any_of=bool(every) and operator == "|"))
            if self._peek() is None:
                return _ways(_expression(every), counted, alternatives)
            operator = self._operator()
            if operator == "|" and (counted or alternatives):
                raise _invalid()

    def _brackets(self) -> tuple[list[Counted], tuple[Expression, ...]]:
        """``[a*2&b*1]`` as counts, or ``[a|b]`` as alternatives."""
        self._next()
        parts, operators = [self._part(0)], set[str]()
        while self._peek() != "]":
            operators.add(self._operator())
            parts.append(self._part(0))
        self._next()
        if any(part.nodes for part in parts):
            if "|" in operators or not all(part.nodes for part in parts):
                raise _invalid()
            return [Counted(part.nodes, part.of) for part in parts], ()
        if operators == {"&", "|"}:
            raise _invalid()
        if "&" in operators:
            return [], (tuple(Step(part.of) for part in parts),)
        return [], tuple(part.of for part in parts)

    def _part(self, depth: int) -> _Part:
        """A feature or a group, with its count."""
        word = self._next()
        of: Expression
        if word == "(":
            of = self._group(depth + 1)
        elif word is not None and _NAME.fullmatch(word):
            of = word
        else:
            raise _invalid()
        if self._peek() != "*":
            return _Part(of)
        self._next()
        number = self._next() or ""
        if depth or not number.isascii() or not number.isdecimal() or len(number) > 6:
            raise _invalid()
        if not int(number):
            raise _invalid()
        return _Part(of, int(number))

    def _group(self, depth: int) -> Expression:
        """What stands in parentheses, after the first of them."""
        if depth > MOST_NESTED:
            raise InvalidRequest(f"--constraint has more than {MOST_NESTED} nested parentheses")
        found = [Step(self._part(depth).of)]
        while self._peek() != ")":
            any_of = self._operator() == "|"
            found.append(Step(self._part(depth).of, any_of))
        self._next()
        return found[0].of if len(found) == 1 else tuple(found)

    def _operator(self) -> str:
        word = self._next()
        if word not in ("&", ",", "|"):
            raise _invalid()
        return "|" if word == "|" else "&"

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str | None:
        word = self._peek()
        self._at += 1
        return word


def _expression(steps: Sequence[Step]) -> Expression | None:
    if len(steps) == 1:
        return steps[0].of
    return tuple(steps) or None


def _ways(
    every: Expression | None, counted: Sequence[Counted], alternatives: Sequence[Expression]
) -> tuple[Way, ...]:
    if sum(part.nodes for part in counted) > MOST_COUNTED:
        raise InvalidRequest(f"--constraint counts more than {MOST_COUNTED} nodes; ask for fewer")
    if len(alternatives) > MOST_ALTERNATIVES:
        raise InvalidRequest(f"--constraint has more than {MOST_ALTERNATIVES} alternatives")
    if not alternatives:
        return (Way(every, tuple(counted)),)
    return tuple(Way(_joined(every, each), tuple(counted)) for each in alternatives)


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise _invalid()
        found.append(match[1])
        at = match.end()
    return found


def _invalid() -> InvalidRequest:
    return InvalidRequest(f"Batch job submission failed: {INVALID}")
