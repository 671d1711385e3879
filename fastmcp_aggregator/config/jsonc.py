"""JSON with comments and trailing commas, as a tree that knows where everything stands; and edits of one location.

Theory. A file of a person's own is not ours to reformat. So it is never written from data: each edit is computed as an
insertion, replacement or removal in the text, at places that the tree gives. All text outside of these stays as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*+", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_SCALAR = re.compile(r"[-+.\w]+")
_LINE_END = re.compile(r"[ \t\r]*\n")
_EXTRA = re.compile(
    rf"{_STRING.pattern}|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<comma>,)(?={_SPACE.pattern}[\]}}])|(?P<mark>\ufeff)",
    re.DOTALL,
)
Extra = Literal["a byte order mark", "a comment", "a comma after the last item"]
"""Extensions of JSON that are read here."""
_EXTRAS: dict[str, Extra] = {
    "mark": "a byte order mark",
    "comment": "a comment",
    "comma": "a comma after the last item",
}
_DEEPEST = 200


class JsonError(ValueError):
    """The text is not JSON. The message says where, and quotes nothing."""


@dataclass(slots=True)
class Node:
    """A value from `start` to `end`. Only one of an object and a list has `members`, by key or index."""

    start: int
    end: int = 0
    scalar: Any = None
    kind: str = "scalar"
    members: list[Member] = field(default_factory=list)

    def value(self, new_object: Callable[[list[tuple[str, Any]]], dict[str, Any]] = dict) -> Any:
        """Its Python value, with objects made by `new_object` of their members."""
        if self.kind == "object":
            return new_object([(member.key, member.node.value(new_object)) for member in self.members])
        if self.kind == "list":
            return [member.node.value(new_object) for member in self.members]
        return self.scalar

    def at(self, *path: object) -> Node | None:
        """The value at a path of keys and indices."""
        node: Node | None = self
        for step in path:
            found = [member.node for member in node.members if member.key == step] if node else []
            node = found[-1] if found else None
        return node


@dataclass(slots=True)
class Member:
    """A member of an object or a list, from `start`; `comma` is where the comma after it stands, if there is one."""

    key: Any
    start: int
    node: Node
    comma: int | None = None


def parse(text: str) -> Node:
    """The tree of a text. Raises JsonError: it is no JSON, even with comments and trailing commas."""
    scanner = _Scanner(text)
    node = scanner.node(scanner.space(0), 0)
    if scanner.space(node.end) != len(text):
        raise scanner.error(scanner.space(node.end), "something follows after the end")
    return node


def extras(text: str) -> dict[Extra, int]:
    """The extensions of JSON that a text uses, each with the first line that has it, from 1."""
    first: dict[Extra, int] = {}
    for found in _EXTRA.finditer(text):
        if found.lastgroup is not None:
            first.setdefault(_EXTRAS[found.lastgroup], found.start())
    return {extra: line_of(text, position) for extra, position in first.items()}


def line_of(text: str, position: int) -> int:
    """The number of the line in which a position is, from 1."""
    return text.count("\n", 0, position) + 1


def with_member(text: str, path: Sequence[str], key: str, value: Any) -> str:
    """The text with a member in the object at `path`: replaced, or added at its end; objects on the way are made.

    Raises:
        JsonError: it is no JSON, or something on the way is no object.
    """
    if not text.strip("\ufeff \t\r\n"):
        text += "{}\n"
    root = parse(text)
    holder, rest = root, list(path)
    while rest and (found := holder.at(rest[0])) is not None:
        holder = found
        rest.pop(0)
    if holder.kind != "object":
        raise JsonError(f"`{'.'.join(path)}` is not an object")
    for step in reversed([*rest, key][1:]):
        value = {step: value}
    return _Layout(text, root).set(holder, [*rest, key][0], value)


def without_member(text: str, path: Sequence[str], key: str) -> str:
    """The text without a member of the object at `path`; the same text if there is none.

    Raises:
        JsonError: it is no JSON.
    """
    holder = parse(text).at(*path)
    members = holder.members if holder else []
    for index, member in enumerate(members):
        if member.key == key:
            return _without(text, members[index - 1] if index else None, member)
    return text


def _without(text: str, before: Member | None, member: Member) -> str:
    start, end = member.start, member.node.end if member.comma is None else member.comma + 1
    comma = before.comma if before is not None and member.comma is None else None
    line_start = text.rfind("\n", 0, start) + 1
    line_end = _LINE_END.match(text, end)
    if not text[line_start:start].strip(" \t") and line_end:
        text = text[:line_start] + text[line_end.end() :]
        return text if comma is None else text[:comma] + text[comma + 1 :]
    if comma is not None:
        return text[:comma] + text[end:]
    return text[:start] + text[end:].lstrip(" \t")


class _Layout:
    """The layout of a text, so that what is put in looks like the rest."""

    def __init__(self, text: str, root: Node) -> None:
        self._text = text
        self._end_of_line = "\r\n" if "\r\n" in text else "\n"
        self._unit = (self._own_indent(root.members[0].start) if root.members else None) or "  "

    def set(self, holder: Node, key: str, value: Any) -> str:
        node = holder.at(key)
        if node is not None:
            indent = self._line_indent(node.start)
            return self._text[: node.start] + self._written(value, indent) + self._text[node.end :]
        return self._added(holder, key, value)

    def _added(self, holder: Node, key: str, value: Any) -> str:
        outer = self._line_indent(holder.start)
        first = holder.members[0] if holder.members else None
        inner = (self._own_indent(first.start) if first else None) or outer + self._unit
        brace = holder.end - 1
        content_end = len(self._text[:brace].rstrip())
        has_comma = first is not None and holder.members[-1].comma is not None
        added = f"{self._end_of_line}{inner}{json.dumps(key, ensure_ascii=False)}: {self._written(value, inner)}"
        added += "," if has_comma else ""
        if "\n" not in self._text[content_end:brace]:
            added += self._end_of_line + outer
            brace_at = brace
        else:
            brace_at = content_end
        text = self._text[:content_end] + added + self._text[brace_at:]
        if first is not None and not has_comma:
            end = holder.members[-1].node.end
            text = f"{text[:end]},{text[end:]}"
        return text

    def _written(self, value: Any, indent: str) -> str:
        lines = json.dumps(value, indent=self._unit, ensure_ascii=False).split("\n")
        return (self._end_of_line + indent).join(lines)

    def _line_indent(self, position: int) -> str:
        line = self._text[self._text.rfind("\n", 0, position) + 1 : position]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _own_indent(self, position: int) -> str | None:
        """The indentation of what begins its line; None if it does not."""
        line = self._text[self._text.rfind("\n", 0, position) + 1 : position]
        return line if "\n" in self._text[:position] and not line.strip() else None


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text

    def space(self, position: int) -> int:
        """The end of the space and comments that begin here."""
        found = _SPACE.match(self._text, position)
        return found.end() if found else position

    def error(self, position: int, what: str) -> JsonError:
        line = line_of(self._text, position)
        column = position - self._text.rfind("\n", 0, position)
        return JsonError(f"at line {line}, column {column}: {what}")

    def node(self, position: int, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self.error(position, "it is nested too deeply")
        match self._text[position : position + 1]:
            case "{":
                return self._members(Node(position, kind="object"), "}", depth)
            case "[":
                return self._members(Node(position, kind="list"), "]", depth)
            case '"':
                return self._scalar(position, _STRING, "a string does not end")
            case _:
                return self._scalar(position, _SCALAR, "a value is missing")

    def _scalar(self, position: int, shape: re.Pattern[str], fault: str) -> Node:
        found = shape.match(self._text, position)
        if not found:
            raise self.error(position, fault)
        try:
            return Node(position, found.end(), json.loads(found[0]))
        except json.JSONDecodeError as error:
            if "escape" in error.msg:
                raise self.error(position + error.pos, "a backslash in a string is written twice: `\\\\`") from None
            raise self.error(position, "it is not a value of JSON") from None

    def _members(self, node: Node, closing: str, depth: int) -> Node:
        position = self.space(node.start + 1)
        while self._text[position : position + 1] != closing:
            if node.members and node.members[-1].comma is None:
                raise self.error(position, f"`,` or `{closing}` is missing")
            member = self._member(node, position, depth)
            node.members.append(member)
            position = self.space(member.node.end)
            if self._text[position : position + 1] == ",":
                member.comma = position
                position = self.space(position + 1)
        node.end = position + 1
        return node

    def _member(self, node: Node, position: int, depth: int) -> Member:
        if node.kind == "list":
            return Member(len(node.members), position, self.node(position, depth + 1))
        key = self._scalar(position, _STRING, "a key in double quotes is missing")
        colon = self.space(key.end)
        if self._text[colon : colon + 1] != ":":
            raise self.error(colon, "`:` is missing")
        return Member(key.scalar, position, self.node(self.space(colon + 1), depth + 1))
