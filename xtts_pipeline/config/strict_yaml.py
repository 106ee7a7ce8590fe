"""YAML for settings: `1e-4` is a number, and only plain data is accepted."""

import re
from typing import Any

import yaml


class StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, with YAML 1.2 floats (`1e-4` is a number), no duplicate keys and no aliases.

    Aliases could turn a file of a few hundred bytes into a tree of billions of nodes, or one without an end.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node. Raises ComposerError for an alias."""
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping. Raises ConstructorError for a duplicate key."""
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


class StrictDumper(yaml.SafeDumper):
    """The loader's counterpart: it quotes a text that the loader would read as a number."""


_YAML_1_2_FLOAT = re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$")
for _side in (StrictLoader, StrictDumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", _YAML_1_2_FLOAT, list("-+.0123456789"))
