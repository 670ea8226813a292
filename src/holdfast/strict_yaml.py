"""YAML without its traps: what JSON can say, written as YAML. Needs PyYAML, the extra `yaml`.

- Only null, true, false, numbers, texts, lists and mappings: `no` and `on` are texts, and so are `2026-11-15`, `12:30`
  and `010`. Tags are refused, so nothing of Python is ever made.
- A key that stands twice in a mapping is reported with its line.
- Aliases and merged mappings are fine, unless they contain themselves or unfold to more than `MOST` values.
"""

import re
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

MOST = 100_000
KIND = "tag:yaml.org,2002:"


class Loader(yaml.SafeLoader):
    """Reads a document and collects the keys that stand twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[str] = []

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    self.repeated.append(f"line {key.start_mark.line + 1}: the key `{key.value}` stands twice")
                seen.add(key.value)
        return node


Loader.yaml_implicit_resolvers = {}
for kind, pattern, first in (
    ("null", r"null|~|", ["n", "~", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(?:0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", list("-0123456789")),
    ("merge", r"<<", ["<"]),
):
    Loader.add_implicit_resolver(f"{KIND}{kind}", re.compile(f"^(?:{pattern})$"), first)
Loader.yaml_constructors = {
    kind: SafeConstructor.yaml_constructors[kind]
    for kind in (*(f"{KIND}{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")), None)
}


def parse(text: str) -> tuple[Any, list[str]]:
    """What a document says, and which keys stand twice in it. `ValueError` if it cannot be read."""
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, []
        _unfolded(node, {})
        return loader.construct_document(node), loader.repeated
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    finally:
        loader.dispose()


def _unfolded(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node is, with every alias written out; `ValueError` if that is too much."""
    if id(node) not in known:
        known[id(node)] = MOST + 1  # until it is known: who meets it again inside itself has no end
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        below = (each for part in inner for each in (part if isinstance(part, tuple) else (part,)))
        known[id(node)] = 1 + sum(_unfolded(each, known) for each in below)
    if known[id(node)] > MOST:
        raise ValueError(f"its aliases unfold to more than {MOST} values")
    return known[id(node)]
