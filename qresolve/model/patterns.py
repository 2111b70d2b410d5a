"""Matching names of modules against a checkpoint's lists: exact, wildcard, and a safe part of regular expressions.

The patterns are untrusted. A backtracking engine can be made to run for ever by them, so they are compiled to a
sequence of steps and walked over all positions at once: the time is bounded by pattern times name.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

MOST_LENGTH = 400
MOST_ALTERNATIVES = 256

_SETS = {
    "d": frozenset("0123456789"),
    "w": frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"),
}


class PatternUnknown(Exception):
    """A pattern uses what is not understood here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One character: of ``members``, or any where they are None; ``least`` times or more, once where not ``many``."""

    members: frozenset[str] | None
    least: int
    many: bool


def compile_regex(text: str) -> tuple[tuple[Step, ...], ...]:
    """The alternatives of a regular expression: literals, ``.``, sets, digits, ``(a|b)``, ``*``, ``+``, ``?``.

    It is anchored at the start, as ``re.match`` is; a ``$`` at the end of an alternative anchors that.

    Raises:
        PatternUnknown: it uses something else, or is too long.
    """
    if len(text) > MOST_LENGTH:
        raise PatternUnknown("longer than any real pattern")
    parser = _Parser(text)
    found = parser.alternatives()
    if parser.position != len(text):
        raise PatternUnknown(f"`{text[parser.position]}` at {parser.position}")
    return tuple(_end(steps) for steps in found)


_ANY_TAIL = Step(members=None, least=0, many=True)
_STOP = Step(members=frozenset(), least=1, many=False)


def _end(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    if _STOP in steps[:-1]:
        raise PatternUnknown("`$` that is not at the end")
    return steps[:-1] if steps and steps[-1] == _STOP else (*steps, _ANY_TAIL)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise PatternUnknown("it ends too early")
        self.position += 1
        return character

    def alternatives(self) -> tuple[tuple[Step, ...], ...]:
        found = list(self._sequence())
        while self._peek() == "|":
            self._take()
            found += self._sequence()
        if len(found) > MOST_ALTERNATIVES:
            raise PatternUnknown("too many alternatives")
        return tuple(found)

    def _sequence(self) -> tuple[tuple[Step, ...], ...]:
        found: tuple[tuple[Step, ...], ...] = ((),)
        while self._peek() not in {"", "|", ")"}:
            items = self._item()
            if len(found) * len(items) > MOST_ALTERNATIVES:
                raise PatternUnknown("too many alternatives")
            found = tuple(one + other for one, other in product(found, items))
        return found

    def _item(self) -> tuple[tuple[Step, ...], ...]:
        character = self._take()
        if character == "^":
            if self.position != 1:
                raise PatternUnknown("`^` that is not at the start")
            return ((),)
        if character == "$":
            return ((_STOP,),)
        if character == "(":
            return self._group()
        if character in "*+?{":
            raise PatternUnknown(f"`{character}` at {self.position - 1}")
        members: frozenset[str] | None = frozenset(character)
        if character == ".":
            members = None
        elif character == "\\":
            members = self._escape()
        elif character == "[":
            members = self._set()
        return ((self._repeated(members),),)

    def _repeated(self, members: frozenset[str] | None) -> Step:
        sign = self._peek()
        if sign in {"*", "+", "?"}:
            self._take()
            if self._peek() in {"?", "+", "*"}:
                self._take()  # lazy and possessive forms match the same names, or fewer; only lazy is met
                if self.text[self.position - 1] != "?":
                    raise PatternUnknown("a repeated repetition")
        elif sign == "{":
            raise PatternUnknown("`{`")
        return Step(members=members, least=1 if sign not in {"*", "?"} else 0, many=sign in {"*", "+"})

    def _group(self) -> tuple[tuple[Step, ...], ...]:
        if self._peek() == "?":
            if self.text[self.position : self.position + 2] != "?:":
                raise PatternUnknown("a group that looks ahead or behind")
            self.position += 2
        found = self.alternatives()
        if self._take() != ")":
            raise PatternUnknown("a group that does not end")
        if self._peek() == "?":
            self._take()
            return ((), *found)
        if self._peek() in {"*", "+", "{"}:
            raise PatternUnknown("a repeated group")
        return found

    def _escape(self) -> frozenset[str]:
        character = self._take()
        if character in _SETS:
            return _SETS[character]
        if character.isalnum():
            raise PatternUnknown(f"`\\{character}`")
        return frozenset(character)

    def _set(self) -> frozenset[str]:
        members: set[str] = set()
        if self._peek() == "^":
            raise PatternUnknown("`[^`")
        while self._peek() != "]":
            character = self._take()
            if character == "\\":
                members |= self._escape()
            elif self._peek() == "-" and self.text[self.position + 1 : self.position + 2] not in {"", "]"}:
                self._take()
                last = self._take()
                if last == "\\" or ord(last) > 127 or ord(character) > 127 or last < character:
                    raise PatternUnknown("a range")
                members |= {chr(code) for code in range(ord(character), ord(last) + 1)}
            else:
                members.add(character)
        self._take()
        return frozenset(members)


def compile_wildcard(text: str) -> tuple[Step, ...]:
    """A shell wildcard: ``*`` is any text, ``?`` any character; anchored at both ends.

    Raises:
        PatternUnknown: it has a ``[``, or is too long.
    """
    if len(text) > MOST_LENGTH or "[" in text:
        raise PatternUnknown("`[`" if "[" in text else "longer than any real pattern")
    found = []
    for character in text:
        if character == "*":
            found.append(Step(members=None, least=0, many=True))
        else:
            found.append(Step(members=None if character == "?" else frozenset(character), least=1, many=False))
    return tuple(found)


def matches(steps: tuple[Step, ...], name: str) -> bool:
    """Whether the steps cover the whole name."""
    reached = {0}
    for step in steps:
        following: set[int] = set(reached) if step.least == 0 else set()
        if step.many:
            running = False
            for position in range(len(name) + 1):
                if running:
                    following.add(position)
                running = running or position in reached
                if position < len(name) and step.members is not None and name[position] not in step.members:
                    running = False
        else:
            following |= {
                position + 1
                for position in reached
                if position < len(name) and (step.members is None or name[position] in step.members)
            }
        if not following:
            return False
        reached = following
    return len(name) in reached
