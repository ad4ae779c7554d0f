"""The values of the chart: their descriptions in values.yaml, their types in values.schema.json, and the page that lists both."""

import json
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/ringmain"
PAGE = ROOT / "docs/reference/helm.md"

HEAD = """# Values of the Helm chart

<!-- Generated from values.yaml and values.schema.json in deploy/helm/ringmain: change those, then run
     python3 tests/kube/chart.py --write -->

Values of the chart in [deploy/helm/ringmain](../../deploy/helm/ringmain/values.yaml); guide: [Helm](../how-to/kubernetes-helm.md).
"""

TOP = "General"


class Wrong(Exception):
    """A value without a description or type."""


def leaves(tree, path=()):
    """Yields path and default of each value; a map with contents is a group of values unless it is one itself."""
    for key, value in tree.items():
        if isinstance(value, dict) and value and (*path, key) != ("resources",):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def descriptions(text):
    """Returns the comment above each key of values.yaml, by path. Lists and maps in flow style have no keys of their own."""
    found, stack, comment = {}, [], []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# "):
            comment.append(stripped[2:])
            continue
        match = re.match(r"^( *)([A-Za-z]+):", line)
        if match:
            depth = len(match[1]) // 2
            stack = [*stack[:depth], match[2]]
            if comment:
                found[tuple(stack)] = " ".join(comment)
        comment = []
    return found


def schema_of(schema, path):
    """Returns the schema of a value."""
    for key in path:
        schema = schema.get("properties", {}).get(key)
        if schema is None:
            raise Wrong(f"{'.'.join(path)}: not in values.schema.json")
    return schema


def type_name(schema):
    """Returns the type of a value in words."""
    if "enum" in schema:
        return " or ".join(f"`{choice}`" for choice in schema["enum"])
    if "oneOf" in schema:
        return " or ".join(type_name(choice) for choice in schema["oneOf"])
    kind = schema["type"]
    if kind == "array":
        items = schema["items"]
        keys = list(items.get("properties", {}))
        name = "list of strings" if items["type"] == "string" else "list of objects"
        return name + (f" ({', '.join(f'`{key}`' for key in keys)})" if keys else "")
    if kind == "object":
        return "map of strings" if "additionalProperties" in schema else "object"
    if kind == "integer":
        return f"integer, {schema['minimum']} to {schema['maximum']}"
    return kind


def read():
    """Returns text, values and schema of the chart."""
    text = (CHART / "values.yaml").read_text()
    return text, yaml.safe_load(text), json.loads((CHART / "values.schema.json").read_text())


def check():
    """Checks that each value has a description and a type, and that each property of the schema is a value."""
    text, values, schema = read()
    described = descriptions(text)
    paths = [path for path, _ in leaves(values)]
    for path in paths:
        if path not in described:
            raise Wrong(f"{'.'.join(path)}: no comment above it in values.yaml")
        schema_of(schema, path)
    known = {path[:length] for path in paths for length in range(1, len(path) + 1)}

    def properties(part, path=()):
        for key, value in part.get("properties", {}).items():
            yield (*path, key)
            yield from properties(value, (*path, key))

    # Helm passes `global` to every chart.
    unknown = [path for path in properties(schema) if path not in known and path[0] != "global"]
    if unknown:
        raise Wrong(f"values.schema.json has {'.'.join(unknown[0])}, and values.yaml does not")


def page():
    """Returns the page of the reference."""
    text, values, schema = read()
    check()
    described = descriptions(text)
    groups = {}
    for path, default in leaves(values):
        group = path[0] if len(path) > 1 else TOP
        shown = "empty" if default in ("", [], {}) else f"`{json.dumps(default, ensure_ascii=False)}`"
        if isinstance(default, str) and default:
            shown = f"`{default}`"
        cells = [f"`{'.'.join(path)}`", type_name(schema_of(schema, path)), shown, described[path]]
        groups.setdefault(group, []).append("| " + " | ".join(cells) + " |")
    parts = [HEAD]
    for group, rows in groups.items():
        title = TOP if group == TOP else f"`{group}`"
        parts.append("\n".join([f"\n## {title}\n", "| value | type | default | description |", "|---|---|---|---|", *rows]) + "\n")
    return "".join(parts)
