"""What the person asked for: ``FORMAT[@SCHEME][:ROLE]``, engine, assumptions and accepted lower classes. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qresolve.classes import CLASSES
from qresolve.errors import UsageError
from qresolve.knowledge.records import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qresolve.facts import Value, Vocabulary
    from qresolve.knowledge.records import Format, FormatBook, Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One scheme in one role; ``asked`` is False for rows that are shown beside the asked ones."""

    scheme: Scheme
    role: str
    asked: bool = True

    @property
    def key(self) -> str:
        """``mxfp4@w4a4:dense``."""
        return self.scheme.key(self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """``--allow SELECTOR=CLASS``: for the schemes it matches, that class or better will do."""

    format: str
    scheme: str | None
    role: str | None
    class_: str
    text: str

    def matches(self, ask: Ask) -> bool:
        """Whether it speaks of this row."""
        return (
            ask.scheme.format == self.format
            and self.scheme in {None, ask.scheme.name}
            and self.role in {None, ask.role}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selector:
    format: Format
    scheme: str | None
    role: str | None


def _parse_selector(text: str, book: FormatBook) -> _Selector:
    head, _, role = text.strip().lower().partition(":")
    name, _, scheme = head.partition("@")
    if name in book.aliases:
        if scheme:
            raise UsageError(f"`{name}` already names a scheme ({book.aliases[name]})", hint=f"--formats {name}")
        name, _, scheme = book.aliases[name].partition("@")
    found = next((item for item in book.formats if name == item.name or name in item.aliases), None)
    if found is None:
        known = [word for item in book.formats for word in (item.name, *item.aliases)] + list(book.aliases)
        near = difflib.get_close_matches(name, known, n=3)
        raise UsageError(
            f"no format is called `{name}`; formats are {', '.join(known)}",
            hint=f"did you mean {' or '.join(f'`{word}`' for word in near)}?" if near else None,
        )
    if role and role not in ROLES:
        near = difflib.get_close_matches(role, ROLES, n=1)
        raise UsageError(
            f"`{role}` is not a role; roles are {', '.join(ROLES)}",
            hint=f"--formats {head}:{near[0] if near else 'dense'}",
        )
    schemes = sorted({item.name for item in found.schemes})
    if scheme and scheme not in schemes:
        near = difflib.get_close_matches(scheme, schemes, n=1) or schemes[:1]
        raise UsageError(
            f"{found.name} has no scheme `{scheme}`; its schemes are {', '.join(schemes)}",
            hint=f"--formats {found.name}@{near[0]}",
        )
    return _Selector(format=found, scheme=scheme or None, role=role or None)


def parse_formats(texts: Iterable[str], book: FormatBook) -> tuple[Ask, ...]:
    """The asked rows of ``--formats a,b@scheme:role``, each once, in the order of the data (not of the asking).

    Raises:
        UsageError: nothing asked, or an unknown format, scheme or role; the nearest ones are named.
    """
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("no format is asked for", hint="--formats nvfp4,mxfp4")
    asks: dict[str, Ask] = {}
    for word in words:
        selector = _parse_selector(word, book)
        ask = _ask_of(selector, word)
        asks[ask.key] = ask
    order = [scheme.key(role) for item in book.formats for scheme in item.schemes for role in scheme.roles]
    return tuple(asks[key] for key in order if key in asks)


def _ask_of(selector: _Selector, word: str) -> Ask:
    found = selector.format
    if selector.scheme is None:
        role = selector.role or ("dense" if "dense" in found.default else next(iter(found.default)))
        name = found.default.get(role)
        if name is None:
            raise UsageError(
                f"{found.name} has no scheme for {role}; it has {', '.join(found.default)}",
                hint=f"--formats {found.name}:{next(iter(found.default))}",
            )
        return Ask(scheme=next(item for item in found.schemes if item.name == name and role in item.roles), role=role)
    candidates = [item for item in found.schemes if item.name == selector.scheme]
    roles = [role for item in candidates for role in item.roles]
    role = selector.role or roles[0]
    for item in candidates:
        if role in item.roles:
            return Ask(scheme=item, role=role)
    raise UsageError(
        f"`{word}`: the scheme {selector.scheme} of {found.name} is for {', '.join(roles)}, not for {role}",
        hint=f"--formats {found.name}@{selector.scheme}:{roles[0]}",
    )


def beside(asks: Iterable[Ask], book: FormatBook) -> tuple[Ask, ...]:
    """The other roles and common schemes of the asked formats, as unasked rows in data order."""
    asked = tuple(asks)
    keys = {ask.key for ask in asked}
    formats = {ask.scheme.format for ask in asked}
    return tuple(
        Ask(scheme=scheme, role=role, asked=False)
        for item in book.formats
        if item.name in formats
        for scheme in item.schemes
        for role in scheme.roles
        if (scheme.common or item.default.get(role) == scheme.name) and scheme.key(role) not in keys
    )


def all_asks(book: FormatBook) -> tuple[Ask, ...]:
    """Every scheme of every format in every role, in data order."""
    return tuple(
        Ask(scheme=scheme, role=role) for item in book.formats for scheme in item.schemes for role in scheme.roles
    )


def parse_allow(texts: Iterable[str], book: FormatBook) -> tuple[Allowance, ...]:
    """``--allow mxfp4=mixed``: accepted lower classes.

    Raises:
        UsageError: not ``SELECTOR=CLASS``, or an unknown name in it.
    """
    found = []
    for text in sorted({part.strip() for item in texts for part in item.split(",") if part.strip()}):
        selector_text, sign, class_ = text.partition("=")
        if not sign:
            raise UsageError(f"`{text}` is not SELECTOR=CLASS", hint="--allow mxfp4=mixed")
        if class_ not in CLASSES:
            near = difflib.get_close_matches(class_, CLASSES, n=1)
            raise UsageError(
                f"`{class_}` is not a class; classes are {', '.join(CLASSES)}",
                hint=f"--allow {selector_text}={near[0] if near else 'weight-only'}",
            )
        selector = _parse_selector(selector_text, book)
        found.append(
            Allowance(format=selector.format.name, scheme=selector.scheme, role=selector.role, class_=class_, text=text)
        )
    return tuple(found)


def wanted_class(ask: Ask, allowances: Iterable[Allowance]) -> str:
    """The class that this row must reach: the scheme's own, or the lowest that was allowed."""
    allowed = [item.class_ for item in allowances if item.matches(ask)]
    return max([ask.scheme.wants, *allowed], key=CLASSES.index)


def parse_assumptions(texts: Iterable[str], vocabulary: Vocabulary) -> Mapping[str, Value]:
    """``--assume FACT=VALUE``, sorted by fact.

    Raises:
        UsageError: not ``FACT=VALUE``, an unknown fact, a value of another type, or two values for one fact.
    """
    found: dict[str, Value] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"`{text}` is not FACT=VALUE", hint="--assume build.cuda=12.8")
        parsed = vocabulary.parse_value(key.strip(), value.strip())
        if found.get(key.strip(), parsed) != parsed:
            raise UsageError(f"two values are assumed for `{key.strip()}`: {found[key.strip()]} and {parsed}")
        found[key.strip()] = parsed
    return dict(sorted(found.items()))


def parse_engine(text: str | None) -> tuple[str | None, str | None]:
    """``vllm==0.33.0`` as name and version; either may be None.

    Raises:
        UsageError: another operator than ``==``.
    """
    if text is None:
        return None, None
    name, sign, version = text.strip().partition("==")
    if not name or (not sign and any(character in name for character in "<>=~! ")) or (sign and not version):
        raise UsageError(f"`{text}` is not NAME or NAME==VERSION", hint="--engine vllm==0.33.0")
    return name.strip().lower(), version.strip() or None
