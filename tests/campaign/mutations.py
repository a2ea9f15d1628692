"""The places of a source where one operator, constant, condition or statement can be another.

C++ is mutated as schemata: every mutant is compiled in behind a number, and LLTM_MUTANT says which
of them a process runs (mutant.h), so that hundreds take one build. Python is mutated one at a time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import tree_sitter
import tree_sitter_cpp
import tree_sitter_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tree_sitter import Node

OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "//": "*",
    "%": "*",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "and": "or",
    "or": "and",
    "in": "not in",
    "not in": "in",
    "is": "is not",
    "is not": "is",
}
CONSTANTS = {"true": "false", "false": "true", "True": "False", "False": "True"}
# A compiler or a type checker reads what is below these, or nothing runs it more than once.
CONSTANT_CXX = {
    "alignas_qualifier",
    "array_declarator",
    "attribute_declaration",
    "case_statement",
    "concept_definition",
    "enumerator",
    "noexcept",
    "optional_parameter_declaration",
    "preproc_arg",
    "preproc_def",
    "preproc_function_def",
    "static_assert_declaration",
    "template_argument_list",
    "template_parameter_list",
}
CONSTANT_PYTHON = {"decorator", "type", "default_parameter", "typed_default_parameter"}


@dataclass(frozen=True)
class Mutant:
    """One change of a source.

    Attributes:
        file: relative to the repository.
        function: that the change is in.
        line: its number; `text`: the line, without the space around it.
        start, end: the bytes that change.
        old, new: they, and what they become.
        statement: whether they are a whole C++ statement, which is left out.
    """

    file: str
    function: str
    line: int
    text: str
    start: int
    end: int
    old: str
    new: str
    statement: bool = False

    @property
    def suite(self) -> str:
        """The tests that it is for."""
        return suite_of(self.file)

    @property
    def name(self) -> str:
        """For people, and for the table of survivors: lines move, their text seldom changes."""
        new = self.new or "nothing"
        return f"{self.file}: {self.function}: `{self.text}`: {_short(self.old)} -> {_short(new)}"

    def overlaps(self, other: Mutant) -> bool:
        """Whether both change the same bytes."""
        return self.file == other.file and self.start < other.end and other.start < self.end


def suite_of(name: str) -> str:
    """The tests that a source or a mutant is for: `audit`, or `op`."""
    return "audit" if name.startswith("torchproof") else "op"


def _short(code: str) -> str:
    joined = " ".join(code.split())
    return joined if len(joined) <= 60 else f"{joined[:57]}..."


@cache
def _parser(suffix: str) -> tree_sitter.Parser:
    grammar = tree_sitter_python if suffix == ".py" else tree_sitter_cpp
    return tree_sitter.Parser(tree_sitter.Language(grammar.language()))


def find(path: Path, name: str) -> list[Mutant]:
    """Every mutant of a source inside its functions."""
    source = path.read_bytes()
    root = _parser(path.suffix).parse(source).root_node
    lines = source.decode().splitlines()
    walk = _walk_python if path.suffix == ".py" else _walk_cxx
    found = []
    for function, node, new in walk(root, ""):
        line = node.start_point[0]
        found.append(
            Mutant(
                file=name,
                function=function,
                line=line + 1,
                text=lines[line].strip(),
                start=node.start_byte,
                end=node.end_byte,
                old=source[node.start_byte : node.end_byte].decode(),
                new=new,
                statement=not new and path.suffix != ".py",
            )
        )
    return found


def _text(node: Node) -> str:
    assert node.text is not None
    return node.text.decode()


def _binary(node: Node) -> str | None:
    """An expression of two operands, with the other operator."""
    left, right = node.children[0], node.children[-1]
    between = " ".join(_text(child) for child in node.children[1:-1])
    if len(node.named_children) != 2 or between not in OPERATORS:  # a chain of comparisons
        return None
    return f"{_text(left)} {OPERATORS[between]} {_text(right)}"


def _number(node: Node) -> str | None:
    """An integer, plus one."""
    digits = _text(node)
    return str(int(digits) + 1) if digits.isdecimal() else None


def _walk_cxx(node: Node, function: str) -> Iterator[tuple[str, Node, str]]:
    if node.type in CONSTANT_CXX or node.type == "ERROR" or _is_constexpr(node):
        return
    if node.type == "function_definition":
        function = _cxx_name(node) or function
    if function:
        for new in _cxx_mutants(node):
            yield function, node, new
    for child in node.children:
        yield from _walk_cxx(child, function)


def _is_constexpr(node: Node) -> bool:
    """A declaration or function that must be constant; `if constexpr` only in its condition."""
    if node.type == "condition_clause":
        parent = node.parent
        return parent is not None and any(_text(c) == "constexpr" for c in parent.children[:2])
    if node.type not in ("declaration", "field_declaration", "function_definition"):
        return False
    qualifiers = [_text(c) for c in node.children if c.type == "type_qualifier"]
    static = any(
        c.type == "storage_class_specifier" and _text(c) == "static" for c in node.children
    )
    field = node.type == "field_declaration"
    return "constexpr" in qualifiers or field or (static and "const" in qualifiers)


def _cxx_name(node: Node) -> str:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    # After a macro, the type that is returned is taken for a part of the name.
    return _text(name).split()[-1] if name is not None else ""


def _cxx_mutants(node: Node) -> Iterator[str]:
    if (node.type == "binary_expression" and (new := _binary(node))) or (
        node.type == "number_literal" and (new := _number(node))
    ):
        yield new
    elif node.type in ("true", "false"):
        yield CONSTANTS[_text(node)]
    elif node.type == "unary_expression" and _text(node)[0] in "!-":
        yield _text(node)[1:]
    elif node.type == "expression_statement" and node.named_children:
        yield ""
    elif node.type == "condition_clause" and (value := node.child_by_field_name("value")):
        yield from _negated(node, value)


def _negated(condition: Node, value: Node) -> Iterator[str]:
    """An operator's condition is mutated with the operator."""
    if value.type not in ("binary_expression", "declaration", "init_statement"):
        yield f"(!{_text(condition)})"


def _walk_python(node: Node, function: str) -> Iterator[tuple[str, Node, str]]:
    if node.type in CONSTANT_PYTHON or node.type == "ERROR" or _text(node) == "TYPE_CHECKING":
        return
    if node.type in ("function_definition", "class_definition"):
        name = node.child_by_field_name("name")
        assert name is not None
        function = f"{function}.{_text(name)}".strip(".")
        if node.type == "class_definition":  # its fields and bases are constants, too
            body = node.child_by_field_name("body")
            assert body is not None
            for child in body.children:
                if child.type in ("function_definition", "decorated_definition"):
                    yield from _walk_python(child, function)
            return
    if function:
        for new in _python_mutants(node):
            yield function, node, new
    for child in node.children:
        yield from _walk_python(child, function)


def _python_mutants(node: Node) -> Iterator[str]:
    if node.type in ("binary_operator", "comparison_operator", "boolean_operator"):
        if new := _binary(node):
            yield new
    elif node.type == "integer" and (new := _number(node)):
        yield new
    elif node.type in ("true", "false"):
        yield CONSTANTS[_text(node)]
    elif node.type == "not_operator":
        argument = node.child_by_field_name("argument")
        assert argument is not None
        yield _text(argument)
    elif node.type == "expression_statement" and node.named_children[0].type != "string":
        if node.named_children[0].type in ("call", "augmented_assignment"):
            yield "pass"
    elif node.type == "return_statement" and node.named_children and _text(node) != "return None":
        yield "return None"


def choose(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """A sample without overlaps or equal names; a change of one source moves no other's choice."""

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()

    chosen: list[Mutant] = []
    for mutant in sorted(mutants, key=rank):
        if len(chosen) == count:
            break
        # Outcomes are kept by name, and a line may have two places of one.
        if not any(mutant.overlaps(other) or mutant.name == other.name for other in chosen):
            chosen.append(mutant)
    return chosen


def schemata(source: bytes, mutants: dict[int, Mutant]) -> bytes:
    """A C++ source with mutants compiled in, each at its line."""
    for number, mutant in sorted(mutants.items(), key=lambda item: -item[1].start):
        old = source[mutant.start : mutant.end]
        if mutant.statement:
            new = b"if (!LLTM_MUTANT(%d)) { %s }" % (number, old)
        else:
            arms = (number, _one_line(mutant.new), old)
            new = b"(LLTM_MUTANT(%d) ? (%s) : (%s))" % arms
        source = source[: mutant.start] + new + source[mutant.end :]
    return source


def _one_line(code: str) -> bytes:
    """Without its line breaks and comments."""
    return b" ".join(line.split("//")[0].strip().encode() for line in code.splitlines())


def mutate(source: bytes, mutant: Mutant) -> bytes:
    """A Python source with one mutant."""
    return source[: mutant.start] + mutant.new.encode() + source[mutant.end :]
