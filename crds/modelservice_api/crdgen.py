"""Writes the CRD file from the types: `python -m modelservice_api.crdgen [--check] [FILE]`.

Owns the CRD's frame (names, versions, printer columns) and the file's format. `--check` writes nothing and exits with 1
when the file differs from the types. Needs PyYAML, which development installs and the command line have.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from modelservice_api import v1alpha1, wellknown
from modelservice_api.structural import structural_schema

DEFAULT_FILE = Path("crds") / f"{wellknown.PLURAL}.{wellknown.GROUP}.yaml"
_HEADER = "# Generated from crds/modelservice_api/v1alpha1.py by `make generate`. Do not edit.\n"


def build_crd() -> dict[str, Any]:
    """The CustomResourceDefinition of `ModelService`, as the API server takes it.

    Raises:
        NotStructuralError: A type cannot be expressed.
    """
    schema = {
        "type": "object",
        "description": "Publishes a running model server as an MCP server.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "maxLength": 253},
            "kind": {"type": "string", "maxLength": 63},
            "metadata": {"type": "object"},
            "spec": structural_schema(v1alpha1.ModelServiceSpec),
            "status": structural_schema(v1alpha1.ModelServiceStatus),
        },
    }
    columns = [
        {"name": column.name, "type": column.type, "jsonPath": column.json_path} for column in v1alpha1.PRINTER_COLUMNS
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{wellknown.PLURAL}.{wellknown.GROUP}"},
        "spec": {
            "group": wellknown.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": wellknown.KIND,
                "listKind": f"{wellknown.KIND}List",
                "plural": wellknown.PLURAL,
                "singular": wellknown.SINGULAR,
                "shortNames": [wellknown.SHORT_NAME],
            },
            "versions": [
                {
                    "name": wellknown.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


class _PlainDumper(yaml.SafeDumper):
    """Writes equal parts out each time: readers of a CRD do not expect YAML anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's signature
        """Never an alias."""
        return True


def render() -> str:
    """The CRD file's text."""
    return _HEADER + yaml.dump(build_crd(), Dumper=_PlainDumper, sort_keys=False, width=120)


def main(arguments: list[str] | None = None) -> int:
    """Writes or checks the file; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT_FILE)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file is out of date")
    options = parser.parse_args(arguments)
    text = render()
    if options.check:
        if options.file.is_file() and options.file.read_text(encoding="utf-8") == text:
            return 0
        print(f"{options.file} does not match the types; run `make generate`", file=sys.stderr)
        return 1
    options.file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
