"""Facts: a value with its source, or why it is unknown; and tables of them.

The vocabulary (which facts there are, their type and scope) is ``constraints/facts.toml`` together with the
engine's own variables and configuration keys. Keys are dotted: ``gpu.sm``, ``build.cuda``,
``package.flashinfer-python``, ``config.kernel_config.linear_backend``, ``env.VLLM_DISABLED_KERNELS``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from packaging.version import InvalidVersion, Version

from qresolve.errors import DataInvalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ABSENT = "absent"
"""The value of a package or tool that is known not to be there. Not the same as unknown."""

UNSET = "<unset>"
"""The ``fix`` of a variable for which being set at all means something, whatever its value."""

Value = bool | int | str | frozenset[str]
FactType = Literal["bool", "int", "version", "text", "set"]
FACT_TYPES: tuple[str, ...] = ("bool", "int", "version", "text", "set")


class Scope(StrEnum):
    """Whose fact it is, and so who may fix it."""

    TARGET = "target"
    RELEASE = "release"
    ENVIRONMENT = "environment"  # the environment may choose it: a package, a setting
    HOST = "host"  # the lock does not fix it unless a setting does
    WORKLOAD = "workload"
    SCHEME = "scheme"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactKind:
    """One word of the vocabulary.

    ``default`` is what a host or workload has when nobody says otherwise (None: nothing is assumed).
    ``choices`` are the values the environment may choose, the default first; empty where it may not.
    ``unfixed`` is the choice that leaves the fact to the host. ``fix`` is the text that a setting gives an ``env.``
    fact of the host so that it has its default whatever the host says (:data:`UNSET` removes the variable).
    ``with_toolkit`` is what a host fact usually is where a CUDA toolkit is installed. ``values`` are all that a text
    fact can be, where that is a closed list.
    """

    key: str
    type: FactType
    scope: Scope
    meaning: str
    default: Value | None = None
    choices: tuple[Value, ...] = ()
    unfixed: Value | None = None
    fix: str | None = None
    with_toolkit: Value | None = None
    values: tuple[str, ...] = ()
    may_be_absent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A value with where it came from, or (``value`` None) why it is not known.

    ``shell_image`` is the one that loads where the value says that none does, as one without the instruction that was
    asked for does not count (``sm_120f``).
    """

    value: Value | None
    source: str
    why_unknown: str = ""
    shell_image: str = ""


UNKNOWN = Fact(value=None, source="", why_unknown="nobody said")


class Vocabulary:
    """All fact kinds by key; a kind whose key ends in ``.*`` stands for every key below it."""

    def __init__(self, kinds: Iterable[FactKind]) -> None:
        self._exact: dict[str, FactKind] = {}
        self._prefixes: dict[str, FactKind] = {}
        for kind in kinds:
            if kind.key.endswith(".*"):
                self._prefixes[kind.key[:-1]] = kind
            elif kind.key in self._exact:
                raise DataInvalid(f"the fact `{kind.key}` is declared twice")
            else:
                self._exact[kind.key] = kind

    def get(self, key: str) -> FactKind | None:
        """The kind of ``key``, or None where the vocabulary has no such word."""
        if key in self._exact:
            return self._exact[key]
        return next((kind for prefix, kind in self._prefixes.items() if key.startswith(prefix)), None)

    def __getitem__(self, key: str) -> FactKind:
        kind = self.get(key)
        if kind is None:
            raise DataInvalid(f"no fact is called `{key}`")
        return kind

    def kinds(self) -> tuple[FactKind, ...]:
        """The exact kinds, in declaration order."""
        return tuple(self._exact.values())

    def keys(self) -> tuple[str, ...]:
        """The exact keys, then the prefixes with a ``*``."""
        return (*self._exact, *(f"{prefix}*" for prefix in self._prefixes))

    def parse_value(self, key: str, text: str) -> Value:
        """``text`` from a command line as a value of the fact ``key``.

        Raises:
            UsageError: no such fact, or not a value of its type.

        """
        kind = self.get(key)
        if kind is None:
            import difflib  # noqa: PLC0415 - only for the message

            near = difflib.get_close_matches(key, self._exact, n=3)
            raise UsageError(
                f"no fact is called `{key}`",
                hint=f"did you mean {' or '.join(f'--assume {name}=…' for name in near)}?" if near else None,
            )
        if kind.type == "bool":
            if text.lower() not in {"true", "false", "yes", "no", "1", "0"}:
                raise UsageError(f"`{key}` is true or false, not `{text}`", hint=f"--assume {key}=true")
            return text.lower() in {"true", "yes", "1"}
        if kind.values and text not in kind.values:
            raise UsageError(
                f"`{key}` is one of {', '.join(kind.values)}, not `{text}`", hint=f"--assume {key}={kind.values[0]}"
            )
        if kind.type == "int":
            if not (text.isascii() and text.isdigit()):
                raise UsageError(f"`{key}` is a whole number, not `{text}`")
            return int(text)
        if kind.type == "set":
            return frozenset(part for part in text.split(",") if part)
        if kind.type == "version" and not (kind.may_be_absent and text == ABSENT):
            try:
                Version(text)
            except InvalidVersion as error:
                raise UsageError(f"`{key}` is a version, not `{text}`") from error
        return text


@dataclass(slots=True)
class FactTable:
    """Known and unknown facts of one (target GPU, release, workload, scheme).

    ``derive`` answers keys that are computed on demand (measured images of the wheel); it is asked only for keys
    that were not set.
    """

    vocabulary: Vocabulary
    values: dict[str, Fact] = field(default_factory=dict)
    derive: Callable[[str], Fact | None] | None = None

    def get(self, key: str) -> Fact:
        """The fact; an unknown one where nothing is known."""
        found = self.values.get(key)
        if found is None and self.derive is not None:
            found = self.derive(key)
            if found is not None:
                self.values[key] = found
        return found or UNKNOWN

    def with_all(self, prefix: str, fact: Fact) -> FactTable:
        """A copy in which every key that starts with ``prefix`` has this one fact."""
        derive = self.derive

        def derived(key: str) -> Fact | None:
            if key.startswith(prefix):
                return fact
            return None if derive is None else derive(key)

        known = {key: value for key, value in self.values.items() if not key.startswith(prefix)}
        return FactTable(vocabulary=self.vocabulary, values=known, derive=derived)

    def with_values(self, values: Mapping[str, Value | None], source: str) -> FactTable:
        """A copy in which ``values`` hold (None: unknown)."""
        changed = dict(self.values)
        for key, value in values.items():
            changed[key] = Fact(value=value, source=source, why_unknown="" if value is not None else source)
        return FactTable(vocabulary=self.vocabulary, values=changed, derive=self.derive)
