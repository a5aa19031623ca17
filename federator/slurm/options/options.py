"""Reads the options that the user gave on the command line, in environment and script.

Text in, ``Option`` values in canonical long form out. What the options mean is for ``interpret``;
which exist is in ``option_table``. Observed on sbatch 22.05, 24.11 and 26.05:

* Directives end before the first line that is neither blank nor a comment. ``#SBATCH`` must start
  the line; no blank need follow it. Quotes of both kinds and backslashes work everywhere, also a
  backslash within quotes; an unquoted ``#`` starts a comment even in the middle of a word.
* A directive that holds the word ``hetjob`` (old: ``packjob``) opens the next component, and the
  rest of its line is ignored.
* Without ``:`` the command line's options hold for *every* component of the script. With it,
  group k holds for component k, and the last group for all components after it.
* Order of force, per component: command line, environment, script, carried over from the component
  before (``option_table.CARRIED``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from federator.errors import InvalidRequest
from federator.model.submission import Option
from federator.slurm.options.option_table import (
    ACCUMULATING,
    ALIASES,
    CARRIED,
    ENVIRONMENT,
    EXCLUSIVE_FAMILIES,
    NUMBERED,
    OPTIONS,
    OWN,
    REPLACES,
    SHORT,
    Arity,
    Treatment,
)

Options = tuple[Option, ...]

MAX_SCRIPT_BYTES: Final = 4 * 2**20  # Slurm's default max_script_size
MAX_COMPONENTS: Final = 128  # Slurm's MAX_HET_JOB_COMPS
DIRECTIVE: Final = "#SBATCH"
_FOREIGN: Final = ("#PBS", "#BSUB")
_BLANKS: Final = " \t\n\v\f\r"
_WORD_ENDS: Final = _BLANKS + "#"
_LONG_NAMES: Final = {**{name: name for name in OPTIONS}, **ALIASES}


class UsageError(InvalidRequest):
    """An option is spelt wrongly; the list of options helps."""


class CommandLine(NamedTuple):
    """The words after ``fsbatch``: options by het group, then the script and its arguments."""

    groups: tuple[Options, ...]
    operands: tuple[str, ...]


# ---- getopt ----


def _long_option(word: str, rest: list[str], extra_long: frozenset[str]) -> Option:
    """Read ``--name``, ``--name=value`` or ``--name value``; takes the value off ``rest``."""
    name, equals, value = word[2:].partition("=")
    if name in extra_long:
        return Option(name=name, value=value if equals else None)
    canonical = _LONG_NAMES.get(name) or _unabbreviate(name, word)
    arity = OPTIONS[canonical].arity
    if equals:
        if arity is Arity.NONE:
            raise UsageError(f"option '--{canonical}' doesn't allow an argument")
        return Option(name=canonical, value=value)
    if arity is Arity.REQUIRED:
        if not rest:
            raise UsageError(f"option '--{canonical}' requires an argument")
        return Option(name=canonical, value=rest.pop())
    return Option(name=canonical)


def _unabbreviate(name: str, word: str) -> str:
    """Complete a name as sbatch does; where it knows none, an option of the federation is meant."""
    matching = [long for long in _LONG_NAMES if name and long.startswith(name)]
    found = [long for long in matching if long not in OWN] or matching
    meant = {_LONG_NAMES[long] for long in found}
    if not meant:
        raise UsageError(f"unrecognized option '{word}'")
    if len(meant) > 1:
        possibilities = " ".join(f"'--{long}'" for long in sorted(found))
        raise UsageError(f"option '--{name}' is ambiguous; possibilities: {possibilities}")
    return meant.pop()


def _short_options(word: str, rest: list[str]) -> Iterable[Option]:
    """Read ``-N2``, ``-N 2`` or bundled flags such as ``-Ov``."""
    at = 1
    while at < len(word):
        letter, at = word[at], at + 1
        if letter not in SHORT:
            raise UsageError(f"invalid option -- '{letter}'")
        name = SHORT[letter]
        arity = OPTIONS[name].arity
        if arity is Arity.NONE:
            yield Option(name=name)
            continue
        value: str | None = word[at:] or None
        if value is None and arity is Arity.REQUIRED:
            if not rest:
                raise UsageError(f"option requires an argument -- '{letter}'")
            value = rest.pop()
        yield Option(name=name, value=value)
        return


def parse_words(
    words: Sequence[str], extra_long: frozenset[str] = frozenset()
) -> tuple[Options, tuple[str, ...]]:
    """Read options up to the first word that is none, as getopt_long does with "+".

    Args:
        words: without the program's name.
        extra_long: options of a site's own (SPANK), taken as ``--name=value`` or ``--name``.

    Returns:
        The options in order, and the words that are left; a ``--`` between is dropped.

    Raises:
        UsageError: getopt would complain; in its words.
    """
    options: list[Option] = []
    rest = list(reversed(words))
    while rest:
        word = rest[-1]
        if word == "--":
            rest.pop()
            break
        if len(word) < 2 or word[0] != "-":
            break
        rest.pop()
        if word.startswith("--"):
            options.append(_long_option(word, rest, extra_long))
        else:
            options.extend(_short_options(word, rest))
    return tuple(options), tuple(reversed(rest))


def parse_command_line(
    argv: Sequence[str], extra_long: frozenset[str] = frozenset()
) -> CommandLine:
    """Read fsbatch's arguments: ``[options] [: [options]]… [script [args…]]``.

    Raises:
        InvalidRequest: as ``parse_words``; or more than ``MAX_COMPONENTS`` groups.
    """
    groups: list[Options] = []
    rest = tuple(argv)
    while True:
        options, rest = parse_words(rest, extra_long)
        groups.append(options)
        if not rest or rest[0] != ":":
            break
        rest = rest[1:]
    check_components(len(groups))
    return CommandLine(groups=tuple(groups), operands=rest)


def check_components(count: int) -> None:
    """Refuse more het components than Slurm takes."""
    if count > MAX_COMPONENTS:
        raise InvalidRequest(f"{count} het job components, at most {MAX_COMPONENTS}")


# ---- environment ----


def parse_environment(environment: Mapping[str, str]) -> Options:
    """Read the SBATCH_* input variables.

    A flag is set by an empty value, ``yes`` or a number other than 0, and left alone otherwise;
    an option whose value is optional takes an empty one as none.
    """
    options = []
    for variable, name in ENVIRONMENT:
        value = environment.get(variable)
        if value is None:
            continue
        arity = OPTIONS[name].arity
        if arity is Arity.REQUIRED:
            options.append(Option(name=name, value=value))
        elif _is_flag_set(value) and not (name in NUMBERED and value):
            options.append(Option(name=name))
        elif arity is Arity.OPTIONAL and (name in NUMBERED or not value.isdecimal()):
            options.append(Option(name=name, value=value))
    return tuple(options)


def _is_flag_set(value: str) -> bool:
    return value in ("", "yes") or (value.isdecimal() and value.strip("0") != "")


# ---- script ----


def header_lines(script: str) -> Iterable[str]:
    """Yield the lines that sbatch looks at for directives, without their newlines."""
    start = 0
    while start < len(script):
        end = script.find("\n", start)
        end = len(script) if end < 0 else end
        line = script[start:end]
        bare = line.lstrip(_BLANKS)
        if bare and bare[0] != "#":
            return
        yield line
        start = end + 1


def _word(text: str, at: int, where: str) -> tuple[str | None, int]:
    """Read one word of a directive from ``at``; None at its end or at a comment."""
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    if at == len(text) or text[at] == "#":
        return None, len(text)
    if text[at] == ":":
        raise InvalidRequest(f"{where}: Unexpected `:` in [{text}]")
    word: list[str] = []
    quote = ""
    while at < len(text):
        char, at = text[at], at + 1
        if char == "\\" and at < len(text):
            word.append(text[at])
            at += 1
        elif char == quote or (not quote and char in "\"'"):
            quote = "" if quote else char
        elif quote or char not in _WORD_ENDS:
            word.append(char)
        else:
            at = len(text) if char == "#" else at
            break
    if quote:
        raise InvalidRequest(f"{where}: Unmatched `{quote}` in [{text}]")
    return "".join(word), at  # an empty word ends the directive, as it does for sbatch


def _directive_words(text: str, where: str) -> Iterable[str]:
    word, at = _word(text, 0, where)
    while word:
        yield word
        word, at = _word(text, at, where)


def parse_script(
    script: str, name: str = "script", extra_long: frozenset[str] = frozenset()
) -> tuple[Options, ...]:
    """Read the ``#SBATCH`` directives of a script.

    Returns:
        The options of each het component; one, maybe empty, for a plain job.

    Raises:
        InvalidRequest: a directive is malformed, or names an option that does not exist.
    """
    groups: list[list[str]] = [[]]
    for number, line in enumerate(header_lines(script), start=1):
        if line.startswith("#SLURM"):
            raise InvalidRequest(
                f"{name}: line {number}: Change from #SLURM to #SBATCH in your script and "
                "verify the options are valid in sbatch"
            )
        if not line.startswith(DIRECTIVE):
            continue
        for word in _directive_words(line[len(DIRECTIVE) :], f"{name}: line {number}"):
            if word in ("hetjob", "packjob"):
                groups.append([])
                break
            groups[-1].append(word)
    while len(groups) > 1 and not groups[-1]:  # a separator that nothing follows
        groups.pop()
    check_components(len(groups))
    return tuple(_script_options(words, extra_long) for words in groups)


def _script_options(words: list[str], extra_long: frozenset[str]) -> Options:
    options, rest = parse_words(words, extra_long)
    if rest:
        raise InvalidRequest(f"Invalid directive found in batch script: {rest[0]}")
    return options


def has_foreign_directives(script: str) -> bool:
    """Tell whether the header holds #PBS or #BSUB directives, which sbatch would translate."""
    return any(line.startswith(_FOREIGN) for line in header_lines(script))


def check_script(content: bytes, name: str = "") -> str:
    """Make the same checks as sbatch, in the same order and words.

    Args:
        content: of the file or of standard input.
        name: of the file; "" for standard input.

    Returns:
        The script as text; bytes that are not UTF-8 survive as surrogates.

    Raises:
        InvalidRequest: it is no batch script that Slurm takes.
    """
    if len(content) > MAX_SCRIPT_BYTES:
        raise InvalidRequest(
            f"Script {name or 'from STDIN'} is too big, "
            f"read {len(content)} > {MAX_SCRIPT_BYTES} bytes."
        )
    if not content:
        raise InvalidRequest("Batch script is empty!")
    if not content.strip():
        raise InvalidRequest("Batch script contains only whitespace!")
    if not content.startswith(b"#!"):
        raise InvalidRequest(
            "This does not look like a batch script.  The first line must start with #! "
            "followed by the path to an interpreter. For instance: #!/bin/sh"
        )
    if b"\0" in content:
        raise InvalidRequest(
            "The Slurm controller does not allow scripts that contain the NULL character '\\0'."
        )
    if b"\r\n" in content:
        raise InvalidRequest(
            "Batch script contains DOS line breaks (\\r\\n) instead of expected UNIX "
            "line breaks (\\n)."
        )
    return content.decode("utf-8", "surrogateescape")


# ---- precedence ----


def _set(options: dict[str, list[Option]], option: Option) -> None:
    """Put one option on top of those before it; the latest comes last."""
    earlier = options.pop(option.name, [])
    options.pop(REPLACES.get(option.name, ""), None)
    options[option.name] = [*earlier, option] if option.name in ACCUMULATING else [option]


def _without_beaten(environment: Options, stronger: Options) -> Options:
    """Drop what the environment says of a family that script or command line decide."""
    names = {option.name for option in stronger}
    return tuple(
        option
        for option in environment
        if not any(
            option.name in family and names & (family - {option.name})
            for family in EXCLUSIVE_FAMILIES
        )
    )


def resolve(
    command_line: Sequence[Options], environment: Options, script: Sequence[Options]
) -> tuple[Options, ...]:
    """Merge the three sources into the options of each het component.

    Returns:
        As many components as the command line or the script has, whichever has more. Each option
        stands once (``option_table.ACCUMULATING``: as often as given), the latest set last.
    """
    names = [o for group in command_line for o in group if o.name == "job-name"]
    carried: list[Option] = names[-1:]  # sbatch reads names of all groups before anything else
    components = []
    for k in range(max(len(command_line), len(script), 1)):
        group = command_line[min(k, len(command_line) - 1)] if command_line else ()
        directives = script[k] if k < len(script) else ()
        merged: dict[str, list[Option]] = {}
        beaten = _without_beaten(environment, (*directives, *group, *carried))
        for option in (*carried, *directives, *beaten, *group):
            _set(merged, option)
        components.append(tuple(option for same in merged.values() for option in same))
        carried = [option for option in components[-1] if option.name in CARRIED]
    return tuple(components)


def split_client(components: Sequence[Options]) -> tuple[Options, tuple[Options, ...]]:
    """Take out the options that fsbatch itself acts on.

    Returns:
        The client's options of the first component, and all components without any.
    """

    def is_client(option: Option) -> bool:
        spec = OPTIONS.get(option.name)
        return spec is not None and spec.treatment is Treatment.CLIENT

    client = tuple(option for option in components[0] if is_client(option))
    rest = tuple(tuple(o for o in component if not is_client(o)) for component in components)
    return client, rest


def words_of(option: Option) -> str:
    """Spell one option as a single word of a command line."""
    return f"--{option.name}" if option.value is None else f"--{option.name}={option.value}"
